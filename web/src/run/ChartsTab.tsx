/** All metrics of a run as charts, grouped by prefix. Each chart loads when it scrolls into view. */

import "./chartGrid.css";
import "./ChartsTab.css";
import { memo, type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { LazyMount, LineChart, type XKind } from "../charts";
import { seconds } from "../format";
import { type ParamChanges, setParams, useParamList, useRoute } from "../router";
import { Dialog, EmptyState, ErrorMessage, Icon } from "../ui";
import { ChartBar } from "./ChartBar";
import { type AxisOptions, type Epochs, epochsOf, linesOf, ranksNote, stepsOf } from "./chartLines";
import { type ChartSource, useChart, useChartSource } from "./chartSource";
import { type Group, grouped, naturalOrder } from "./metricSections";
import { parseRanks } from "./ranks";
import type { RunContext } from "./runContext";

const CHART_HEIGHT = 170;
const SLOT = 204; // a chart with its header
const FRESH_MS = 2000;

type View = {
  axis: AxisOptions;
  logX: boolean;
  logY: boolean;
  smoothing: number;
  range: [number, number] | null;
};

export default function ChartsTab({ context }: { context: RunContext }): ReactNode {
  const { run, updates, isLive, reload } = context;
  const names = useMemo(() => naturalOrder(Object.keys(run.summaries)), [run.summaries]);
  const { params } = useRoute();
  const filter = params.get("filter") ?? "";
  const [pins, setPins] = useParamList("pin");
  const [closed, setClosed] = useParamList("closed");
  const replicas = useReplicas(context, params.get("ranks") ?? "");
  const mode = params.get("mode") === "ranks" || replicas.length ? "ranks" : "mean";
  const [first, last] = pair(params.get("steps"));
  const source = useChartSource({ id: run.id, mode, replicas, first, last });
  const version = useVersion(updates.points, isLive);
  const view = useView(context, source, params, version);
  const isEmpty = names.length === 0;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the first points add names to the run
  useEffect(() => {
    if (isEmpty && isLive) reload();
  }, [updates.points, isEmpty, isLive]);
  if (isEmpty) {
    return (
      <EmptyState title={isLive ? "No metrics yet" : "No metrics"}>
        Charts appear once a replica logs its first point.
      </EmptyState>
    );
  }
  const groups = grouped(names, pins, filter);
  const big = params.get("big");
  return (
    <div className="charts">
      <ChartBar
        context={context}
        mode={mode}
        hasEpoch={names.includes("epoch")}
        count={groups.reduce((sum, group) => sum + group.metrics.length, 0)}
      />
      {groups.length === 0 && (
        <EmptyState title="No matching metrics">
          A name must contain every word of the filter; * matches anything.
        </EmptyState>
      )}
      {groups.map((group) => (
        <ChartGroup
          key={group.name}
          group={group}
          isClosed={closed.includes(group.name || UNNAMED)}
          onFold={() => setClosed(toggled(closed, group.name || UNNAMED))}
          pins={pins}
          onPin={(name) => setPins(toggled(pins, name))}
          source={source}
          view={view}
          version={version}
        />
      ))}
      {big && names.includes(big) && (
        <Dialog title={big} wide onClose={() => setParams({ big: null })}>
          <MetricChart
            name={big}
            source={source}
            view={view}
            version={version}
            height={Math.min(460, innerHeight * 0.55)}
            isBig
          />
        </Dialog>
      )}
    </div>
  );
}

const UNNAMED = "-"; // in the URL, the group of metrics without a prefix

const toggled = (list: string[], name: string): string[] =>
  list.includes(name) ? list.filter((one) => one !== name) : [...list, name];

type GroupProps = {
  group: Group;
  isClosed: boolean;
  onFold: () => void;
  pins: string[];
  onPin: (name: string) => void;
} & Pick<MetricChartProps, "source" | "view" | "version">;

function ChartGroup({ group, isClosed, onFold, pins, onPin, ...rest }: GroupProps): ReactNode {
  const title = group.name || "metrics";
  return (
    <section className="chart-group" aria-label={title}>
      <button type="button" className="chart-group-head" aria-expanded={!isClosed} onClick={onFold}>
        <Icon name={isClosed ? "right" : "down"} size={14} />
        {title} <span className="faint">{group.metrics.length}</span>
      </button>
      {!isClosed && (
        <div className="chart-grid">
          {group.metrics.map((name) => (
            <div key={name} className="chart-slot">
              <LazyMount height={SLOT}>
                {() => <MetricChart name={name} isPinned={pins.includes(name)} onPin={() => onPin(name)} {...rest} />}
              </LazyMount>
            </div>
          ))}
        </div>
      )}
    </section>
  );
}

function pair(text: string | null): [number, number] | [null, null] {
  const [from, to] = (text ?? "").split("..").map((part) => (part === "" ? Number.NaN : Number(part)));
  return from !== undefined && to !== undefined && from < to ? [from, to] : [null, null];
}

function useReplicas({ topology }: RunContext, text: string): string[] {
  return useMemo(() => {
    const ranks = parseRanks(text);
    if (!ranks) return [];
    return (topology?.replicas ?? [])
      .filter((one) => ranks.includes(one.rank))
      .map((one) => one.name)
      .slice(0, 64);
  }, [topology, text]);
}

/** Grows when new points arrive, at most every FRESH_MS. */
function useVersion(points: number, isLive: boolean): number {
  const [version, setVersion] = useState(0);
  const last = useRef({ points, at: 0 });
  useEffect(() => {
    if (last.current.points === points) return;
    const wait = isLive ? Math.max(0, last.current.at + FRESH_MS - Date.now()) : 0;
    const timer = setTimeout(() => {
      last.current = { points, at: Date.now() };
      setVersion((now) => now + 1);
    }, wait);
    return () => clearTimeout(timer);
  }, [points, isLive]);
  return version;
}

function useView(context: RunContext, source: ChartSource, params: URLSearchParams, version: number): View {
  const x = (params.get("x") ?? "step") as XKind;
  const epochChart = useChart(source, x === "epoch" ? "epoch" : null, version).chart;
  const epochs = useMemo<Epochs>(() => epochsOf(epochChart), [epochChart]);
  const startedAt = seconds(context.run.started_at ?? context.run.created_at);
  const [from, to] = pair(params.get("zoom"));
  const [logX, logY] = [params.has("logx"), params.has("logy")];
  const smoothing = Math.min(0.99, Math.max(0, Number(params.get("smooth") ?? 0) || 0));
  return useMemo(
    () => ({
      axis: { x: x === "epoch" && !epochs ? "step" : x, startedAt, epochs },
      logX,
      logY,
      smoothing,
      range: from === null ? null : [from, to],
    }),
    [x, epochs, startedAt, logX, logY, smoothing, from, to],
  );
}

type MetricChartProps = {
  name: string;
  source: ChartSource;
  view: View;
  version: number;
  isPinned?: boolean;
  onPin?: () => void;
  height?: number;
  isBig?: boolean;
};

const MetricChart = memo(function MetricChart(props: MetricChartProps): ReactNode {
  const { name, source, view, version, isPinned, onPin, height = CHART_HEIGHT, isBig } = props;
  const { chart, error, isLoaded } = useChart(source, name, version);
  const lines = useMemo(() => (chart ? linesOf(chart, view.axis) : []), [chart, view.axis]);
  if (error && !chart) return <ErrorMessage error={error} what={name} />;
  if (!chart) {
    return (
      <div className="chart-waiting" style={{ height: height + 30 }}>
        <span className="cut">{name}</span>
        <span className="faint">{isLoaded ? "no points in this range" : ""}</span>
      </div>
    );
  }
  const zoom = (range: [number, number] | null) => setParams(zoomed(range, chart, view.axis), { push: true });
  const ranks = ranksNote(chart);
  return (
    <div className="chart-card">
      <LineChart
        title={isBig ? "" : name}
        lines={lines}
        x={view.axis.x}
        logX={view.logX}
        logY={view.logY}
        smoothing={view.smoothing}
        range={view.range}
        onZoom={zoom}
        group={`run ${view.axis.x}`}
        height={height}
        legend={isBig ?? false}
        note={ranks.note}
        noteTitle={ranks.title}
      />
      {!isBig && (
        <div className="chart-tools">
          <button
            type="button"
            className="button plain icon small"
            aria-label={`Enlarge ${name}`}
            title="Enlarge"
            onClick={() => setParams({ big: name })}
          >
            <Icon name="plus" size={13} />
          </button>
          <button
            type="button"
            className="button plain icon small chart-pin"
            aria-pressed={isPinned}
            aria-label={`Pin ${name}`}
            title={isPinned ? "Unpin" : "Pin to the top"}
            onClick={onPin}
          >
            {isPinned ? "★" : "☆"}
          </button>
        </div>
      )}
    </div>
  );
});

/** The URL has the range as displayed, and as steps for the server with a margin, so that lines reach the edge. */
function zoomed(range: [number, number] | null, chart: Parameters<typeof linesOf>[0], axis: AxisOptions): ParamChanges {
  if (!range) return { zoom: null, steps: null };
  const steps = stepsOf(range, [chart], axis);
  const text = (amount: number) => String(Number(amount.toPrecision(10)));
  if (!steps) return { zoom: `${text(range[0])}..${text(range[1])}` };
  const more = Math.ceil((steps[1] - steps[0]) * 0.03);
  return { zoom: `${text(range[0])}..${text(range[1])}`, steps: `${steps[0] - more}..${steps[1] + more}` };
}
