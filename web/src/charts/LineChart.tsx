/** A line chart: drag to zoom, double-click to reset, values at the cursor. */

import { useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./charts.css";
import { align, nearest, ordered } from "./alignment";
import { ExportMenu } from "./ExportMenu";
import { chartDescription, valueText, xText } from "./labels";
import { axes, type ChartConfig, cursor, scales, series } from "./options";
import { type DrawnLine, drawOdd, drawUnderlay } from "./overlays";
import { type Palette, seriesColor, usePalette } from "./palette";
import { incompleteKey } from "./rankMeans";
import { Swatch } from "./Swatch";
import { smooth } from "./smoothing";
import { oddReadings, readings, Tooltip, withOdd } from "./tooltip";
import type { Line, LineChartProps } from "./types";

const MAX_LEGEND = 8;

/** `legend`: always, never, or by default for up to eight lines. */
export function LineChart(props: LineChartProps & { legend?: boolean }) {
  const { title, x = "step", height = 180, unit, xName } = props;
  const colors = usePalette();
  const all = useDrawnLines(props, colors);
  const [hidden, setHidden] = useState<readonly string[]>([]);
  const drawn = useMemo(() => (hidden.length ? all.filter((line) => !isHidden(line, hidden)) : all), [all, hidden]);
  const [reading, setReading] = useState("");
  const box = useChart(props, drawn, colors, setReading);
  const named = all.filter((line) => !line.faint && !line.isPartial);
  const description = useMemo(
    () => chartDescription(title, props.lines, x, unit, xName),
    [title, props.lines, x, unit, xName],
  );
  const hasLegend = props.legend !== false && named.length > 1 && (props.legend || named.length <= MAX_LEGEND);
  const toggle = (key: string) =>
    setHidden(hidden.includes(key) ? hidden.filter((one) => one !== key) : [...hidden, key]);
  return (
    <figure className="chart">
      <figcaption className="chart-head">
        <span className="chart-title" title={title}>
          {title}
        </span>
        {props.note && (
          <span className="chart-note" title={props.noteTitle}>
            {props.note}
          </span>
        )}
        {props.range && (
          <button type="button" className="chart-reset" onClick={() => props.onZoom?.(null)} title="Reset zoom">
            {xText(props.range[0], x)} – {xText(props.range[1], x)} ✕
          </button>
        )}
        <span className="chart-value">{reading || lastText(named, unit)}</span>
        {props.exports && (
          <ExportMenu
            {...props.exports}
            picture={() => ({ ...props, lines: drawn, colors, title: props.exports?.name ?? title })}
          />
        )}
      </figcaption>
      <div
        ref={box}
        className="chart-box"
        role="img"
        aria-label={description}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: arrow keys move the cursor
        tabIndex={0}
        style={{ height }}
      />
      {hasLegend && <Legend lines={named} hidden={hidden} onToggle={toggle} />}
    </figure>
  );
}

/** A line that lacks ranks is hidden with the one that it belongs to. */
const isHidden = (line: DrawnLine, hidden: readonly string[]): boolean =>
  hidden.some((key) => line.key === key || line.key === incompleteKey(key));

type LegendProps = { lines: readonly DrawnLine[]; hidden: readonly string[]; onToggle: (key: string) => void };

function Legend({ lines, hidden, onToggle }: LegendProps) {
  return (
    <ul className="chart-legend" aria-label="Legend">
      {lines.map((line) => (
        <li key={line.key}>
          <button
            type="button"
            aria-pressed={!hidden.includes(line.key)}
            title={`${hidden.includes(line.key) ? "Show" : "Hide"} ${line.label}`}
            onClick={() => onToggle(line.key)}
          >
            <Swatch color={line.color} /> <span>{line.label}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}

/** The last value of a single line; of a mean, the last that is of all ranks. */
function lastText(lines: readonly DrawnLine[], unit: LineChartProps["unit"]): string {
  if (lines.length !== 1) return "";
  const { x, y, raw, odd } = lines[0] as DrawnLine;
  const at = (raw ?? y).findLastIndex((value) => value !== null);
  const lastOdd = odd?.[odd.length - 1];
  if (lastOdd && lastOdd.kind !== "mixed" && lastOdd.x > (x[at] ?? Number.NEGATIVE_INFINITY)) return lastOdd.kind;
  return at < 0 ? "" : valueText((raw ?? y)[at], unit);
}

function useDrawnLines(props: LineChartProps, colors: Palette): DrawnLine[] {
  const { lines, logX = false, logY = false, smoothing = 0 } = props;
  return useMemo(
    () => lines.map((line) => toDrawn(line, { logX, logY, smoothing, stroke: seriesColor(colors, line.color) })),
    [lines, logX, logY, smoothing, colors],
  );
}

type DrawOptions = { logX: boolean; logY: boolean; smoothing: number; stroke: string };

export function toDrawn(line: Line, options: DrawOptions): DrawnLine {
  const sorted = ordered(line, options.logX);
  const drawable = (values: (number | null)[] | undefined) =>
    values && (options.logY ? values.map((value) => (value !== null && value > 0 ? value : null)) : values);
  const isSmoothed = options.smoothing > 0 && !line.faint;
  const y = drawable(isSmoothed ? smooth(sorted.y, options.smoothing) : sorted.y) ?? [];
  const raw = isSmoothed ? drawable(sorted.y) : undefined;
  return { ...sorted, y, low: drawable(sorted.low), high: drawable(sorted.high), raw, stroke: options.stroke };
}

/** Keeps a uPlot instance: recreated when its series change, updated when only the data changes. */
function useChart(props: LineChartProps, drawn: DrawnLine[], colors: Palette, onReading: (text: string) => void) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const now = useRef({ props, drawn });
  now.current = { props, drawn };
  const { x = "step", xName, logX, logY, group, unit, fromZero, height = 180 } = props;
  const shape = drawn
    .map((line) => [line.key, line.stroke, line.dash, line.faint, line.isPartial, line.x.length < 4].join())
    .join("|");

  // biome-ignore lint/correctness/useExhaustiveDependencies: `shape` stands for the lines; their data is set below
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const config: ChartConfig = {
      x,
      xName,
      logX,
      logY,
      group,
      unit,
      fromZero,
      colors,
      range: () => now.current.props.range ?? null,
      lines: () => now.current.drawn,
    };
    const plot = makeChart(element, config, height, now, onReading);
    chart.current = plot;
    const resized = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      plot.destroy();
      element.replaceChildren();
      chart.current = null;
    };
  }, [shape, x, xName, logX, logY, group, unit, fromZero, height, colors, onReading]);

  useEffect(() => {
    chart.current?.setData(align(drawn) as uPlot.AlignedData);
  }, [drawn]);

  const [from, to] = props.range ?? [];
  // biome-ignore lint/correctness/useExhaustiveDependencies: the scale reads the range itself
  useEffect(() => {
    chart.current?.setData(chart.current.data, true);
  }, [from, to]);
  return box;
}

type Now = { current: { props: LineChartProps; drawn: DrawnLine[] } };

function makeChart(
  element: HTMLElement,
  config: ChartConfig,
  height: number,
  now: Now,
  onReading: (text: string) => void,
): uPlot {
  const tip = new Tooltip();
  let isOver = false;
  const updateReading = (plot: uPlot) => {
    const index = plot.cursor.idx;
    if (index === null || index === undefined || (plot.cursor.left ?? -1) < 0) {
      tip.hide();
      onReading("");
      return;
    }
    const rows = readings(plot, now.current.drawn, index);
    const values = rows.flatMap((row) => (row.value === null ? [] : [row.value]));
    onReading(rangeText(values, config.unit));
    if (isOver)
      tip.show(plot, withOdd(rows, oddReadings(plot, now.current.drawn, plot.cursor.left ?? -1)), index, config);
    else tip.hide();
  };
  const plot = new uPlot(
    {
      width: element.clientWidth || 300,
      height,
      padding: [8, 16, 0, 0],
      legend: { show: false },
      focus: { alpha: 0.35 },
      scales: scales(config),
      axes: axes(config),
      series: series(config, now.current.drawn),
      cursor: cursor(config, () => now.current.props.onZoom?.(null)),
      hooks: {
        drawAxes: [(drawnOn) => drawUnderlay(drawnOn, now.current.drawn, config.colors.mark)],
        draw: [(drawnOn) => drawOdd(drawnOn, now.current.drawn)],
        setCursor: [updateReading],
        setSelect: [(selected) => zoom(selected, config, now)],
      },
    },
    align(now.current.drawn) as uPlot.AlignedData,
    element,
  );
  element.append(tip.element);
  plot.over.addEventListener("mouseenter", () => {
    isOver = true;
  });
  plot.over.addEventListener("mouseleave", () => {
    isOver = false;
    tip.hide();
  });
  element.onkeydown = (event) => {
    isOver = true;
    moveByKey(event, plot, now);
  };
  element.onblur = () => {
    isOver = false;
    tip.hide();
    plot.setCursor({ left: -10, top: -10 });
  };
  return plot;
}

function rangeText(values: number[], unit: LineChartProps["unit"]): string {
  if (!values.length) return "";
  const [first, last] = [valueText(values[values.length - 1], unit), valueText(values[0], unit)];
  return first === last ? first : `${first} … ${last}`;
}

function zoom(chart: uPlot, config: ChartConfig, now: Now): void {
  const { left, width } = chart.select;
  if (width < 4) return;
  const range: [number, number] = [chart.posToVal(left, "x"), chart.posToVal(left + width, "x")];
  chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  const { onZoom } = now.current.props;
  if (onZoom) onZoom(config.x === "step" ? [Math.floor(range[0]), Math.ceil(range[1])] : range);
}

function moveByKey(event: KeyboardEvent, chart: uPlot, now: Now): void {
  if (event.key === "Escape" && now.current.props.range) {
    now.current.props.onZoom?.(null);
    return;
  }
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const xs = chart.data[0] as number[];
  if (!step || !xs.length) return;
  event.preventDefault();
  const left = chart.cursor.left ?? -1;
  const from = left < 0 ? (step > 0 ? -1 : xs.length) : nearest(xs, chart.posToVal(left, "x"));
  const width = Math.max(1, Math.round(xs.length / 200));
  const to = xs[Math.min(xs.length - 1, Math.max(0, from + step * width))] as number;
  chart.setCursor({ left: chart.valToPos(to, "x"), top: chart.over.offsetHeight / 2 });
}
