/** Loads chart data: one request for all charts that come into view together, cached per query. */

import { useEffect, useMemo, useRef, useState } from "react";
import { apiPath, type Chart, type Charts, get, queryString } from "../api";
import { RequestBatch } from "../charts";

export const BUCKETS = 400;
export const MAX_LINES = 16;
const TICK_MS = 30; // charts that come into view within this time share a request

export type ChartQuery = {
  id: string;
  mode: "ranks" | "mean";
  replicas: readonly string[];
  first: number | null;
  last: number | null;
};

/** The charts of one query, by metric. */
export class ChartSource {
  readonly charts = new Map<string, Chart>();
  private readonly batch: RequestBatch<Chart>;

  constructor(readonly query: ChartQuery) {
    this.batch = new RequestBatch(
      async (names) => {
        const { charts } = await get<Charts>(chartPath(query, names));
        return new Map(charts.map((chart) => [chart.name, chart]));
      },
      24,
      (go) => void setTimeout(go, TICK_MS),
    );
  }

  async load(name: string): Promise<Chart | undefined> {
    const chart = await this.batch.get(name);
    if (chart) this.charts.set(name, chart);
    return chart;
  }
}

export function chartPath({ id, mode, replicas, first, last }: ChartQuery, names: readonly string[]): string {
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

export function useChartSource(query: ChartQuery): ChartSource {
  const key = JSON.stringify(query);
  return useMemo(() => new ChartSource(JSON.parse(key) as ChartQuery), [key]);
}

export type ChartState = { chart: Chart | undefined; error: unknown; isLoaded: boolean };

/** The chart of a metric. While a new query loads, the previous chart stays. */
export function useChart(source: ChartSource, name: string | null, version: number): ChartState {
  const [state, setState] = useState<ChartState>({
    chart: name === null ? undefined : source.charts.get(name),
    error: null,
    isLoaded: false,
  });
  const requested = useRef("");
  useEffect(() => {
    if (name === null) return;
    let isOn = true;
    const key = `${JSON.stringify(source.query)} ${name} ${version}`;
    const known = source.charts.get(name);
    if (known) setState({ chart: known, error: null, isLoaded: true });
    if (known && requested.current === key) return;
    requested.current = key;
    source.load(name).then(
      (chart) => isOn && setState({ chart, error: null, isLoaded: true }),
      (error: unknown) => isOn && setState((now) => ({ ...now, error, isLoaded: true })),
    );
    return () => {
      isOn = false;
    };
  }, [source, name, version]);
  return state;
}

export type ChartsState = { charts: Chart[]; error: unknown; isLoaded: boolean };

/** The charts of several metrics, in their order, without those that have no points. */
export function useCharts(source: ChartSource, names: readonly string[], version: number): ChartsState {
  const key = JSON.stringify(names);
  const [state, setState] = useState<ChartsState>(() => {
    const charts = names.flatMap((name) => source.charts.get(name) ?? []);
    return { charts, error: null, isLoaded: charts.length === names.length };
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: `version` says that there are new points
  useEffect(() => {
    let isOn = true;
    Promise.all((JSON.parse(key) as string[]).map((name) => source.load(name))).then(
      (found) => {
        if (isOn) setState({ charts: found.filter((chart) => chart !== undefined), error: null, isLoaded: true });
      },
      (error: unknown) => {
        if (isOn) setState((now) => ({ ...now, error, isLoaded: true }));
      },
    );
    return () => {
      isOn = false;
    };
  }, [source, key, version]);
  return state;
}
