/** A chart per metric with a line per run or group. Charts load in batches when they come into view. */

import "./Overlays.css";
import { useMemo } from "react";
import { queryString, useResource } from "../api";
import { LazyMount, LineChart } from "../charts";
import type { RunRow, RunsCharts } from "../types";
import { isDone } from "../types";
import { ErrorMessage } from "../ui";
import { useDebounced } from "../ui/hooks";
import { chartLines, type DrawOptions, type Entry, type RunLine } from "./lines";
import type { Choices } from "./urlState";

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
  const batches: string[][] = [];
  for (let start = 0; start < props.names.length; start += CHARTS_PER_REQUEST)
    batches.push(props.names.slice(start, start + CHARTS_PER_REQUEST));
  const highlighted = useDebounced(props.highlighted, HOVER_MS);
  return (
    <>
      {batches.map((names) => (
        <LazyMount key={names.join("\n")} height={Math.ceil(names.length / 2) * (HEIGHT + 60)}>
          {() => <ChartBatch {...props} highlighted={highlighted} names={names} />}
        </LazyMount>
      ))}
    </>
  );
}

function ChartBatch({ runs, names, entries, choices, highlighted, known, onZoom }: Props) {
  const epoch = choices.x === "epoch" ? EPOCHS.find((name) => known.includes(name)) : undefined;
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
}

function Overlay({ name, found, entries, options, choices, onZoom, isLoading }: OverlayProps) {
  const lines = useMemo(() => chartLines(found ?? [], entries, options), [found, entries, options]);
  const on = entries.filter((entry) => entry.isOn).length;
  if (lines.length === 0) {
    const why = isLoading
      ? "Loading…"
      : choices.x === "epoch"
        ? "These runs did not log a metric `epoch`."
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
      x={choices.x}
      logX={choices.logX}
      logY={choices.logY}
      smoothing={choices.smoothing}
      group="compare"
      range={choices.zoom}
      onZoom={onZoom}
      height={HEIGHT}
      legend={false}
      note={lines.length < on ? `${lines.length} of ${on}` : undefined}
    />
  );
}
