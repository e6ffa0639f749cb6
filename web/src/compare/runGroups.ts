/** Groups runs with equal values of selected params: the mean of each group with a band around it. */

import type { OddValue } from "../charts";
import { type MeasuredRun, valueText } from "./fields";

export interface Series {
  run: string;
  x: number[];
  y: (number | null)[];
  low?: (number | null)[];
  high?: (number | null)[];
  of?: number | undefined;
  ranks?: number[] | undefined;
  odd?: OddValue[];
}

export interface Group {
  key: string;
  label: string;
  runs: string[];
}

export type Band = "range" | "deviation";

export interface GroupLine {
  x: number[];
  y: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
  count: number[];
}

export const MAX_STEPS = 500;

/** Groups in order of their first runs. */
export function groupRuns(runs: MeasuredRun[], params: string[]): Group[] {
  const groups = new Map<string, Group>();
  for (const run of runs) {
    const texts = params.map((name) => valueText(run.params[name]));
    const key = JSON.stringify(texts);
    const label = params.map((name, place) => `${name} ${texts[place]}`).join(", ");
    const group = groups.get(key) ?? { key, label, runs: [] };
    group.runs.push(run.id);
    groups.set(key, group);
  }
  return [...groups.values()];
}

/** All steps of all lines in order, evenly thinned if there are too many. */
export function sharedSteps(lines: Series[], max = MAX_STEPS): number[] {
  const all = new Set<number>();
  for (const line of lines) for (const x of line.x) all.add(x);
  const sorted = [...all].sort((a, b) => a - b);
  if (sorted.length <= max) return sorted;
  const thinned: number[] = [];
  for (let place = 0; place < max; place++) {
    thinned.push(sorted[Math.round((place * (sorted.length - 1)) / (max - 1))] as number);
  }
  return thinned;
}

/** The line's value at each step, interpolated between finite points; null outside its range. */
export function valuesAt(line: Series, steps: number[]): (number | null)[] {
  const xs: number[] = [];
  const ys: number[] = [];
  line.y.forEach((y, place) => {
    if (y !== null && Number.isFinite(y)) {
      xs.push(line.x[place] as number);
      ys.push(y);
    }
  });
  let next = 0;
  return steps.map((step) => {
    while (next < xs.length && (xs[next] as number) < step) next++;
    if (next >= xs.length) return null;
    const right = xs[next] as number;
    if (right === step) return ys[next] as number;
    if (next === 0) return null;
    const left = xs[next - 1] as number;
    const share = (step - left) / (right - left);
    return (ys[next - 1] as number) * (1 - share) + (ys[next] as number) * share;
  });
}

/** The mean of the lines over their shared steps; null where no line has a value. */
export function meanLine(lines: Series[], band: Band): GroupLine {
  const x = sharedSteps(lines);
  const columns = lines.map((line) => valuesAt(line, x));
  const result: GroupLine = { x, y: [], low: [], high: [], count: [] };
  x.forEach((_, place) => {
    const values = columns.map((column) => column[place]).filter((value): value is number => typeof value === "number");
    result.count.push(values.length);
    if (values.length === 0) {
      result.y.push(null);
      result.low.push(null);
      result.high.push(null);
      return;
    }
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const [low, high] = band === "range" ? [Math.min(...values), Math.max(...values)] : deviationBand(mean, values);
    result.y.push(mean);
    result.low.push(low);
    result.high.push(high);
  });
  return result;
}

function deviationBand(mean: number, values: number[]): [number, number] {
  if (values.length < 2) return [mean, mean];
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  const deviation = Math.sqrt(squares / (values.length - 1));
  return [mean - deviation, mean + deviation];
}
