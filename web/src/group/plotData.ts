/** What the plots of a group share: which values they compare, the scales of its params, and words for a trial. */

import { valueText } from "../compare/fields";
import { type Kind, makeScale, type Scale } from "../compare/scales";
import { short } from "../format";
import type { Dimension, GroupDetails, TrialRow } from "../types";
import { goodness, isFinitePoint, isLog, meanText, type Point } from "./trials";

export type Measured = { row: TrialRow; value: number; good: number };

export type PlotData = {
  group: GroupDetails;
  metric: string;
  maximize: boolean;
  dimensions: Dimension[];
  /** All trials, also those without a value. */
  points: Point[];
  /** Those with a finite value, in their order; `good` is 1 for the best and 0 for the worst. */
  measured: Measured[];
  /** The scale of the values. */
  scale: Scale;
  describe: (row: TrialRow) => string;
};

export function plotDataOf(group: GroupDetails, points: Point[], kind: Kind | undefined): PlotData {
  const metric = group.metric?.name ?? "value";
  const maximize = group.metric?.maximize ?? false;
  const finite = points.filter(isFinitePoint);
  const good = goodness(finite, maximize);
  const values = finite.map((point) => point.value);
  return {
    group,
    metric,
    maximize,
    dimensions: group.settings.dimensions,
    points,
    measured: finite.map((point, index) => ({ ...point, good: good[index] as number })),
    scale: makeScale(values.length ? values : [0, 1], kind),
    describe: (row) => describe(row, metric, group.settings.dimensions),
  };
}

/** The scale of values whose intervals are drawn, too. */
export function intervalScale({ scale, measured }: PlotData): Scale {
  const ends = measured.flatMap(({ row, value }) => (row.value === value ? (row.interval ?? []) : []));
  if (!ends.length) return scale;
  const shown = scale.kind === "log" ? ends.filter((end) => end > 0) : ends;
  return makeScale([...measured.map(({ value }) => value), ...shown], scale.kind);
}

function describe(row: TrialRow, metric: string, dimensions: Dimension[]): string {
  const value = row.value === null ? row.state : `${metric} ${meanText(row)}`;
  const params = dimensions.map(({ name }) => `${name} ${short(row.params[name])}`);
  return [`trial ${row.trial}: ${value}`, params.join(", "), row.why].filter(Boolean).join("\n");
}

/** The scale of a param: logarithmic for log forms, categories for texts. */
export function paramScale(dimension: Dimension, rows: { row: TrialRow }[]): Scale {
  const drawn = rows.map(({ row }) => row.params[dimension.name]);
  const values = dimension.values ? [...dimension.values, ...drawn] : drawn;
  const numbers = values.every((value) => typeof value === "number");
  const kind: Kind | undefined = !numbers
    ? "category"
    : isLog(dimension)
      ? "log"
      : dimension.values
        ? undefined
        : "linear";
  return makeScale(values.length ? values : [0, 1], kind);
}

/** The position of a param's value. Trials of one category are spread, so that none hides another. */
export function placeOn(scale: Scale, dimension: Dimension, row: TrialRow): number | null {
  const at = scale.place(row.params[dimension.name]);
  if (at === null || scale.kind !== "category") return at;
  const room = 0.5 / Math.max(1, scale.categories.length);
  return at + (((row.trial * 0.618) % 1) - 0.5) * room;
}

export const paramText = (row: TrialRow, name: string): string => {
  const found = row.params[name];
  return typeof found === "number" ? short(found) : valueText(found);
};
