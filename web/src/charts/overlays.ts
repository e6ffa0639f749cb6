/** Canvas drawing below and above uPlot's lines: envelopes, raw lines and marks. */

import type uPlot from "uplot";
import type { Line } from "./types";

/** A line to draw: `y` is smoothed, `raw` has the logged values if they differ. */
export type DrawnLine = Line & { raw?: (number | null)[]; stroke: string };

type Context = CanvasRenderingContext2D;

export function clipped(chart: uPlot, draw: (context: Context) => void): void {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw(ctx);
  ctx.restore();
}

export function drawUnderlay(chart: uPlot, lines: readonly DrawnLine[], mark: string): void {
  clipped(chart, (context) => {
    for (const line of lines) {
      if (line.low && line.high) drawEnvelope(chart, context, line);
      if (line.raw) drawRaw(chart, context, line);
    }
    const marks = new Set(lines.flatMap((line) => line.marks ?? []));
    for (const place of marks) drawMark(chart, context, place, mark);
  });
}

/** Fills the area between the smallest and largest values. */
function drawEnvelope(chart: uPlot, context: Context, line: DrawnLine): void {
  const { x } = line;
  const low = line.low as (number | null)[];
  const high = line.high as (number | null)[];
  context.fillStyle = line.stroke;
  context.strokeStyle = line.stroke;
  context.lineWidth = 0.5 * devicePixelRatio;
  context.globalAlpha = 0.16;
  for (const [from, to] of stretches(low, high)) {
    context.beginPath();
    for (let index = from; index <= to; index++) {
      context.lineTo(chart.valToPos(x[index] as number, "x", true), chart.valToPos(high[index] as number, "y", true));
    }
    for (let index = to; index >= from; index--) {
      context.lineTo(chart.valToPos(x[index] as number, "x", true), chart.valToPos(low[index] as number, "y", true));
    }
    context.closePath();
    context.fill();
    context.stroke();
  }
  context.globalAlpha = 1;
}

/** Index ranges in which both values are known. */
export function stretches(low: readonly (number | null)[], high: readonly (number | null)[]): [number, number][] {
  const found: [number, number][] = [];
  let from = -1;
  for (let index = 0; index <= low.length; index++) {
    const isKnown = index < low.length && low[index] != null && high[index] != null;
    if (isKnown && from < 0) from = index;
    if (!isKnown && from >= 0) {
      found.push([from, index - 1]);
      from = -1;
    }
  }
  return found;
}

function drawRaw(chart: uPlot, context: Context, line: DrawnLine): void {
  context.strokeStyle = line.stroke;
  context.lineWidth = devicePixelRatio;
  context.globalAlpha = 0.28;
  context.beginPath();
  let isDown = false;
  line.x.forEach((place, index) => {
    const value = line.raw?.[index];
    if (value === null || value === undefined) {
      isDown = false;
      return;
    }
    const [left, top] = [chart.valToPos(place, "x", true), chart.valToPos(value, "y", true)];
    if (isDown) context.lineTo(left, top);
    else context.moveTo(left, top);
    isDown = true;
  });
  context.stroke();
  context.globalAlpha = 1;
}

/** A dashed vertical line with a flag where an attempt started. */
function drawMark(chart: uPlot, context: Context, place: number, color: string): void {
  const left = Math.round(chart.valToPos(place, "x", true)) + 0.5;
  const { top, height } = chart.bbox;
  context.strokeStyle = color;
  context.fillStyle = color;
  context.lineWidth = devicePixelRatio;
  context.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  context.beginPath();
  context.moveTo(left, top);
  context.lineTo(left, top + height);
  context.stroke();
  context.setLineDash([]);
  context.beginPath();
  context.moveTo(left, top);
  context.lineTo(left + 6 * devicePixelRatio, top + 3 * devicePixelRatio);
  context.lineTo(left, top + 6 * devicePixelRatio);
  context.fill();
}

/** Marks of values that are not finite: a cross at the bottom for NaN, a triangle at the edge that an infinity is beyond. */
export function drawOdd(chart: uPlot, lines: readonly DrawnLine[]): void {
  clipped(chart, (context) => {
    const arm = 3 * devicePixelRatio;
    context.lineWidth = 1.5 * devicePixelRatio;
    for (const line of lines) {
      context.strokeStyle = line.stroke;
      context.fillStyle = line.stroke;
      for (const { x, kind } of line.odd ?? []) {
        const left = chart.valToPos(x, "x", true);
        const top = kind === "∞" ? chart.bbox.top + 2 * arm : chart.bbox.top + chart.bbox.height - 2 * arm;
        context.beginPath();
        if (kind === "∞" || kind === "−∞") {
          const tip = kind === "∞" ? -arm : arm;
          context.moveTo(left, top + tip);
          context.lineTo(left + arm, top - tip);
          context.lineTo(left - arm, top - tip);
          context.fill();
          continue;
        }
        context.moveTo(left - arm, top - arm);
        context.lineTo(left + arm, top + arm);
        context.moveTo(left + arm, top - arm);
        context.lineTo(left - arm, top + arm);
        context.stroke();
      }
    }
  });
}
