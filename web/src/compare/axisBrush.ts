/** Parts of axes that were chosen: only the runs inside all of them are shown, everywhere. */

import { fieldValue, type MeasuredRun, valueText } from "./fields";

export type Brush = { field: string; low: number; high: number } | { field: string; names: string[] };

/** As it stands in the address: `params.lr~0.001~0.1`, or `params.optimizer~=adam|sgd`. */
export function writeBrush(brush: Brush): string {
  const field = plain(brush.field);
  if ("names" in brush) return `${field}~=${brush.names.map(plain).join("|")}`;
  return `${field}~${compact(brush.low)}~${compact(brush.high)}`;
}

/** null: it says nothing that can be understood. */
export function readBrush(text: string): Brush | null {
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

/** Without the signs that part a brush. */
function plain(text: string): string {
  return encodeURIComponent(text).replace(/~/g, "%7E");
}

function compact(value: number): string {
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

/** The brushes with this one in place of that of the same axis; without `brush`, that of the axis is gone. */
export function withBrush(brushes: Brush[], field: string, brush: Brush | null): Brush[] {
  const others = brushes.filter((other) => other.field !== field);
  return brush === null ? others : [...others, brush];
}
