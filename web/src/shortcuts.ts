// The keyboard: keys that a page answers to while it is shown, and what the help says of them.

import { useEffect, useRef } from "react";

export type Key = { does: string; run: (event: KeyboardEvent) => void /** Also while one types. */; always?: boolean };

/** By what is pressed: `j`, `?`, `Enter`, `Escape`, `shift+x`, `mod+k`, or one after another: `g r`. */
export type Keys = Record<string, Key>;

type Layer = { title: string; keys: Keys };

const PATIENCE_MS = 1200; // between the first and the second of two
const layers: Layer[] = [];
let first = "";
let since = 0;

/** Answer to these keys while the component is shown. Whoever came last is asked first, the frame of all last. */
export function useKeys(title: string, keys: Keys, when = true, isFrame = false): void {
  const latest = useRef<Layer>({ title, keys });
  latest.current.title = title;
  latest.current.keys = keys;
  useEffect(() => {
    if (!when) return;
    const mine = latest.current;
    if (isFrame) layers.unshift(mine);
    else layers.push(mine);
    return () => {
      layers.splice(layers.indexOf(mine), 1);
    };
  }, [when, isFrame]);
}

/** What can be pressed now, for the help. */
export function keysNow(): { title: string; keys: { key: string; does: string }[] }[] {
  return [...layers].reverse().map(({ title, keys }) => ({
    title,
    keys: Object.entries(keys)
      .filter(([, { does }]) => does)
      .map(([key, { does }]) => ({ key, does })),
  }));
}

/** The name of what was pressed, as `Keys` has it. */
export function nameOf(event: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "altKey" | "shiftKey">): string {
  const isSign = event.key.length === 1 && event.key !== " ";
  const key = event.key === " " ? "Space" : isSign && event.shiftKey ? event.key.toLowerCase() : event.key;
  const isLetter = /^\p{L}$/u.test(event.key);
  const shift = event.shiftKey && (!isSign || isLetter) ? "shift+" : "";
  return `${event.ctrlKey || event.metaKey ? "mod+" : ""}${event.altKey ? "alt+" : ""}${shift}${key}`;
}

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !/^(checkbox|radio|button|range)$/.test(target.type);
  return target.isContentEditable || /^(TEXTAREA|SELECT)$/.test(target.tagName);
}

/** Buttons and links have their own meaning of Enter and Space. */
function isOwn(target: EventTarget | null, name: string): boolean {
  return (
    (name === "Enter" || name === "Space") &&
    target instanceof HTMLElement &&
    target.closest("a, button, summary, [role=menuitem]") !== null
  );
}

function pressed(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing || /^(Shift|Control|Alt|Meta)$/.test(event.key)) return;
  const name = nameOf(event);
  const typing = isTyping(event.target);
  const isModal = document.querySelector("dialog[open]") !== null;
  const pair = first && event.timeStamp - since < PATIENCE_MS ? `${first} ${name}` : name;
  first = "";
  for (const wanted of pair === name ? [name] : [pair, name]) {
    for (const layer of [...layers].reverse()) {
      const key = layer.keys[wanted];
      if (key && (key.always || (!typing && !isModal && !isOwn(event.target, name)))) {
        event.preventDefault();
        key.run(event);
        return;
      }
    }
  }
  if (!typing && layers.some(({ keys }) => Object.keys(keys).some((key) => key.startsWith(`${name} `)))) {
    first = name;
    since = event.timeStamp;
  }
}

if (typeof window !== "undefined") window.addEventListener("keydown", pressed);
