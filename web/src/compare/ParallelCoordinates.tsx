/** Parallel coordinates: an axis per field, a line per run. Brushing an axis filters the runs on all views. */

import "./plot.css";
import "./ParallelCoordinates.css";
import { type KeyboardEvent, type PointerEvent, useMemo, useRef, useState } from "react";
import { usePalette } from "../charts";
import { useEffectiveTheme } from "../theme";
import type { RunRow } from "../types";
import { type Brush, isInside, withBrush } from "./axisBrush";
import { ColourKey } from "./ColourKey";
import { fieldTitle, fieldValue } from "./fields";
import { colourRuns, defaultAxes, describeRun, placesOn, scaleOf, useWidth } from "./plotFields";
import { type Kind, possibleKinds, type Scale, shortNumber } from "./scales";
import type { Choices } from "./urlState";

const HEIGHT = 380;
const TOP = 18;
const BOTTOM = 34;
const SIDE = 60;
const AXIS_WIDTH = 110; // the least width of an axis
const MIN_BRUSH = 0.015;
const inner = HEIGHT - TOP - BOTTOM;
const toY = (at: number) => TOP + (1 - at) * inner;
const MISSING_Y = HEIGHT - BOTTOM + 14; // the position of runs without a value

interface Props {
  runs: RunRow[];
  on: Set<string>; // visible in the legend, inside the brushes or not
  labels: Map<string, string>;
  choices: Choices;
  highlighted: string | null;
  onHighlight: (run: string | null) => void;
  onChange: (changes: Partial<Choices>) => void;
}

interface Axis {
  field: string;
  scale: Scale;
  x: number;
  places: Map<string, number | null>;
}

export function ParallelCoordinates({ runs, on, labels, choices, highlighted, onHighlight, onChange }: Props) {
  const [box, width] = useWidth<HTMLDivElement>(900);
  const fields = useMemo(() => (choices.axes.length > 0 ? choices.axes : defaultAxes(runs)), [choices.axes, runs]);
  const wide = Math.max(width, fields.length * AXIS_WIDTH);
  const axes = useMemo(() => axesOf(runs, fields, choices.kinds, wide), [fields, runs, choices.kinds, wide]);
  const colour = choices.colour || (fields[fields.length - 1] as string);
  const colourScale = useMemo(() => scaleOf(runs, colour, choices.kinds), [runs, colour, choices.kinds]);
  const paint = colourRuns(colourScale, colour, usePalette(), useEffectiveTheme());
  const shown = runs.filter((run) => on.has(run.id));
  const inside = shown.filter((run) => isInside(run, choices.brushes));
  const setBrush = (field: string, brush: Brush | null) =>
    onChange({ brushes: withBrush(choices.brushes, field, brush) });
  const setKind = (field: string, kind: Kind) => onChange({ kinds: { ...choices.kinds, [field]: kind } });
  const isHighlighted = (run: RunRow) => highlighted === run.id;
  const order = [...shown].sort((a, b) => rank(a) - rank(b));
  function rank(run: RunRow): number {
    return isHighlighted(run) ? 2 : inside.includes(run) ? 1 : 0;
  }
  return (
    <div className="parallel">
      <div className="compare-controls">
        <span className="soft">
          {inside.length} of {shown.length} runs
          {choices.brushes.length > 0 ? " selected" : ": drag along an axis to filter"}
        </span>
        {choices.brushes.map((brush) => (
          <button key={brush.field} type="button" className="button small" onClick={() => setBrush(brush.field, null)}>
            {brushText(brush)} ✕
          </button>
        ))}
        <ColourKey field={colour} scale={colourScale} />
      </div>
      <div className="plot-scroll" ref={box}>
        <div className="axis-heads" style={{ width: wide }}>
          {axes.map((axis) => (
            <AxisHead key={axis.field} axis={axis} runs={runs} onKind={(kind) => setKind(axis.field, kind)} />
          ))}
        </div>
        <svg width={wide} height={HEIGHT} role="group" aria-label={`Parallel coordinates of ${shown.length} runs`}>
          {order.map((run) => (
            <RunPath
              key={run.id}
              run={run}
              axes={axes}
              label={labels.get(run.id) ?? run.id}
              stroke={paint(run)}
              state={isHighlighted(run) ? "is-highlighted" : inside.includes(run) ? "" : "is-outside"}
              onHighlight={onHighlight}
            />
          ))}
          {axes.map((axis) => (
            <AxisLine
              key={axis.field}
              axis={axis}
              brush={choices.brushes.find((brush) => brush.field === axis.field) ?? null}
              onBrush={(brush) => setBrush(axis.field, brush)}
            />
          ))}
        </svg>
      </div>
      <p className="soft plot-note" aria-live="polite">
        {highlighted !== null && runs.some((run) => run.id === highlighted)
          ? describeRun(runs.find(isHighlighted) as RunRow, fields, labels)
          : "Hover over a line to see its run. Keyboard: Tab to an axis, ↑ ↓ move the upper end, Shift ↑ ↓ the lower end, Delete clears it."}
      </p>
    </div>
  );
}

function axesOf(runs: RunRow[], fields: string[], kinds: Record<string, Kind>, wide: number): Axis[] {
  const axes: Axis[] = [];
  fields.forEach((field, place) => {
    const scale = scaleOf(runs, field, kinds);
    const x = fields.length === 1 ? wide / 2 : SIDE + (place * (wide - 2 * SIDE)) / (fields.length - 1);
    axes.push({ field, scale, x, places: placesOn(runs, field, scale, axes[place - 1]?.places) });
  });
  return axes;
}

function brushText(brush: Brush): string {
  const name = fieldTitle(brush.field);
  if ("names" in brush) return `${name}: ${brush.names.join(", ")}`;
  return `${name}: ${shortNumber(brush.low)} – ${shortNumber(brush.high)}`;
}

function AxisHead({ axis, runs, onKind }: { axis: Axis; runs: RunRow[]; onKind: (kind: Kind) => void }) {
  const kinds = possibleKinds(runs.map((run) => fieldValue(run, axis.field)));
  const next = kinds[(kinds.indexOf(axis.scale.kind) + 1) % kinds.length] as Kind;
  const name = fieldTitle(axis.field);
  return (
    <div className="axis-head" style={{ left: axis.x }}>
      <b title={axis.field}>{name}</b>
      {kinds.length > 1 && (
        <button
          type="button"
          className="axis-kind"
          onClick={() => onKind(next)}
          aria-label={`${name} axis is ${axis.scale.kind}. Change to ${next}`}
          title={`Change to ${next}`}
        >
          {axis.scale.kind}
        </button>
      )}
    </div>
  );
}

interface PathProps {
  run: RunRow;
  axes: Axis[];
  label: string;
  stroke: string;
  state: string;
  onHighlight: (run: string | null) => void;
}

function RunPath({ run, axes, label, stroke, state, onHighlight }: PathProps) {
  const points = axes.map((axis) => {
    const at = axis.places.get(run.id) ?? null;
    return `${axis.x.toFixed(1)},${(at === null ? MISSING_Y : toY(at)).toFixed(1)}`;
  });
  const path = points.length === 1 ? `M${points[0]}h.1` : `M${points.join("L")}`;
  return (
    <g onPointerEnter={() => onHighlight(run.id)} onPointerLeave={() => onHighlight(null)}>
      <path className="parallel-reach" d={path}>
        <title>{label}</title>
      </path>
      <path className={`parallel-run ${state}`} d={path} stroke={stroke} data-run={run.id} />
    </g>
  );
}

interface AxisLineProps {
  axis: Axis;
  brush: Brush | null;
  onBrush: (brush: Brush | null) => void;
}

/** The lower and upper end on the axis, from 0 to 1. */
type Span = [number, number];

function AxisLine({ axis, brush, onBrush }: AxisLineProps) {
  const [dragged, setDragged] = useState<Span | null>(null);
  const start = useRef<number | null>(null);
  const chosen = brush === null ? null : spanOf(brush, axis.scale);
  const span = dragged ?? chosen;
  const atPointer = (event: PointerEvent<SVGRectElement>) => {
    const top = event.currentTarget.ownerSVGElement?.getBoundingClientRect().top ?? 0;
    return Math.min(1, Math.max(0, 1 - (event.clientY - top - TOP) / inner));
  };
  const begin = (event: PointerEvent<SVGRectElement>) => {
    if (event.button !== 0) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    start.current = atPointer(event);
    setDragged([start.current, start.current]);
  };
  const move = (event: PointerEvent<SVGRectElement>) => {
    if (start.current === null) return;
    const at = atPointer(event);
    setDragged([Math.min(start.current, at), Math.max(start.current, at)]);
  };
  const finish = () => {
    if (start.current === null) return;
    start.current = null;
    setDragged(null);
    onBrush(dragged === null || dragged[1] - dragged[0] < MIN_BRUSH ? null : brushOf(axis.field, dragged, axis.scale));
  };
  const press = (event: KeyboardEvent) => {
    const moved = spanAfterKey(event, chosen ?? [0, 1]);
    if (moved === undefined) return;
    event.preventDefault();
    onBrush(moved === null ? null : brushOf(axis.field, moved, axis.scale));
  };
  return (
    <g className="plot-axis">
      <line x1={axis.x} x2={axis.x} y1={TOP} y2={HEIGHT - BOTTOM} />
      {axis.scale.ticks.map((tick) => (
        <text key={tick.label} x={axis.x + 6} y={toY(tick.at) + 4}>
          {tick.label.length > 14 ? `${tick.label.slice(0, 13)}…` : tick.label}
        </text>
      ))}
      {span && (
        <rect
          className="plot-brush"
          x={axis.x - 7}
          width="14"
          y={toY(span[1])}
          height={Math.max(2, (span[1] - span[0]) * inner)}
        />
      )}
      <rect
        className="brush-reach"
        x={axis.x - 14}
        width="28"
        y={TOP - 6}
        height={inner + 12}
        tabIndex={0}
        role="slider"
        aria-orientation="vertical"
        aria-label={`Range of ${fieldTitle(axis.field)}`}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round((span?.[1] ?? 1) * 100)}
        aria-valuetext={brush === null ? "all" : brushText(brush)}
        onPointerDown={begin}
        onPointerMove={move}
        onPointerUp={finish}
        onPointerCancel={finish}
        onDoubleClick={() => onBrush(null)}
        onKeyDown={press}
      />
    </g>
  );
}

/** The span after a key press: null is the whole axis, undefined a key without a meaning here. */
function spanAfterKey(event: KeyboardEvent, [low, high]: Span): Span | null | undefined {
  if (event.key === "Delete" || event.key === "Backspace" || event.key === "Escape") return null;
  const step = { ArrowUp: 0.05, ArrowDown: -0.05 }[event.key];
  if (step === undefined) return undefined;
  const ends: Span = event.shiftKey ? [low + step, high] : [low, high + step];
  const span: Span = [Math.max(0, Math.min(ends[0], high - 0.02)), Math.min(1, Math.max(ends[1], low + 0.02))];
  return span[0] <= 0 && span[1] >= 1 ? null : span;
}

function brushOf(field: string, [low, high]: Span, scale: Scale): Brush | null {
  if (scale.kind !== "category") return { field, low: scale.valueAt(low), high: scale.valueAt(high) };
  const names = scale.categories.filter((_, place) => {
    const at = (place + 0.5) / scale.categories.length;
    return at >= low && at <= high;
  });
  return names.length === 0 ? null : { field, names };
}

function spanOf(brush: Brush, scale: Scale): Span | null {
  if ("names" in brush) {
    const places = brush.names.flatMap((name) => scale.place(name) ?? []);
    if (places.length === 0) return null;
    const half = 0.45 / Math.max(1, scale.categories.length);
    return [Math.max(0, Math.min(...places) - half), Math.min(1, Math.max(...places) + half)];
  }
  const [low, high] = [scale.place(brush.low), scale.place(brush.high)];
  return low === null || high === null ? null : [Math.max(0, low), Math.min(1, high)];
}
