/** Loads a window of a run's log: it opens at the end or at a line and grows in both directions. */

import { useCallback, useEffect, useRef, useState } from "react";
import { apiPath, get, queryString } from "../api";
import { useThrottled } from "../ui/hooks";
import { type LogWindow, opened, type Page, withEarlier, withLater } from "./logWindow";
import type { RunContext } from "./runContext";

export type LogQuery = {
  id: string;
  attempt: string | null;
  /** Names, roles or ranks, as the user wrote them: `worker-3`, `0-3`; empty for all. */
  replicas: string;
  fold: boolean;
  /** The cursor of the line to open at; null for the end. */
  at: string | null;
};

const PAGE = 400;

export function linesPath(query: LogQuery, more: { before?: string; after?: string; around?: string }): string {
  const { id, attempt, replicas, fold } = query;
  return (
    apiPath`/runs/${id}/lines` +
    queryString({ replica: replicas || null, attempt, fold: fold ? 1 : 0, limit: PAGE, ansi: 1, ...more })
  );
}

async function openWindow(query: LogQuery, signal: AbortSignal): Promise<LogWindow> {
  if (query.at === null) return opened(await get<Page>(linesPath(query, {}), { signal }));
  return opened(await get<Page>(linesPath(query, { around: query.at }), { signal }));
}

export function useLog(query: LogQuery, { updates }: RunContext) {
  const [window, setWindow] = useState<LogWindow | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isLoading, setLoading] = useState(false);
  const [hasMore, setMore] = useState(false);
  const [round, setRound] = useState(0);
  const [opening, setOpening] = useState("");
  const busy = useRef<"" | "before" | "after">("");
  const now = useRef({ query, window });
  now.current = { query, window };

  useEffect(() => {
    const pending = new AbortController();
    busy.current = "after";
    setMore(false);
    openWindow(query, pending.signal)
      .then(
        (found) => {
          setWindow(found);
          setError(null);
          setOpening(`${JSON.stringify(query)} ${round}`);
        },
        (error: unknown) => pending.signal.aborted || setError(error),
      )
      .finally(() => {
        if (!pending.signal.aborted) busy.current = "";
      });
    return () => pending.abort();
  }, [query, round]);

  const grow = useCallback(async (side: "before" | "after") => {
    const { query: current, window: shown } = now.current;
    const from = side === "before" ? shown?.first : shown?.last;
    if (busy.current || !shown || (side === "before" && shown.atStart) || !from) return;
    busy.current = side;
    setLoading(true);
    try {
      const page = await get<Page>(linesPath(current, { [side]: from }));
      if (now.current.query === current) {
        setError(null);
        setWindow((old) => old && (side === "before" ? withEarlier(old, page) : withLater(old, page)));
        if (side === "after") setMore(!page.at_end);
      }
    } catch (error) {
      setError(error);
    }
    busy.current = "";
    setLoading(false);
  }, []);

  const earlier = useCallback(() => void grow("before"), [grow]);
  const later = useCallback(() => {
    const { window: shown } = now.current;
    if (shown && (!shown.atEnd || hasMoreRef.current)) void grow("after");
  }, [grow]);
  const hasMoreRef = useRef(hasMore);
  hasMoreRef.current = hasMore;

  const [news, setNews] = useState(0);
  const onNews = useThrottled(() => {
    setMore(true);
    setNews((count) => count + 1);
  }, 500);
  const first = useRef(updates.log);
  useEffect(() => {
    if (first.current === updates.log) return;
    first.current = updates.log;
    onNews();
  }, [updates.log, onNews]);
  const reload = useCallback(() => setRound((count) => count + 1), []);
  return { window, error, isLoading, hasMore, news, opening, earlier, later, reload };
}
