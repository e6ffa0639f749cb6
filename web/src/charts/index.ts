export { Batch } from "./batching";
export { LineChart } from "./LineChart";
export { valueText, xText } from "./naming";
export { seriesColor, usePalette } from "./palette";
export { smooth } from "./smoothing";
export type { Line, LineChartProps, XKind } from "./types";
export { WhenSeen } from "./WhenSeen";
