/** A chart of chosen runs in a report. */

import { type ReactNode, useEffect, useMemo } from "react";
import { queryString, useResource } from "../api";
import { type Line, LineChart, linesCsv } from "../charts";
import { chartSvg } from "../charts/chartSvg";
import { toDrawn } from "../charts/LineChart";
import { paletteOf, seriesColor } from "../charts/palette";
import { chartLines, type DrawOptions, entriesOf, type RunLine } from "../compare/lines";
import { groupRuns } from "../compare/runGroups";
import { xChoice } from "../run/chartLines";
import type { RunRow, RunsCharts } from "../types";
import { ErrorMessage, Spinner } from "../ui";
import type { ChartBlock } from "./blocks";
import { useReportRuns } from "./reportRuns";

const LIVE_MS = 10_000;
const MAX_BUCKETS = 7500; // over all lines: more lines get fewer points each
const EXPORTED = { width: 860, height: 400 };

export type BlockProps<Block> = {
  block: Block;
  project: string;
  /** Tells how to draw the block without scripts; null while it is loading. */
  onReady: (draw: (() => string) | null) => void;
};

export function ReportChart({ block, project, onReady }: BlockProps<ChartBlock>): ReactNode {
  const { runs, error, reload, isLive } = useReportRuns(block, project);
  const { x, name } = xChoice(block.x);
  const names = name && !block.metrics.includes(name) ? [...block.metrics, name] : block.metrics;
  const [first, last] = x === "step" ? (block.range ?? []) : [];
  const buckets = Math.round(Math.min(300, Math.max(60, MAX_BUCKETS / Math.max(1, runs?.length ?? 1))));
  const fields = { run: runs?.map((run) => run.id), name: names, mode: "mean", buckets, first, last };
  const response = useResource<RunsCharts>(runs?.length ? `/charts${queryString(fields)}` : null, {
    pollMs: isLive ? LIVE_MS : undefined,
    keepPrevious: true,
  });
  const lines = useMemo(() => linesOf(block, runs ?? [], response.data), [block, runs, response.data]);
  const title = block.title || block.metrics.join(", ");
  const isLoaded = runs !== undefined && (runs.length === 0 || response.data !== undefined);
  useEffect(() => {
    if (!isLoaded) return onReady(null);
    onReady(() => {
      const colors = paletteOf("light");
      const { logX, logY, smoothing, range } = block;
      const drawn = lines.map((line) =>
        toDrawn(line, { logX, logY, smoothing, stroke: seriesColor(colors, line.color) }),
      );
      return chartSvg({ title, lines: drawn, colors, x, xName: name, logX, logY, range, ...EXPORTED });
    });
  }, [isLoaded, block, lines, title, x, name, onReady]);
  const fault = error ?? response.error;
  if (fault && !isLoaded) return <ErrorMessage error={fault} retry={reload} what={title} />;
  if (!isLoaded) return <Spinner label={`Loading ${title}`} />;
  if (!lines.length) {
    const why = runs.length ? `None of ${runs.length} runs logged ${block.metrics.join(", ")}.` : "No matching runs.";
    return (
      <p className="soft report-none">
        {title}: {why}
      </p>
    );
  }
  return (
    <div className="chart-card">
      <LineChart
        title={title}
        lines={lines}
        x={x}
        xName={name}
        logX={block.logX}
        logY={block.logY}
        smoothing={block.smoothing}
        range={block.range}
        height={block.height}
        legend
        exports={{ name: title, csv: async () => linesCsv(lines, name || x) }}
      />
    </div>
  );
}

/** The lines of all metrics: one per run or group of runs, each with its own colour. */
function linesOf(block: ChartBlock, runs: RunRow[], data: RunsCharts | undefined): Line[] {
  if (!data) return [];
  const found = new Map(data.charts.map((chart) => [chart.name, chart.runs as RunLine[]]));
  const { x, name } = xChoice(block.x);
  const entries = entriesOf(runs, block.by.length ? groupRuns(runs, block.by) : null, [], () => true);
  const options: DrawOptions = {
    x: x === "metric" ? `metric.${name}` : x === "time" ? "time" : "step",
    band: "deviation",
    started: new Map(runs.flatMap((run) => (run.started_at ? [[run.id, Date.parse(run.started_at) / 1000]] : []))),
    epochs: new Map((found.get(name) ?? []).map((line) => [line.run, line])),
    highlighted: null,
  };
  return block.metrics.flatMap((metric, place) =>
    chartLines(found.get(metric) ?? [], entries, options).map((line) => {
      if (block.metrics.length === 1) return line;
      const color = line.color + place * entries.length;
      return { ...line, key: `${metric} ${line.key}`, label: `${line.label} · ${metric}`, color };
    }),
  );
}
