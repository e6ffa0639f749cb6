/** How the log scrolls: asks for more near its ends, keeps what one reads in its place, and follows the end. */

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import { setParams } from "../router";
import type { Asked, useLog } from "./logSource";

const NEAR = 600; // pixels from an end at which more is asked for

type Box = { current: HTMLElement | null };

/** As high as what is left of the window below its top, so that only the log scrolls. */
export function useRest(box: Box): void {
  useLayoutEffect(() => {
    const become = () => {
      const element = box.current;
      if (!element) return;
      const top = element.getBoundingClientRect().top + window.scrollY;
      element.style.height = `${Math.max(380, window.innerHeight - top - 20)}px`;
    };
    become();
    const resized = new ResizeObserver(become);
    resized.observe(document.body);
    window.addEventListener("resize", become);
    return () => {
      resized.disconnect();
      window.removeEventListener("resize", become);
    };
  });
}

export function useScrolling(scroller: Box, log: ReturnType<typeof useLog>, asked: Asked) {
  const [isFollowing, setFollowing] = useState(asked.at === null);
  const isAtEnd = useRef(asked.at === null);
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
    if (asked.at) setParams({ at: null });
    else if (shown?.atEnd) scroller.current?.scrollTo({ top: scroller.current.scrollHeight });
    else log.reload();
    later();
  }, [asked.at, shown?.atEnd, scroller, log.reload, later]);
  useEffect(() => {
    if (asked.at) setFollowing(false);
  }, [asked.at]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: with every piece of news again, for one may come while it is busy
  useEffect(() => {
    if (isFollowing && log.hasMore) later();
  }, [isFollowing, log.hasMore, log.news, later]);
  useKept(scroller, log, asked, isAtEnd);
  // A window that is not filled, or stands at its top already, has no scrolling that could ask for more.
  useEffect(() => {
    if (shown) onScroll();
  }, [shown, onScroll]);
  return { isFollowing, follow, onScroll };
}

/** What one reads stays where it is when lines come before it; at the end one stays at the end. */
function useKept(scroller: Box, log: ReturnType<typeof useLog>, asked: Asked, isAtEnd: { current: boolean }): void {
  const kept = useRef<{ cursor: string; top: number } | null>(null);
  const opened = useRef("");
  const { window: shown, opening } = log;
  // Before lines are drawn anew, the place of one that is in view is remembered.
  const box = scroller.current;
  const near = box && lineAt(box);
  kept.current = near ? { cursor: near.dataset.cursor ?? "", top: near.getBoundingClientRect().top } : null;
  // biome-ignore lint/correctness/useExhaustiveDependencies: only when the lines are others
  useLayoutEffect(() => {
    const now = scroller.current;
    if (!now || !shown) return;
    if (opened.current !== opening) {
      opened.current = opening;
      isAtEnd.current = asked.at === null;
      const line = asked.at && lineOf(now, asked.at);
      if (line)
        now.scrollTop += line.getBoundingClientRect().top - now.getBoundingClientRect().top - now.clientHeight / 3;
      else now.scrollTop = now.scrollHeight;
    } else if (isAtEnd.current) {
      now.scrollTop = now.scrollHeight;
    } else if (kept.current) {
      const line = lineOf(now, kept.current.cursor); // perhaps drawn anew, in another group
      if (line) now.scrollTop += line.getBoundingClientRect().top - kept.current.top;
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
