/** The uPlot configuration: axes, scales, series and cursor. */

import type uPlot from "uplot";
import { extent, padded } from "./alignment";
import { axisText, spanText } from "./labels";
import type { DrawnLine } from "./overlays";
import { dashOf, type Palette } from "./palette";
import { TIMES } from "./ticks";
import type { LineChartProps, XKind } from "./types";

const FONT = '11px system-ui, -apple-system, "Segoe UI", sans-serif';

export type ChartConfig = Pick<LineChartProps, "xName" | "logX" | "logY" | "group" | "unit" | "fromZero"> & {
  x: XKind;
  colors: Palette;
  range: () => [number, number] | null;
  lines: () => readonly DrawnLine[];
};

export function scales(config: ChartConfig): uPlot.Scales {
  return {
    x: {
      time: config.x === "clock",
      distr: config.logX ? 3 : 1,
      range: (chart, low, high) => xRange(config, chart, low, high),
    },
    y: { distr: config.logY ? 3 : 1, range: (chart) => yRange(config, chart) },
  };
}

function xRange(config: ChartConfig, _chart: uPlot, low: number | null, high: number | null): [number, number] {
  const zoomed = config.range();
  const [from, to] = zoomed ?? [low ?? 0, high ?? 1];
  if (from < to) return [from, to];
  return config.logX && from > 0 ? [from / 2, from * 2] : [from - 0.5, from + 0.5];
}

function yRange(config: ChartConfig, chart: uPlot): [number, number] {
  const { min, max } = chart.scales.x as uPlot.Scale;
  const lines = config.lines();
  const all = [...lines, ...lines.flatMap((line) => (line.raw ? [{ x: line.x, y: line.raw }] : []))];
  const whole = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY] as const;
  const found = extent(all, min ?? whole[0], max ?? whole[1], config.logY) ?? extent(all, ...whole, config.logY);
  const [low, high] = padded(found ?? (config.logY ? [1, 10] : [0, 1]), config.logY === true);
  return config.fromZero && low > 0 && !config.logY ? [0, high] : [low, high];
}

export function axes(config: ChartConfig): uPlot.Axis[] {
  const common: uPlot.Axis = {
    stroke: config.colors.text,
    font: FONT,
    grid: { stroke: config.colors.grid, width: 1 },
    ticks: { show: false },
  };
  const xAxis: uPlot.Axis = { ...common, size: 24, gap: 4, space: 70, grid: { show: false } };
  if (config.x !== "clock") {
    xAxis.values = (_chart, splits) =>
      splits.map((value) => (value === null ? "" : config.x === "time" ? spanText(value) : axisText(value)));
  }
  if (config.x === "time" && !config.logX) xAxis.incrs = TIMES;
  if (config.x === "step" && !config.logX) xAxis.incrs = wholeSteps();
  const yAxis: uPlot.Axis = {
    ...common,
    gap: 4,
    space: config.logY ? 18 : 34,
    size: (_chart, values) => Math.max(30, 10 + 6.4 * Math.max(0, ...(values ?? []).map((text) => text?.length ?? 0))),
    values: (_chart, splits) =>
      splits.map((value) => (value === null || (config.logY && !isRound(value)) ? "" : axisText(value, config.unit))),
  };
  if (config.unit === "bytes") yAxis.incrs = Array.from({ length: 50 }, (_, power) => 2 ** power);
  return [xAxis, yAxis];
}

/** 1, 2 or 5 times a power of ten: the labelled ticks of a logarithmic axis. */
function isRound(value: number): boolean {
  const lead = value / 10 ** Math.floor(Math.log10(Math.abs(value)) + 1e-9);
  return [1, 2, 5, 10].some((round) => Math.abs(lead - round) < 1e-6);
}

/** Tick distances for steps, which are whole numbers. */
function wholeSteps(): number[] {
  const found: number[] = [];
  for (let power = 0; power < 16; power++) for (const digit of [1, 2, 5]) found.push(digit * 10 ** power);
  return found;
}

export function series(config: ChartConfig, lines: readonly DrawnLine[]): uPlot.Series[] {
  return [
    {},
    ...lines.map(
      (line): uPlot.Series => ({
        stroke: line.stroke,
        width: line.faint || line.isPartial || lines.length > 6 ? 1 : 1.5,
        alpha: line.faint ? 0.4 : 1,
        dash: dashOf(line),
        spanGaps: false,
        points: { show: (_chart, _number) => isFew(line), size: 4, width: 1, fill: config.colors.ground },
      }),
    ),
  ];
}

/** Lines with few points show them: a single point is invisible as a line. */
function isFew(line: DrawnLine): boolean {
  let known = 0;
  for (const value of line.y) {
    if (value !== null) known += 1;
    if (known > 3) return false;
  }
  return known > 0;
}

export function cursor(config: ChartConfig, onReset: () => void): uPlot.Cursor {
  return {
    sync: config.group ? { key: config.group, setSeries: false, scales: ["x", null] } : undefined,
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
