/** Lines with places of their own, put on one x axis, and the range of values that they span. */

import type { Line } from "./types";

type Values = (number | null | undefined)[];

/** One column of all places, then one column per line. Where a line has no point stands undefined, which is drawn over;
 * where its value is unknown stands null, which is a gap. */
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

/** Points in the order of x, the last of those with equal x, and only such as a logarithmic axis can hold. */
export function ordered(line: Line, logX: boolean): Line {
  const { x } = line;
  let isGood = !logX || (x[0] ?? 1) > 0;
  for (let index = 1; isGood && index < x.length; index++) {
    isGood = (x[index] as number) > (x[index - 1] as number);
  }
  if (isGood) return line;
  const last = new Map<number, number>();
  x.forEach((place, index) => {
    if (Number.isFinite(place) && (!logX || place > 0)) last.set(place, index);
  });
  const places = [...last.keys()].sort((a, b) => a - b);
  const pick = <T>(values: T[] | undefined): T[] | undefined =>
    values && places.map((place) => values[last.get(place) as number] as T);
  return { ...line, x: places, y: pick(line.y) ?? [], low: pick(line.low), high: pick(line.high) };
}

/** The smallest and largest finite value between two places, of all columns; null when there is none. */
export function extent(
  lines: readonly Pick<Line, "x" | "y" | "low" | "high">[],
  from: number,
  to: number,
  onlyPositive = false,
): [number, number] | null {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  const see = (value: number | null | undefined) => {
    if (value === null || value === undefined || !Number.isFinite(value) || (onlyPositive && value <= 0)) return;
    if (value < low) low = value;
    if (value > high) high = value;
  };
  for (const line of lines) {
    for (let index = 0; index < line.x.length; index++) {
      const x = line.x[index] as number;
      if (x < from || x > to) continue;
      see(line.y[index]);
      see(line.low?.[index]);
      see(line.high?.[index]);
    }
  }
  return low <= high ? [low, high] : null;
}

/** The range with some air; a flat line gets a range, too. */
export function padded([low, high]: [number, number], isLog: boolean): [number, number] {
  if (isLog) {
    return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.05, high * (high / low) ** 0.05];
  }
  if (low === high) {
    const air = Math.abs(low) * 0.1 || 1;
    return [low - air, high + air];
  }
  const air = (high - low) * 0.06;
  // A line that never is below zero does not need an axis that is.
  return [low >= 0 && low - air < 0 ? 0 : low - air, high + air];
}

/** The place nearest to x in ascending places; -1 when there is none. */
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
