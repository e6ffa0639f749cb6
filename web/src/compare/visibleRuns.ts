/** What of the compared runs is shown: as lines of the legend, and as runs. */

import { useMemo, useState } from "react";
import type { RunRow } from "../types";
import { isInside } from "./axisBrush";
import { type Fields, fieldsOf } from "./fields";
import { type Entry, entriesOf, labels as labelsOf } from "./lines";
import { orderedMetrics } from "./plotFields";
import { groupRuns } from "./runGroups";
import type { Choices } from "./urlState";

export interface Shown {
  runs: RunRow[];
  rows: Map<string, RunRow>;
  labels: Map<string, string>;
  fields: Fields;
  metrics: string[]; // in the order in which they are looked for
  isGrouped: boolean;
  entries: Entry[];
  shown: Set<string>; // switched on, and inside of the brushes
  on: Set<string>; // switched on
  /** The line of the legend that is pointed at. */
  highlighted: string | null;
  highlight: (key: string | null) => void;
}

const runsOf = (entries: Entry[]): Set<string> =>
  new Set(entries.filter((entry) => entry.isOn).flatMap((entry) => entry.runs));

export function useVisibleRuns(runs: RunRow[], { by, off, brushes }: Choices): Shown {
  const [highlighted, highlight] = useState<string | null>(null);
  const known = useMemo(
    () => ({
      rows: new Map(runs.map((run) => [run.id, run])),
      labels: labelsOf(runs),
      fields: fieldsOf(runs),
      metrics: orderedMetrics(runs),
    }),
    [runs],
  );
  const chosen = useMemo(() => {
    const groups = by.length > 0 ? groupRuns(runs, by) : null;
    const inside = new Set(runs.filter((run) => isInside(run, brushes)).map((run) => run.id));
    const entries = entriesOf(runs, groups, off, (run) => inside.has(run));
    return { entries, shown: runsOf(entries), on: runsOf(entriesOf(runs, groups, off, () => true)) };
  }, [runs, by, off, brushes]);
  return { runs, ...known, ...chosen, isGrouped: by.length > 0, highlighted, highlight };
}
