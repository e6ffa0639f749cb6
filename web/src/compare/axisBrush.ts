/** Brushes on axes: only runs inside all brushes are shown, on all views. */

import { fieldValue, type MeasuredRun, valueText } from "./fields";

export type Brush = { field: string; low: number; high: number } | { field: string; names: string[] };

/** As in the URL: `params.lr~0.001~0.1`, or `params.optimizer~=adam|sgd`. */
export function brushToText(brush: Brush): string {
  const field = escaped(brush.field);
  if ("names" in brush) return `${field}~=${brush.names.map(escaped).join("|")}`;
  return `${field}~${rounded(brush.low)}~${rounded(brush.high)}`;
}

/** Null if the text is invalid. */
export function parseBrush(text: string): Brush | null {
  const [field, first, second, ...rest] = text.split("~");
  if (!field || first === undefined || rest.length > 0) return null;
  try {
    if (first.startsWith("=")) {
      return { field: decodeURIComponent(field), names: first.slice(1).split("|").map(decodeURIComponent) };
    }
    const low = Number(first);
    const high = Number(second);
    const isRange = first !== "" && second && Number.isFinite(low) && Number.isFinite(high) && low <= high;
    return isRange ? { field: decodeURIComponent(field), low, high } : null;
  } catch {
    return null;
  }
}

/** Escapes the separators of a brush. */
function escaped(text: string): string {
  return encodeURIComponent(text).replace(/~/g, "%7E");
}

function rounded(value: number): string {
  return String(Number(value.toPrecision(6)));
}

export function isInside(run: MeasuredRun, brushes: Brush[]): boolean {
  return brushes.every((brush) => {
    const value = fieldValue(run, brush.field);
    if (value === undefined || value === null) return false;
    if ("names" in brush) return brush.names.includes(valueText(value));
    return typeof value === "number" && value >= brush.low && value <= brush.high;
  });
}

/** Replaces the brush of an axis; null removes it. */
export function withBrush(brushes: Brush[], field: string, brush: Brush | null): Brush[] {
  const others = brushes.filter((other) => other.field !== field);
  return brush === null ? others : [...others, brush];
}
