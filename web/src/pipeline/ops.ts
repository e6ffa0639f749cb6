/** Texts about the ops of a pipeline. */

import { isDone, type OpRow } from "../api";
import { durationText, elapsedSeconds } from "../format";

/** The page of an op's run; null before it has one. */
export const opUrl = (op: OpRow): string | null => (op.run_id ? `/runs/${encodeURIComponent(op.run_id)}` : null);

export const isOver = (op: OpRow): boolean => op.status !== "waiting" && isDone(op.status);

/** How long an op took, or runs. */
export function opTime(op: OpRow, now: number): string {
  return op.started_at ? durationText(elapsedSeconds(op.started_at, op.ended_at, now)) : "";
}

/** What is most important about an op: how long it ran, why it waits, or why it failed. */
export function opNote(op: OpRow, now: number): string {
  const retry = op.retries ? `retry ${op.retries} of ${op.max_retries}` : "";
  const main = isOver(op) && op.status !== "succeeded" ? op.reason : opTime(op, now) || op.reason;
  return [main, retry].filter(Boolean).join(", ");
}
