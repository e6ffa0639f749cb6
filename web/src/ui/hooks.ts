import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { repeat } from "../api";

/** The time in seconds, told again every so many milliseconds while the page is looked at. */
export function useNow(every: number): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => repeat(every, () => setNow(Date.now() / 1000)), [every]);
  return now;
}

/** Do something soon: once for all that asked within so many milliseconds. */
export function useSoon(act: () => void, wait: number): () => void {
  const latest = useRef(act);
  latest.current = act;
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    if (timer.current) return;
    timer.current = window.setTimeout(() => {
      timer.current = 0;
      latest.current();
    }, wait);
  }, [wait]);
}

/** Whether a media query holds. */
export function useMedia(text: string): boolean {
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
export const useNarrow = (): boolean => useMedia("(max-width: 640px)");
