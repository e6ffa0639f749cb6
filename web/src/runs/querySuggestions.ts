// The query language of lists, as far as an input needs it: which part is being written, and how it could go on.
// The server has the last word on what is right.

import { STATUSES } from "../types";

/** Fields, what they are, and what stands after their colon. */
export const FIELDS: readonly { name: string; about: string; kind: "text" | "time" | "number" | "tags" }[] = [
  { name: "status", about: "how the run is: running, failed…", kind: "text" },
  { name: "name", about: "what the run is called", kind: "text" },
  { name: "tags", about: "one of its tags", kind: "tags" },
  { name: "project", about: "which project it belongs to", kind: "text" },
  { name: "user", about: "who started it", kind: "text" },
  { name: "group", about: "runs of one file", kind: "text" },
  { name: "framework", about: "pytorch, tensorflow, jax…", kind: "text" },
  { name: "backend", about: "where it ran", kind: "text" },
  { name: "created_at", about: "when it was made (UTC)", kind: "time" },
  { name: "started_at", about: "when it began", kind: "time" },
  { name: "finished_at", about: "when it was done", kind: "time" },
  { name: "updated_at", about: "when it last changed", kind: "time" },
  { name: "id", about: "its id", kind: "text" },
  { name: "description", about: "what it is about", kind: "text" },
  { name: "kind", about: "experiment, job…", kind: "text" },
  { name: "commit", about: "of the code", kind: "text" },
  { name: "original", about: "the run it is a copy of", kind: "text" },
  { name: "attempt", about: "how often it was started", kind: "number" },
  { name: "priority", about: "in the queue", kind: "number" },
];

/** A stretch of the text, without the blanks around it. */
export type Piece = { text: string; start: number; end: number };
export type Term = { whole: Piece; field: Piece; value: Piece | null; alternatives: Piece[] };

function cut(text: string, start: number, end: number): Piece {
  let [from, to] = [start, end];
  while (from < to && text[from] === " ") from += 1;
  while (to > from && text[to - 1] === " ") to -= 1;
  return { text: text.slice(from, to), start: from, end: to };
}

/** Cut at every separator outside of double quotes, or at the first. */
function split(text: string, start: number, end: number, separator: string, once = false): [number, number][] {
  const found: [number, number][] = [];
  let from = start;
  let inside = false;
  for (let place = start; place < end; place += 1) {
    if (text[place] === '"') inside = !inside;
    else if (text[place] === separator && !inside && !(once && found.length)) {
      found.push([from, place]);
      from = place + 1;
    }
  }
  found.push([from, end]);
  return found;
}

/** Every `field:value` of a query, also those that are not finished. */
export function termsOf(text: string): Term[] {
  return split(text, 0, text.length, ",").map(([start, end]) => {
    const [field = [start, end], rest] = split(text, start, end, ":", true);
    const value = rest ? cut(text, rest[0], rest[1]) : null;
    const body = value ? value.start + (value.text.startsWith("~") ? 1 : 0) : 0;
    const alternatives = value ? split(text, body, value.end, "|").map(([from, to]) => cut(text, from, to)) : [];
    return { whole: cut(text, start, end), field: cut(text, field[0], field[1]), value, alternatives };
  });
}

const HEADS = ["metric", "metrics", "params", "declarations"];

function isField(name: string): boolean {
  const dot = name.indexOf(".");
  const isNamed = dot > 0 && dot < name.length - 1 && HEADS.includes(name.slice(0, dot));
  return isNamed || FIELDS.some((field) => field.name === name);
}

/** Whether a query could be asked as it is: nothing in it is still being written. */
export function isComplete(text: string): boolean {
  if ((text.split('"').length - 1) % 2) return false;
  return termsOf(text).every(({ whole, field, alternatives }) => {
    if (!whole.text) return true;
    const isEnough = (piece: Piece): boolean => piece.text !== "" && !/^([<>]=?|=|%)$/.test(piece.text);
    return isField(field.text) && alternatives.length > 0 && alternatives.every(isEnough);
  });
}

/** What people type without knowing the language: a word alone is looked for in names. */
export function meant(text: string): string {
  const terms = termsOf(text).filter(({ whole }) => whole.text);
  return terms.map(({ whole, value }) => (value ? whole.text : `name:%${whole.text.replaceAll('"', "")}%`)).join(", ");
}

export const needsQuotes = (text: string): boolean => /[,:"|~<>=%]|^\s|\s$|\.\./.test(text) || text === "";

/** A value or a name that the language takes as it is. */
export const quoted = (text: string): string => (needsQuotes(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** `status:failed` added to a query, in place of what it says of that field. */
export function withTerm(text: string, field: string, value: string | null): string {
  const others = termsOf(text).filter((term) => term.whole.text && term.field.text !== field);
  const kept = others.map(({ whole }) => whole.text);
  return [...kept, ...(value === null ? [] : [`${field}:${value}`])].join(", ");
}

/** What a query says of a field, or null. */
export function told(text: string, field: string): string | null {
  return termsOf(text).find((term) => term.field.text === field)?.value?.text ?? null;
}

// Suggestions ------------------------------------------------------------------------------------------------------

/** What is there to be asked for. */
export type Known = { params: string[]; metrics: string[]; values: Record<string, string[]> };
export type Suggestion = { text: string; about: string };
export type Suggestions = { from: number; to: number; items: Suggestion[] };

const MOST = 12;

/** How the part of a query at the caret could go on. `from` and `to`: what a suggestion takes the place of. */
export function suggest(text: string, caret: number, known: Known, now = new Date()): Suggestions {
  const term = termsOf(text).find(({ whole }, place, all) => caret <= whole.end || place === all.length - 1);
  if (!term || caret < term.whole.start) return { from: caret, to: caret, items: fields("", known) };
  if (!term.value || caret <= term.field.end) {
    const { start, end } = term.field;
    return { from: start, to: term.value ? end : Math.max(end, caret), items: fields(term.field.text, known) };
  }
  const alternative = term.alternatives.find((piece) => caret <= piece.end) ?? term.alternatives.at(-1);
  if (!alternative) return { from: caret, to: caret, items: [] };
  return { from: alternative.start, to: alternative.end, items: values(term.field.text, alternative.text, known, now) };
}

function fields(begun: string, known: Known): Suggestion[] {
  const params = known.params.map((name) => ({ text: `params.${quoted(name)}:`, about: "param" }));
  const metrics = known.metrics.map((name) => ({ text: `metric.${quoted(name)}:`, about: "metric" }));
  const plain = FIELDS.map(({ name, about }) => ({ text: `${name}:`, about }));
  const found = ranked([...plain, ...metrics, ...params], begun);
  const isWord = begun !== "" && !begun.includes(".") && !found.some(({ text }) => text === `${begun}:`);
  return isWord ? [...found.slice(0, MOST - 1), { text: `name:%${begun}%`, about: "has it in its name" }] : found;
}

function ranked(all: Suggestion[], begun: string): Suggestion[] {
  const wanted = begun.toLowerCase();
  const rank = ({ text }: Suggestion): number => {
    const at = text.toLowerCase().indexOf(wanted);
    return at <= 0 ? at : /[._/]/.test(text[at - 1] ?? "") ? 1 : 2;
  };
  const found = all.map((one) => ({ one, rank: rank(one) })).filter(({ rank }) => rank >= 0);
  return found
    .sort((a, b) => a.rank - b.rank)
    .slice(0, MOST)
    .map(({ one }) => one);
}

function values(field: string, begun: string, known: Known, now: Date): Suggestion[] {
  const kind = FIELDS.find(({ name }) => name === field)?.kind;
  if (kind === "time") return times(begun, now);
  if (kind === "number" || /^metrics?\./.test(field)) return numbers(begun);
  const bare = begun.replace(/^"|"$/g, "").replaceAll("%", "");
  const there = field === "status" ? [...STATUSES] : (known.values[field] ?? []);
  const found = ranked(
    there.map((value) => ({ text: quoted(value), about: "" })),
    bare,
  );
  const isSearch = bare !== "" && field !== "status" && !there.includes(bare);
  const isParam = field.startsWith("params.") && begun === "";
  if (isParam) return [...found, ...numbers("")].slice(0, MOST);
  return isSearch ? [...found, { text: `%${bare}%`, about: "has it somewhere in it" }] : found;
}

function numbers(begun: string): Suggestion[] {
  const signs = [
    { text: "<", about: "less than" },
    { text: "<=", about: "at most" },
    { text: ">", about: "more than" },
    { text: ">=", about: "at least" },
  ];
  return begun === "" ? signs : [];
}

function times(begun: string, now: Date): Suggestion[] {
  const day = (back: number): string => new Date(now.getTime() - back * 86_400_000).toISOString().slice(0, 10);
  const all = [
    { text: day(0), about: "today" },
    { text: day(1), about: "yesterday" },
    { text: `>=${day(6)}`, about: "the last 7 days" },
    { text: `>=${day(29)}`, about: "the last 30 days" },
    { text: `<${day(29)}`, about: "older than 30 days" },
    { text: `${day(13)}..${day(7)}`, about: "the week before" },
  ];
  return all.filter(({ text }) => text.startsWith(begun));
}

/** A suggestion put into the query, and where the caret is then. */
export function accept(text: string, { from, to }: Suggestions, { text: put }: Suggestion): [string, number] {
  const rest = put.endsWith(":") && text[to] === ":" ? put.slice(0, -1) : put;
  return [text.slice(0, from) + rest + text.slice(to), from + put.length];
}

/** Where the server says that a query is wrong: the characters from `start` on, as long as what it names. */
export function faultIn(message: string): { start: number; length: number; told: string } | null {
  const found = /is wrong at character (\d+), `([\s\S]*?)`: ([\s\S]*)$/.exec(message);
  if (!found) return null;
  return { start: Number(found[1]) - 1, length: Math.max(1, found[2]?.length ?? 1), told: found[3] ?? "" };
}
