/** Logged images, sounds, videos, points, histograms, tables and texts, with a slider over their steps. */

import "./chartGrid.css";
import "./MediaTab.css";
import { type ReactNode, useEffect, useMemo, useState } from "react";
import { API, apiPath, queryString, useResource } from "../api";
import { LazyMount } from "../charts";
import { num, number, value } from "../format";
import { useParam } from "../router";
import { EmptyState, ErrorMessage, Spinner } from "../ui";
import { Picture } from "../ui/Picture";
import { bars, dots, groupMedia, MEDIA_KINDS, type MediaEvent, type MediaSeries } from "./media";
import { matcher } from "./metricSections";
import { pathPart } from "./outputs";
import type { RunContext } from "./runContext";

const MAX = 8000;
const MAX_DOTS = 2000;

type MediaEvents = { count: number; events: MediaEvent[] };

export default function MediaTab({ context }: { context: RunContext }): ReactNode {
  const [filter, setFilter] = useParam("filter");
  const { run, isLive } = context;
  const { data, error, reload } = useResource<MediaEvents>(
    apiPath`/runs/${run.id}/events` + queryString({ kind: MEDIA_KINDS.join(","), limit: MAX }),
    { pollMs: isLive ? 10_000 : undefined },
  );
  const found = useMemo(() => groupMedia(data?.events ?? []), [data]);
  if (error && !data) return <ErrorMessage error={error} retry={reload} />;
  if (!data) return <Spinner />;
  if (!found.length) {
    return (
      <EmptyState title="No images, tables, texts or histograms">
        Log them with <code>phalanx.tracking.image("samples", image, step=10)</code>, <code>audio</code>,{" "}
        <code>video</code>, <code>points</code>, <code>histogram</code>, <code>table</code> or <code>text</code>.
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
  if (event.path) return <FileEvent id={id} event={event} />;
  if (event.kind === "points") return <Points event={event} />;
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

function FileEvent({ id, event }: { id: string; event: MediaEvent }): ReactNode {
  const inside = (event.path ?? "").replace(/^media\//, "");
  const url = `${API}${apiPath`/runs/${id}/media/${event.replica}/${event.attempt}`}/${pathPart(inside)}`;
  const label = event.caption || `${event.name}, step ${event.step ?? ""}`;
  const isVideo = event.kind === "video" && !inside.endsWith(".gif"); // browsers show it as an image
  return (
    <>
      {event.kind === "audio" ? (
        // biome-ignore lint/a11y/useMediaCaption: training has none
        <audio className="media-sound" src={url} aria-label={label} controls preload="none" />
      ) : isVideo ? (
        // biome-ignore lint/a11y/useMediaCaption: training has none
        <video className="media-image" src={url} aria-label={label} controls preload="metadata" />
      ) : (
        <Picture className="media-image" src={url} alt={label} />
      )}
      {event.caption && <p className="soft media-caption">{event.caption}</p>}
    </>
  );
}

function Points({ event }: { event: MediaEvent }): ReactNode {
  const rows = (event.rows ?? []).map((row) => row.map((cell) => num(cell)));
  const [across = "x", up = "y"] = event.columns ?? [];
  return (
    <>
      <svg
        className="media-points"
        viewBox="-3 -3 106 66"
        role="img"
        aria-label={`${rows.length} points of ${across} and ${up}`}
      >
        {dots(rows.slice(0, MAX_DOTS)).map((dot, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: points have no other key
          <circle key={index} cx={dot.x * 100} cy={dot.y * 60} r="0.8" />
        ))}
      </svg>
      <div className="media-ends">
        <span>{across}</span>
        <span className="faint">{number(rows.length)} points</span>
        <span>{up}</span>
      </div>
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
