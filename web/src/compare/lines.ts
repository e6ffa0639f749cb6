/** The lines of a chart: one per run, or one per group of runs. */

import { incompleteKey, type Line, splitMean } from "../charts";
import { num, runTitle } from "../format";
import { oddOf } from "../run/chartLines";
import type { ChartLine, Num } from "../types";
import { type Band, type Group, meanLine, type Series } from "./runGroups";
import type { XAxis } from "./urlState";

export type RunLine = { run: string } & Pick<ChartLine, "steps" | "times" | "mean" | "odd" | "ranks" | "of"> &
  Partial<Pick<ChartLine, "low" | "high" | "last">>;

/** An entry of the legend: a run or a group of runs. */
export interface Entry {
  key: string;
  label: string;
  color: number;
  runs: string[];
  isOn: boolean;
}

export const MAX_BANDS = 6; // with more lines, bands hide one another

function numbers(values: (Num | null)[] | undefined): (number | null)[] {
  return (values ?? []).map((value) => {
    const found = num(value);
    return found !== null && Number.isFinite(found) ? found : null;
  });
}

/** The x values of a line: steps, seconds since the start, or a metric. Null if the run did not log that metric. */
export function places(line: RunLine, x: XAxis, started: number | null, epochs?: RunLine): number[] | null {
  if (x === "step") return line.steps;
  if (x === "time") {
    const start = started ?? line.times[0] ?? 0;
    return line.times.map((time) => time - start);
  }
  if (epochs === undefined || epochs.steps.length === 0) return null;
  const known = numbers(epochs.mean);
  let at = 0;
  return line.steps.map((step) => {
    while (at + 1 < epochs.steps.length && (epochs.steps[at + 1] as number) <= step) at++;
    const [left, right] = [epochs.steps[at] as number, epochs.steps[at + 1]];
    const [from, to] = [known[at] ?? 0, known[at + 1]];
    if (right === undefined || to === undefined || to === null || step <= left) return from;
    return from + ((to - from) * (step - left)) / (right - left);
  });
}

export interface DrawOptions {
  x: XAxis;
  band: Band;
  started: Map<string, number>;
  epochs: Map<string, RunLine>;
  highlighted: string | null;
}

/** The lines of one metric for the visible entries. */
export function chartLines(found: RunLine[], entries: Entry[], options: DrawOptions): Line[] {
  const series = new Map<string, Series>();
  for (const line of found) {
    const x = places(line, options.x, options.started.get(line.run) ?? null, options.epochs.get(line.run));
    if (x === null) continue;
    series.set(line.run, {
      run: line.run,
      x,
      y: numbers(line.mean),
      low: numbers(line.low ?? line.mean),
      high: numbers(line.high ?? line.mean),
      of: line.of,
      ranks: line.ranks,
      odd: oddOf({ odd: line.odd, last: line.last ?? [] }, x),
    });
  }
  const shown = entries.filter((entry) => entry.isOn && entry.runs.some((run) => series.has(run)));
  const lines = shown.flatMap((entry) => entryLines(entry, series, options, shown.length <= MAX_BANDS));
  const { highlighted } = options;
  if (highlighted === null || !shown.some((entry) => entry.key === highlighted)) return lines;
  // The highlighted line is drawn last, above all others.
  const isHighlighted = (line: Line) => line.key === highlighted || line.key === incompleteKey(highlighted);
  return lines
    .map((line) => ({ ...line, faint: !isHighlighted(line) }))
    .sort((a, b) => Number(isHighlighted(a)) - Number(isHighlighted(b)));
}

function entryLines(entry: Entry, series: Map<string, Series>, options: DrawOptions, withBand: boolean): Line[] {
  const { key, label, color } = entry;
  const members = entry.runs.flatMap((run) => series.get(run) ?? []);
  const [only] = members;
  if (members.length === 1 && only !== undefined) {
    const { x, y, low, high, of, ranks, odd } = only;
    const line: Line = { key, label, color, x, y, ...(withBand ? { low, high } : {}) };
    if (odd?.length) line.odd = odd;
    if (of !== undefined && of > 1) line.of = of;
    return splitMean(ranks ? { ...line, ranks } : line);
  }
  // A group is the mean of its runs, so a run counts only where all of its ranks do.
  const mean = meanLine(members.map(wholePart), options.band);
  const odd = members.flatMap((member) => member.odd ?? []).sort((one, other) => one.x - other.x);
  const named = `${label} (${members.length})`;
  return [
    { key, label: named, color, x: mean.x, y: mean.y, low: mean.low, high: mean.high, ...(odd.length ? { odd } : {}) },
  ];
}

function wholePart(series: Series): Series {
  const { ranks, of = 0 } = series;
  if (!ranks?.some((count) => count >= of)) return series;
  return { ...series, y: series.y.map((value, at) => ((ranks[at] as number) >= of ? value : null)) };
}

/** The entries of the legend: groups, or runs without grouping. Hiding entries does not change colours. */
export function entriesOf(
  runs: { id: string; name: string | null }[],
  groups: Group[] | null,
  off: string[],
  isInside: (run: string) => boolean,
): Entry[] {
  if (groups === null) {
    const named = labels(runs);
    return runs.map((run, color) => ({
      key: run.id,
      label: named.get(run.id) as string,
      color,
      runs: [run.id],
      isOn: !off.includes(run.id) && isInside(run.id),
    }));
  }
  return groups.map((group, color) => {
    const inside = group.runs.filter(isInside);
    const isOn = !off.includes(group.key) && inside.length > 0;
    return { key: group.key, label: group.label, color, runs: inside, isOn };
  });
}

/** Names of runs; the start of the id is added to ambiguous ones. */
export function labels(runs: { id: string; name: string | null }[]): Map<string, string> {
  const counts = new Map<string, number>();
  for (const run of runs) if (run.name) counts.set(run.name, (counts.get(run.name) ?? 0) + 1);
  return new Map(
    runs.map((run) => {
      if (!run.name) return [run.id, run.id];
      return [run.id, runTitle(run) + ((counts.get(run.name) ?? 0) > 1 ? ` ${run.id.slice(0, 6)}` : "")];
    }),
  );
}
