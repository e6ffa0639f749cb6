/** The overview of a run: progress, metrics, resource usage, params, description and facts. */

import "./card.css";
import "./Overview.css";
import { type ReactNode, useMemo, useState } from "react";
import {
  apiPath,
  isDone,
  type Json,
  queryString,
  type ResourceUse,
  type ResourceUseRow,
  type Summary,
  useResource,
} from "../api";
import { ago, durationText, mib, num, number, value } from "../format";
import { InlineCode } from "../markdown";
import { Link, useParam } from "../router";
import { CopyButton } from "../ui";
import { useNow } from "../ui/hooks";
import { Alerts } from "./Alerts";
import { Description } from "./Description";
import { grouped, matcher, naturalOrder } from "./metricSections";
import { progressOf, secondsLeft } from "./progress";
import type { RunContext } from "./runContext";

const MANY = 12; // rows before a filter box is shown
const SHOWN = 40;
const SHOWN_ELSEWHERE = ["progress", "failure", "candidates", "files"]; // facts

export function Overview({ context }: { context: RunContext }): ReactNode {
  const { run } = context;
  return (
    <div className="overview">
      <Progress context={context} />
      <Alerts context={context} />
      <div className="overview-columns">
        <div className="overview-column">
          <Metrics context={context} />
          <Usage context={context} />
        </div>
        <div className="overview-column">
          <PairsTable title="Params" rows={Object.entries(run.params)} empty="No params." />
          <Description context={context} />
          <LabelsAndFacts context={context} />
        </div>
      </div>
    </div>
  );
}

// Progress -------------------------------------------------------------------------------------------------------

function Progress({ context: { run } }: { context: RunContext }): ReactNode {
  const isOn = !isDone(run.status);
  const now = useNow(isOn ? 1000 : null);
  const found = isOn ? progressOf(run.facts.progress) : null;
  if (!found) return null;
  const percent = Math.round(found.share * 100);
  const left = secondsLeft(found, now);
  return (
    <div className="progress">
      <div
        className="meter"
        role="progressbar"
        aria-valuenow={percent}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-label="Progress"
      >
        <i style={{ width: `${found.share * 100}%` }} />
      </div>
      <span className="number">{found.text || `${percent}%`}</span>
      {left !== null && <span className="soft">about {durationText(left)} left</span>}
    </div>
  );
}

// Metrics -------------------------------------------------------------------------------------------------------------

type MetricOwner = { name: string; replica: string; rank: number | null; replica_count: number };

/** Of a run with several replicas: whose values the summaries are. */
function useOwners({ run, topology, isLive }: RunContext): Map<string, MetricOwner> {
  const isNeeded = (topology?.replicas.length ?? 0) > 1 && Object.keys(run.summaries).length > 0;
  const path = isNeeded ? apiPath`/runs/${run.id}/metrics` + queryString({ brief: 1 }) : null;
  const { data } = useResource<{ metrics: MetricOwner[] }>(path, { pollMs: isLive ? 30_000 : undefined });
  return useMemo(() => new Map((data?.metrics ?? []).map((one) => [one.name, one])), [data]);
}

function Metrics({ context }: { context: RunContext }): ReactNode {
  const { run } = context;
  const owners = useOwners(context);
  const [filter, setFilter] = useParam("metric");
  const [isAll, setAll] = useState(false);
  const names = grouped(naturalOrder(Object.keys(run.summaries)), [], "").flatMap((group) => group.metrics);
  const found = names.filter(matcher(filter));
  const shown = isAll ? found : found.slice(0, SHOWN);
  return (
    <section className="card-part" aria-label="Metrics">
      <div className="card-head">
        <h2>Metrics</h2>
        <span className="faint">{names.length || ""}</span>
        {names.length > MANY && <Filter value={filter} onChange={setFilter} label="Filter metrics" />}
      </div>
      {names.length === 0 ? (
        <p className="card-empty">
          No metrics yet. Log them in your training code: <code>phalanx.tracking.log(loss=0.5, step=10)</code>
        </p>
      ) : (
        <div className="scroll-x">
          <table className="plain-table metrics">
            <thead>
              <tr>
                <th>name</th>
                {owners.size > 0 && <th title="The first rank that logged the metric; its values are shown">of</th>}
                <th className="right">last</th>
                <th className="right">min</th>
                <th className="right">max</th>
                <th className="right">step</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((name) => (
                <MetricLine
                  key={name}
                  id={run.id}
                  name={name}
                  summary={run.summaries[name] as Summary}
                  owner={owners.size > 0 ? (owners.get(name) ?? null) : undefined}
                />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {found.length > shown.length && (
        <button type="button" className="button plain small" onClick={() => setAll(true)}>
          Show all {found.length}
        </button>
      )}
    </section>
  );
}

type MetricLineProps = { id: string; name: string; summary: Summary; owner: MetricOwner | null | undefined };

function MetricLine({ id, name, summary, owner }: MetricLineProps): ReactNode {
  const amount = (key: string) => number(num(summary[key] as Json));
  return (
    <tr>
      <td className="name">
        <Link to={`/runs/${encodeURIComponent(id)}/charts?filter=${encodeURIComponent(name)}`}>{name}</Link>
      </td>
      {owner !== undefined && (
        <td className="soft metric-owner" title={owner?.rank == null ? undefined : `rank ${owner.rank}`}>
          {owner?.replica}{" "}
          {owner && owner.replica_count > 1 && <span className="faint">of {owner.replica_count} ranks</span>}
        </td>
      )}
      <td className="right strong">{amount("last")}</td>
      <td className="right soft">{amount("min")}</td>
      <td className="right soft">{amount("max")}</td>
      <td className="right soft">{amount("step")}</td>
    </tr>
  );
}

function Filter({
  value: now,
  onChange,
  label,
}: {
  value: string;
  onChange: (text: string) => void;
  label: string;
}): ReactNode {
  return (
    <input
      type="search"
      className="field small-field"
      placeholder="Filter"
      aria-label={label}
      value={now}
      onChange={(event) => onChange(event.target.value)}
    />
  );
}

// Resource usage ------------------------------------------------------------------------------------------------

function Usage({ context: { run, isLive } }: { context: RunContext }): ReactNode {
  const response = useResource<ResourceUse>(
    run.started_at && run.backend !== "outside" ? apiPath`/runs/${run.id}/use` : null,
    {
      pollMs: isLive ? 15_000 : undefined,
    },
  );
  const use = response.data;
  if (!use?.roles?.length) return null;
  return (
    <section className="card-part" aria-label="Resource usage">
      <div className="card-head">
        <h2>Resource usage</h2>
      </div>
      {use.roles.map((role) => (
        <div key={role.role + role.names} className="use-role">
          <h3>
            {role.names || role.role} {role.count > 1 && <span className="faint">× {role.count}</span>}
          </h3>
          {role.resources.map((row) => (
            <UsageRow key={row.resource} row={row as UsageRowData} />
          ))}
        </div>
      ))}
      {use.sentences?.length > 0 && (
        <ul className="use-advice">
          {use.sentences.map((sentence) => (
            <li key={sentence}>
              <InlineCode text={sentence} />
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** `advice` is the amount to request instead. */
type UsageRowData = Omit<ResourceUseRow, "advice"> & { advice: string | number | null };

/** A bar scaled to the largest value: usage is filled, the request is a mark. */
function UsageRow({ row }: { row: UsageRowData }): ReactNode {
  const { requested, limit, mean, p95, peak } = row;
  const used = peak ?? p95 ?? mean;
  const most = Math.max(requested ?? 0, limit ?? 0, used ?? 0) || 1;
  const width = (amount: number | null) => `${Math.min(100, ((amount ?? 0) / most) * 100)}%`;
  const share = requested && used !== null ? used / requested : null;
  const isTight = share !== null && share > 0.95;
  const description = `${row.resource}: peak ${amountText(used, row.unit)}, requested ${amountText(requested, row.unit)}`;
  return (
    <div className="use-line">
      <span className="use-name">{row.resource}</span>
      <div className={`use-bar ${isTight ? "is-tight" : ""}`} role="img" aria-label={description} title={description}>
        <i className="use-peak" style={{ width: width(used) }} />
        <i className="use-mean" style={{ width: width(p95 ?? mean) }} />
        {requested !== null && <b className="use-request" style={{ left: width(requested) }} />}
      </div>
      <span className="use-values number">
        {amountText(used, row.unit)}
        <span className="faint">{requested === null ? " (no request)" : ` of ${amountText(requested, row.unit)}`}</span>
        {share !== null && share < 0.5 && <span className="use-share"> {Math.max(1, Math.round(share * 100))}%</span>}
      </span>
      {row.advice !== null && row.advice !== undefined && (
        <p className="use-hint">
          {typeof row.advice === "number" ? `${amountText(row.advice, row.unit)} is enough` : row.advice}
        </p>
      )}
    </div>
  );
}

function amountText(amount: number | null, unit: string): string {
  if (amount === null) return "–";
  if (/mib/i.test(unit)) return mib(amount);
  if (/^s(ec|$)/i.test(unit)) return durationText(amount);
  if (/^cores?$/i.test(unit)) return amount === 1 ? "1 core" : `${number(amount, 3)} cores`;
  return `${number(amount, 3)}${unit ? ` ${unit}` : ""}`;
}

// Params, labels and facts --------------------------------------------------------------------------------------------

function PairsTable({ title, rows, empty }: { title: string; rows: [string, Json][]; empty: string }): ReactNode {
  const [filter, setFilter] = useState("");
  const sorted = useMemo(() => [...rows].sort(([one], [other]) => (one < other ? -1 : 1)), [rows]);
  const found = sorted.filter(([name]) => matcher(filter)(name));
  const text = sorted.map(([name, one]) => `${name}: ${value(one)}`).join("\n");
  return (
    <section className="card-part" aria-label={title}>
      <div className="card-head">
        <h2>{title}</h2>
        <span className="faint">{rows.length || ""}</span>
        {rows.length > MANY && <Filter value={filter} onChange={setFilter} label={`Filter ${title.toLowerCase()}`} />}
        {rows.length > 0 && <CopyButton text={text} label={`Copy ${title.toLowerCase()}`} />}
      </div>
      {rows.length === 0 ? (
        <p className="card-empty">{empty}</p>
      ) : (
        <dl className="pairs">
          {found.slice(0, 500).map(([name, one]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd className="mono">{value(one)}</dd>
            </div>
          ))}
        </dl>
      )}
    </section>
  );
}

function LabelsAndFacts({ context: { run } }: { context: RunContext }): ReactNode {
  const rows: [string, Json][] = [
    ...Object.entries(run.labels),
    ...Object.entries(run.facts).filter(([name]) => !SHOWN_ELSEWHERE.includes(name)),
  ];
  const updated = `Updated ${ago(run.updated_at)}.`;
  if (!rows.length) return <p className="faint overview-updated">{updated}</p>;
  return (
    <>
      <PairsTable title="Labels and facts" rows={rows} empty="" />
      <p className="faint overview-updated">{updated}</p>
    </>
  );
}
