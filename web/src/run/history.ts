/** The statuses of a run by attempt, each with its duration. */

import { seconds } from "../format";
import type { StatusRow } from "../types";

export type Step = { row: StatusRow; from: number; to: number; isLast: boolean };
export type Attempt = { number: number; steps: Step[]; from: number; to: number };

export function attemptsOf(statuses: readonly StatusRow[], now: number, isOver: boolean): Attempt[] {
  const rows = [...statuses].sort((one, other) => one.number - other.number);
  const found: Attempt[] = [];
  rows.forEach((row, index) => {
    const next = rows[index + 1];
    const from = seconds(row.at) ?? now;
    const to = next ? (seconds(next.at) ?? from) : isOver ? from : Math.max(now, from);
    const step = { row, from, to, isLast: !next };
    // Statuses before the first attempt are shown with it.
    const number = Math.max(1, row.attempt);
    const last = found[found.length - 1];
    if (last?.number === number) {
      last.steps.push(step);
      last.to = to;
    } else {
      found.push({ number, steps: [step], from, to });
    }
  });
  return found;
}
