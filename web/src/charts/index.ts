export { LazyMount } from "./LazyMount";
export { LineChart } from "./LineChart";
export { valueText, xText } from "./labels";
export { seriesColor, usePalette } from "./palette";
export { incompleteKey, oddText, splitMean } from "./rankMeans";
export { RequestBatch } from "./requestBatch";
export { Swatch } from "./Swatch";
export { smooth } from "./smoothing";
export type { Line, LineChartProps, OddValue, XKind } from "./types";
