/** The window over a run's log: opens at its end or at a line, grows in both directions, and knows when there is more. */

import { useCallback, useEffect, useRef, useState } from "react";
import { apiPath, get, queryString } from "../api";
import { type LogWindow, opened, type Page, withEarlier, withLater } from "./logWindow";
import { type Known, useThrottled } from "./runContext";

export type Asked = {
  id: string;
  attempt: string | null;
  replicas: readonly string[];
  fold: boolean;
  /** The line it was opened at; null: the end. */
  at: string | null;
};

const PAGE = 400;

export function linesPath(asked: Asked, more: { before?: string; after?: string; around?: string }): string {
  const { id, attempt, replicas, fold } = asked;
  return (
    apiPath`/runs/${id}/lines` + queryString({ replica: replicas, attempt, fold: fold ? 1 : 0, limit: PAGE, ...more })
  );
}

async function openWindow(asked: Asked, signal: AbortSignal): Promise<LogWindow> {
  if (asked.at === null) return opened(await get<Page>(linesPath(asked, {}), { signal }));
  return opened(await get<Page>(linesPath(asked, { around: asked.at }), { signal }));
}

export function useLog(asked: Asked, { pulse }: Known) {
  const [window, setWindow] = useState<LogWindow | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isAsking, setAsking] = useState(false);
  const [hasMore, setMore] = useState(false);
  const [round, setRound] = useState(0);
  const [opening, setOpening] = useState("");
  const busy = useRef<"" | "before" | "after">("");
  const now = useRef({ asked, window });
  now.current = { asked, window };

  useEffect(() => {
    const asking = new AbortController();
    busy.current = "after";
    setMore(false);
    openWindow(asked, asking.signal)
      .then(
        (found) => {
          setWindow(found);
          setError(null);
          setOpening(`${JSON.stringify(asked)} ${round}`);
        },
        (fault: unknown) => asking.signal.aborted || setError(fault),
      )
      .finally(() => {
        if (!asking.signal.aborted) busy.current = "";
      });
    return () => asking.abort();
  }, [asked, round]);

  const grow = useCallback(async (side: "before" | "after") => {
    const { asked: question, window: shown } = now.current;
    const from = side === "before" ? shown?.first : shown?.last;
    if (busy.current || !shown || (side === "before" && shown.atStart) || !from) return;
    busy.current = side;
    setAsking(true);
    try {
      const page = await get<Page>(linesPath(question, { [side]: from }));
      if (now.current.asked === question) {
        setError(null);
        setWindow((old) => old && (side === "before" ? withEarlier(old, page) : withLater(old, page)));
        if (side === "after") setMore(!page.at_end);
      }
    } catch (fault) {
      setError(fault);
    }
    busy.current = "";
    setAsking(false);
  }, []);

  const earlier = useCallback(() => void grow("before"), [grow]);
  const later = useCallback(() => {
    const { window: shown } = now.current;
    if (shown && (!shown.atEnd || hasMoreRef.current)) void grow("after");
  }, [grow]);
  const hasMoreRef = useRef(hasMore);
  hasMoreRef.current = hasMore;

  const [news, setNews] = useState(0);
  const look = useThrottled(() => {
    setMore(true);
    setNews((count) => count + 1);
  }, 500);
  const first = useRef(pulse.log);
  useEffect(() => {
    if (first.current === pulse.log) return;
    first.current = pulse.log;
    look();
  }, [pulse.log, look]);
  const reload = useCallback(() => setRound((count) => count + 1), []);
  return { window, error, isAsking, hasMore, news, opening, earlier, later, reload };
}
