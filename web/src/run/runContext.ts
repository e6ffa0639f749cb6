/** What the parts of a run's page share: the run, its replicas, permissions, and notifications of new data. */

import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import {
  apiPath,
  isDone,
  pollWhileVisible,
  queryString,
  type RunDetails,
  type RunRow,
  type Topology,
  useEventStream,
  useResource,
} from "../api";
import { canEdit, useSession } from "../session";
import { useReload } from "../ui/hooks";

const POLL_MS = 5000; // without an event stream
const LARGE = 64; // runs with more replicas are reloaded less often

/** How many updates arrived. Components reload when a count grows. */
export type UpdateCounts = { points: number; log: number };

export type RunContext = {
  run: RunDetails;
  topology: Topology | null;
  updates: UpdateCounts;
  mayEdit: boolean;
  /** Why the user may not edit the run; empty if allowed. */
  readOnlyReason: string;
  isLive: boolean;
  reload: () => void;
};

export function useRun(id: string, attempt: string) {
  const response = useResource<RunDetails>(apiPath`/runs/${id}`, { keepPrevious: true });
  const topology = useResource<Topology>(apiPath`/runs/${id}/topology` + queryString({ attempt }), {
    keepPrevious: true,
  });
  const session = useSession();
  const run = response.data;
  const isOn = run !== undefined && !isDone(run.status);
  const [updates, setUpdates] = useState<UpdateCounts>({ points: 0, log: 0 });
  const bump = useCallback((name: keyof UpdateCounts) => setUpdates((now) => ({ ...now, [name]: now[name] + 1 })), []);
  const isLarge = (topology.data?.replicas.length ?? 0) > LARGE;
  const reload = useReload(response.reload, isLarge ? 3000 : 1000);
  const reloadTopology = useReload(topology.reload, isLarge ? 3000 : 1000);
  const state = useEventStream(isOn ? apiPath`/runs/${id}/live` : null, {
    run: (_: RunRow) => reload(),
    replicas: () => reloadTopology(),
    points: () => {
      bump("points");
      reloadTopology();
    },
    log: () => bump("log"),
    open: () => {
      reload(); // what changed before the stream was open is no event of it
      reloadTopology();
    },
  });
  const reloadAll = useCallback(() => {
    reload();
    reloadTopology();
    bump("points");
    bump("log");
  }, [reload, reloadTopology, bump]);
  useEffect(() => {
    if (!isOn || state === "open") return;
    return pollWhileVisible(POLL_MS, reloadAll);
  }, [isOn, state, reloadAll]);
  useOnFinish(run?.finished_at, reloadAll);
  const mayEdit = canEdit(session.data, run?.project ?? "");
  const context = useMemo<RunContext | null>(
    () =>
      run
        ? {
            run,
            topology: topology.data ?? null,
            updates,
            mayEdit,
            readOnlyReason: mayEdit
              ? ""
              : `You have read-only access to ${run.project}. Ask an admin for the editor role.`,
            isLive: isOn,
            reload: reloadAll,
          }
        : null,
    [run, topology.data, updates, mayEdit, isOn, reloadAll],
  );
  return { context, error: response.error, reload: response.reload };
}

/**
 * Reloads when a run has finished, also one that was resumed and finished before the page saw it run: its last points may
 * arrive after the last event. `undefined`: not known yet.
 */
export function useOnFinish(finishedAt: string | null | undefined, act: () => void): void {
  const was = useRef(finishedAt);
  const reload = useReload(act, 0);
  useEffect(() => {
    if (was.current !== undefined && finishedAt && finishedAt !== was.current) reload();
    was.current = finishedAt;
  }, [finishedAt, reload]);
}
