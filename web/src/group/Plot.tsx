/** A plot on a canvas: axes, marks, and a tooltip for the trial under the pointer. Thousands of marks stay fast. */

import "../charts/charts.css";
import "./Plot.css";
import { type PointerEvent, type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useWidth } from "../compare/plotFields";
import type { Scale } from "../compare/scales";
import { navigate } from "../router";
import { type EffectiveTheme, useEffectiveTheme } from "../theme";
import type { TrialRow } from "../types";
import type { Look } from "./trials";

export type Ink = Record<"series" | "best" | "text" | "grid" | "soft" | "bad" | "warn" | "ground" | "wait", string>;
/** The inner rectangle of a plot. */
export type Area = { left: number; top: number; right: number; bottom: number };
/** Something that the pointer finds. */
export type Mark = { x: number; y: number; row: TrialRow };
export type Drawing = { paint: (g: CanvasRenderingContext2D, ink: Ink) => void; marks: Mark[] };

const NAMES: Record<keyof Ink, string> = {
  series: "--chart-0",
  best: "--chart-1",
  text: "--chart-text",
  grid: "--chart-grid",
  soft: "--chart-mark",
  bad: "--bad",
  warn: "--warn",
  ground: "--chart-ground",
  wait: "--bg-press",
};

let cached: { theme: EffectiveTheme; ink: Ink } | null = null;

/** The colours of the current theme, for a canvas. */
export function useInk(): Ink {
  const theme = useEffectiveTheme();
  if (cached?.theme === theme) return cached.ink;
  const probe = document.createElement("span");
  document.body.append(probe);
  const ink = Object.fromEntries(
    Object.entries(NAMES).map(([name, property]) => {
      probe.style.color = `var(${property})`;
      return [name, getComputedStyle(probe).color];
    }),
  ) as Ink;
  probe.remove();
  cached = { theme, ink };
  return ink;
}

type Props = {
  label: string;
  height: number;
  /** The least width; a narrower page scrolls. */
  minWidth?: number;
  draw: (width: number) => Drawing;
  /** The text of the tooltip. */
  describe: (row: TrialRow) => string;
  /** How far from a mark the pointer may be, in pixels. */
  reach?: number;
};

export function Plot({ label, height, minWidth = 0, draw, describe, reach = 14 }: Props): ReactNode {
  const [box, seen] = useWidth<HTMLDivElement>(600);
  const width = Math.max(seen, minWidth);
  const canvas = useRef<HTMLCanvasElement>(null);
  const ink = useInk();
  const drawing = useMemo(() => draw(width), [draw, width]);
  const [mark, setMark] = useState<Mark | null>(null);
  useEffect(() => {
    const element = canvas.current;
    const g = element?.getContext("2d");
    if (!element || !g) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    g.scale(ratio, ratio);
    g.font = "11px system-ui, sans-serif";
    drawing.paint(g, ink);
  }, [drawing, ink, width, height]);
  const find = (event: PointerEvent): Mark | null => {
    const frame = canvas.current?.getBoundingClientRect();
    if (!frame) return null;
    return nearest(drawing.marks, event.clientX - frame.left, event.clientY - frame.top, reach);
  };
  return (
    <div className="plot-box" ref={box}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={label}
        className={mark ? "plot-canvas is-over" : "plot-canvas"}
        style={{ width, height }}
        onPointerMove={(event) => setMark(find(event))}
        onPointerLeave={() => setMark(null)}
        onPointerUp={(event) => {
          const found = find(event);
          if (found && event.pointerType === "mouse") navigate(`/runs/${encodeURIComponent(found.row.run)}`);
          else setMark(found);
        }}
      />
      {mark && (
        <div
          className={mark.x > width / 2 ? "plot-tip is-left" : "plot-tip"}
          style={{ left: mark.x, top: Math.min(mark.y, height - 30) }}
        >
          {describe(mark.row)}
        </div>
      )}
    </div>
  );
}

function nearest(marks: Mark[], x: number, y: number, reach: number): Mark | null {
  let found: Mark | null = null;
  let least = reach * reach;
  for (const mark of marks) {
    const far = (mark.x - x) ** 2 + (mark.y - y) ** 2;
    if (far <= least) [found, least] = [mark, far];
  }
  return found;
}

// Axes ----------------------------------------------------------------------------------------------------------------

export const PADDING = 0.03; // as a share, so that no mark is on an edge
export const toX = (area: Area, at: number): number =>
  area.left + (PADDING + at * (1 - 2 * PADDING)) * (area.right - area.left);
export const toY = (area: Area, at: number): number =>
  area.bottom - (PADDING + at * (1 - 2 * PADDING)) * (area.bottom - area.top);

const cut = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Axes with a grid and labels. The names of the axes are in the heading of the plot. */
export function paintAxes(g: CanvasRenderingContext2D, ink: Ink, area: Area, x: Scale, y: Scale): void {
  g.lineWidth = 1;
  g.strokeStyle = ink.grid;
  g.fillStyle = ink.text;
  g.beginPath();
  g.textAlign = "center";
  let free = Number.NEGATIVE_INFINITY;
  for (const tick of x.ticks) {
    const at = Math.round(toX(area, tick.at)) + 0.5;
    g.moveTo(at, area.top);
    g.lineTo(at, area.bottom);
    const text = cut(tick.label, 12);
    const half = g.measureText(text).width / 2;
    if (at - half < free) continue; // labels never overlap
    g.fillText(text, Math.min(at, area.right - half + 8), area.bottom + 14);
    free = at + half + 6;
  }
  g.textAlign = "right";
  for (const tick of y.ticks) {
    const at = Math.round(toY(area, tick.at)) + 0.5;
    g.moveTo(area.left, at);
    g.lineTo(area.right, at);
    g.fillText(cut(tick.label, 9), area.left - 5, at + 4);
  }
  g.stroke();
}

export function paintDot(g: CanvasRenderingContext2D, x: number, y: number, radius: number): void {
  g.beginPath();
  g.arc(x, y, radius, 0, 2 * Math.PI);
  g.fill();
}

/** The colour of a cross that stands for a trial without a value. */
export const crossInk = (ink: Ink, look: Look): string =>
  look === "nan" ? ink.warn : look === "stopped" ? ink.soft : ink.bad;

export function paintCross(g: CanvasRenderingContext2D, x: number, y: number, size = 3.5): void {
  g.beginPath();
  g.moveTo(x - size, y - size);
  g.lineTo(x + size, y + size);
  g.moveTo(x + size, y - size);
  g.lineTo(x - size, y + size);
  g.stroke();
}
