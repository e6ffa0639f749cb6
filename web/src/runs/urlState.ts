// The state of the runs table in the URL.

import type { Route } from "../router";
import { columnOf, readColumns } from "./columns";
import { DEFAULT_SORT, type RunQuery } from "./pagedRuns";

export function runQueryOf({ params }: Route): RunQuery {
  return {
    q: params.get("q") ?? "",
    sort: params.get("sort") || DEFAULT_SORT,
    project: params.get("project") ?? "",
  };
}

/** The fields that runs are grouped by; none: the list is not grouped. */
export const groupFields = ({ params }: Route): string[] => readColumns(params.get("by") ?? "");

/** The selected columns, or null for the default ones. */
export function chosenColumns({ params }: Route): string[] | null {
  const text = params.get("columns");
  return text === null ? null : readColumns(text).filter(columnOf);
}
