// What an address of the table of runs says.

import type { Route } from "../router";
import { columnOf, readColumns } from "./columns";
import { USUAL_SORT, type Wanted } from "./pagedRuns";

export function wantedOf({ params }: Route): Wanted {
  return {
    q: params.get("q") ?? "",
    sort: params.get("sort") || USUAL_SORT,
    project: params.get("project") ?? "",
  };
}

/** The columns that were chosen, or null for the usual ones. */
export function chosenColumns({ params }: Route): string[] | null {
  const text = params.get("columns");
  return text === null ? null : readColumns(text).filter(columnOf);
}
