/** The text of a report: Markdown, and fenced blocks that are charts and tables of runs. */

import { xChoice } from "../run/chartLines";

/** Which runs: by id, or by a query in the report's project or another. */
export type RunChoice = { runs: string[]; query: string | null; sort: string; limit: number; project: string };

export type ChartBlock = RunChoice & {
  metrics: string[];
  title: string;
  x: string;
  by: string[];
  logX: boolean;
  logY: boolean;
  smoothing: number;
  range: [number, number] | null;
  height: number;
};

export type TableBlock = RunChoice & { title: string; columns: string[] };

export type Part =
  | { kind: "markdown"; text: string }
  | { kind: "chart"; block: ChartBlock; faults: string[] }
  | { kind: "table"; block: TableBlock; faults: string[] };

const MAX_RUNS = 100;
const MAX_METRICS = 20;
export const MAX_BLOCKS = 100;

const RUN_KEYS = ["runs", "query", "sort", "limit", "project"];
const KEYS = {
  chart: [...RUN_KEYS, "metric", "title", "x", "by", "log_x", "log_y", "smooth", "range", "height"],
  table: [...RUN_KEYS, "title", "columns"],
};

/** Splits a report at its blocks. A block inside of another fence is part of it. */
export function partsOf(text: string): Part[] {
  const parts: Part[] = [];
  let plain: string[] = [];
  const lines = text.split("\n");
  const flush = () => {
    if (plain.some((line) => line.trim())) parts.push({ kind: "markdown", text: plain.join("\n") });
    plain = [];
  };
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at] as string;
    const fence = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/.exec(line);
    if (!fence) {
      plain.push(line);
      continue;
    }
    const [, marks = "", info = ""] = fence;
    let end = at + 1;
    while (end < lines.length && !isEnd(lines[end] as string, marks)) end += 1;
    const kind = info.trim();
    if ((kind === "chart" || kind === "table") && parts.length < MAX_BLOCKS * 2) {
      flush();
      parts.push(blockOf(kind, lines.slice(at + 1, end)));
    } else plain.push(...lines.slice(at, end + 1));
    at = end;
  }
  flush();
  return parts;
}

function isEnd(line: string, marks: string): boolean {
  const found = /^ {0,3}(`{3,}|~{3,})\s*$/.exec(line)?.[1];
  return found !== undefined && found[0] === marks[0] && found.length >= marks.length;
}

function blockOf(kind: "chart" | "table", lines: readonly string[]): Part {
  const faults: string[] = [];
  const values = new Map<string, string>();
  for (const line of lines) {
    if (!line.trim() || line.trim().startsWith("#")) continue;
    const cut = line.indexOf(":");
    const key = line.slice(0, cut < 0 ? undefined : cut).trim();
    if (cut < 0) faults.push(`“${line.trim()}” is not of the form \`key: value\`.`);
    else if (!KEYS[kind].includes(key)) faults.push(`Unknown key “${key}”. Known keys: ${KEYS[kind].join(", ")}.`);
    else values.set(key, line.slice(cut + 1).trim());
  }
  const reader = new Reader(values, faults);
  if (kind === "table") {
    const columns = reader.list("columns", 30);
    return { kind, block: { ...reader.runs(), title: reader.text("title"), columns }, faults };
  }
  const block: ChartBlock = {
    ...reader.runs(),
    metrics: reader.list("metric", MAX_METRICS),
    title: reader.text("title"),
    x: reader.x(),
    by: reader.list("by", 6),
    logX: reader.flag("log_x"),
    logY: reader.flag("log_y"),
    smoothing: reader.number("smooth", 0, 0, 0.99),
    range: reader.range(),
    height: reader.number("height", 300, 120, 900),
  };
  if (!block.metrics.length) faults.push("A chart needs `metric: NAME`.");
  return { kind, block, faults };
}

class Reader {
  constructor(
    private readonly values: ReadonlyMap<string, string>,
    private readonly faults: string[],
  ) {}

  text(key: string): string {
    return this.values.get(key) ?? "";
  }

  list(key: string, most: number): string[] {
    const found = this.text(key)
      .split(",")
      .map((one) => one.trim())
      .filter(Boolean);
    if (found.length > most) this.faults.push(`\`${key}\` has more than ${most} entries.`);
    return [...new Set(found)].slice(0, most);
  }

  flag(key: string): boolean {
    const text = this.text(key);
    if (!["", "true", "false", "yes", "no"].includes(text)) this.faults.push(`\`${key}\` must be true or false.`);
    return text === "true" || text === "yes";
  }

  number(key: string, fallback: number, least: number, most: number): number {
    const text = this.text(key);
    if (!text) return fallback;
    const found = Number(text);
    if (Number.isFinite(found) && found >= least && found <= most) return found;
    this.faults.push(`\`${key}\` must be a number from ${least} to ${most}.`);
    return fallback;
  }

  x(): string {
    const text = this.text("x");
    if (text && text !== "step" && xChoice(text).x === "step") {
      this.faults.push("`x` must be step, time or metric.NAME.");
      return "";
    }
    return text;
  }

  range(): [number, number] | null {
    const text = this.text("range");
    if (!text) return null;
    const [from = Number.NaN, to = Number.NaN] = text.split("..").map((end) => (end.trim() ? Number(end) : Number.NaN));
    if (from < to) return [from, to];
    this.faults.push("`range` must be two numbers, such as 100..500.");
    return null;
  }

  runs(): RunChoice {
    const runs = this.list("runs", MAX_RUNS);
    const query = this.values.get("query") ?? null;
    if (runs.length && query !== null) this.faults.push("Use either `runs` or `query`.");
    const limit = Math.round(this.number("limit", 20, 1, MAX_RUNS));
    return { runs, query: runs.length ? null : query, sort: this.text("sort"), limit, project: this.text("project") };
  }
}
