/** The colours of replicas: by state, and by lag behind the front, the highest step of any replica. */

import type { TopologyReplica } from "../types";

export type Lag = 0 | 1 | 2 | 3;
export type ReplicaMark = "wait" | "run" | "ok" | "bad" | "lost" | "stop";

/** The labels in the legend. */
export const LAG_LABELS: Record<Lag, string> = {
  0: "at the front",
  1: "a little behind",
  2: "behind",
  3: "far behind",
};

export const MARKS: Record<ReplicaMark, { symbol: string; label: string }> = {
  wait: { symbol: "·", label: "waiting" },
  run: { symbol: "", label: "running" },
  ok: { symbol: "✓", label: "finished" },
  bad: { symbol: "✕", label: "failed" },
  lost: { symbol: "?", label: "lost" },
  stop: { symbol: "–", label: "stopped" },
};

/** The lag relative to the steps done. One or two steps are never a lag. */
export function lagOf(behind: number | null, front: number | null): Lag {
  if (behind === null || front === null || behind <= 1) return 0;
  const share = behind / Math.max(front, 1);
  if (behind <= 2 || share <= 0.005) return 0;
  if (share <= 0.03) return 1;
  return share <= 0.15 ? 2 : 3;
}

export function markOf({ status, cause }: Pick<TopologyReplica, "status" | "cause">): ReplicaMark {
  if (cause === "lost" || status === "lost" || status === "unknown") return "lost";
  if (status === "failed") return "bad";
  if (status === "succeeded" || status === "finished") return "ok";
  if (status === "stopped" || status === "skipped") return "stop";
  return status === "running" || status === "warning" ? "run" : "wait";
}

/** Replicas by role, in order of rank; roles in order of their first rank. */
export function byRole<One extends Pick<TopologyReplica, "role" | "rank" | "index">>(
  replicas: readonly One[],
): { role: string; replicas: One[] }[] {
  const found = new Map<string, One[]>();
  for (const one of [...replicas].sort((a, b) => a.rank - b.rank || a.index - b.index)) {
    const group = found.get(one.role);
    if (group) group.push(one);
    else found.set(one.role, [one]);
  }
  return [...found].map(([role, group]) => ({ role, replicas: group }));
}

export type MarkCounts = { mark: ReplicaMark; count: number }[];

export function countByMark(replicas: readonly TopologyReplica[]): MarkCounts {
  const counts = new Map<ReplicaMark, number>();
  for (const one of replicas) counts.set(markOf(one), (counts.get(markOf(one)) ?? 0) + 1);
  const order: ReplicaMark[] = ["bad", "lost", "run", "wait", "stop", "ok"];
  return order.flatMap((mark) => (counts.has(mark) ? [{ mark, count: counts.get(mark) as number }] : []));
}

/** The running replica with the largest lag, or null if none lags. */
export function findStraggler(replicas: readonly TopologyReplica[], front: number | null): TopologyReplica | null {
  let found: TopologyReplica | null = null;
  for (const one of replicas) {
    if (markOf(one) !== "run" || lagOf(one.behind, front) === 0) continue;
    if ((one.behind ?? 0) > (found?.behind ?? 0)) found = one;
  }
  return found;
}
