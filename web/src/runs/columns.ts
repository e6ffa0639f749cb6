// The columns of the runs table, and how the URL encodes them.

import { isLowerBetter } from "../metricDirection";
import type { RunRow } from "../types";

export type Column = {
  /** As in the URL: `user`, `params.lr`, `metric.loss` (its last value), `min.loss`, `max.loss`, `best.loss`. */
  key: string;
  title: string;
  /** The field the server sorts by, or null if it cannot. */
  sort: string | null;
  width: number;
  right?: boolean;
  /** Small values are of more interest: the first click sorts in ascending order. */
  ascending?: boolean;
};

export const BUILT_IN: readonly Column[] = [
  { key: "project", title: "Project", sort: "project", width: 110 },
  { key: "created_at", title: "Created", sort: "created_at", width: 104, right: true },
  { key: "took", title: "Duration", sort: null, width: 104, right: true },
  { key: "user", title: "User", sort: "user", width: 92 },
  { key: "framework", title: "Framework", sort: "framework", width: 100 },
  { key: "backend", title: "Backend", sort: "backend", width: 92 },
  { key: "group", title: "Group", sort: "group", width: 120 },
  { key: "attempt", title: "Attempt", sort: "attempt", width: 80, right: true },
  { key: "priority", title: "Priority", sort: "priority", width: 80, right: true },
  { key: "gpus", title: "GPUs", sort: "gpus", width: 70, right: true },
  { key: "cpus", title: "CPUs", sort: "cpus", width: 70, right: true },
  { key: "memory", title: "Memory", sort: "memory", width: 92, right: true },
  { key: "replicas", title: "Replicas", sort: "replicas", width: 84, right: true },
  { key: "commit", title: "Commit", sort: "commit", width: 90 },
  { key: "kind", title: "Kind", sort: "kind", width: 100 },
  { key: "started_at", title: "Started", sort: "started_at", width: 104, right: true },
  { key: "finished_at", title: "Finished", sort: "finished_at", width: 104, right: true },
  { key: "updated_at", title: "Updated", sort: "updated_at", width: 104, right: true },
];

const MAX_METRICS = 3;
const MAX_PARAMS = 2;

export function columnOf(key: string): Column | null {
  const built = BUILT_IN.find((column) => column.key === key);
  if (built) return built;
  const [, head, name] = /^(params|metric|min|max|best)\.(.+)$/s.exec(key) ?? [];
  if (!head || !name) return null;
  const title = ["min", "max", "best"].includes(head) ? `${head} ${name}` : name;
  const width = Math.min(180, Math.max(92, 34 + title.length * 7));
  return { key, title, sort: key, width, right: true, ascending: head !== "params" && isLowerBetter(name) };
}

/** Commas separate names in the URL, so commas within a name are escaped. */
export const writeColumns = (keys: readonly string[]): string =>
  keys.map((key) => key.replaceAll("%", "%25").replaceAll(",", "%2C")).join(",");

export const readColumns = (text: string): string[] =>
  text
    .split(",")
    .filter(Boolean)
    .map((key) => key.replaceAll("%2C", ",").replaceAll("%25", "%"));

/** The columns shown by default: the most common metrics of the first runs, and params that differ. */
export function defaultColumns(runs: readonly RunRow[], hasProject: boolean): string[] {
  const metrics = most(
    runs.map((run) => [...Object.keys(run.summary), ...(run.search?.metric ? [run.search.metric.name] : [])]),
  );
  const params = most(runs.map((run) => Object.keys(run.params)));
  const differing = params.filter((name) => new Set(runs.map((run) => JSON.stringify(run.params[name]))).size > 1);
  return [
    ...metrics
      .filter((name) => !/^(epoch|step|global_step)$/.test(name))
      .slice(0, MAX_METRICS)
      .map((name) => `metric.${name}`),
    ...differing
      .filter((name) => !/seed/.test(name))
      .slice(0, MAX_PARAMS)
      .map((name) => `params.${name}`),
    ...(hasProject ? [] : ["project"]),
    "user",
    "took",
    "created_at",
  ];
}

function most(lists: string[][]): string[] {
  const counts = new Map<string, number>();
  for (const name of lists.flat()) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || rank(a[0]) - rank(b[0])).map(([name]) => name);
}

/** The order of equally common metrics: losses and accuracies first. */
function rank(name: string): number {
  const order = [/^(val|eval|test|valid).*loss/, /loss/, /acc/, /(val|eval|test)/];
  const found = order.findIndex((pattern) => pattern.test(name));
  return found < 0 ? order.length : found;
}

/** The params and metrics to request; null requests all, because a name contains a comma. */
export function requestedColumns(keys: readonly string[]): string | null {
  const named = keys.filter((key) => key.includes("."));
  return named.some((key) => key.includes(",")) ? null : named.join(",");
}

/**
 * The next sort order of a clicked column: the best metrics, the largest numbers and the newest times first, then
 * reversed, then the default.
 */
export function nextSort(now: string, column: Column, byDefault: string): string {
  if (!column.sort) return now;
  const [first, second] =
    column.right && !column.ascending ? [`-${column.sort}`, column.sort] : [column.sort, `-${column.sort}`];
  return now === first ? second : now === second && now !== byDefault ? byDefault : now === second ? first : first;
}
