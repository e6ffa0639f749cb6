/** One chart of a run, with one or several metrics. */

import { memo, type ReactNode, useMemo } from "react";
import { LineChart } from "../charts";
import { type ParamChanges, setParams } from "../router";
import type { Chart } from "../types";
import { ErrorMessage } from "../ui";
import { type AxisOptions, panelLines, ranksNote, stepsOf, stepValues, xChoice } from "./chartLines";
import { type ChartSource, useChart, useCharts } from "./chartSource";
import { type Panel, panelTitle } from "./layout";
import { seriesCsv } from "./seriesCsv";

const CHART_HEIGHT = 170;

/** How all charts of the page are drawn. */
export type View = {
  axis: AxisOptions;
  logX: boolean;
  logY: boolean;
  smoothing: number;
  range: [number, number] | null;
};

export type PanelChartProps = {
  panel: Panel;
  source: ChartSource;
  view: View;
  version: number;
  height?: number;
  isBig?: boolean;
  children?: ReactNode;
};

export const PanelChart = memo(function PanelChart(props: PanelChartProps): ReactNode {
  const { panel, source, view, version, height = CHART_HEIGHT, isBig = false, children } = props;
  const { charts, error, isLoaded } = useCharts(source, panel.metrics, version);
  const axis = usePanelAxis(panel, source, view, version);
  const lines = useMemo(() => panelLines(charts, axis), [charts, axis]);
  const title = panelTitle(panel);
  const [first] = charts;
  if (error && !first) return <ErrorMessage error={error} what={title} />;
  if (!first) {
    return (
      <div className="chart-waiting" style={{ height: height + 30 }}>
        <span className="cut">{title}</span>
        <span className="faint">{isLoaded ? "no points in this range" : ""}</span>
      </div>
    );
  }
  const isOwnAxis = axis !== view.axis;
  const ranks = ranksNote(first);
  return (
    <div className="chart-card">
      <LineChart
        title={isBig ? "" : title}
        lines={lines}
        x={axis.x}
        xName={axis.name ?? ""}
        logX={view.logX}
        logY={view.logY || panel.log_y}
        smoothing={view.smoothing}
        range={isOwnAxis ? null : view.range}
        {...(isOwnAxis ? {} : { onZoom: (range) => setParams(zoomed(range, charts, axis), { push: true }) })}
        group={`run ${axis.x} ${axis.name ?? ""}`}
        height={height}
        {...(isBig ? { legend: true } : {})}
        note={ranks.note}
        noteTitle={ranks.title}
        exports={{ name: title, csv: () => seriesCsv(source.query.id, charts, source.query) }}
      />
      {children && <div className="chart-tools">{children}</div>}
    </div>
  );
});

/** The axis of the page, or the panel's own. */
function usePanelAxis(panel: Panel, source: ChartSource, view: View, version: number): AxisOptions {
  const { x, name } = xChoice(panel.x);
  const isOwn = panel.x !== "" && (x !== view.axis.x || name !== (view.axis.name ?? ""));
  const chart = useChart(source, isOwn && x === "metric" ? name : null, version).chart;
  return useMemo(() => {
    if (!isOwn) return view.axis;
    const values = x === "metric" ? stepValues(chart) : null;
    return x === "metric" && !values ? view.axis : { x, name, values, startedAt: view.axis.startedAt };
  }, [isOwn, x, name, chart, view.axis]);
}

/** The URL has the range as displayed, and as steps for the server with a margin, so that lines reach the edge. */
function zoomed(range: [number, number] | null, charts: readonly Chart[], axis: AxisOptions): ParamChanges {
  if (!range) return { zoom: null, steps: null };
  const steps = stepsOf(range, charts, axis);
  const text = (amount: number) => String(Number(amount.toPrecision(10)));
  if (!steps) return { zoom: `${text(range[0])}..${text(range[1])}` };
  const more = Math.ceil((steps[1] - steps[0]) * 0.03);
  return { zoom: `${text(range[0])}..${text(range[1])}`, steps: `${steps[0] - more}..${steps[1] + more}` };
}
