/** Shared by both plots: colours, default fields, positions and the width of the plot. */

import { type RefObject, useEffect, useRef, useState } from "react";
import { type Palette, seriesColor } from "../charts/palette";
import type { EffectiveTheme } from "../theme";
import { gradient } from "./colours";
import {
  DURATION,
  differingParams,
  fieldsOf,
  fieldTitle,
  fieldValue,
  isLowerBetter,
  type MeasuredRun,
  valueText,
} from "./fields";
import { type Kind, makeScale, type Scale, shortNumber } from "./scales";

export const MAX_AXES = 12;

/** All fields that an axis can show. */
export function allFields(runs: MeasuredRun[]): string[] {
  const { params, metrics } = fieldsOf(runs);
  return [...params.map((name) => `params.${name}`), ...metrics.map((name) => `metric.${name}`), DURATION];
}

/** Metrics by relevance: objectives first, evaluation before training. */
export function orderedMetrics(runs: MeasuredRun[]): string[] {
  const { metrics } = fieldsOf(runs);
  const relevance = (name: string) => {
    const isOfEvaluation = /(^|[^a-z])(val|valid|validation|eval|test|dev)([^a-z]|$)/i.test(name.replace(/_/g, " "));
    const isGoal = isLowerBetter(name) || /acc|f1|bleu|auc|score|reward/i.test(name);
    const isCount = /(^|[^a-z])(epoch|step|iteration)s?$/i.test(name);
    const having = runs.filter((run) => name in run.summary).length / runs.length;
    return having + (isGoal ? 2 : 0) + (isOfEvaluation ? 1 : 0) - (isCount ? 4 : 0);
  };
  const relevances = new Map(metrics.map((name) => [name, relevance(name)]));
  return metrics.sort((a, b) => (relevances.get(b) ?? 0) - (relevances.get(a) ?? 0));
}

/** The most relevant metric. */
export function mainMetric(runs: MeasuredRun[]): string | null {
  return orderedMetrics(runs)[0] ?? null;
}

/** Params that differ, then the main metric. */
export function defaultAxes(runs: MeasuredRun[]): string[] {
  const params = differingParams(runs).slice(0, 6);
  const metric = mainMetric(runs);
  const shown = params.length > 0 ? params : fieldsOf(runs).params.slice(0, 3);
  return [...shown.map((name) => `params.${name}`), ...(metric === null ? [DURATION] : [`metric.${metric}`])];
}

export function scaleOf(runs: MeasuredRun[], field: string, kinds: Record<string, Kind>): Scale {
  return makeScale(
    runs.map((run) => fieldValue(run, field)),
    kinds[field],
  );
}

export type RunColour = (run: MeasuredRun) => string;

/** Colours by a field: categories have series colours, numbers a gradient, and missing values are grey. */
export function colourRuns(scale: Scale | null, field: string, palette: Palette, theme: EffectiveTheme): RunColour {
  return (run) => {
    const value = fieldValue(run, field);
    const at = scale?.place(value) ?? null;
    if (scale === null || at === null) return palette.mark;
    if (scale.kind === "category") return seriesColor(palette, scale.valueAt(at));
    return gradient(at, theme);
  };
}

/** `name: lr 0.1, loss 0.5` */
export function describeRun(run: MeasuredRun, fields: string[], labels: Map<string, string>): string {
  const parts = fields.map((field) => {
    const value = fieldValue(run, field);
    return `${fieldTitle(field)} ${typeof value === "number" ? shortNumber(value) : valueText(value)}`;
  });
  return `${labels.get(run.id) ?? run.id}: ${[...new Set(parts)].join(", ")}`;
}

type Places = Map<string, number | null>;

/** The position of each run on an axis. Runs of one category are spread, so that none hides another, in the order of the
 * previous axis, so that few lines cross. */
export function placesOn(runs: MeasuredRun[], field: string, scale: Scale, before?: Places): Places {
  const places = new Map(runs.map((run) => [run.id, scale.place(fieldValue(run, field))]));
  if (scale.kind !== "category") return places;
  const together = new Map<number, string[]>();
  for (const [run, at] of places) if (at !== null) together.set(at, [...(together.get(at) ?? []), run]);
  const room = 0.5 / scale.categories.length;
  const order = (run: string) => before?.get(run) ?? 0;
  for (const [at, ids] of together) {
    ids.sort((a, b) => order(a) - order(b));
    ids.forEach((run, place) => {
      places.set(run, at + ((place + 0.5) / ids.length - 0.5) * room);
    });
  }
  return places;
}

/** The width of an element. */
export function useWidth<T extends HTMLElement>(fallback: number): [RefObject<T | null>, number] {
  const box = useRef<T>(null);
  const [width, setWidth] = useState(fallback);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const seen = new ResizeObserver(() => setWidth(element.clientWidth || fallback));
    seen.observe(element);
    setWidth(element.clientWidth || fallback);
    return () => seen.disconnect();
  }, [fallback]);
  return [box, width];
}
