/** How uPlot is told to draw: axes, scales, cursor, zoom. */

import type uPlot from "uplot";
import { extent, padded } from "./alignment";
import { axisText, spanText } from "./labels";
import type { DrawnLine } from "./overlays";
import { isDashed, type Palette } from "./palette";
import type { LineChartProps, XKind } from "./types";

const FONT = '11px system-ui, -apple-system, "Segoe UI", sans-serif';

export type ChartConfig = Pick<LineChartProps, "logX" | "logY" | "group" | "unit" | "fromZero"> & {
  x: XKind;
  colors: Palette;
  range: () => [number, number] | null;
  lines: () => readonly DrawnLine[];
};

export function scales(look: ChartConfig): uPlot.Scales {
  return {
    x: {
      time: look.x === "clock",
      distr: look.logX ? 3 : 1,
      range: (chart, low, high) => xRange(look, chart, low, high),
    },
    y: { distr: look.logY ? 3 : 1, range: (chart) => yRange(look, chart) },
  };
}

function xRange(look: ChartConfig, _chart: uPlot, low: number | null, high: number | null): [number, number] {
  const wanted = look.range();
  const [from, to] = wanted ?? [low ?? 0, high ?? 1];
  if (from < to) return [from, to];
  return look.logX && from > 0 ? [from / 2, from * 2] : [from - 0.5, from + 0.5];
}

function yRange(look: ChartConfig, chart: uPlot): [number, number] {
  const { min, max } = chart.scales.x as uPlot.Scale;
  const lines = look.lines();
  const all = [...lines, ...lines.flatMap((line) => (line.raw ? [{ x: line.x, y: line.raw }] : []))];
  const whole = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY] as const;
  const found = extent(all, min ?? whole[0], max ?? whole[1], look.logY) ?? extent(all, ...whole, look.logY);
  const [low, high] = padded(found ?? (look.logY ? [1, 10] : [0, 1]), look.logY === true);
  return look.fromZero && low > 0 && !look.logY ? [0, high] : [low, high];
}

export function axes(look: ChartConfig): uPlot.Axis[] {
  const common: uPlot.Axis = {
    stroke: look.colors.text,
    font: FONT,
    grid: { stroke: look.colors.grid, width: 1 },
    ticks: { show: false },
  };
  const xAxis: uPlot.Axis = { ...common, size: 24, gap: 4, space: 70, grid: { show: false } };
  if (look.x !== "clock") {
    xAxis.values = (_chart, splits) =>
      splits.map((value) => (value === null ? "" : look.x === "time" ? spanText(value) : axisText(value)));
  }
  if (look.x === "time" && !look.logX) xAxis.incrs = TIMES;
  if (look.x === "step" && !look.logX) xAxis.incrs = wholeSteps();
  const yAxis: uPlot.Axis = {
    ...common,
    gap: 4,
    space: look.logY ? 18 : 34,
    size: (_chart, values) => Math.max(30, 10 + 6.4 * Math.max(0, ...(values ?? []).map((text) => text?.length ?? 0))),
    values: (_chart, splits) =>
      splits.map((value) => (value === null || (look.logY && !isRound(value)) ? "" : axisText(value, look.unit))),
  };
  if (look.unit === "bytes") yAxis.incrs = Array.from({ length: 50 }, (_, power) => 2 ** power);
  return [xAxis, yAxis];
}

/** 1, 2 or 5 with zeros: what is written beside a logarithmic axis. */
function isRound(value: number): boolean {
  const lead = value / 10 ** Math.floor(Math.log10(Math.abs(value)) + 1e-9);
  return [1, 2, 5, 10].some((round) => Math.abs(lead - round) < 1e-6);
}

/** Spans of time that people count in: seconds, minutes, hours, days. */
const TIMES = [
  ...[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * 60),
  ...[1, 2, 3, 6, 12].map((hours) => hours * 3600),
  ...[1, 2, 5, 10, 20, 50, 100].map((days) => days * 86_400),
];

/** Steps are whole: their axis has no mark at 2.5. */
function wholeSteps(): number[] {
  const found: number[] = [];
  for (let power = 0; power < 16; power++) for (const digit of [1, 2, 5]) found.push(digit * 10 ** power);
  return found;
}

export function series(look: ChartConfig, lines: readonly DrawnLine[]): uPlot.Series[] {
  return [
    {},
    ...lines.map(
      (line): uPlot.Series => ({
        stroke: line.stroke,
        width: line.faint || lines.length > 6 ? 1 : 1.5,
        alpha: line.faint ? 0.4 : 1,
        dash: line.dash || isDashed(line.color) ? [6, 4] : undefined,
        spanGaps: false,
        points: { show: (_chart, _number) => isFew(line), size: 4, width: 1, fill: look.colors.ground },
      }),
    ),
  ];
}

/** A single point would be invisible as a line. */
function isFew(line: DrawnLine): boolean {
  let known = 0;
  for (const value of line.y) {
    if (value !== null) known += 1;
    if (known > 3) return false;
  }
  return known > 0;
}

export function cursor(look: ChartConfig, onReset: () => void): uPlot.Cursor {
  return {
    sync: look.group ? { key: look.group, setSeries: false, scales: ["x", null] } : undefined,
    drag: { x: true, y: false, setScale: false, dist: 4 },
    focus: { prox: 24 },
    points: { size: 6, width: 1.5 },
    x: true,
    y: false,
    bind: {
      dblclick: () => () => {
        onReset();
        return null;
      },
    },
  };
}
