/** A chart per metric with a line per run or group. Charts load in batches when they come into view. */

import "./Overlays.css";
import { useMemo } from "react";
import { queryString, useResource } from "../api";
import { LazyMount, LineChart, linesCsv } from "../charts";
import { inSections } from "../run/metricSections";
import type { RunRow, RunsCharts } from "../types";
import { isDone } from "../types";
import { ErrorMessage } from "../ui";
import { useDebounced } from "../ui/hooks";
import { chartLines, type DrawOptions, type Entry, type RunLine } from "./lines";
import type { Choices, XAxis } from "./urlState";

const CHARTS_PER_REQUEST = 6;
const MAX_BUCKETS = 7500; // over all lines of a chart: more lines get fewer points each
const HOVER_MS = 70;
const HEIGHT = 220;
const LIVE_MS = 4000;
const EPOCHS = ["epoch", "train/epoch", "epochs"];

interface Props {
  runs: RunRow[];
  names: string[];
  entries: Entry[];
  choices: Choices;
  highlighted: string | null;
  known: string[]; // every metric of the runs
  onZoom: (range: [number, number] | null) => void;
}

export function Overlays(props: Props) {
  const highlighted = useDebounced(props.highlighted, HOVER_MS);
  const sections = inSections(props.names);
  return (
    <>
      {sections.map((section) => (
        <section key={section.name} aria-label={section.name || "metrics"}>
          {sections.length > 1 && <h2 className="overlays-section">{section.name || "metrics"}</h2>}
          {batchesOf(section.metrics).map((names) => (
            <LazyMount key={names.join("\n")} height={Math.ceil(names.length / 2) * (HEIGHT + 60)}>
              {() => <ChartBatch {...props} highlighted={highlighted} names={names} />}
            </LazyMount>
          ))}
        </section>
      ))}
    </>
  );
}

function batchesOf(names: readonly string[]): string[][] {
  const batches: string[][] = [];
  for (let start = 0; start < names.length; start += CHARTS_PER_REQUEST)
    batches.push(names.slice(start, start + CHARTS_PER_REQUEST));
  return batches;
}

/** The metric that is the x axis; undefined if it is none. */
function xMetric(x: XAxis, known: string[]): string | undefined {
  if (x.startsWith("metric.")) return x.slice(7);
  return x === "epoch" ? EPOCHS.find((name) => known.includes(name)) : undefined;
}

function ChartBatch({ runs, names, entries, choices, highlighted, known, onZoom }: Props) {
  const epoch = xMetric(choices.x, known);
  const requested = epoch === undefined || names.includes(epoch) ? names : [...names, epoch];
  // A zoomed range is requested again with as many buckets.
  const buckets = Math.round(Math.min(300, Math.max(100, MAX_BUCKETS / runs.length)));
  const [first, last] = choices.x === "step" ? (choices.zoom ?? []) : [];
  const fields = { run: runs.map((run) => run.id), name: requested, mode: "mean", buckets, first, last };
  const isLive = runs.some((run) => !isDone(run.status));
  const response = useResource<RunsCharts>(`/charts${queryString(fields)}`, {
    pollMs: isLive ? LIVE_MS : undefined,
    keepPrevious: true,
  });
  const found = useMemo(
    () => new Map((response.data?.charts ?? []).map((chart) => [chart.name, chart.runs as RunLine[]])),
    [response.data],
  );
  const options = useMemo<DrawOptions>(
    () => ({
      x: choices.x,
      band: choices.band,
      started: new Map(runs.flatMap((run) => (run.started_at ? [[run.id, Date.parse(run.started_at) / 1000]] : []))),
      epochs: new Map((epoch === undefined ? [] : (found.get(epoch) ?? [])).map((line) => [line.run, line])),
      highlighted,
    }),
    [choices.x, choices.band, runs, found, epoch, highlighted],
  );
  if (response.error && !response.data) return <ErrorMessage error={response.error} retry={response.reload} />;
  return (
    <div className="overlays">
      {names.map((name) => (
        <Overlay
          key={name}
          name={name}
          found={found.get(name)}
          entries={entries}
          options={options}
          choices={choices}
          onZoom={onZoom}
          isLoading={response.data === undefined}
          xName={epoch ?? ""}
        />
      ))}
    </div>
  );
}

interface OverlayProps {
  name: string;
  found: RunLine[] | undefined;
  entries: Entry[];
  options: DrawOptions;
  choices: Choices;
  onZoom: (range: [number, number] | null) => void;
  isLoading: boolean;
  xName: string;
}

const isPlain = (x: XAxis): x is "step" | "time" => x === "step" || x === "time";

function Overlay({ name, found, entries, options, choices, onZoom, isLoading, xName }: OverlayProps) {
  const lines = useMemo(() => chartLines(found ?? [], entries, options), [found, entries, options]);
  const on = entries.filter((entry) => entry.isOn).length;
  const count = lines.filter((line) => !line.isPartial).length;
  if (lines.length === 0) {
    const why = isLoading
      ? "Loading…"
      : !isPlain(choices.x)
        ? `These runs did not log ${xName || "a metric named epoch"}.`
        : on === 0
          ? "All runs are hidden."
          : "No visible run logged this metric.";
    return (
      <div className="chart chart-none" style={{ minHeight: HEIGHT }}>
        <h3>{name}</h3>
        <p className="soft">{why}</p>
      </div>
    );
  }
  return (
    <LineChart
      title={name}
      lines={lines}
      x={isPlain(choices.x) ? choices.x : "metric"}
      xName={xName}
      logX={choices.logX}
      logY={choices.logY}
      smoothing={choices.smoothing}
      group="compare"
      range={choices.zoom}
      onZoom={onZoom}
      height={HEIGHT}
      legend={false}
      exports={{ name, csv: async () => linesCsv(lines, xName || choices.x) }}
      note={count < on ? `${count} of ${on}` : undefined}
    />
  );
}
