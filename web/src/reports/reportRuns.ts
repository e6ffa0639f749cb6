/** The runs of a block, kept up to date while some of them are active. */

import { useState } from "react";
import { isDone, queryString, type Resource, type RunRow, type RunsPage, useResource } from "../api";
import type { RunChoice } from "./blocks";

const LIVE_MS = 10_000;

/** Ids are letters and digits, so none can change the meaning of the query. */
const isId = (text: string): boolean => /^[A-Za-z0-9_.-]+$/.test(text);

export function runsPath(choice: RunChoice, project: string): string {
  if (choice.runs.length) {
    const ids = choice.runs.filter(isId);
    return `/runs${queryString({ q: `id:${ids.join("|") || "-"}`, limit: ids.length || 1 })}`;
  }
  const { query, sort, limit } = choice;
  return `/runs${queryString({ q: query, sort, limit, project: choice.project || project })}`;
}

export type ReportRuns = Pick<Resource<RunsPage>, "error" | "reload"> & { runs: RunRow[] | undefined; isLive: boolean };

export function useReportRuns(choice: RunChoice, project: string): ReportRuns {
  const [isLive, setLive] = useState(false);
  const { data, error, reload } = useResource<RunsPage>(runsPath(choice, project), {
    pollMs: isLive ? LIVE_MS : undefined,
    keepPrevious: true,
  });
  const order = new Map(choice.runs.map((id, place) => [id, place]));
  const runs = data && [...data.runs].sort((one, other) => (order.get(one.id) ?? 0) - (order.get(other.id) ?? 0));
  const isRunning = runs?.some((run) => !isDone(run.status)) ?? false;
  if (isRunning !== isLive) setLive(isRunning);
  return { runs, error, reload, isLive };
}
