/** Aligns lines with different x values to a common x axis, and computes ranges of values. */

import type { Line } from "./types";

type Values = (number | null | undefined)[];

/** A column of all x values, then one column per line. Undefined means no point, and uPlot connects across it; null means
 * an unknown value, and is a gap. */
export function align(lines: readonly Pick<Line, "x" | "y">[]): [number[], ...Values[]] {
  const first = lines[0];
  if (first && lines.every((line) => sameNumbers(line.x, first.x))) {
    return [first.x, ...lines.map((line) => line.y)];
  }
  const places = new Set<number>();
  for (const line of lines) for (const x of line.x) places.add(x);
  const all = Float64Array.from(places).sort();
  const at = new Map<number, number>();
  all.forEach((x, index) => {
    at.set(x, index);
  });
  const columns = lines.map((line) => {
    const column: Values = new Array(all.length).fill(undefined);
    line.x.forEach((x, index) => {
      column[at.get(x) as number] = line.y[index] ?? null;
    });
    return column;
  });
  return [Array.from(all), ...columns];
}

function sameNumbers(one: readonly number[], other: readonly number[]): boolean {
  return one === other || (one.length === other.length && one.every((value, index) => value === other[index]));
}

/** Points sorted by x. Of equal x the last is kept; a logarithmic axis keeps only positive x. */
export function ordered(line: Line, logX: boolean): Line {
  const { x } = line;
  let isSorted = !logX || (x[0] ?? 1) > 0;
  for (let index = 1; isSorted && index < x.length; index++) {
    isSorted = (x[index] as number) > (x[index - 1] as number);
  }
  if (isSorted) return line;
  const last = new Map<number, number>();
  x.forEach((place, index) => {
    if (Number.isFinite(place) && (!logX || place > 0)) last.set(place, index);
  });
  const places = [...last.keys()].sort((a, b) => a - b);
  const pick = <T>(values: T[] | undefined): T[] | undefined =>
    values && places.map((place) => values[last.get(place) as number] as T);
  const found: Line = { ...line, x: places, y: pick(line.y) ?? [], low: pick(line.low), high: pick(line.high) };
  return line.ranks ? { ...found, ranks: pick(line.ranks) as number[] } : found;
}

/** The smallest and largest finite value between two x values over all lines; null if there is none. */
export function extent(
  lines: readonly Pick<Line, "x" | "y" | "low" | "high">[],
  from: number,
  to: number,
  onlyPositive = false,
): [number, number] | null {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  const include = (value: number | null | undefined) => {
    if (value === null || value === undefined || !Number.isFinite(value) || (onlyPositive && value <= 0)) return;
    if (value < low) low = value;
    if (value > high) high = value;
  };
  for (const line of lines) {
    for (let index = 0; index < line.x.length; index++) {
      const x = line.x[index] as number;
      if (x < from || x > to) continue;
      include(line.y[index]);
      include(line.low?.[index]);
      include(line.high?.[index]);
    }
  }
  return low <= high ? [low, high] : null;
}

/** The range with a margin, also for a flat line. */
export function padded([low, high]: [number, number], isLog: boolean): [number, number] {
  if (isLog) {
    return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.05, high * (high / low) ** 0.05];
  }
  if (low === high) {
    const margin = Math.abs(low) * 0.1 || 1;
    return [low - margin, high + margin];
  }
  const margin = (high - low) * 0.06;
  // If no value is negative, the axis starts at zero or above.
  return [low >= 0 && low - margin < 0 ? 0 : low - margin, high + margin];
}

/** The index of the value nearest to x in ascending values; -1 if there are none. */
export function nearest(places: readonly number[], x: number): number {
  let left = 0;
  let right = places.length - 1;
  if (right < 0) return -1;
  while (left < right) {
    const middle = (left + right) >> 1;
    if ((places[middle] as number) < x) left = middle + 1;
    else right = middle;
  }
  const before = places[left - 1];
  return before !== undefined && x - before <= (places[left] as number) - x ? left - 1 : left;
}
