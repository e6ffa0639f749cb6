// Formats numbers, times, sizes and values.

import type { Json, Num } from "./types";

/** Converts a number of the API, including the strings for NaN and infinity; null for anything else. */
export function num(value: Num | Json | undefined): number | null {
  if (typeof value === "number") return value;
  if (value === "NaN") return Number.NaN;
  if (value === "Infinity") return Number.POSITIVE_INFINITY;
  if (value === "-Infinity") return Number.NEGATIVE_INFINITY;
  return null;
}

/** `0.01234`, `1,234`, `1.2e-7`: about `digits` significant digits, without trailing zeros. */
export function number(value: number | null | undefined, digits = 4): string {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e7) return minus(value.toLocaleString("en-US"));
  if (size >= 1e7 || size < 1e-4)
    return minus(
      value
        .toExponential(Math.max(0, digits - 2))
        .replace(/\.?0+e/, "e")
        .replace("e+", "e"),
    );
  if (size >= 1000) return minus(value.toLocaleString("en-US", { maximumFractionDigits: size >= 1e4 ? 0 : 1 }));
  return minus(String(Number(value.toPrecision(digits))));
}

const minus = (text: string): string => text.replace(/^-/, "−");

export const count = (value: number): string => value.toLocaleString("en-US");

/** `1 run`, `2 runs`. */
export const plural = (amount: number, word: string, pluralWord = `${word}s`): string =>
  `${count(amount)} ${amount === 1 ? word : pluralWord}`;

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(amount: number | null | undefined): string {
  if (amount === null || amount === undefined || !Number.isFinite(amount)) return "–";
  let unit = 0;
  let left = amount;
  while (Math.abs(left) >= 1023.95 && unit < SIZES.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(left) : left.toFixed(left < 10 ? 1 : left < 100 ? 1 : 0).replace(/\.0$/, "")} ${SIZES[unit]}`;
}

export const mib = (amount: number | null | undefined): string =>
  amount === null || amount === undefined ? "–" : bytes(amount * 1024 * 1024);

/** `0.4 s`, `12 s`, `3 min 05 s`, `2 h 14 min`, `3 d 4 h`. */
export function durationText(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const left = Math.max(0, seconds);
  if (left < 1) return `${Math.round(left * 1000)} ms`;
  if (left < 10) return `${left.toFixed(1)} s`;
  if (left < 60) return `${Math.floor(left)} s`;
  const pad = (amount: number): string => String(Math.floor(amount)).padStart(2, "0");
  if (left < 3600) return `${Math.floor(left / 60)} min ${pad(left % 60)} s`;
  if (left < 86_400) return `${Math.floor(left / 3600)} h ${pad((left % 3600) / 60)} min`;
  return `${Math.floor(left / 86_400)} d ${Math.floor((left % 86_400) / 3600)} h`;
}

/** Seconds since the epoch, from an ISO time or a number of seconds. */
export function seconds(time: string | number | null | undefined): number | null {
  if (time === null || time === undefined) return null;
  if (typeof time === "number") return time;
  const found = Date.parse(time);
  return Number.isNaN(found) ? null : found / 1000;
}

/** Seconds from start to end, or until now. */
export function elapsedSeconds(from: string | null, to: string | null, now = Date.now() / 1000): number | null {
  const start = seconds(from);
  return start === null ? null : (seconds(to) ?? now) - start;
}

/** `now`, `5 min ago`, `3 h ago`, `12 d ago`, then the date. */
export function ago(time: string | number | null | undefined, now = Date.now() / 1000): string {
  const at = seconds(time);
  if (at === null) return "–";
  const past = now - at;
  if (past < 5 && past > -60) return "now";
  if (past < 0) return timestamp(at);
  if (past < 60) return `${Math.floor(past)} s ago`;
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 86_400) return `${Math.floor(past / 3600)} h ago`;
  if (past < 30 * 86_400) return `${Math.floor(past / 86_400)} d ago`;
  return day(at);
}

const pad = (amount: number): string => String(amount).padStart(2, "0");

/** `2026-01-31` in the local time zone. */
export function day(time: string | number | null | undefined): string {
  const at = seconds(time);
  if (at === null) return "–";
  const date = new Date(at * 1000);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}

/** `13:45:07` in the local time zone. */
export function clock(time: string | number | null | undefined): string {
  const at = seconds(time);
  if (at === null) return "–";
  const date = new Date(at * 1000);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** `2026-01-31 13:45:07` in the local time zone. */
export const timestamp = (time: string | number | null | undefined): string =>
  seconds(time) === null ? "–" : `${day(time)} ${clock(time)}`;

/** A value on one line. */
export function value(found: Json | undefined): string {
  if (found === undefined || found === null) return "–";
  if (typeof found === "string") return visible(found);
  if (typeof found === "number") return exact(found);
  if (typeof found === "boolean") return String(found);
  return JSON.stringify(found);
}

/** A number with all its digits. */
export const exact = (found: number): string => (Number.isFinite(found) ? String(found) : number(found));

/** As `value`, but rounded: 0.3 for 0.30000000000000004. */
export const short = (found: Json | undefined): string =>
  typeof found === "number" && !Number.isInteger(found) ? exact(Number(found.toPrecision(5))) : value(found);

/** The name of a run, or its id. */
export const runTitle = (run: { id: string; name: string | null }): string => visible(run.name || run.id);

// Control and format characters: some reorder the text after them, others have no width. The joiners U+200C and U+200D
// stay: some scripts and emoji need them.
const INVISIBLE = /(?![\t\n\r\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** A name that a user gave, with invisible characters spelled out: no name looks like another one, or like a sentence. */
export const visible = (name: string): string =>
  name.replace(INVISIBLE, (sign) => `\\u{${(sign.codePointAt(0) ?? 0).toString(16)}}`);
