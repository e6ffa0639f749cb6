/** The props and lines of a chart. */

export type XKind = "step" | "time" | "clock" | "epoch";

export type Line = {
  key: string;
  label: string;
  /** The index in the palette, which repeats. */
  color: number;
  dash?: boolean;
  faint?: boolean;
  x: number[];
  y: (number | null)[];
  /** The smallest and largest value of each bucket, drawn as an envelope so that no spike is lost. */
  low?: (number | null)[];
  high?: (number | null)[];
  /** X values where an attempt started. */
  marks?: number[];
  /** X values where the value was NaN or infinite. */
  nonFinite?: number[];
};

export type LineChartProps = {
  title: string;
  lines: Line[];
  x?: XKind;
  logX?: boolean;
  logY?: boolean;
  /** From 0 (none) to 0.99. */
  smoothing?: number;
  /** Charts of one group share a cursor. */
  group?: string;
  /** The visible range; all by default. */
  range?: [number, number] | null;
  onZoom?: (range: [number, number] | null) => void;
  height?: number;
  /** Text beside the title, such as `16 of 512 ranks`. */
  note?: string;
  /** The unit of the values; plain numbers by default. */
  unit?: "bytes" | "percent";
  /** Start the y axis at zero. */
  fromZero?: boolean;
};
