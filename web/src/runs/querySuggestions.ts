// Suggestions for the query language: which term the user edits, and how it can continue. The server validates queries.

import { STATUSES } from "../types";

/** The fields of the language and the kinds of their values. */
export const FIELDS: readonly { name: string; about: string; kind: "text" | "time" | "number" | "tags" | "flag" }[] = [
  { name: "status", about: "running, failed…", kind: "text" },
  { name: "name", about: "name of the run", kind: "text" },
  { name: "tags", about: "any of its tags", kind: "tags" },
  { name: "project", about: "project of the run", kind: "text" },
  { name: "user", about: "who created it", kind: "text" },
  { name: "group", about: "group of runs", kind: "text" },
  { name: "framework", about: "pytorch, tensorflow, jax…", kind: "text" },
  { name: "backend", about: "local, slurm, kubernetes…", kind: "text" },
  { name: "created_at", about: "creation time (UTC)", kind: "time" },
  { name: "started_at", about: "start time", kind: "time" },
  { name: "finished_at", about: "end time", kind: "time" },
  { name: "updated_at", about: "time of the last change", kind: "time" },
  { name: "gpus", about: "GPUs of all replicas", kind: "number" },
  { name: "cpus", about: "CPUs of all replicas", kind: "number" },
  { name: "memory", about: "memory of all replicas: >16g", kind: "number" },
  { name: "replicas", about: "number of replicas", kind: "number" },
  { name: "nodes", about: "number of machines", kind: "number" },
  { name: "host", about: "machine of a replica", kind: "text" },
  { name: "starred", about: "your stars", kind: "flag" },
  { name: "archived", about: "archived runs", kind: "flag" },
  { name: "parent", about: "id of the run that started it", kind: "text" },
  { name: "id", about: "id of the run", kind: "text" },
  { name: "description", about: "description of the run", kind: "text" },
  { name: "kind", about: "experiment, job…", kind: "text" },
  { name: "commit", about: "Git commit of the code", kind: "text" },
  { name: "original", about: "id of the run it was restarted from", kind: "text" },
  { name: "attempt", about: "number of the attempt", kind: "number" },
  { name: "priority", about: "priority in the queue", kind: "number" },
];

/** A part of the text without surrounding spaces. */
export type Piece = { text: string; start: number; end: number };
export type Term = { whole: Piece; field: Piece; value: Piece | null; alternatives: Piece[] };

function cut(text: string, start: number, end: number): Piece {
  let [from, to] = [start, end];
  while (from < to && text[from] === " ") from += 1;
  while (to > from && text[to - 1] === " ") to -= 1;
  return { text: text.slice(from, to), start: from, end: to };
}

/** Splits at every separator outside double quotes, or only at the first. */
function split(text: string, start: number, end: number, separator: string, once = false): [number, number][] {
  const found: [number, number][] = [];
  let from = start;
  let inside = false;
  for (let index = start; index < end; index += 1) {
    if (text[index] === '"') inside = !inside;
    else if (text[index] === separator && !inside && !(once && found.length)) {
      found.push([from, index]);
      from = index + 1;
    }
  }
  found.push([from, end]);
  return found;
}

/** The `field:value` terms of a query, including incomplete ones. */
export function termsOf(text: string): Term[] {
  return split(text, 0, text.length, ",").map(([start, end]) => {
    const [field = [start, end], rest] = split(text, start, end, ":", true);
    const value = rest ? cut(text, rest[0], rest[1]) : null;
    const body = value ? value.start + (value.text.startsWith("~") ? 1 : 0) : 0;
    const alternatives = value ? split(text, body, value.end, "|").map(([from, to]) => cut(text, from, to)) : [];
    return { whole: cut(text, start, end), field: cut(text, field[0], field[1]), value, alternatives };
  });
}

const HEADS = ["metric", "metrics", "min", "max", "best", "params", "declarations"];

function isField(name: string): boolean {
  const dot = name.indexOf(".");
  const isNamed = dot > 0 && dot < name.length - 1 && HEADS.includes(name.slice(0, dot));
  return isNamed || FIELDS.some((field) => field.name === name);
}

/** Whether a query can be submitted: no term is incomplete. */
export function isComplete(text: string): boolean {
  if ((text.split('"').length - 1) % 2) return false;
  return termsOf(text).every(({ whole, field, alternatives }) => {
    if (!whole.text) return true;
    const isEnough = (piece: Piece): boolean => piece.text !== "" && !/^([<>]=?|=|%)$/.test(piece.text);
    return isField(field.text) && alternatives.length > 0 && alternatives.every(isEnough);
  });
}

/** Turns a bare word into a search in names. */
export function normalizeQuery(text: string): string {
  const terms = termsOf(text).filter(({ whole }) => whole.text);
  return terms.map(({ whole, value }) => (value ? whole.text : `name:%${whole.text.replaceAll('"', "")}%`)).join(", ");
}

export const needsQuotes = (text: string): boolean => /[,:"|~<>=%]|^\s|\s$|\.\./.test(text) || text === "";

/** A value or name, in quotes if it needs them. */
export const quoted = (text: string): string => (needsQuotes(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** Reindexs the term of a field; a null value removes it. */
export function withTerm(text: string, field: string, value: string | null): string {
  const others = termsOf(text).filter((term) => term.whole.text && term.field.text !== field);
  const terms = others.map(({ whole }) => whole.text);
  return [...terms, ...(value === null ? [] : [`${field}:${value}`])].join(", ");
}

/** The value of a field in a query, or null. */
export function termValue(text: string, field: string): string | null {
  return termsOf(text).find((term) => term.field.text === field)?.value?.text ?? null;
}

// Suggestions ------------------------------------------------------------------------------------------------------

/** Names and values that exist. */
export type KnownValues = { params: string[]; metrics: string[]; values: Record<string, string[]> };
export type Suggestion = { text: string; about: string };
export type Suggestions = { from: number; to: number; items: Suggestion[] };

const MAX = 12;

/** Suggestions at the caret. An accepted suggestion replaces the text between `from` and `to`. */
export function suggest(text: string, caret: number, known: KnownValues, now = new Date()): Suggestions {
  const term = termsOf(text).find(({ whole }, index, all) => caret <= whole.end || index === all.length - 1);
  if (!term || caret < term.whole.start) return { from: caret, to: caret, items: fields("", known) };
  if (!term.value || caret <= term.field.end) {
    const { start, end } = term.field;
    return { from: start, to: term.value ? end : Math.max(end, caret), items: fields(term.field.text, known) };
  }
  const alternative = term.alternatives.find((piece) => caret <= piece.end) ?? term.alternatives.at(-1);
  if (!alternative) return { from: caret, to: caret, items: [] };
  return { from: alternative.start, to: alternative.end, items: values(term.field.text, alternative.text, known, now) };
}

function fields(typed: string, known: KnownValues): Suggestion[] {
  const params = known.params.map((name) => ({ text: `params.${quoted(name)}:`, about: "param" }));
  const of = (head: string, about: string): Suggestion[] =>
    known.metrics.map((name) => ({ text: `${head}.${quoted(name)}:`, about }));
  const best = /^(m(in|ax)|best)/.test(typed)
    ? [...of("min", "smallest value"), ...of("max", "largest value"), ...of("best", "best value")]
    : [];
  const metrics = [...of("metric", "metric"), ...best];
  const plain = FIELDS.map(({ name, about }) => ({ text: `${name}:`, about }));
  const found = ranked([...plain, ...metrics, ...params], typed);
  const isWord = typed !== "" && !typed.includes(".") && !found.some(({ text }) => text === `${typed}:`);
  return isWord ? [...found.slice(0, MAX - 1), { text: `name:%${typed}%`, about: "name contains" }] : found;
}

function ranked(all: Suggestion[], typed: string): Suggestion[] {
  const search = typed.toLowerCase();
  const rank = ({ text }: Suggestion): number => {
    const at = text.toLowerCase().indexOf(search);
    return at <= 0 ? at : /[._/]/.test(text[at - 1] ?? "") ? 1 : 2;
  };
  const found = all.map((one) => ({ one, rank: rank(one) })).filter(({ rank }) => rank >= 0);
  return found
    .sort((a, b) => a.rank - b.rank)
    .slice(0, MAX)
    .map(({ one }) => one);
}

function values(field: string, typed: string, known: KnownValues, now: Date): Suggestion[] {
  const kind = FIELDS.find(({ name }) => name === field)?.kind;
  if (kind === "time") return times(typed, now);
  if (kind === "number" || /^(metrics?|min|max|best)\./.test(field)) return numbers(typed);
  if (kind === "flag")
    return ranked(
      [
        { text: "true", about: "" },
        { text: "false", about: "" },
      ],
      typed,
    );
  const bare = typed.replace(/^"|"$/g, "").replaceAll("%", "");
  const there = field === "status" ? [...STATUSES] : (known.values[field] ?? []);
  const found = ranked(
    there.map((value) => ({ text: quoted(value), about: "" })),
    bare,
  );
  const isSearch = bare !== "" && field !== "status" && !there.includes(bare);
  const isParam = field.startsWith("params.") && typed === "";
  if (isParam) return [...found, ...numbers("")].slice(0, MAX);
  return isSearch ? [...found, { text: `%${bare}%`, about: "contains" }] : found;
}

function numbers(typed: string): Suggestion[] {
  const signs = [
    { text: "<", about: "less than" },
    { text: "<=", about: "at most" },
    { text: ">", about: "more than" },
    { text: ">=", about: "at least" },
  ];
  return typed === "" ? signs : [];
}

function times(typed: string, now: Date): Suggestion[] {
  const day = (back: number): string => new Date(now.getTime() - back * 86_400_000).toISOString().slice(0, 10);
  const all = [
    { text: ">1h", about: "last hour" },
    { text: ">24h", about: "last 24 hours" },
    { text: ">7d", about: "last 7 days" },
    { text: "<30d", about: "more than 30 days ago" },
    { text: day(0), about: "today" },
    { text: day(1), about: "yesterday" },
    { text: `${day(13)}..${day(7)}`, about: "the week before last" },
  ];
  return all.filter(({ text }) => text.startsWith(typed));
}

/** The query with an accepted suggestion, and the new caret position. */
export function accept(text: string, { from, to }: Suggestions, { text: put }: Suggestion): [string, number] {
  const rest = put.endsWith(":") && text[to] === ":" ? put.slice(0, -1) : put;
  return [text.slice(0, from) + rest + text.slice(to), from + put.length];
}

/** The position of an error, parsed from the server's message. */
export function errorPosition(message: string): { start: number; length: number; message: string } | null {
  const found = /is wrong at character (\d+), `([\s\S]*?)`: ([\s\S]*)$/.exec(message);
  if (!found) return null;
  return { start: Number(found[1]) - 1, length: Math.max(1, found[2]?.length ?? 1), message: found[3] ?? "" };
}
