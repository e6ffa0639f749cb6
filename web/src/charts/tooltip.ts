/** The values at the cursor. Plain DOM, because it updates with every mouse move. */

import type uPlot from "uplot";
import { valueText, xText } from "./labels";
import type { DrawnLine } from "./overlays";
import type { LineChartProps, XKind } from "./types";

const MAX_ROWS = 12;

export type Reading = { label: string; value: number; stroke: string; index: number };

/** The values of all lines at an index of the aligned columns, largest first. Between points, the previous one counts. */
export function readings(chart: Pick<uPlot, "data">, lines: readonly DrawnLine[], place: number): Reading[] {
  const found: Reading[] = [];
  lines.forEach((line, number) => {
    if (line.faint) return;
    const column = chart.data[number + 1];
    let at = place;
    while (at >= 0 && column?.[at] === undefined) at -= 1;
    const value = column?.[at];
    const end = line.x[line.x.length - 1];
    const isPast = end !== undefined && (chart.data[0]?.[place] ?? 0) > end;
    if (typeof value === "number" && !isPast) {
      found.push({ label: line.label, value, stroke: line.stroke, index: number });
    }
  });
  return found.sort((one, other) => other.value - one.value);
}

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

  show(chart: uPlot, rows: Reading[], place: number, x: XKind, unit?: LineChartProps["unit"]): void {
    const left = chart.cursor.left ?? -1;
    if (left < 0 || !rows.length) {
      this.hide();
      return;
    }
    const head = document.createElement("div");
    head.className = "chart-tip-x";
    const at = chart.data[0]?.[place] ?? 0;
    head.textContent = `${x === "step" || x === "epoch" ? `${x} ` : ""}${xText(at, x)}`;
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
  const swatch = document.createElement("i");
  swatch.style.background = row.stroke;
  const label = document.createElement("span");
  label.textContent = row.label;
  const value = document.createElement("b");
  value.textContent = valueText(row.value, unit);
  line.append(swatch, label, value);
  return line;
}

function drawMore(count: number): HTMLElement {
  const line = document.createElement("div");
  line.className = "chart-tip-more";
  line.textContent = `and ${count} more`;
  return line;
}
