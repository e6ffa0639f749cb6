/** Logged images, sounds, videos, texts, tables, points and histograms, by kind and name, in order of steps. */

import type { Json, Num, Scalar } from "../types";

export const MEDIA_KINDS = ["image", "audio", "video", "points", "histogram", "table", "text"] as const;
export type MediaKind = (typeof MEDIA_KINDS)[number];

export type MediaEvent = {
  kind: MediaKind;
  name: string;
  step: number | null;
  at: number;
  replica: string;
  attempt: number;
  path?: string;
  caption?: string | null;
  text?: string;
  columns?: string[];
  rows?: Scalar[][];
  edges?: Num[];
  counts?: number[];
  [name: string]: Json | undefined;
};

export type MediaSeries = { kind: MediaKind; name: string; events: MediaEvent[] };

/** Events by kind and name. At the same step, a later attempt replaces an earlier one. */
export function groupMedia(events: readonly MediaEvent[]): MediaSeries[] {
  const found = new Map<string, Map<string, MediaEvent>>();
  for (const event of events) {
    const key = `${event.kind} ${event.name}`;
    const series = found.get(key) ?? new Map<string, MediaEvent>();
    found.set(key, series);
    // Events without a step are all kept.
    const place = event.step === null ? `at ${event.at}` : String(event.step);
    const old = series.get(`${event.replica} ${place}`);
    if (!old || old.attempt <= event.attempt) series.set(`${event.replica} ${place}`, event);
  }
  return [...found.values()].map((series) => {
    const sorted = [...series.values()].sort(
      (one, other) =>
        (one.step ?? -1) - (other.step ?? -1) || one.at - other.at || (one.replica < other.replica ? -1 : 1),
    );
    const first = sorted[0] as MediaEvent;
    return { kind: first.kind, name: first.name, events: sorted };
  });
}

/** Points as shares of the range of their first two columns; y grows upwards. Others than numbers are left out. */
export function dots(rows: readonly (readonly (number | null)[])[]): { x: number; y: number }[] {
  const found = rows.flatMap(([x, y]) => (x == null || y == null || !Number.isFinite(x + y) ? [] : [{ x, y }]));
  const place = (key: "x" | "y") => {
    const values = found.map((dot) => dot[key]);
    const low = values.reduce((one, other) => Math.min(one, other), Number.POSITIVE_INFINITY);
    const whole = values.reduce((one, other) => Math.max(one, other), Number.NEGATIVE_INFINITY) - low;
    return (amount: number) => (whole > 0 ? (amount - low) / whole : 0.5);
  };
  const [across, up] = [place("x"), place("y")];
  return found.map(({ x, y }) => ({ x: across(x), y: 1 - up(y) }));
}

/** Bars of a histogram: left edge and width relative to the range, height relative to the highest bar. */
export function bars(
  edges: readonly number[],
  counts: readonly number[],
): { left: number; width: number; height: number }[] {
  const [low, high] = [edges[0] ?? 0, edges[edges.length - 1] ?? 1];
  const whole = high - low || 1;
  const most = Math.max(1, ...counts);
  return counts.map((count, index) => ({
    left: ((edges[index] ?? low) - low) / whole,
    width: ((edges[index + 1] ?? high) - (edges[index] ?? low)) / whole,
    height: count / most,
  }));
}
