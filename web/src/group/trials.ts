/** The trials of a group as its plots show them: values, running best, slots, samples. */

import { num, number, seconds } from "../format";
import type { Dimension, Interval, Num, TrialRow } from "../types";

/** How a plot marks a trial: by its value; as not a number, failed or stopped; not at all. */
export type Look = "value" | "nan" | "failed" | "stopped" | null;

/** A trial with the value that the plots compare. `value` is null for one that has none. */
export type Point = { row: TrialRow; value: number | null; look: Look };

/** `0.31`, or for the mean of repeated runs `0.31 ± 0.02`, half of its 95 % interval. */
export function meanText(row: { value: Num | null; interval?: Interval | null }): string {
  const text = number(num(row.value));
  return row.interval ? `${text} ± ${number((row.interval[1] - row.interval[0]) / 2, 2)}` : text;
}

/** Rows by the number of the trial; `changed` replaces those it has. Returns a new list only if something differs. */
export function merged(rows: TrialRow[], changed: TrialRow[]): TrialRow[] {
  if (changed.length === 0) return rows;
  const next = [...rows];
  let differs = false;
  for (const row of changed) {
    if (JSON.stringify(next[row.trial]) === JSON.stringify(row)) continue;
    next[row.trial] = row;
    differs = true;
  }
  return differs ? next : rows;
}

/** The amounts of the resource that trials have values for, smallest first. */
export function amountsOf(rows: TrialRow[]): number[] {
  const found = new Set<number>();
  for (const row of rows) for (const one of row.values) if (one.resource !== null) found.add(one.resource);
  return [...found].sort((a, b) => a - b);
}

/** Each trial with its value at an amount of the resource; with null, its last value. */
export function pointsOf(rows: TrialRow[], amount: number | null): Point[] {
  return rows.map((row) => {
    const at = amount === null ? row.value : row.values.find((one) => one.resource === amount)?.value;
    const value = num(at ?? null);
    return { row, value, look: lookOf(row, value, amount) };
  });
}

function lookOf(row: TrialRow, value: number | null, amount: number | null): Look {
  if (value !== null) return Number.isFinite(value) ? "value" : "nan";
  if (row.state === "running" || (amount !== null && row.resource !== amount)) return null; // it has not come that far
  return row.state === "stopped" ? "stopped" : "failed";
}

export const isFinitePoint = (point: Point): point is Point & { value: number } => point.look === "value";

/** The best value so far at each point; null before the first. */
export function runningBest(points: Point[], maximize: boolean): (number | null)[] {
  let best: number | null = null;
  return points.map((point) => {
    if (isFinitePoint(point) && (best === null || (maximize ? point.value > best : point.value < best))) {
      best = point.value;
    }
    return best;
  });
}

/** From 0 for the worst to 1 for the best, by rank: outliers do not flatten the others. */
export function goodness(points: { value: number }[], maximize: boolean): number[] {
  const order = points.map((_, index) => index);
  order.sort((a, b) => (points[a]?.value ?? 0) - (points[b]?.value ?? 0));
  const found = new Array<number>(points.length).fill(0);
  const last = Math.max(1, points.length - 1);
  order.forEach((index, rank) => {
    found[index] = maximize ? rank / last : 1 - rank / last;
  });
  return found;
}

/** At most `most` of the points, evenly spread, always with the best ones; in their order. */
export function sampled<T extends { value: number }>(points: T[], maximize: boolean, most: number): T[] {
  if (points.length <= most) return points;
  const best = goodness(points, maximize);
  const limit = 1 - most / 4 / points.length;
  const isBest = points.map((_, index) => (best[index] as number) >= limit);
  const left = points.length - isBest.filter(Boolean).length;
  const every = Math.ceil(left / (most * 0.75));
  let seen = 0;
  return points.filter((_, index) => {
    if (isBest[index]) return true;
    seen += 1;
    return seen % every === 0;
  });
}

/** Whether a parameter has a logarithmic axis. */
export const isLog = (dimension: Dimension): boolean => /log|geomspace/.test(dimension.kind);

// Slots ---------------------------------------------------------------------------------------------------------------

/** One attempt in a slot, in seconds since 1970: it waited from `queued` to `started`, and ran until `finished`. */
export type Stay = {
  row: TrialRow;
  rung: number;
  queued: number;
  started: number;
  finished: number;
  isOn: boolean;
  /** The last attempt of a trial that failed. */
  isBad: boolean;
};
export type Slots = { slots: Stay[][]; first: number; last: number; running: number; waiting: number; idle: number };

/** Attempts in the slots that they took: each takes the lowest one that is free. `count`: how many there are at least. */
export function slotsOf(rows: TrialRow[], count: number, now: number): Slots | null {
  const stays: Stay[] = [];
  for (const row of rows) {
    const isBad = row.state === "failed" || row.state === "invalid";
    for (const one of row.attempts) {
      const queued = seconds(one.queued_at);
      if (queued === null) continue;
      const finished = seconds(one.finished_at) ?? now;
      const started = seconds(one.started_at) ?? finished;
      const isOn = one.finished_at === null;
      stays.push({ row, rung: one.rung, queued, started, finished, isOn, isBad: isBad && one === row.attempts.at(-1) });
    }
  }
  if (stays.length === 0) return null;
  stays.sort((a, b) => a.queued - b.queued || a.row.trial - b.row.trial);
  const slots: Stay[][] = Array.from({ length: Math.max(1, count) }, () => []);
  let [running, waiting] = [0, 0];
  for (const stay of stays) {
    const free = slots.find((slot) => (slot.at(-1)?.finished ?? 0) <= stay.queued + 1e-3);
    if (free) free.push(stay);
    else slots.push([stay]);
    running += stay.finished - stay.started;
    waiting += stay.started - stay.queued;
  }
  const first = (stays[0] as Stay).queued;
  const last = Math.max(...stays.map((stay) => stay.finished), first + 1e-3);
  const whole = (last - first) * slots.length;
  return {
    slots,
    first,
    last,
    running: running / whole,
    waiting: waiting / whole,
    idle: Math.max(0, 1 - (running + waiting) / whole),
  };
}

// The surface over two parameters -----------------------------------------------------------------------------------

const CELLS = 48;

/** The mean goodness around each cell of a grid, from 0 to 1; NaN where no trial is near. Row 0 is the bottom. */
export function surface(points: { x: number; y: number; good: number }[], widthX: number, widthY: number): number[][] {
  const sums = Array.from({ length: CELLS }, () => new Float64Array(CELLS));
  const weights = Array.from({ length: CELLS }, () => new Float64Array(CELLS));
  // Trials are first counted in cells: ten thousand of them cost as much as a hundred.
  for (const { x, y, good } of points) {
    const [column, row] = [cellOf(x), cellOf(y)];
    (sums[row] as Float64Array)[column] = ((sums[row] as Float64Array)[column] ?? 0) + good;
    (weights[row] as Float64Array)[column] = ((weights[row] as Float64Array)[column] ?? 0) + 1;
  }
  const across = (rows: Float64Array[]) => blurred(rows, widthX * CELLS);
  const up = (rows: Float64Array[]) => turned(blurred(turned(rows), widthY * CELLS));
  const [top, bottom] = [up(across(sums)), up(across(weights))];
  return top.map((row, place) =>
    Array.from(row, (sum, column) => {
      const weight = bottom[place]?.[column] ?? 0;
      return weight > 0.05 ? sum / weight : Number.NaN;
    }),
  );
}

const cellOf = (at: number): number => Math.min(CELLS - 1, Math.max(0, Math.floor(at * CELLS)));

function turned(rows: Float64Array[]): Float64Array[] {
  return Array.from({ length: CELLS }, (_, column) => Float64Array.from(rows, (row) => row[column] ?? 0));
}

function blurred(rows: Float64Array[], width: number): Float64Array[] {
  const reach = Math.ceil(width * 3);
  const kernel = Array.from({ length: reach + 1 }, (_, far) => Math.exp(-0.5 * (far / width) ** 2));
  return rows.map((row) => {
    const found = new Float64Array(CELLS);
    row.forEach((value, column) => {
      if (value === 0) return;
      for (let at = Math.max(0, column - reach); at <= Math.min(CELLS - 1, column + reach); at += 1) {
        found[at] = (found[at] ?? 0) + value * (kernel[Math.abs(at - column)] ?? 0);
      }
    });
    return found;
  });
}

// Words ---------------------------------------------------------------------------------------------------------------

/** Why a trial ended as it did. */
export function endText(row: TrialRow, topRungs: Map<number, number>): string {
  if (row.why) return row.why;
  if (row.state === "running") return row.attempts.at(-1)?.started_at ? "" : "waiting to start";
  if (typeof row.value === "string") return "value is not a number";
  const top = topRungs.get(row.bracket) ?? 0;
  if (row.state === "reported" && row.rung < top) return `ended at rung ${row.rung} of ${top}`;
  return row.state;
}

/** The highest rung of each bracket. */
export function topRungs(rows: TrialRow[]): Map<number, number> {
  const found = new Map<number, number>();
  for (const row of rows) found.set(row.bracket, Math.max(found.get(row.bracket) ?? 0, row.rung));
  return found;
}
