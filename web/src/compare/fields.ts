/** The fields of a run: a param, the last value of a metric, or the duration. */

import { num } from "../format";
import type { Json } from "../types";

export { isLowerBetter } from "../metricDirection";

export type Value = unknown;

export interface MeasuredRun {
  id: string;
  params: Record<string, unknown>;
  summary: Record<string, unknown>;
  started_at: string | null;
  finished_at: string | null;
}

export const DURATION = "took";

/** The value of `params.lr`, `metric.loss` or `took`; undefined if the run has none. */
export function fieldValue(run: MeasuredRun, field: string): Value {
  if (field === DURATION) return durationOf(run);
  if (field.startsWith("params.")) return run.params[field.slice(7)] ?? undefined;
  if (field.startsWith("metric.")) {
    const found = run.summary[field.slice(7)];
    return found === undefined || found === null ? undefined : (num(found as Json) ?? found);
  }
  return undefined;
}

function durationOf(run: MeasuredRun): number | undefined {
  if (run.started_at === null || run.finished_at === null) return undefined;
  return (Date.parse(run.finished_at) - Date.parse(run.started_at)) / 1000;
}

export function fieldTitle(field: string): string {
  if (field === DURATION) return "duration (s)";
  return field.replace(/^(params|metric)\./, "");
}

/** A text that is equal for equal values, including lists. */
export function valueText(value: Value): string {
  if (value === undefined || value === null) return "–";
  if (typeof value === "string") return value;
  if (typeof value === "number") return String(value);
  return JSON.stringify(value);
}

export interface Fields {
  params: string[];
  metrics: string[];
}

/** The params and metrics of these runs by name; params that differ come first. */
export function fieldsOf(runs: MeasuredRun[]): Fields {
  const params = new Map<string, Set<string>>();
  const metrics = new Set<string>();
  for (const run of runs) {
    for (const name of Object.keys(run.params)) params.set(name, new Set());
    for (const name of Object.keys(run.summary)) metrics.add(name);
  }
  for (const [name, texts] of params) for (const run of runs) texts.add(valueText(run.params[name]));
  const differs = (name: string) => ((params.get(name)?.size ?? 0) > 1 ? 0 : 1);
  return {
    params: [...params.keys()].sort((a, b) => differs(a) - differs(b) || a.localeCompare(b)),
    metrics: [...metrics].sort((a, b) => a.localeCompare(b)),
  };
}

/** The params with more than one value among these runs. */
export function differingParams(runs: MeasuredRun[]): string[] {
  return fieldsOf(runs).params.filter((name) => new Set(runs.map((run) => valueText(run.params[name]))).size > 1);
}
