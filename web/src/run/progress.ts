/** How far training says it is. */

import type { Json } from "../types";

export type Progress = {
  share: number;
  /** `120 of 500 batches`, where it said of how many. */
  words: string;
  at: number | null;
  since: { at: number; share: number } | null;
};

type Said = { [name: string]: Json };

export function progressOf(said: Json | undefined): Progress | null {
  if (typeof said !== "object" || said === null || Array.isArray(said)) return null;
  const total = amount(said.total);
  const done = amount(said.done);
  if (done === null || (total === null && done > 1)) return null;
  const whole = total ?? 1;
  if (!(whole > 0)) return null;
  const since = typeof said.since === "object" && said.since !== null ? (said.since as Said) : {};
  const [sinceAt, sinceDone] = [amount(since.at), amount(since.done)];
  const label = typeof said.label === "string" && said.label ? ` ${said.label}` : "";
  return {
    share: within(done / whole),
    words: total === null ? "" : `${done.toLocaleString("en-US")} of ${total.toLocaleString("en-US")}${label}`,
    at: amount(said.at),
    since: sinceAt === null || sinceDone === null ? null : { at: sinceAt, share: within(sinceDone / whole) },
  };
}

/** Seconds that are left when it goes on as it went; null when nobody can know. */
export function leftOf({ share, at, since }: Progress, now: number): number | null {
  if (!since || at === null || share <= since.share || at <= since.at) return null;
  const whole = ((at - since.at) / (share - since.share)) * (1 - share);
  return Math.max(0, whole - Math.max(0, now - at));
}

const amount = (said: Json | undefined): number | null =>
  typeof said === "number" && Number.isFinite(said) ? said : null;

const within = (share: number): number => Math.min(1, Math.max(0, share));
