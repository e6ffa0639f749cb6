/** A mean over ranks: complete steps are its line, steps that lack ranks are a thin dashed line beside it. */

import type { Line, OddValue } from "./types";

/** An inner stretch without complete steps is a gap if it is this many times as long as the usual distance of them. */
const GAP = 4;

/** Splits a mean: the complete values, and those that lack ranks. */
export function splitMean(line: Line): Line[] {
  const { x, y, low, high, ranks, of = 0, ...rest } = line;
  if (!ranks) return [line];
  const isWhole = ranks.map((count) => count >= of);
  if (!isWhole.includes(true)) return [{ ...line, dash: true }];
  const kept: number[] = [];
  const partial: { x: number[]; y: (number | null)[]; ranks: number[] } = { x: [], y: [], ranks: [] };
  const isLong = longGaps(x, isWhole);
  const add = (at: number, value: number | null | undefined) => {
    partial.x.push(x[at] as number);
    partial.y.push(value ?? null);
    partial.ranks.push(ranks[at] as number);
  };
  const gaps = new Map<number, number>(); // the positions of gaps of the complete line, with the x of the gap
  for (let at = 0; at < x.length; ) {
    let end = at;
    while (end < x.length && !isWhole[end]) end += 1;
    if (end === at) {
      kept.push(at++);
      continue;
    }
    const isInner = at > 0 && end < x.length;
    if (!isInner || isLong(at, end)) {
      if (at > 0) add(at - 1, y[at - 1]);
      for (let place = at; place < end; place++) add(place, y[place]);
      if (end < x.length) add(end, y[end]);
      if (isInner) {
        gaps.set(kept.length, ((x[at - 1] as number) + (x[end] as number)) / 2);
        partial.x.push(x[end] as number); // a break before the next stretch
        partial.y.push(null);
        partial.ranks.push(of);
      }
    }
    at = end;
  }
  const pick = <T>(values: T[], gap: (x: number) => T): T[] =>
    kept.flatMap((at, place) => {
      const here = gaps.get(place);
      return here === undefined ? [values[at] as T] : [gap(here), values[at] as T];
    });
  const main: Line = {
    ...rest,
    of,
    x: pick(x, (here) => here),
    y: pick<number | null>(y, () => null),
    ...(low && high ? { low: pick<number | null>(low, () => null), high: pick<number | null>(high, () => null) } : {}),
  };
  if (!partial.x.length) return [main];
  const { key, label, color } = line;
  return [main, { key: incompleteKey(key), label, color, of, ...partial, dash: true, isPartial: true }];
}

/** The key of the line that lacks ranks. */
export const incompleteKey = (key: string): string => `${key} incomplete`;

/** Whether a stretch of incomplete steps is much longer than the usual distance between complete ones. */
function longGaps(x: number[], isWhole: boolean[]): (first: number, end: number) => boolean {
  const places = x.filter((_, at) => isWhole[at]);
  const apart = places
    .slice(1)
    .map((place, at) => place - (places[at] as number))
    .sort((one, other) => one - other);
  const usual = apart[apart.length >> 1] ?? 0;
  return (first, end) => (x[end] as number) - (x[first - 1] as number) > GAP * usual;
}

export function rankCount(ranks: number, of: number): string {
  if (of <= 1) return "";
  return ranks >= of ? `mean of ${of} ranks` : `mean of ${ranks} of ${of} ranks`;
}

/** The text of values that are not finite. */
export function oddText({ kind, count }: Pick<OddValue, "kind" | "count">): string {
  if (kind === "mixed") return count === 1 ? "1 NaN or infinite" : `${count} NaN or infinite`;
  return count === 1 ? kind : `${count} × ${kind}`;
}
