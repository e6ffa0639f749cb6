// Keyboard shortcuts: components register them while mounted, and the help lists them.

import { useEffect, useRef } from "react";

export type Shortcut = {
  label: string;
  run: (event: KeyboardEvent) => void;
  /** Also active while the user types in a field. */
  always?: boolean;
};

/** By key: `j`, `?`, `Enter`, `Escape`, `shift+x`, `mod+k`, or a sequence such as `g r`. */
export type Shortcuts = Record<string, Shortcut>;

type Layer = { title: string; keys: Shortcuts };

const SEQUENCE_MS = 1200; // the longest pause between the two keys of a sequence
const layers: Layer[] = [];
let prefix = "";
let prefixAt = 0;

/** Registers shortcuts while the component is mounted. The latest component wins; global shortcuts come last. */
export function useShortcuts(title: string, keys: Shortcuts, isEnabled = true, isGlobal = false): void {
  const latest = useRef<Layer>({ title, keys });
  latest.current.title = title;
  latest.current.keys = keys;
  useEffect(() => {
    if (!isEnabled) return;
    const layer = latest.current;
    if (isGlobal) layers.unshift(layer);
    else layers.push(layer);
    return () => {
      layers.splice(layers.indexOf(layer), 1);
    };
  }, [isEnabled, isGlobal]);
}

/** The shortcuts active now, for the help. */
export function activeShortcuts(): { title: string; keys: { key: string; label: string }[] }[] {
  return [...layers].reverse().map(({ title, keys }) => ({
    title,
    keys: Object.entries(keys)
      .filter(([, { label }]) => label)
      .map(([key, { label }]) => ({ key, label })),
  }));
}

/** The name of a pressed key, as in `Shortcuts`. */
export function keyName(event: Pick<KeyboardEvent, "key" | "ctrlKey" | "metaKey" | "altKey" | "shiftKey">): string {
  const isCharacter = event.key.length === 1 && event.key !== " ";
  const key = event.key === " " ? "Space" : isCharacter && event.shiftKey ? event.key.toLowerCase() : event.key;
  const isLetter = /^\p{L}$/u.test(event.key);
  const shift = event.shiftKey && (!isCharacter || isLetter) ? "shift+" : "";
  return `${event.ctrlKey || event.metaKey ? "mod+" : ""}${event.altKey ? "alt+" : ""}${shift}${key}`;
}

function isTextField(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !/^(checkbox|radio|button|range)$/.test(target.type);
  return target.isContentEditable || /^(TEXTAREA|SELECT)$/.test(target.tagName);
}

/** Enter and Space activate the focused button or link. */
function activatesElement(target: EventTarget | null, name: string): boolean {
  return (
    (name === "Enter" || name === "Space") &&
    target instanceof HTMLElement &&
    target.closest("a, button, summary, [role=menuitem]") !== null
  );
}

function onKeyDown(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing || /^(Shift|Control|Alt|Meta)$/.test(event.key)) return;
  const name = keyName(event);
  const isTyping = isTextField(event.target);
  const isModal = document.querySelector("dialog[open]") !== null;
  const sequence = prefix && event.timeStamp - prefixAt < SEQUENCE_MS ? `${prefix} ${name}` : name;
  prefix = "";
  for (const candidate of sequence === name ? [name] : [sequence, name]) {
    for (const layer of [...layers].reverse()) {
      const shortcut = layer.keys[candidate];
      if (shortcut && (shortcut.always || (!isTyping && !isModal && !activatesElement(event.target, name)))) {
        event.preventDefault();
        shortcut.run(event);
        return;
      }
    }
  }
  if (!isTyping && layers.some(({ keys }) => Object.keys(keys).some((key) => key.startsWith(`${name} `)))) {
    prefix = name;
    prefixAt = event.timeStamp;
  }
}

if (typeof window !== "undefined") window.addEventListener("keydown", onKeyDown);
