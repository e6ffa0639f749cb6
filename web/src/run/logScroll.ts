/** Scrolling of the log: loads more near the ends, keeps the position, and follows new lines. */

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import { setParams } from "../router";
import type { LogQuery, useLog } from "./logSource";

const NEAR = 600; // distance from an end in pixels at which more lines are loaded

type Box = { current: HTMLElement | null };

/** Makes the log fill the rest of the window, so that only the log scrolls. */
export function useFillHeight(box: Box): void {
  useLayoutEffect(() => {
    const resize = () => {
      const element = box.current;
      if (!element) return;
      const top = element.getBoundingClientRect().top + window.scrollY;
      element.style.height = `${Math.max(380, window.innerHeight - top - 20)}px`;
    };
    resize();
    const resized = new ResizeObserver(resize);
    resized.observe(document.body);
    window.addEventListener("resize", resize);
    return () => {
      resized.disconnect();
      window.removeEventListener("resize", resize);
    };
  });
}

export function useLogScroll(scroller: Box, log: ReturnType<typeof useLog>, query: LogQuery) {
  const [isFollowing, setFollowing] = useState(query.at === null);
  const isAtEnd = useRef(query.at === null);
  const { window: shown, earlier, later } = log;
  const onScroll = useCallback(() => {
    const box = scroller.current;
    if (!box) return;
    const below = box.scrollHeight - box.scrollTop - box.clientHeight;
    isAtEnd.current = below < 24;
    setFollowing(isAtEnd.current && shown?.atEnd === true);
    if (box.scrollTop < NEAR) earlier();
    if (below < NEAR) later();
  }, [scroller, shown?.atEnd, earlier, later]);
  const follow = useCallback(() => {
    isAtEnd.current = true;
    setFollowing(true);
    if (query.at) setParams({ at: null });
    else if (shown?.atEnd) scroller.current?.scrollTo({ top: scroller.current.scrollHeight });
    else log.reload();
    later();
  }, [query.at, shown?.atEnd, scroller, log.reload, later]);
  useEffect(() => {
    if (query.at) setFollowing(false);
  }, [query.at]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: news may arrive while a request is pending
  useEffect(() => {
    if (isFollowing && log.hasMore) later();
  }, [isFollowing, log.hasMore, log.news, later]);
  useScrollAnchor(scroller, log, query, isAtEnd);
  // A log that does not fill its box causes no scroll events, so it must load more now.
  useEffect(() => {
    if (shown) onScroll();
  }, [shown, onScroll]);
  return { isFollowing, follow, onScroll };
}

/** Keeps the visible lines in place when lines are added before them, or stays at the end. */
function useScrollAnchor(
  scroller: Box,
  log: ReturnType<typeof useLog>,
  query: LogQuery,
  isAtEnd: { current: boolean },
): void {
  const anchor = useRef<{ cursor: string; top: number } | null>(null);
  const opened = useRef("");
  const { window: shown, opening } = log;
  // Before React renders new lines, store the position of a visible line.
  const box = scroller.current;
  const near = box && lineAt(box);
  anchor.current = near ? { cursor: near.dataset.cursor ?? "", top: near.getBoundingClientRect().top } : null;
  // biome-ignore lint/correctness/useExhaustiveDependencies: only when the lines changed
  useLayoutEffect(() => {
    const now = scroller.current;
    if (!now || !shown) return;
    if (opened.current !== opening) {
      opened.current = opening;
      isAtEnd.current = query.at === null;
      const line = query.at && lineOf(now, query.at);
      if (line)
        now.scrollTop += line.getBoundingClientRect().top - now.getBoundingClientRect().top - now.clientHeight / 3;
      else now.scrollTop = now.scrollHeight;
    } else if (isAtEnd.current) {
      now.scrollTop = now.scrollHeight;
    } else if (anchor.current) {
      const line = lineOf(now, anchor.current.cursor); // may have moved to another group
      if (line) now.scrollTop += line.getBoundingClientRect().top - anchor.current.top;
    }
  }, [shown, opening]);
}

function lineOf(box: HTMLElement, cursor: string): Element | null {
  return box.querySelector(`[data-cursor="${CSS.escape(cursor)}"]`);
}

function lineAt(box: HTMLElement): HTMLElement | null {
  const { left, top, width, height } = box.getBoundingClientRect();
  const found = document.elementFromPoint(left + width / 2, Math.min(top + height / 2, innerHeight - 10));
  return found?.closest<HTMLElement>("[data-cursor]") ?? box.querySelector<HTMLElement>("[data-cursor]");
}
