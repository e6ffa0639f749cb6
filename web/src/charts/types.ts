/** What a chart draws, and how its x axis is read. */

export type XKind = "step" | "time" | "clock" | "epoch";

export type Line = {
  key: string;
  label: string;
  /** Which colour of the palette; it goes round. */
  color: number;
  dash?: boolean;
  faint?: boolean;
  x: number[];
  y: (number | null)[];
  /** The smallest and largest value behind each point: drawn as a thin envelope, so that no spike is lost. */
  low?: (number | null)[];
  high?: (number | null)[];
  /** Where an attempt began. */
  marks?: number[];
  /** Where a value was not a finite number. */
  odd?: number[];
};

export type LineChartProps = {
  title: string;
  lines: Line[];
  x?: XKind;
  logX?: boolean;
  logY?: boolean;
  /** 0: as it is; up to 0.99. */
  smoothing?: number;
  /** Charts of one group share a cursor. */
  group?: string;
  /** The range that is shown; without one, all. */
  range?: [number, number] | null;
  onZoom?: (range: [number, number] | null) => void;
  height?: number;
  /** Beside the title: such as `16 of 512 ranks`. */
  note?: string;
  /** What the values are, for axes: a plain number without one. */
  unit?: "bytes" | "percent";
  /** The y axis begins at zero. */
  fromZero?: boolean;
};
