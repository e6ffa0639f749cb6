/** The props and lines of a chart. */

/** `time` is relative to the start, `clock` is absolute; `metric` is any metric. */
export type XKind = "step" | "time" | "clock" | "metric";

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
  /** Where values were NaN or infinite. */
  odd?: OddValue[];
  /** A line that lacks ranks; it belongs to the line before it, and has no entry in the legend. */
  isPartial?: boolean;
  /** Of a mean: over how many ranks; and of how many each value is, if not of all. */
  of?: number;
  ranks?: number[];
};

/** Values that cannot be drawn. `mixed`: some of a bucket, of which kind is not known. */
export type OddValue = { x: number; kind: "NaN" | "∞" | "−∞" | "mixed"; count: number };

export type LineChartProps = {
  title: string;
  lines: Line[];
  x?: XKind;
  /** The metric that is the x axis. */
  xName?: string;
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
  /** The title of the note. */
  noteTitle?: string;
  /** The unit of the values; plain numbers by default. */
  unit?: "bytes" | "percent";
  /** Start the y axis at zero. */
  fromZero?: boolean;
  /** Offer downloads. `csv` is asked for the text of the file. */
  exports?: { name: string; csv: () => Promise<string> };
};
