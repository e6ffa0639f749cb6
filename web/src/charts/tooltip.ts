/** The values at the cursor. Plain DOM, because it updates with every mouse move. */

import type uPlot from "uplot";
import { valueText, xText } from "./labels";
import type { DrawnLine } from "./overlays";
import { dashOf } from "./palette";
import { oddText, rankCount } from "./rankMeans";
import type { LineChartProps, XKind } from "./types";

const MAX_ROWS = 12;

/** What the tooltip says about one line. `value` is null for a text alone, such as `NaN`. */
export type Reading = {
  line: DrawnLine;
  value: number | null;
  text?: string;
  detail: string;
  index: number;
  isAll?: boolean;
};

/** The values of all lines at an index of the aligned columns, largest first. Between points, the previous one counts. */
export function readings(chart: Pick<uPlot, "data">, lines: readonly DrawnLine[], place: number): Reading[] {
  const found: Reading[] = [];
  const here = chart.data[0]?.[place] ?? 0;
  let mainHasValue = false;
  lines.forEach((line, index) => {
    if (line.faint) return;
    const column = chart.data[index + 1];
    let at = place;
    while (at >= 0 && column?.[at] === undefined) at -= 1;
    const value = column?.[at];
    const end = line.x[line.x.length - 1];
    const isHere = typeof value === "number" && !(end !== undefined && here > end);
    if (isHere && !(line.isPartial && mainHasValue)) {
      const ranks = line.ranks?.[line.x.indexOf(chart.data[0]?.[at] as number)];
      found.push({ line, value, detail: rankCount(ranks ?? line.of ?? 0, line.of ?? 0), index });
    }
    mainHasValue = isHere && !line.isPartial;
  });
  return found.sort((one, other) => (other.value as number) - (one.value as number));
}

const NEAR_PX = 6;

/** The values near the cursor that are not finite. */
export function oddReadings(chart: Pick<uPlot, "valToPos">, lines: readonly DrawnLine[], left: number): Reading[] {
  const found: Reading[] = [];
  lines.forEach((line, index) => {
    if (line.faint) return;
    const near = (line.odd ?? [])
      .map((odd) => ({ odd, apart: Math.abs(chart.valToPos(odd.x, "x") - left) }))
      .filter(({ apart }) => apart <= NEAR_PX)
      .sort((one, other) => one.apart - other.apart)[0];
    const isAll = near?.odd.kind !== "mixed";
    if (near) found.push({ line, value: null, text: oddText(near.odd), detail: "", index, isAll });
  });
  return found;
}

/** A line whose value here is NaN or infinite has no other; a bucket may have both. */
export function withOdd(rows: Reading[], odd: Reading[]): Reading[] {
  const replaced = new Set(odd.filter((one) => one.isAll).map((one) => one.index));
  return [...odd, ...rows.filter((one) => !replaced.has(one.index))];
}

type TooltipConfig = { x: XKind } & Pick<LineChartProps, "xName" | "unit">;

export class Tooltip {
  readonly element = document.createElement("div");

  constructor() {
    this.element.className = "chart-tip";
    this.element.hidden = true;
    this.element.setAttribute("aria-hidden", "true"); // the chart's label describes it
  }

  hide(): void {
    this.element.hidden = true;
  }

  show(chart: uPlot, rows: Reading[], place: number, { x, xName, unit }: TooltipConfig): void {
    const left = chart.cursor.left ?? -1;
    if (left < 0 || !rows.length) {
      this.hide();
      return;
    }
    const head = document.createElement("div");
    head.className = "chart-tip-x";
    const at = chart.data[0]?.[place] ?? 0;
    const name = x === "metric" ? xName : x === "step" ? x : "";
    head.textContent = `${name ? `${name} ` : ""}${xText(at, x)}`;
    this.element.replaceChildren(
      head,
      ...nearRows(rows, focusedSeries(chart)).map((row) => drawRow(row, focusedSeries(chart), unit)),
    );
    if (rows.length > MAX_ROWS) this.element.append(drawMore(rows.length - MAX_ROWS));
    this.element.hidden = false;
    this.place(chart, left);
  }

  private place(chart: uPlot, left: number): void {
    const over = chart.over;
    const width = this.element.offsetWidth;
    const isRight = left + 14 + width > over.offsetWidth && left > width + 14;
    this.element.style.left = `${Math.max(0, over.offsetLeft + (isRight ? left - width - 14 : left + 14))}px`;
    this.element.style.top = `${over.offsetTop + 4}px`;
  }
}

function focusedSeries(chart: uPlot): number {
  // uPlot marks the series nearest to the cursor with `_focus`.
  return chart.series.findIndex((series, index) => index > 0 && (series as { _focus?: boolean })._focus === true) - 1;
}

/** At most MAX_ROWS rows, around the one nearest to the cursor. */
function nearRows(rows: Reading[], focus: number): Reading[] {
  if (rows.length <= MAX_ROWS) return rows;
  const at = Math.max(
    0,
    rows.findIndex((row) => row.index === focus),
  );
  const start = Math.min(Math.max(0, at - MAX_ROWS / 2), rows.length - MAX_ROWS);
  return rows.slice(start, start + MAX_ROWS);
}

function drawRow(row: Reading, focus: number, unit?: LineChartProps["unit"]): HTMLElement {
  const line = document.createElement("div");
  line.className = row.index === focus ? "chart-tip-row is-near" : "chart-tip-row";
  const label = document.createElement("span");
  const isMean = row.line.label === rankCount(row.line.of ?? 0, row.line.of ?? 0);
  label.textContent = isMean && row.detail ? row.detail : row.line.label;
  const value = document.createElement("b");
  value.textContent = row.text ?? valueText(row.value, unit);
  line.append(drawSwatch(row.line), label, value);
  if (row.detail && !isMean) {
    const detail = document.createElement("small");
    detail.textContent = row.detail;
    line.append(detail);
  }
  return line;
}

const SVG = "http://www.w3.org/2000/svg";

/** With the dashes of the line: colours repeat. */
function drawSwatch(line: DrawnLine): SVGElement {
  const swatch = document.createElementNS(SVG, "svg");
  swatch.setAttribute("width", "22");
  swatch.setAttribute("height", "8");
  const stroke = document.createElementNS(SVG, "line");
  const look = { x1: 0, x2: 22, y1: 4, y2: 4, stroke: line.stroke, "stroke-width": 2.5 };
  for (const [name, value] of Object.entries(look)) stroke.setAttribute(name, String(value));
  stroke.setAttribute("stroke-dasharray", dashOf(line).join(" "));
  swatch.append(stroke);
  return swatch;
}

function drawMore(count: number): HTMLElement {
  const line = document.createElement("div");
  line.className = "chart-tip-more";
  line.textContent = `and ${count} more`;
  return line;
}
