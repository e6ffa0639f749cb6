/** Images, texts, tables and histograms that training logged: by kind and name, in the order of steps. */

import type { Json, Num, Scalar } from "../types";

export type MediaKind = "image" | "histogram" | "table" | "text";

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

export type Shelf = { kind: MediaKind; name: string; events: MediaEvent[] };

/** One shelf for each name of each kind. What a later attempt logged at the same step takes the place of the earlier. */
export function shelves(events: readonly MediaEvent[]): Shelf[] {
  const found = new Map<string, Map<string, MediaEvent>>();
  for (const event of events) {
    const key = `${event.kind} ${event.name}`;
    const shelf = found.get(key) ?? new Map<string, MediaEvent>();
    found.set(key, shelf);
    // Several without a step are several.
    const place = event.step === null ? `at ${event.at}` : String(event.step);
    const old = shelf.get(`${event.replica} ${place}`);
    if (!old || old.attempt <= event.attempt) shelf.set(`${event.replica} ${place}`, event);
  }
  return [...found.values()].map((shelf) => {
    const sorted = [...shelf.values()].sort(
      (one, other) =>
        (one.step ?? -1) - (other.step ?? -1) || one.at - other.at || (one.replica < other.replica ? -1 : 1),
    );
    const first = sorted[0] as MediaEvent;
    return { kind: first.kind, name: first.name, events: sorted };
  });
}

/** Bars of a histogram: left edge and width as shares of the whole, height as a share of the highest. */
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
