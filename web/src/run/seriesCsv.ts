/** Every point of a chart as CSV: of each rank that is shown, or the mean over the ranks. */

import { apiPath, get, type Num, queryString } from "../api";
import { csvText } from "../charts";
import type { Chart } from "../types";

type Spread = {
  first_step: number;
  last_step: number;
  last_time: number;
  mean: Num | null;
  min: Num | null;
  max: Num | null;
  odd: number;
  ranks: number;
};
type RankSeries = {
  replica: string;
  rank: number | null;
  steps: number[];
  times: number[];
  values: Num[];
  attempts: number[];
};
type Range = { first: number | null; last: number | null };

const timeOf = (seconds: number): string => new Date(seconds * 1000).toISOString();

export async function seriesCsv(id: string, charts: readonly Chart[], range: Range): Promise<string> {
  const isMean = charts[0]?.mode === "mean";
  const rows: unknown[][] = [];
  for (const chart of charts)
    rows.push(...(isMean ? await meanRows(id, chart, range) : await rankRows(id, chart, range)));
  return csvText(
    isMean
      ? ["metric", "first_step", "last_step", "time", "mean", "min", "max", "ranks", "not_finite"]
      : ["metric", "replica", "rank", "attempt", "step", "time", "value"],
    rows,
  );
}

const pathOf = (id: string, fields: Parameters<typeof queryString>[0]): string =>
  apiPath`/runs/${id}/metrics/series` + queryString({ ...fields, buckets: 0 });

async function meanRows(id: string, { name }: Chart, range: Range): Promise<unknown[][]> {
  const { ranks } = await get<{ ranks: Spread[] }>(pathOf(id, { name, over_ranks: 1, ...range }));
  return ranks.map((row) => [
    name,
    row.first_step,
    row.last_step,
    timeOf(row.last_time),
    row.mean,
    row.min,
    row.max,
    row.ranks,
    row.odd,
  ]);
}

async function rankRows(id: string, { name, lines }: Chart, range: Range): Promise<unknown[][]> {
  const rows: unknown[][] = [];
  for (const { replica } of lines) {
    const { series } = await get<{ series: RankSeries[] }>(pathOf(id, { name, replica, ...range }));
    for (const one of series) {
      one.steps.forEach((step, at) => {
        rows.push([
          name,
          one.replica,
          one.rank,
          one.attempts[at],
          step,
          timeOf(one.times[at] as number),
          one.values[at],
        ]);
      });
    }
  }
  return rows;
}
