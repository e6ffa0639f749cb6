/** Where charts get their data: one request for all that are seen at once, and remembered while the question is the same. */

import { useEffect, useMemo, useRef, useState } from "react";
import { apiPath, type Chart, type Charts, get, queryString } from "../api";
import { RequestBatch } from "../charts";

export const BUCKETS = 400;
export const MAX_LINES = 16;
const TICK_MS = 30; // what comes into view within it is asked for together

export type Question = {
  id: string;
  mode: "ranks" | "mean";
  replicas: readonly string[];
  first: number | null;
  last: number | null;
};

/** Answers of one question, by the name of the metric. */
export class ChartSource {
  readonly known = new Map<string, Chart>();
  private readonly batch: RequestBatch<Chart>;

  constructor(readonly question: Question) {
    this.batch = new RequestBatch(
      async (names) => {
        const { charts } = await get<Charts>(chartPath(question, names));
        return new Map(charts.map((chart) => [chart.name, chart]));
      },
      24,
      (go) => void setTimeout(go, TICK_MS),
    );
  }

  async ask(name: string): Promise<Chart | undefined> {
    const chart = await this.batch.get(name);
    if (chart) this.known.set(name, chart);
    return chart;
  }
}

export function chartPath({ id, mode, replicas, first, last }: Question, names: readonly string[]): string {
  const path = apiPath`/runs/${id}/chart`;
  return (
    path +
    queryString({
      name: names,
      mode,
      replica: replicas,
      buckets: BUCKETS,
      first,
      last,
      overwritten: 1,
      most: MAX_LINES,
    })
  );
}

export function useChartSource(question: Question): ChartSource {
  const key = JSON.stringify(question);
  return useMemo(() => new ChartSource(JSON.parse(key) as Question), [key]);
}

export type Charted = { chart: Chart | undefined; error: unknown; isAsked: boolean };

/** The chart of a metric; while another question is asked, what was known stays. */
export function useChart(source: ChartSource, name: string | null, version: number): Charted {
  const [state, setState] = useState<Charted>({
    chart: name === null ? undefined : source.known.get(name),
    error: null,
    isAsked: false,
  });
  const asked = useRef("");
  useEffect(() => {
    if (name === null) return;
    let isOn = true;
    const key = `${JSON.stringify(source.question)} ${name} ${version}`;
    const known = source.known.get(name);
    if (known) setState({ chart: known, error: null, isAsked: true });
    if (known && asked.current === key) return;
    asked.current = key;
    source.ask(name).then(
      (chart) => isOn && setState({ chart, error: null, isAsked: true }),
      (error: unknown) => isOn && setState((now) => ({ ...now, error, isAsked: true })),
    );
    return () => {
      isOn = false;
    };
  }, [source, name, version]);
  return state;
}
