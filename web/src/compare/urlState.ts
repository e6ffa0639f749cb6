/** The state of the page in the URL. */

import { type Brush, brushToText, parseBrush } from "./axisBrush";
import type { Band } from "./runGroups";
import type { Kind } from "./scales";

export type View = "charts" | "differences" | "parallel" | "scatter";
/** `epoch` is the metric that looks like epochs; `metric.NAME` is any. */
export type XAxis = "step" | "time" | "epoch" | `metric.${string}`;

export interface Choices {
  runs: string[];
  query: string | null;
  sort: string;
  limit: number;
  project: string;
  view: View;
  metrics: string[]; // empty for all
  x: XAxis;
  logX: boolean;
  logY: boolean;
  smoothing: number;
  zoom: [number, number] | null; // the visible range of the x axis
  by: string[]; // params to group by
  band: Band;
  off: string[]; // hidden runs or groups
  baseline: string;
  everything: boolean;
  find: string; // filter of row names
  flipped: string[]; // metrics with the opposite direction to the one their name suggests
  axes: string[];
  kinds: Record<string, Kind>;
  brushes: Brush[];
  colour: string;
  across: string;
  up: string;
}

export const VIEWS: View[] = ["charts", "differences", "parallel", "scatter"];
export const DEFAULT_LIMIT = 50;
export const MAX_RUNS = 100;

const KINDS: Kind[] = ["linear", "log", "category"];

function one<T extends string>(text: string | null, known: readonly T[], fallback: T): T {
  return known.find((word) => word === text) ?? fallback;
}

function number(text: string | null, fallback: number, least: number, most: number): number {
  const found = text === null || text === "" ? Number.NaN : Number(text);
  return Number.isFinite(found) ? Math.min(most, Math.max(least, found)) : fallback;
}

function range(text: string | null): [number, number] | null {
  const [low, high, ...rest] = (text ?? "").split("..").map((end) => (end === "" ? Number.NaN : Number(end)));
  if (low === undefined || high === undefined || rest.length > 0) return null;
  return Number.isFinite(low) && Number.isFinite(high) && low < high ? [low, high] : null;
}

function xAxis(text: string | null): XAxis {
  if (text?.startsWith("metric.") && text.length > 7) return text as XAxis;
  return one(text, ["step", "time", "epoch"] as const, "step");
}

export function parseChoices(search: URLSearchParams): Choices {
  const all = (name: string) => [...new Set(search.getAll(name).filter((text) => text !== ""))];
  const kinds: Record<string, Kind> = {};
  for (const text of all("kind")) {
    const cut = text.lastIndexOf("~");
    const kind = KINDS.find((word) => word === text.slice(cut + 1));
    if (cut > 0 && kind) kinds[text.slice(0, cut)] = kind;
  }
  return {
    runs: all("run").slice(0, MAX_RUNS),
    query: search.get("q"),
    sort: search.get("sort") ?? "",
    limit: Math.round(number(search.get("limit"), DEFAULT_LIMIT, 1, MAX_RUNS)),
    project: search.get("project") ?? "",
    view: one(search.get("view"), VIEWS, "charts"),
    metrics: all("metric"),
    x: xAxis(search.get("x")),
    logX: search.get("logx") === "1",
    logY: search.get("logy") === "1",
    smoothing: number(search.get("smooth"), 0, 0, 0.99),
    zoom: range(search.get("zoom")),
    by: all("by"),
    band: one(search.get("band"), ["range", "deviation"] as const, "deviation"),
    off: all("off"),
    baseline: search.get("base") ?? "",
    everything: search.get("all") === "1",
    find: search.get("find") ?? "",
    flipped: all("flip"),
    axes: all("axis"),
    kinds,
    brushes: all("brush").flatMap((text) => parseBrush(text) ?? []),
    colour: search.get("colour") ?? "",
    across: search.get("across") ?? "",
    up: search.get("up") ?? "",
  };
}

/** The URL parameters: only values that differ from the default, to keep it short. */
export function choicesToParams(choices: Choices): URLSearchParams {
  const search = new URLSearchParams();
  const put = (name: string, value: string) => value !== "" && search.append(name, value);
  for (const run of choices.runs) put("run", run);
  if (choices.query !== null) search.append("q", choices.query);
  put("sort", choices.sort);
  if (choices.query !== null && choices.limit !== DEFAULT_LIMIT) put("limit", String(choices.limit));
  put("project", choices.project);
  if (choices.view !== "charts") put("view", choices.view);
  for (const name of choices.metrics) put("metric", name);
  if (choices.x !== "step") put("x", choices.x);
  if (choices.logX) put("logx", "1");
  if (choices.logY) put("logy", "1");
  if (choices.smoothing > 0) put("smooth", String(choices.smoothing));
  if (choices.zoom !== null) put("zoom", choices.zoom.map((end) => Number(end.toPrecision(8))).join(".."));
  for (const name of choices.by) put("by", name);
  if (choices.band !== "deviation") put("band", choices.band);
  for (const key of choices.off) put("off", key);
  put("base", choices.baseline);
  if (choices.everything) put("all", "1");
  put("find", choices.find);
  for (const name of choices.flipped) put("flip", name);
  for (const field of choices.axes) put("axis", field);
  for (const [field, kind] of Object.entries(choices.kinds)) put("kind", `${field}~${kind}`);
  for (const brush of choices.brushes) put("brush", brushToText(brush));
  put("colour", choices.colour);
  put("across", choices.across);
  put("up", choices.up);
  return search;
}
