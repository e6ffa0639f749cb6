/** Logged images, histograms, tables and texts, with a slider over their steps. */

import "./chartGrid.css";
import "./MediaTab.css";
import { type ReactNode, useEffect, useMemo, useState } from "react";
import { API, apiPath, queryString, useResource } from "../api";
import { LazyMount } from "../charts";
import { num, number, value } from "../format";
import { useParam } from "../router";
import { EmptyState, ErrorMessage, Spinner } from "../ui";
import { matcher } from "./chartLines";
import { bars, groupMedia, type MediaEvent, type MediaKind, type MediaSeries } from "./media";
import { pathPart } from "./outputs";
import type { RunContext } from "./runContext";

const MAX = 2000;

type MediaEvents = { count: number; events: MediaEvent[] };

export default function MediaTab({ context }: { context: RunContext }): ReactNode {
  const [filter, setFilter] = useParam("filter");
  const [images, histograms, tables, texts] = [
    useMediaEvents(context, "image"),
    useMediaEvents(context, "histogram"),
    useMediaEvents(context, "table"),
    useMediaEvents(context, "text"),
  ];
  const all = [images, histograms, tables, texts];
  // biome-ignore lint/correctness/useExhaustiveDependencies: only the data of the responses
  const found = useMemo(
    () => groupMedia([images, histograms, tables, texts].flatMap(({ data }) => data?.events ?? [])),
    [images.data, histograms.data, tables.data, texts.data],
  );
  const failed = all.find((one) => one.error && !one.data);
  if (failed) return <ErrorMessage error={failed.error} retry={failed.reload} />;
  if (all.some((one) => !one.data)) return <Spinner />;
  if (!found.length) {
    return (
      <EmptyState title="No images, tables, texts or histograms">
        Log them with <code>phalanx.tracking.image("samples", "samples.png", step=10)</code>, <code>table</code>,{" "}
        <code>text</code> or <code>histogram</code>.
      </EmptyState>
    );
  }
  const shown = found.filter(({ name }) => matcher(filter)(name));
  return (
    <>
      {found.length > 6 && (
        <div className="chart-bar">
          <input
            type="search"
            className="field"
            placeholder="Filter"
            aria-label="Filter by name"
            value={filter}
            onChange={(event) => setFilter(event.target.value)}
          />
        </div>
      )}
      <div className="chart-grid">
        {shown.map((series) => (
          <div
            key={`${series.kind} ${series.name}`}
            className={series.kind === "table" ? "chart-slot is-wide" : "chart-slot"}
          >
            <LazyMount height={240}>{() => <MediaCard id={context.run.id} series={series} />}</LazyMount>
          </div>
        ))}
      </div>
    </>
  );
}

function useMediaEvents({ run, isLive }: RunContext, kind: MediaKind) {
  return useResource<MediaEvents>(apiPath`/runs/${run.id}/events` + queryString({ kind, limit: MAX }), {
    pollMs: isLive ? 10_000 : undefined,
  });
}

function MediaCard({ id, series }: { id: string; series: MediaSeries }): ReactNode {
  const last = series.events.length - 1;
  const [place, setPlace] = useState(last);
  // While the newest event is shown, it is replaced by newer ones.
  const [isNewest, setNewest] = useState(true);
  useEffect(() => {
    if (isNewest) setPlace(last);
  }, [isNewest, last]);
  const event = series.events[Math.min(place, last)];
  if (!event) return null;
  return (
    <figure className="chart-card media">
      <figcaption className="chart-head">
        <span className="chart-title" title={series.name}>
          {series.name}
        </span>
        <span className="chart-value">
          {event.step !== null && `step ${number(event.step)}`} <span className="faint">{event.replica}</span>
        </span>
      </figcaption>
      <Content id={id} event={event} />
      {last > 0 && (
        <input
          type="range"
          min={0}
          max={last}
          value={Math.min(place, last)}
          aria-label={`Step of ${series.name}`}
          aria-valuetext={`step ${event.step ?? ""}, ${event.replica}`}
          onChange={(change) => {
            const next = Number(change.target.value);
            setPlace(next);
            setNewest(next === last);
          }}
        />
      )}
    </figure>
  );
}

function Content({ id, event }: { id: string; event: MediaEvent }): ReactNode {
  if (event.kind === "image") return <ImageEvent id={id} event={event} />;
  if (event.kind === "histogram") return <Histogram event={event} />;
  if (event.kind === "text") return <pre className="media-text">{event.text}</pre>;
  const [columns, rows] = [event.columns ?? [], event.rows ?? []];
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas need keyboard focus
    <div className="media-table" tabIndex={0}>
      <table className="plain-table">
        <thead>
          <tr>
            {columns.map((name, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: columns may share a name
              <th key={index}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, 500).map((row, index) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: rows have no other key
            <tr key={index}>
              {row.map((cell, column) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: columns may share a name
                <td key={column}>{value(cell)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function ImageEvent({ id, event }: { id: string; event: MediaEvent }): ReactNode {
  const inside = (event.path ?? "").replace(/^media\//, "");
  const url = `${API}${apiPath`/runs/${id}/media/${event.replica}/${event.attempt}`}/${pathPart(inside)}`;
  return (
    <>
      <img
        className="media-image"
        src={url}
        alt={event.caption || `${event.name}, step ${event.step ?? ""}`}
        loading="lazy"
      />
      {event.caption && <p className="soft media-caption">{event.caption}</p>}
    </>
  );
}

function Histogram({ event }: { event: MediaEvent }): ReactNode {
  const edges = (event.edges ?? []).map((edge) => num(edge) ?? 0);
  const counts = event.counts ?? [];
  const total = counts.reduce((sum, count) => sum + count, 0);
  const [low, high] = [number(edges[0]), number(edges[edges.length - 1])];
  return (
    <>
      <svg
        className="media-histogram"
        viewBox="0 0 100 100"
        preserveAspectRatio="none"
        role="img"
        aria-label={`${total} values from ${low} to ${high}`}
      >
        {bars(edges, counts).map((bar, index) => (
          <rect
            // biome-ignore lint/suspicious/noArrayIndexKey: bars have no other key
            key={index}
            x={bar.left * 100}
            width={bar.width * 100}
            y={100 - bar.height * 100}
            height={bar.height * 100}
          >
            <title>{`${number(edges[index])} to ${number(edges[index + 1])}: ${counts[index]}`}</title>
          </rect>
        ))}
      </svg>
      <div className="media-ends number">
        <span>{low}</span>
        <span className="faint">{number(total)} values</span>
        <span>{high}</span>
      </div>
    </>
  );
}
