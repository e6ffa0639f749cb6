/** What both plots over fields share: how values are coloured, what is usually shown, and how wide the place is. */

import { type RefObject, useEffect, useRef, useState } from "react";
import { type Palette, seriesColor } from "../charts/palette";
import { ramp, type Shade } from "./colours";
import { differingParams, fieldsOf, fieldValue, isLowerBetter, type MeasuredRun, TOOK } from "./fields";
import { type Kind, makeScale, type Scale } from "./scales";

export const MAX_AXES = 12;

/** Everything that an axis can be of. */
export function allFields(runs: MeasuredRun[]): string[] {
  const { params, metrics } = fieldsOf(runs);
  return [...params.map((name) => `params.${name}`), ...metrics.map((name) => `metric.${name}`), TOOK];
}

/** Metrics in the order in which people look for them: goals before the rest, of evaluation before training. */
export function orderedMetrics(runs: MeasuredRun[]): string[] {
  const { metrics } = fieldsOf(runs);
  const worth = (name: string) => {
    const isOfEvaluation = /(^|[^a-z])(val|valid|validation|eval|test|dev)([^a-z]|$)/i.test(name.replace(/_/g, " "));
    const isGoal = isLowerBetter(name) || /acc|f1|bleu|auc|score|reward/i.test(name);
    const isCount = /(^|[^a-z])(epoch|step|iteration)s?$/i.test(name);
    const having = runs.filter((run) => name in run.summary).length / runs.length;
    return having + (isGoal ? 2 : 0) + (isOfEvaluation ? 1 : 0) - (isCount ? 4 : 0);
  };
  const worths = new Map(metrics.map((name) => [name, worth(name)]));
  return metrics.sort((a, b) => (worths.get(b) ?? 0) - (worths.get(a) ?? 0));
}

/** The metric that people most likely look for. */
export function mainMetric(runs: MeasuredRun[]): string | null {
  return orderedMetrics(runs)[0] ?? null;
}

/** The axes that show most: params that differ, then the main metric. */
export function defaultAxes(runs: MeasuredRun[]): string[] {
  const params = differingParams(runs).slice(0, 6);
  const metric = mainMetric(runs);
  const shown = params.length > 0 ? params : fieldsOf(runs).params.slice(0, 3);
  return [...shown.map((name) => `params.${name}`), ...(metric === null ? [TOOK] : [`metric.${metric}`])];
}

export function scaleOf(runs: MeasuredRun[], field: string, kinds: Record<string, Kind>): Scale {
  return makeScale(
    runs.map((run) => fieldValue(run, field)),
    kinds[field],
  );
}

export type Colouring = (run: MeasuredRun) => string;

/** By a field: categories have the colours of lines, numbers go from dark to bright. Without a place: a soft grey. */
export function colouring(scale: Scale | null, field: string, palette: Palette, shade: Shade): Colouring {
  return (run) => {
    const value = fieldValue(run, field);
    const at = scale?.place(value) ?? null;
    if (scale === null || at === null) return palette.mark;
    if (scale.kind === "category") return seriesColor(palette, scale.valueAt(at));
    return ramp(at, shade);
  };
}

type Places = Map<string, number | null>;

/** Where each run lies on an axis. Runs of one category lie beside each other, so that none hides another: in the order
 * of the axis before, so that few lines cross. */
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

/** How wide an element is, now and when that changes. */
export function useWidth<T extends HTMLElement>(usual: number): [RefObject<T | null>, number] {
  const box = useRef<T>(null);
  const [width, setWidth] = useState(usual);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const seen = new ResizeObserver(() => setWidth(element.clientWidth || usual));
    seen.observe(element);
    setWidth(element.clientWidth || usual);
    return () => seen.disconnect();
  }, [usual]);
  return [box, width];
}
