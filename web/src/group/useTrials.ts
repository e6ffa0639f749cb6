/** The trials of a group: loaded in pages, then only what has changed while it runs. */

import { useCallback, useEffect, useRef, useState } from "react";
import {
  type ApiError,
  apiPath,
  asApiError,
  get,
  pollWhileVisible,
  queryString,
  type RunRow,
  type TrialRow,
  type TrialsPage,
} from "../api";
import { useOnFinish } from "../run/runContext";
import { merged } from "./trials";

const PAGE = 2000;
const POLL_MS = 2000;

export type Trials = { rows: TrialRow[]; isLoading: boolean; error: ApiError | null; reload: () => void };

export function useTrials({ id, finished_at }: Pick<RunRow, "id" | "finished_at">, isLive: boolean): Trials {
  const [rows, setRows] = useState<TrialRow[]>([]);
  const [isLoading, setLoading] = useState(true);
  const [error, setError] = useState<ApiError | null>(null);
  const seq = useRef(0);
  const pending = useRef<Promise<void> | null>(null);
  const isStale = useRef(false); // a reload was requested while one was pending

  const load = useCallback(async (): Promise<void> => {
    const path = apiPath`/groups/${id}/trials`;
    try {
      const changed_after = seq.current;
      let offset = 0;
      for (;;) {
        const page = await get<TrialsPage>(
          path + queryString({ limit: PAGE, offset: offset || null, changed_after: changed_after || null }),
        );
        if (offset === 0) seq.current = page.seq; // what changes meanwhile is loaded again
        setRows((before) => merged(before, page.trials));
        offset += page.trials.length;
        if (page.trials.length === 0 || offset >= page.count) break;
      }
      setError(null);
    } catch (fault) {
      setError(asApiError(fault));
    }
    setLoading(false);
  }, [id]);

  const reload = useCallback(() => {
    if (pending.current) {
      isStale.current = true;
      return;
    }
    pending.current = load().finally(() => {
      pending.current = null;
      if (isStale.current) reload();
    });
    isStale.current = false;
  }, [load]);

  useEffect(reload, [reload]);
  useEffect(() => (isLive ? pollWhileVisible(POLL_MS, reload) : undefined), [isLive, reload]);
  useOnFinish(finished_at, reload);
  return { rows, isLoading, error, reload };
}
