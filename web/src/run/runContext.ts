/** What the parts of a run's page share: the run, who looks at it, and hints that something new is there. */

import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import {
  apiPath,
  isDone,
  queryString,
  type RunDetails,
  type RunRow,
  type Topology,
  useEventStream,
  useResource,
} from "../api";
import { canEdit, useSession } from "../session";

const POLL_MS = 5000; // where the server tells nothing by itself
const LARGE = 64; // replicas: of more, news is asked for less often

/** How often there was something new; parts ask again when it grows. */
export type Pulse = { points: number; log: number };

export type Known = {
  run: RunDetails;
  topology: Topology | null;
  pulse: Pulse;
  mayEdit: boolean;
  /** Why one may not change the run; empty when one may. */
  whyNot: string;
  isLive: boolean;
  reload: () => void;
};

export function useRun(id: string, attempt: string) {
  const answer = useResource<RunDetails>(apiPath`/runs/${id}`, { keepPrevious: true });
  const topology = useResource<Topology>(apiPath`/runs/${id}/topology` + queryString({ attempt }), {
    keepPrevious: true,
  });
  const session = useSession();
  const run = answer.data;
  const isOn = run !== undefined && !isDone(run.status);
  const [pulse, setPulse] = useState<Pulse>({ points: 0, log: 0 });
  const bump = useCallback((name: keyof Pulse) => setPulse((now) => ({ ...now, [name]: now[name] + 1 })), []);
  const isLarge = (topology.data?.replicas.length ?? 0) > LARGE;
  const reload = useThrottled(answer.reload, isLarge ? 3000 : 1000);
  const look = useThrottled(topology.reload, isLarge ? 3000 : 1000);
  const state = useEventStream(isOn ? apiPath`/runs/${id}/live` : null, {
    run: (_: RunRow) => reload(),
    replicas: () => look(),
    points: () => {
      bump("points");
      look();
    },
    log: () => bump("log"),
  });
  const all = useCallback(() => {
    reload();
    look();
    bump("points");
    bump("log");
  }, [reload, look, bump]);
  useEffect(() => {
    if (!isOn || state === "open") return;
    const timer = setInterval(() => document.hidden || all(), POLL_MS);
    return () => clearInterval(timer);
  }, [isOn, state, all]);
  useOnce(isOn, all);
  const mayEdit = canEdit(session.data, run?.project ?? "");
  const known = useMemo<Known | null>(
    () =>
      run
        ? {
            run,
            topology: topology.data ?? null,
            pulse,
            mayEdit,
            whyNot: mayEdit ? "" : `You have read-only access to ${run.project}. Ask an admin for the editor role.`,
            isLive: isOn,
            reload: all,
          }
        : null,
    [run, topology.data, pulse, mayEdit, isOn, all],
  );
  return { known, error: answer.error, reload: answer.reload };
}

/** When a run ends, everything is asked for once more: its last points came after the last hint. */
function useOnce(isOn: boolean, act: () => void): void {
  const was = useRef(isOn);
  useEffect(() => {
    if (was.current && !isOn) act();
    was.current = isOn;
  }, [isOn, act]);
}

/** A function that acts at once, but not again before so many milliseconds; the last call is never lost. */
export function useThrottled(act: () => void, every: number): () => void {
  const latest = useRef(act);
  latest.current = act;
  const state = useRef({ last: 0, timer: 0 });
  useEffect(() => () => clearTimeout(state.current.timer), []);
  return useCallback(() => {
    const now = state.current;
    if (now.timer) return;
    const wait = Math.max(0, now.last + every - Date.now());
    now.timer = window.setTimeout(() => {
      now.timer = 0;
      now.last = Date.now();
      latest.current();
    }, wait);
  }, [every]);
}

/** The seconds since 1970, told anew every second while something goes on. */
export function useNow(isOn: boolean): number {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    if (!isOn) return;
    const timer = setInterval(() => document.hidden || setNow(Date.now() / 1000), 1000);
    return () => clearInterval(timer);
  }, [isOn]);
  return now;
}
