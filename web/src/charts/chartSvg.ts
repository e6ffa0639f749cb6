/** Draws a chart as an SVG text: for downloads, and for reports that need no scripts. */

import { extent, padded } from "./alignment";
import { axisText, spanText, xText } from "./labels";
import { type DrawnLine, stretches } from "./overlays";
import { dashOf, type Palette } from "./palette";
import { linearTicks, logTicks, timeTicks } from "./ticks";
import type { LineChartProps, XKind } from "./types";

const FONT = 'font-family="system-ui, -apple-system, Segoe UI, sans-serif"';
const RIGHT = 16;
const FOOT = 26;
const LEGEND_ROW = 18;
const LETTER = 6.4; // about the width of one

export type ChartPicture = Pick<
  LineChartProps,
  "title" | "x" | "xName" | "logX" | "logY" | "range" | "unit" | "note" | "fromZero"
> & {
  lines: readonly DrawnLine[];
  colors: Palette;
  width?: number;
  height?: number;
};

/** Text for SVG and HTML. Characters that XML forbids are dropped. */
export function escaped(text: string): string {
  return text
    .replace(/(?![\t\n\r])\p{Cc}|\p{Cs}|\ufffe|\uffff/gu, "")
    .replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
}

type Scale = (value: number) => number;

function scale([low, high]: readonly [number, number], [from, to]: readonly [number, number], isLog: boolean): Scale {
  const place = isLog ? Math.log10 : (value: number) => value;
  const [first, last] = [place(low), place(high)];
  return (value) => from + ((place(value) - first) / (last - first || 1)) * (to - from);
}

/** The range of the x axis: the zoom, or all of it. */
function xRange({ lines, range, logX }: ChartPicture): [number, number] {
  if (range) return range;
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const line of lines) {
    for (const x of line.x) {
      if (x < low) low = x;
      if (x > high) high = x;
    }
  }
  if (!(low <= high)) return logX ? [1, 10] : [0, 1];
  if (low < high) return [low, high];
  return logX && low > 0 ? [low / 2, low * 2] : [low - 0.5, low + 0.5];
}

let drawn = 0; // a page with several pictures needs different ids

export function chartSvg(picture: ChartPicture): string {
  const clip = `plot-${++drawn}`;
  const {
    lines,
    colors,
    title,
    note,
    unit,
    logX = false,
    logY = false,
    x = "step",
    width = 720,
    height = 360,
  } = picture;
  const named = lines.filter((line) => !line.faint && !line.isPartial);
  const legend = named.length > 1 ? legendRows(named, width - 24) : [];
  const across = xRange(picture);
  const found =
    extent(lines, ...across, logY) ?? extent(lines, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, logY);
  const up = padded(found ?? (logY ? [1, 10] : [0, 1]), logY);
  if (picture.fromZero && up[0] > 0 && !logY) up[0] = 0;
  const top = title || note ? 34 : 12;
  const bottom = height - FOOT - legend.length * LEGEND_ROW - (legend.length ? 6 : 0);
  const yTicks = logY ? logTicks(...up, 6) : linearTicks(...up, Math.max(2, (bottom - top) / 44));
  const yTexts = yTicks.map((value) => axisText(value, unit));
  const left = Math.max(34, 14 + LETTER * Math.max(...yTexts.map((text) => text.length)));
  const [toX, toY] = [scale(across, [left, width - RIGHT], logX), scale(up, [bottom, top], logY)];
  const xTicks = xTicksOf(x, across, logX, width - left);
  const xLabel = (value: number) =>
    x === "time" ? spanText(value) : x === "clock" ? xText(value, x) : axisText(value);
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="${escaped(title)}">`,
    `<rect width="${width}" height="${height}" fill="${colors.ground}"/>`,
    `<g ${FONT} font-size="11" fill="${colors.text}">`,
    title ? `<text x="12" y="20" font-size="13" font-weight="600">${escaped(title)}</text>` : "",
    note ? `<text x="${width - 12}" y="20" text-anchor="end">${escaped(note)}</text>` : "",
    ...yTicks.map(
      (value, at) =>
        `<line x1="${left}" x2="${width - RIGHT}" y1="${px(toY(value))}" y2="${px(toY(value))}" stroke="${colors.grid}"/>` +
        `<text x="${left - 6}" y="${px(toY(value) + 4)}" text-anchor="end">${escaped(yTexts[at] as string)}</text>`,
    ),
    ...xTicks.map(
      (value) => `<text x="${px(toX(value))}" y="${bottom + 16}" text-anchor="middle">${escaped(xLabel(value))}</text>`,
    ),
    x === "metric" && picture.xName
      ? `<text x="${width - RIGHT}" y="${bottom - 4}" text-anchor="end">${escaped(picture.xName)}</text>`
      : "",
    "</g>",
    `<clipPath id="${clip}"><rect x="${left}" y="${top}" width="${px(width - RIGHT - left)}" height="${px(bottom - top)}"/></clipPath>`,
    `<g clip-path="url(#${clip})" fill="none">`,
    ...lines.map((line) => drawLine(line, toX, toY, lines.length, top, bottom)),
    "</g>",
    ...legend.flatMap((row, number) =>
      row.map((entry) => drawEntry(entry, bottom + FOOT + 8 + number * LEGEND_ROW, colors)),
    ),
    "</svg>",
  ];
  return parts.filter(Boolean).join("\n");
}

function xTicksOf(x: XKind, range: [number, number], isLog: boolean, width: number): number[] {
  if (isLog) return logTicks(...range, 6);
  if (x === "time") return timeTicks(...range, Math.max(2, width / 110));
  return linearTicks(...range, Math.max(2, width / (x === "clock" ? 220 : 110)));
}

const px = (value: number): string => String(Math.round(value * 10) / 10);

function drawLine(line: DrawnLine, toX: Scale, toY: Scale, count: number, top: number, bottom: number): string {
  const parts: string[] = [];
  const at = (values: readonly (number | null)[], index: number) =>
    `${px(toX(line.x[index] as number))} ${px(toY(values[index] as number))}`;
  if (line.low && line.high) {
    for (const [from, to] of stretches(line.low, line.high)) {
      const places = Array.from({ length: to - from + 1 }, (_, index) => from + index);
      const upper = places.map((index) => at(line.high as number[], index));
      const lower = places.reverse().map((index) => at(line.low as number[], index));
      parts.push(`<path d="M${[...upper, ...lower].join("L")}Z" fill="${line.stroke}" fill-opacity="0.16"/>`);
    }
  }
  const stroke = (values: readonly (number | null)[], more: string) => {
    for (const [from, to] of stretches(values, values)) {
      const places = Array.from({ length: to - from + 1 }, (_, index) => at(values, from + index));
      if (from === to)
        parts.push(`<path d="M${places[0]}h.01" stroke="${line.stroke}" stroke-width="4" stroke-linecap="round"/>`);
      else parts.push(`<path d="M${places.join("L")}" stroke="${line.stroke}" ${more}/>`);
    }
  };
  if (line.raw) stroke(line.raw, 'stroke-opacity="0.28"');
  const dash = dashOf(line).join(" ");
  const width = line.faint || line.isPartial || count > 6 ? 1 : 1.5;
  stroke(
    line.y,
    `stroke-width="${width}"${dash ? ` stroke-dasharray="${dash}"` : ""}${line.faint ? ' stroke-opacity="0.4"' : ""}`,
  );
  for (const { x, kind } of line.odd ?? []) parts.push(oddMark(px(toX(x)), kind, line.stroke, top, bottom));
  return parts.join("\n");
}

function oddMark(left: string, kind: string, stroke: string, top: number, bottom: number): string {
  if (kind === "∞") return `<path d="M${left} ${top + 3}l3 6h-6z" fill="${stroke}"/>`;
  if (kind === "−∞") return `<path d="M${left} ${bottom - 3}l3-6h-6z" fill="${stroke}"/>`;
  return `<path d="M${left} ${bottom - 6}m-3-3l6 6m0-6l-6 6" stroke="${stroke}" stroke-width="1.5"/>`;
}

type Entry = { line: DrawnLine; left: number };

/** The entries of the legend, row by row. */
function legendRows(lines: readonly DrawnLine[], width: number): Entry[][] {
  const rows: Entry[][] = [[]];
  let left = 0;
  for (const line of lines) {
    const wide = 46 + Math.min(60, line.label.length) * LETTER;
    if (left > 0 && left + wide > width) {
      rows.push([]);
      left = 0;
    }
    rows[rows.length - 1]?.push({ line, left });
    left += wide;
  }
  return rows.slice(0, 8);
}

function drawEntry({ line, left }: Entry, top: number, colors: Palette): string {
  const label = line.label.length > 60 ? `${line.label.slice(0, 59)}…` : line.label;
  return (
    `<line x1="${left + 12}" x2="${left + 34}" y1="${top}" y2="${top}" stroke="${line.stroke}" stroke-width="2.5" stroke-dasharray="${dashOf(line).join(" ")}"/>` +
    `<text x="${left + 40}" y="${top + 4}" ${FONT} font-size="11" fill="${colors.text}">${escaped(label)}</text>`
  );
}
