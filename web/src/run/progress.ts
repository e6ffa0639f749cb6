/** The progress that training reported. */

import type { Json } from "../types";

export type Progress = {
  share: number;
  /** `120 of 500 batches`, if the total is known. */
  text: string;
  at: number | null;
  since: { at: number; share: number } | null;
};

type ProgressFact = { [name: string]: Json };

export function progressOf(fact: Json | undefined): Progress | null {
  if (typeof fact !== "object" || fact === null || Array.isArray(fact)) return null;
  const total = amount(fact.total);
  const done = amount(fact.done);
  if (done === null || (total === null && done > 1)) return null;
  const whole = total ?? 1;
  if (!(whole > 0)) return null;
  const since = typeof fact.since === "object" && fact.since !== null ? (fact.since as ProgressFact) : {};
  const [sinceAt, sinceDone] = [amount(since.at), amount(since.done)];
  const label = typeof fact.label === "string" && fact.label ? ` ${fact.label}` : "";
  return {
    share: within(done / whole),
    text: total === null ? "" : `${done.toLocaleString("en-US")} of ${total.toLocaleString("en-US")}${label}`,
    at: amount(fact.at),
    since: sinceAt === null || sinceDone === null ? null : { at: sinceAt, share: within(sinceDone / whole) },
  };
}

/** The estimated seconds left at the current speed; null if unknown. */
export function secondsLeft({ share, at, since }: Progress, now: number): number | null {
  if (!since || at === null || share <= since.share || at <= since.at) return null;
  const whole = ((at - since.at) / (share - since.share)) * (1 - share);
  return Math.max(0, whole - Math.max(0, now - at));
}

const amount = (fact: Json | undefined): number | null =>
  typeof fact === "number" && Number.isFinite(fact) ? fact : null;

const within = (share: number): number => Math.min(1, Math.max(0, share));
