/** Texts of charts: axis labels, values at the cursor, and descriptions for screen readers. */

import type { Line, LineChartProps, XKind } from "./types";

export function valueText(value: number | null | undefined, unit?: LineChartProps["unit"]): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (unit === "bytes") return bytesText(value);
  if (unit === "percent") return `${trimmed(value, 3)}%`;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7))
    return value
      .toExponential(3)
      .replace(/\.?0+e/, "e")
      .replace("e+", "e");
  return size >= 1000 ? trimmed(value, 7) : trimmed(value, 5);
}

function trimmed(value: number, digits: number): string {
  return String(Number(value.toPrecision(digits)));
}

function bytesText(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let left = value;
  let unit = 0;
  while (Math.abs(left) >= 1024 && unit < units.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${trimmed(left, 3)} ${units[unit]}`;
}

/** Short text for axis ticks. */
export function axisText(value: number, unit?: LineChartProps["unit"]): string {
  if (unit) return valueText(value, unit);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(1).replace(".0e", "e").replace("e+", "e");
  for (const [limit, letter] of [
    [1e6, "M"],
    [1e4, "k"],
  ] as const) {
    if (size >= limit) return `${trimmed(value / (letter === "M" ? 1e6 : 1e3), 4)}${letter}`;
  }
  return trimmed(value, 5);
}

export function spanText(seconds: number): string {
  const size = Math.abs(seconds);
  if (size < 60) return `${trimmed(seconds, 3)} s`;
  if (size < 3600) return `${trimmed(seconds / 60, 3)} min`;
  if (size < 48 * 3600) return `${trimmed(seconds / 3600, 3)} h`;
  return `${trimmed(seconds / 86_400, 3)} d`;
}

export function xText(value: number, x: XKind): string {
  if (x === "time") return spanText(value);
  if (x === "clock")
    return new Date(value * 1000).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
  return x === "metric" ? trimmed(value, 5) : axisWhole(value);
}

function axisWhole(value: number): string {
  return Math.round(value) === value ? value.toLocaleString("en").replaceAll(",", "\u202f") : trimmed(value, 7);
}

/** Describes a chart: the last, smallest and largest values, and the range of x. */
export function chartDescription(
  title: string,
  lines: readonly Line[],
  x: XKind,
  unit?: LineChartProps["unit"],
  xName = "",
): string {
  const parts: string[] = [];
  for (const line of lines.filter((one) => !one.faint && !one.isPartial).slice(0, 5)) {
    const known = line.y.filter((value): value is number => value !== null && Number.isFinite(value));
    const odd = (line.odd ?? []).reduce((sum, { count }) => sum + count, 0);
    const name = lines.length > 1 ? `${line.label}: ` : "";
    if (odd) parts.push(`${name}${odd} ${odd === 1 ? "value" : "values"} NaN or infinite`);
    if (!known.length) continue;
    const low = least([...(line.low ?? []), ...known]);
    const high = most([...(line.high ?? []), ...known]);
    const last = known[known.length - 1];
    parts.push(`${name}last ${valueText(last, unit)}, min ${valueText(low, unit)}, max ${valueText(high, unit)}`);
  }
  if (!parts.length) return `${title}: no values`;
  const ends = lines.flatMap((line) => [line.x[0], line.x[line.x.length - 1]]).filter((place) => place !== undefined);
  const more = lines.length > 5 ? `; and ${lines.length - 5} more lines` : "";
  return `${title}, by ${x === "clock" ? "time" : x === "metric" ? xName : x}, ${xText(least(ends), x)} to ${xText(most(ends), x)}. ${parts.join("; ")}${more}`;
}

function least(values: readonly (number | null)[]): number {
  return values.reduce<number>(
    (found, value) => (value !== null && value < found ? value : found),
    Number.POSITIVE_INFINITY,
  );
}

function most(values: readonly (number | null)[]): number {
  return values.reduce<number>(
    (found, value) => (value !== null && value > found ? value : found),
    Number.NEGATIVE_INFINITY,
  );
}
