/** The table of what differs between runs: which rows are shown, and which values are marked. */

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
  spec: "File",
  code: "Code",
  environment: "Environment",
};

/** The rows by what they are about. What is the same in all is only counted, unless everything is wanted. */
export function sections(rows: ComparedRow[], everything: boolean, find = ""): Section[] {
  const wanted = find.trim().toLowerCase();
  const groups = new Map<string, Section>();
  for (const row of rows) {
    const section = groups.get(row.group) ?? { group: row.group, rows: [], hidden: 0 };
    groups.set(row.group, section);
    if (wanted && !row.name.toLowerCase().includes(wanted)) continue;
    if (row.differs || everything) section.rows.push(row);
    else section.hidden++;
  }
  const place = (group: string) => (ORDER.includes(group) ? ORDER.indexOf(group) : ORDER.length);
  return [...groups.values()].sort((a, b) => place(a.group) - place(b.group));
}

/** Where the best value of a metric is: several places when they tie, none when all are the same or it is no number. */
export function bestIndexes(values: unknown[], lower: boolean): number[] {
  const numbers = values.map(toNumber);
  const finite = numbers.filter((value): value is number => value !== null && Number.isFinite(value));
  if (finite.length < 2 || finite.every((value) => value === finite[0])) return [];
  const best = lower ? Math.min(...finite) : Math.max(...finite);
  return numbers.flatMap((value, place) => (value === best ? [place] : []));
}

/** Which of the two a metric's name and the reader's own word make it; `flipped` are the names said otherwise. */
export function isLower(name: string, flipped: string[]): boolean {
  return isLowerBetter(name) !== flipped.includes(name);
}

/** How a value stands to that of the baseline: `+12%`, `same`, or nothing that can be said. */
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
