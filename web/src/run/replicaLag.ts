/** How replicas are marked by state and labelled by lag. */

import type { Lag, TopologyReplica } from "../types";

export type ReplicaMark = "wait" | "run" | "ok" | "bad" | "lost" | "stop";

/** The labels in the legend. */
export const LAG_LABELS: Record<Lag, string> = {
  0: "up to date",
  1: "slightly behind",
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

/** The lags of the running replicas. One that logged no step yet is shown without a lag. */
export function shownLags(replicas: readonly TopologyReplica[]): Set<Lag> {
  return new Set(replicas.filter((one) => markOf(one) === "run").map((one) => one.lag ?? 0));
}
