export { LazyMount } from "./LazyMount";
export { LineChart } from "./LineChart";
export { valueText, xText } from "./labels";
export { seriesColor, usePalette } from "./palette";
export { RequestBatch } from "./requestBatch";
export { smooth } from "./smoothing";
export type { Line, LineChartProps, XKind } from "./types";
