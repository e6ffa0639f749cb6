/** The controls of charts: filter, x axis, smoothing, logarithmic axes and ranks. */

import "./ChartBar.css";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { setParams, useParam, useRoute } from "../router";
import { useShortcuts } from "../shortcuts";
import { MAX_LINES } from "./chartSource";
import { RanksField } from "./RanksField";
import type { RunContext } from "./runContext";

type SettingsProps = { context: RunContext; mode: "ranks" | "mean"; names: readonly string[] };

export function ChartBar({ count, ...settings }: SettingsProps & { count: number }): ReactNode {
  const [filter, setFilter] = useParam("filter");
  const box = useRef<HTMLInputElement>(null);
  useShortcuts("Charts", { "/": { label: "Filter charts", run: () => box.current?.focus() } });
  return (
    <div className="chart-bar">
      <input
        ref={box}
        type="search"
        className="field"
        placeholder="Filter metrics"
        aria-label="Filter metrics"
        value={filter}
        onChange={(event) => setFilter(event.target.value)}
      />
      <span className="faint number chart-bar-count">{count}</span>
      <ChartSettings {...settings} />
    </div>
  );
}

/** All but the filter; the enlarged chart has them, too. */
export function ChartSettings({ context, mode, names }: SettingsProps): ReactNode {
  const { params } = useRoute();
  const many = (context.topology?.replicas.length ?? 0) > 1;
  const x = params.get("x") ?? "step";
  return (
    <>
      <label className="chart-choice">
        <span>x</span>
        <select
          className="field"
          value={x === "epoch" ? "metric.epoch" : x}
          onChange={(event) =>
            setParams({ x: event.target.value === "step" ? null : event.target.value, zoom: null, steps: null })
          }
        >
          <option value="step">step</option>
          <option value="time">time since start</option>
          <option value="clock">time of day</option>
          <optgroup label="metric">
            {names.map((name) => (
              <option key={name} value={`metric.${name}`}>
                {name}
              </option>
            ))}
          </optgroup>
        </select>
      </label>
      <Smoothing />
      <Toggle name="logy" label="log y" />
      <Toggle name="logx" label="log x" />
      {many && (
        <div className="segments" role="group" aria-label="Ranks">
          <button type="button" aria-pressed={mode === "mean"} onClick={() => setParams({ mode: null, ranks: null })}>
            mean
          </button>
          <button type="button" aria-pressed={mode === "ranks"} onClick={() => setParams({ mode: "ranks" })}>
            ranks
          </button>
        </div>
      )}
      {many && mode === "ranks" && (
        <RanksField most={(context.topology?.replicas.length ?? 1) - 1} none={`${MAX_LINES} ranks`} />
      )}
      {params.has("zoom") && (
        <button type="button" className="button small" onClick={() => setParams({ zoom: null, steps: null })}>
          Reset zoom
        </button>
      )}
    </>
  );
}

function Smoothing(): ReactNode {
  const [now, setNow] = useParam("smooth", "0");
  const [draft, setDraft] = useState(now);
  useEffect(() => setDraft(now), [now]);
  useEffect(() => {
    if (draft === now) return;
    const timer = setTimeout(() => setNow(draft), 80);
    return () => clearTimeout(timer);
  });
  return (
    <label className="chart-choice">
      <span>smoothing</span>
      <input
        type="range"
        min="0"
        max="0.99"
        step="0.01"
        value={draft}
        onChange={(event) => setDraft(event.target.value)}
      />
      <output className="number">{Number(draft).toFixed(2)}</output>
    </label>
  );
}

function Toggle({ name, label }: { name: string; label: string }): ReactNode {
  const { params } = useRoute();
  return (
    <button
      type="button"
      className="button small"
      aria-pressed={params.has(name)}
      onClick={() => setParams({ [name]: !params.has(name) })}
    >
      {label}
    </button>
  );
}
