/** The table of differences between runs: which rows are shown, and which values are best. */

import { num } from "../format";
import type { Json } from "../types";
import { isLowerBetter, valueText } from "./fields";

const toNumber = (value: unknown): number | null => num(value as Json);

export interface ComparedRow {
  group: string;
  name: string;
  values: unknown[];
  differs: boolean;
}

export interface Section {
  group: string;
  rows: ComparedRow[];
  hidden: number;
}

const ORDER = ["metrics", "params", "spec", "code", "environment"];
export const TITLES: Record<string, string> = {
  metrics: "Metrics (last value)",
  params: "Params",
  spec: "Spec",
  code: "Code",
  environment: "Environment",
};

/** The rows by group. Rows without differences are only counted unless `everything` is set. */
export function sections(rows: ComparedRow[], everything: boolean, find = ""): Section[] {
  const search = find.trim().toLowerCase();
  const groups = new Map<string, Section>();
  for (const row of rows) {
    const section = groups.get(row.group) ?? { group: row.group, rows: [], hidden: 0 };
    groups.set(row.group, section);
    if (search && !row.name.toLowerCase().includes(search)) continue;
    if (row.differs || everything) section.rows.push(row);
    else section.hidden++;
  }
  const place = (group: string) => (ORDER.includes(group) ? ORDER.indexOf(group) : ORDER.length);
  return [...groups.values()].sort((a, b) => place(a.group) - place(b.group));
}

/** The indexes of the best value: several on a tie, none if all are equal or not numbers. */
export function bestIndexes(values: unknown[], lower: boolean): number[] {
  const numbers = values.map(toNumber);
  const finite = numbers.filter((value): value is number => value !== null && Number.isFinite(value));
  if (finite.length < 2 || finite.every((value) => value === finite[0])) return [];
  const best = lower ? Math.min(...finite) : Math.max(...finite);
  return numbers.flatMap((value, place) => (value === best ? [place] : []));
}

/** Whether lower is better, from the name of the metric; `flipped` lists metrics the user reversed. */
export function isLowerBest(name: string, flipped: string[]): boolean {
  return isLowerBetter(name) !== flipped.includes(name);
}

/** The change against the baseline: `+12%`, `same`, or empty if it has no meaning. */
export function relativeChange(value: unknown, base: unknown): string {
  const [a, b] = [toNumber(value), toNumber(base)];
  if (a === null || b === null || !Number.isFinite(a) || !Number.isFinite(b)) {
    return valueText(value) === valueText(base) ? "same" : "";
  }
  if (a === b) return "same";
  if (b === 0) return "";
  const percent = ((a - b) / Math.abs(b)) * 100;
  const size = Math.abs(percent);
  const digits = size >= 10_000 ? null : size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  if (digits === null) return `${percent > 0 ? "+" : "−"}${(size / 100).toFixed(0)}×`;
  return `${percent > 0 ? "+" : "−"}${size.toFixed(digits)}%`;
}
