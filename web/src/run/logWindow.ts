/** A window over a long log: pages are added at both ends, and distant lines are dropped. */

import type { LogLine, LogPage } from "../types";

export type LogWindow = {
  lines: LogLine[];
  /** Cursors of the ends, to load earlier and later lines. */
  first: string | null;
  last: string | null;
  atStart: boolean;
  atEnd: boolean;
  /** Incomplete last lines, such as progress bars. */
  unfinished: Unfinished[];
  /** The number of logs not read, because the server limits how many it merges. */
  leftOut: number;
};

export type Unfinished = { replica: string; rank: number | null; text: string };
export type Page = LogPage & { unfinished?: Unfinished[]; left_out?: number };

export const MAX_LINES = 4000;

export function opened(page: Page): LogWindow {
  return {
    lines: page.lines,
    first: page.first,
    last: page.last,
    atStart: page.at_start,
    atEnd: page.at_end,
    unfinished: page.unfinished ?? [],
    leftOut: page.left_out ?? 0,
  };
}

export function withEarlier(window: LogWindow, page: Page, max = MAX_LINES): LogWindow {
  const lines = unique([...page.lines, ...window.lines]);
  const remaining = lines.slice(0, max);
  const isCut = remaining.length < lines.length;
  return {
    lines: remaining,
    first: page.lines.length ? page.first : window.first,
    last: isCut ? (remaining[remaining.length - 1]?.cursor ?? window.last) : window.last,
    // An empty page means the start: do not request it again.
    atStart: page.at_start || page.lines.length === 0,
    atEnd: window.atEnd && !isCut,
    unfinished: isCut ? [] : window.unfinished,
    leftOut: window.leftOut,
  };
}

export function withLater(window: LogWindow, page: Page, max = MAX_LINES): LogWindow {
  if (!page.lines.length) {
    return { ...window, last: page.last ?? window.last, atEnd: true, unfinished: page.unfinished ?? [] };
  }
  const lines = unique([...window.lines, ...page.lines]);
  const remaining = lines.slice(Math.max(0, lines.length - max));
  const isCut = remaining.length < lines.length;
  return {
    lines: remaining,
    first: isCut ? (remaining[0]?.cursor ?? window.first) : (window.first ?? page.first),
    last: page.last,
    atStart: window.atStart && !isCut,
    atEnd: page.at_end,
    unfinished: page.unfinished ?? [],
    leftOut: window.leftOut,
  };
}

/** Removes duplicate lines. */
function unique(lines: LogLine[]): LogLine[] {
  const seen = new Set<string>();
  return lines.filter((line) => !seen.has(line.cursor) && seen.add(line.cursor));
}

/** Groups of about `size` lines that stay the same when lines are added: a hash of the cursor starts a group. */
export function chunks(lines: readonly LogLine[], size = 100): LogLine[][] {
  const found: LogLine[][] = [];
  let now: LogLine[] = [];
  for (const line of lines) {
    if (now.length >= size * 2 || (now.length > 0 && hash(line.cursor) % size === 0)) {
      found.push(now);
      now = [];
    }
    now.push(line);
  }
  if (now.length) found.push(now);
  return found;
}

function hash(text: string): number {
  let found = 7;
  for (let index = 0; index < text.length; index++) found = (found * 31 + text.charCodeAt(index)) >>> 0;
  return found;
}

export type Tone = "error" | "warn" | "trace" | null;

const ERROR =
  /\b(?:error|exception|fatal|panic(?:ked)?|critical|segmentation fault|out of memory|oom-kill\w*|killed|nan loss)\b|\w(?:Error|Exception)\b|^Traceback/i;
const WARN = /\bwarn(?:ing)?\b|\w+Warning\b/i;
const TRACE = /^\s+(?:File "|at )|^Traceback|^\s+\^+\s*$/;
const NO_ERROR =
  /\b(?:no|0|zero|without) (?:errors?|exceptions?)\b|\berrors?[=:]\s*0\b|(?:\w+_|mean |squared |absolute |val |test |train )error\b[\s=:]*[-+.\d]/i;

export function toneOf(text: string): Tone {
  const head = text.slice(0, 2000);
  if (TRACE.test(head)) return "trace";
  if (ERROR.test(head) && !NO_ERROR.test(head)) return "error";
  return WARN.test(head) ? "warn" : null;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it matches
const ESCAPES = /\u001b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-_])/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it matches
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

/** The text as a terminal shows it: without escape sequences, and only the last of overwritten lines. */
export function plainText(text: string): string {
  const plain = text.replace(ESCAPES, "").replace(/\r+$/, "");
  const last = plain.lastIndexOf("\r");
  return (last < 0 ? plain : plain.slice(last + 1)).replace(CONTROLS, "\ufffd");
}

/** Splits a text into matches of the search and the rest. */
export function splitMatches(text: string, searchText: string): { text: string; isHit: boolean }[] {
  if (!searchText) return [{ text, isHit: false }];
  const found: { text: string; isHit: boolean }[] = [];
  const [low, want] = [text.toLowerCase(), searchText.toLowerCase()];
  if (low.length !== text.length) return [{ text, isHit: low.includes(want) }];
  let at = 0;
  for (let hit = low.indexOf(want); hit >= 0; hit = low.indexOf(want, at)) {
    if (hit > at) found.push({ text: text.slice(at, hit), isHit: false });
    found.push({ text: text.slice(hit, hit + want.length), isHit: true });
    at = hit + want.length;
  }
  if (at < text.length) found.push({ text: text.slice(at), isHit: false });
  return found;
}
