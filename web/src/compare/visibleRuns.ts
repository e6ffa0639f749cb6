/** The visible runs and legend entries. */

import { useMemo, useState } from "react";
import type { RunRow } from "../types";
import { isInside } from "./axisBrush";
import { type Fields, fieldsOf } from "./fields";
import { type Entry, entriesOf, labels as labelsOf } from "./lines";
import { orderedMetrics } from "./plotFields";
import { groupRuns } from "./runGroups";
import type { Choices } from "./urlState";

export interface VisibleRuns {
  runs: RunRow[];
  rows: Map<string, RunRow>;
  labels: Map<string, string>;
  fields: Fields;
  metrics: string[]; // by relevance
  isGrouped: boolean;
  entries: Entry[];
  shown: Set<string>; // visible in the legend and inside the brushes
  on: Set<string>; // visible in the legend
  /** The highlighted entry of the legend. */
  highlighted: string | null;
  highlight: (key: string | null) => void;
}

const runsOf = (entries: Entry[]): Set<string> =>
  new Set(entries.filter((entry) => entry.isOn).flatMap((entry) => entry.runs));

export function useVisibleRuns(runs: RunRow[], { by, off, brushes }: Choices): VisibleRuns {
  const [highlighted, highlight] = useState<string | null>(null);
  const details = useMemo(
    () => ({
      rows: new Map(runs.map((run) => [run.id, run])),
      labels: labelsOf(runs),
      fields: fieldsOf(runs),
      metrics: orderedMetrics(runs),
    }),
    [runs],
  );
  const visible = useMemo(() => {
    const groups = by.length > 0 ? groupRuns(runs, by) : null;
    const inside = new Set(runs.filter((run) => isInside(run, brushes)).map((run) => run.id));
    const entries = entriesOf(runs, groups, off, (run) => inside.has(run));
    return { entries, shown: runsOf(entries), on: runsOf(entriesOf(runs, groups, off, () => true)) };
  }, [runs, by, off, brushes]);
  return { runs, ...details, ...visible, isGrouped: by.length > 0, highlighted, highlight };
}
