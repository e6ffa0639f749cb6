/** Converts a chart response to lines of a chart, and groups metrics. */

import { splitMean } from "../charts/rankMeans";
import type { Line, OddValue, XKind } from "../charts/types";
import { num } from "../format";
import type { Chart, ChartLine, Num } from "../types";

/** A metric by step, to use as the x axis; null if it was not logged. */
export type StepValues = { steps: number[]; values: number[] } | null;

/** `values` and `name` are of the metric that is the x axis. */
export type AxisOptions = { x: XKind; startedAt: number | null; values?: StepValues; name?: string };

/** The x axis in the URL: `step`, `time`, `clock`, or `metric.NAME`. `epoch` is the metric of that name. */
export function xChoice(text: string | null | undefined): { x: XKind; name: string } {
  if (text === "time" || text === "clock") return { x: text, name: "" };
  if (text === "epoch") return { x: "metric", name: "epoch" };
  return text?.startsWith("metric.") && text.length > 7
    ? { x: "metric", name: text.slice(7) }
    : { x: "step", name: "" };
}

export function stepValues(chart: Chart | undefined): StepValues {
  const line = chart?.lines[0];
  if (!line?.steps.length) return null;
  const known = line.steps
    .map((step, index) => [step, finite(line.mean[index])] as const)
    .filter(([, value]) => value !== null);
  return known.length
    ? { steps: known.map(([step]) => step), values: known.map(([, value]) => value as number) }
    : null;
}

/** The value at a step, interpolated between logged values. */
export function valueAt(known: NonNullable<StepValues>, step: number): number {
  const { steps, values } = known;
  let left = 0;
  let right = steps.length - 1;
  if (step <= (steps[0] as number)) return values[0] as number;
  if (step >= (steps[right] as number)) return values[right] as number;
  while (right - left > 1) {
    const middle = (left + right) >> 1;
    if ((steps[middle] as number) <= step) left = middle;
    else right = middle;
  }
  const [from, to] = [steps[left] as number, steps[right] as number];
  const share = (step - from) / (to - from);
  return (values[left] as number) + share * ((values[right] as number) - (values[left] as number));
}

function finite(value: Num | null | undefined): number | null {
  const found = num(value ?? null);
  return found !== null && Number.isFinite(found) ? found : null;
}

function places(line: { steps: number[]; times: number[] }, axis: AxisOptions): number[] {
  const { x, values } = axis;
  if (x === "time") return line.times.map((time) => time - (axis.startedAt ?? line.times[0] ?? 0));
  if (x === "clock") return line.times;
  if (x === "metric" && values) return line.steps.map((step) => valueAt(values, step));
  return line.steps;
}

export function linesOf(chart: Chart, axis: AxisOptions): Line[] {
  const lines = chart.lines.flatMap((line, index) => splitMean(lineOf(chart, line, index, axis)));
  for (const [index, old] of (chart.overwritten ?? []).entries()) {
    const at = chart.lines.findIndex((line) => line.replica === old.replica);
    lines.push({
      key: `overwritten ${old.replica} ${old.attempt} ${index}`,
      label: `attempt ${old.attempt}`,
      color: Math.max(0, at),
      faint: true,
      x: places(old, axis),
      y: old.last.map(finite),
    });
  }
  return lines;
}

/** The lines of several metrics in one chart: each is named by its metric, and has its own colour. */
export function panelLines(charts: readonly Chart[], axis: AxisOptions): Line[] {
  const [only] = charts;
  if (charts.length === 1 && only) return linesOf(only, axis);
  const colors = new Map<string, number>();
  return charts.flatMap((chart, number) =>
    linesOf({ ...chart, overwritten: [] }, axis).map((line) => {
      const key = `${chart.name} ${line.key.replace(/ incomplete$/, "")}`;
      if (!colors.has(key)) colors.set(key, colors.size);
      const label = chart.mode === "mean" ? chart.name : `${chart.name} · ${line.label}`;
      const named: Line = { ...line, key: `${chart.name} ${line.key}`, label, color: colors.get(key) as number };
      if (number > 0) delete named.marks;
      return named;
    }),
  );
}

function lineOf(chart: Chart, line: ChartLine, index: number, axis: AxisOptions): Line {
  const x = places(line, axis);
  const isMean = chart.mode === "mean";
  const odd = oddOf(line, x);
  const [low, high] = [line.low.map(finite), line.high.map(finite)];
  const isThin = low.every((value, at) => value === high[at]);
  return {
    key: line.replica ?? "mean",
    label: isMean ? (chart.of > 1 ? `mean of ${chart.of} ranks` : chart.name) : nameOf(line),
    color: index,
    x,
    y: line.mean.map(finite),
    ...(isThin ? {} : { low, high }),
    ...(odd.length ? { odd } : {}),
    ...(isMean && chart.of > 1 ? { of: chart.of } : {}),
    ...(line.ranks ? { ranks: line.ranks } : {}),
    ...(index === 0 ? { marks: marksOf(chart, line, axis) } : {}),
  };
}

/** Where values were NaN or infinite. The kind is known if the last value of a bucket is one. */
export function oddOf(line: Pick<ChartLine, "last" | "odd">, x: readonly number[]): OddValue[] {
  return (line.odd ?? []).flatMap((count, at) => {
    if (!count) return [];
    const last = num(line.last[at] ?? null);
    const isKnown = count === 1 && last !== null && !Number.isFinite(last);
    const kind = !isKnown ? "mixed" : Number.isNaN(last) ? "NaN" : last > 0 ? "∞" : "−∞";
    return [{ x: x[at] as number, kind, count }];
  });
}

/** `worker-3 (rank 4)`: the index and the rank differ as soon as there is a master. */
function nameOf(line: ChartLine): string {
  if (line.replica === null) return line.rank === null ? "run" : `rank ${line.rank}`;
  return line.rank === null || line.replica.endsWith(`-${line.rank}`)
    ? line.replica
    : `${line.replica} (rank ${line.rank})`;
}

/** The note beside the title: of which ranks the lines are. */
export function ranksNote(chart: Chart): { note: string; title: string } {
  if (chart.mode === "ranks") {
    const shown = chart.lines.length;
    return { note: chart.of > shown ? `${shown} of ${chart.of} ranks` : "", title: "" };
  }
  if (chart.of < 2) return { note: "", title: "" };
  const { count = 0, replicas = [] } = chart.behind ?? {};
  const names = replicas.map(({ replica, step }) => `${replica} at step ${step}`).join(", ");
  return {
    note: `mean of ${chart.of} ranks${count ? `, ${count} behind` : ""}`,
    title: count
      ? `Behind: ${names}${count > replicas.length ? ` and ${count - replicas.length} more` : ""}. Dashed: steps that lack ranks.`
      : "",
  };
}

/** Where the second and later attempts started. */
function marksOf(chart: Chart, line: ChartLine, axis: AxisOptions): number[] {
  const later = (chart.attempts ?? []).filter(({ attempt, first_step }) => attempt > 1 && first_step !== null);
  return later.map(({ first_step }) => {
    const at = line.steps.findIndex((step) => step >= first_step);
    const near = at < 0 ? line.steps.length - 1 : at;
    if (axis.x === "step") return first_step;
    return places({ steps: [first_step], times: [line.times[near] ?? 0] }, axis)[0] as number;
  });
}

/** The steps that a range of the x axis covers, to request finer buckets. */
export function stepsOf(range: [number, number], charts: readonly Chart[], axis: AxisOptions): [number, number] | null {
  if (axis.x === "step") return [Math.floor(range[0]), Math.ceil(range[1])];
  let [first, last] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const chart of charts) {
    for (const line of chart.lines) {
      const x = places(line, axis);
      x.forEach((place, at) => {
        // One more bucket on each side, so that lines reach the edge.
        const next = x[at + 1] ?? place;
        const before = x[at - 1] ?? place;
        if (next < range[0] || before > range[1]) return;
        first = Math.min(first, line.steps[at] as number);
        last = Math.max(last, line.steps[at] as number);
      });
    }
  }
  return first <= last ? [first, last] : null;
}
