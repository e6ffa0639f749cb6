import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { pollWhileVisible } from "../api";

/** The current time in seconds, updated at an interval while the page is visible; `null` stops the updates. */
export function useNow(intervalMs: number | null): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    if (intervalMs !== null) return pollWhileVisible(intervalMs, () => setNow(Date.now() / 1000));
  }, [intervalMs]);
  return now;
}

/** A function that calls `act` once after `waitMs`, however often it is called in between. */
export function useCoalesced(act: () => void, waitMs: number): () => void {
  const latest = useRef(act);
  latest.current = act;
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    if (timer.current) return;
    timer.current = window.setTimeout(() => {
      timer.current = 0;
      latest.current();
    }, waitMs);
  }, [waitMs]);
}

/** A function that calls `act` at once, but at most every `intervalMs`. The last call is never lost. */
export function useThrottled(act: () => void, intervalMs: number): () => void {
  const latest = useRef(act);
  latest.current = act;
  const state = useRef({ last: 0, timer: 0 });
  useEffect(() => () => clearTimeout(state.current.timer), []);
  return useCallback(() => {
    const now = state.current;
    if (now.timer) return;
    const wait = Math.max(0, now.last + intervalMs - Date.now());
    now.timer = window.setTimeout(() => {
      now.timer = 0;
      now.last = Date.now();
      latest.current();
    }, wait);
  }, [intervalMs]);
}

const SHARED_MS = 1000;

/**
 * A function that reloads after a change: at once, but at most every `intervalMs`, and once more after the last change,
 * because the server may answer with a response that it made up to `SHARED_MS` before.
 */
export function useReload(reload: () => void, intervalMs: number): () => void {
  const soon = useThrottled(reload, intervalMs);
  const latest = useRef(reload);
  latest.current = reload;
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    soon();
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => latest.current(), Math.max(SHARED_MS, intervalMs));
  }, [soon, intervalMs]);
}

/** A value that changes only after it has been stable for `waitMs`. */
export function useDebounced<T>(value: T, waitMs: number): T {
  const [stable, setStable] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setStable(value), waitMs);
    return () => clearTimeout(timer);
  }, [value, waitMs]);
  return stable;
}

/** Whether a media query matches. */
export function useMediaQuery(text: string): boolean {
  const media = useMemo(() => matchMedia(text), [text]);
  const subscribe = useCallback(
    (listener: () => void) => {
      media.addEventListener("change", listener);
      return () => media.removeEventListener("change", listener);
    },
    [media],
  );
  return useSyncExternalStore(subscribe, () => media.matches);
}

/** Whether the page is as narrow as a phone. */
export const useNarrow = (): boolean => useMediaQuery("(max-width: 640px)");
