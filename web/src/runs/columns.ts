// The columns of the table of runs: which there are, which are shown, and how they stand in an address.

import type { RunRow } from "../types";

export type Column = {
  /** As it stands in the address: `user`, `params.lr`, `metric.loss`. */
  key: string;
  title: string;
  /** What the server sorts by, or null where it cannot. */
  sort: string | null;
  width: number;
  right?: boolean;
};

export const BUILT_IN: readonly Column[] = [
  { key: "project", title: "Project", sort: "project", width: 110 },
  { key: "created_at", title: "Created", sort: "created_at", width: 104, right: true },
  { key: "took", title: "Took", sort: null, width: 104, right: true },
  { key: "user", title: "User", sort: "user", width: 92 },
  { key: "framework", title: "Framework", sort: "framework", width: 100 },
  { key: "backend", title: "Where", sort: "backend", width: 92 },
  { key: "group", title: "Group", sort: "group", width: 120 },
  { key: "attempt", title: "Attempt", sort: "attempt", width: 80, right: true },
  { key: "priority", title: "Priority", sort: "priority", width: 80, right: true },
  { key: "commit", title: "Commit", sort: "commit", width: 90 },
  { key: "kind", title: "Kind", sort: "kind", width: 100 },
  { key: "started_at", title: "Started", sort: "started_at", width: 104, right: true },
  { key: "finished_at", title: "Finished", sort: "finished_at", width: 104, right: true },
  { key: "updated_at", title: "Changed", sort: "updated_at", width: 104, right: true },
];

const MOST_METRICS = 3;
const MOST_PARAMS = 2;

export function columnOf(key: string): Column | null {
  const built = BUILT_IN.find((column) => column.key === key);
  if (built) return built;
  const [, head, name] = /^(params|metric)\.(.+)$/s.exec(key) ?? [];
  if (!head || !name) return null;
  const width = Math.min(180, Math.max(92, 34 + name.length * 7));
  return { key, title: name, sort: key, width, right: true };
}

/** Commas part the names in an address, so those within a name are written otherwise. */
export const writeColumns = (keys: readonly string[]): string =>
  keys.map((key) => key.replaceAll("%", "%25").replaceAll(",", "%2C")).join(",");

export const readColumns = (text: string): string[] =>
  text
    .split(",")
    .filter(Boolean)
    .map((key) => key.replaceAll("%2C", ",").replaceAll("%25", "%"));

/** What is shown when the address does not say: what most of the first runs have, and params that differ. */
export function usualColumns(runs: readonly RunRow[], hasProject: boolean): string[] {
  const metrics = most(runs.map((run) => Object.keys(run.summary)));
  const params = most(runs.map((run) => Object.keys(run.params)));
  const telling = params.filter((name) => new Set(runs.map((run) => JSON.stringify(run.params[name]))).size > 1);
  return [
    ...metrics
      .filter((name) => !/^(epoch|step|global_step)$/.test(name))
      .slice(0, MOST_METRICS)
      .map((name) => `metric.${name}`),
    ...telling
      .filter((name) => !/seed/.test(name))
      .slice(0, MOST_PARAMS)
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

/** Of metrics that are equally common, what people look at first. */
function rank(name: string): number {
  const order = [/^(val|eval|test|valid).*loss/, /loss/, /acc/, /(val|eval|test)/];
  const found = order.findIndex((pattern) => pattern.test(name));
  return found < 0 ? order.length : found;
}

/** The names that the server is asked for; null: a name has a comma, so all are. */
export function askedColumns(keys: readonly string[]): string | null {
  const named = keys.filter((key) => key.includes("."));
  return named.some((key) => key.includes(",")) ? null : named.join(",");
}

/** The next way to sort by a column: numbers and times the greatest first, then the other way, then as usual. */
export function nextSort(now: string, column: Column, usual: string): string {
  if (!column.sort) return now;
  const [first, second] = column.right ? [`-${column.sort}`, column.sort] : [column.sort, `-${column.sort}`];
  return now === first ? second : now === second && now !== usual ? usual : now === second ? first : first;
}
