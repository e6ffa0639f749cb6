/** A side panel for one replica: state, end of the log, resource usage, command and environment. */

import "./RankPanel.css";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { apiPath, type Environment, type LogPage, queryString, type ReplicaUsage, useResource } from "../api";
import { type Line, LineChart } from "../charts";
import { durationText, elapsedSeconds, number, timestamp } from "../format";
import { Link, setParams } from "../router";
import { useShortcuts } from "../shortcuts";
import { CopyButton, ErrorMessage, Icon, StatusMark } from "../ui";
import { useNow, useThrottled } from "../ui/hooks";
import { AnsiText } from "./AnsiText";
import { plainText, toneOf } from "./logWindow";
import type { RunContext } from "./runContext";

export function RankPanel({ context, name }: { context: RunContext; name: string }): ReactNode {
  const one = context.topology?.replicas.find((replica) => replica.name === name);
  const close = () => setParams({ "replica-panel": null });
  useShortcuts("This replica", { Escape: { label: "Close the panel", run: close } });
  const panel = useRef<HTMLElement>(null);
  return (
    <aside className="rank-panel" aria-label={`Replica ${name}`} ref={panel}>
      <header className="rank-panel-head">
        <h2 className="grow">
          {name} {one && <span className="faint">rank {one.rank}</span>}
        </h2>
        <RankButtons context={context} name={name} />
        <button type="button" className="button plain icon small" aria-label="Close" onClick={close}>
          <Icon name="close" />
        </button>
      </header>
      <div className="rank-panel-body">
        {one ? (
          <ReplicaState context={context} name={name} />
        ) : (
          <p className="soft">There is no such replica in this attempt.</p>
        )}
        {one && <LogTail context={context} name={name} />}
        {one && <Usage context={context} name={name} />}
        {one && <LaunchDetails context={context} name={name} />}
      </div>
    </aside>
  );
}

type Props = { context: RunContext; name: string };

function RankButtons({ context, name }: Props): ReactNode {
  const all = [...(context.topology?.replicas ?? [])].sort((one, other) => one.rank - other.rank);
  const now = all.findIndex((one) => one.name === name);
  const to = (by: number) => all[now + by]?.name;
  const button = (by: number, label: string, icon: "up" | "down") => (
    <button
      type="button"
      className="button plain icon small"
      aria-label={label}
      title={label}
      disabled={!to(by)}
      onClick={() => setParams({ "replica-panel": to(by) })}
    >
      <Icon name={icon} />
    </button>
  );
  return (
    <>
      {button(-1, "Previous rank", "up")}
      {button(1, "Next rank", "down")}
    </>
  );
}

function ReplicaState({ context, name }: Props): ReactNode {
  const one = context.topology?.replicas.find((replica) => replica.name === name);
  const isOn = context.isLive && !one?.finished_at;
  const now = useNow(isOn ? 1000 : null);
  if (!one) return null;
  const facts: [string, ReactNode][] = [["state", <StatusMark key="s" status={one.status} />]];
  if (one.reason) facts.push(["reason", one.reason]);
  if (one.host) facts.push(["host", one.host]);
  if (one.step !== null) {
    facts.push([
      "step",
      <span key="n" className="number">
        {number(one.step)}
        {one.behind ? `, ${number(one.behind)} behind` : ""}
      </span>,
    ]);
  }
  if (one.started_at) facts.push(["started", timestamp(one.started_at)]);
  const length = elapsedSeconds(one.started_at, one.finished_at, now);
  if (length !== null) facts.push([one.finished_at ? "took" : "running for", durationText(length)]);
  if (one.finished_at) facts.push(["ended", timestamp(one.finished_at)]);
  if (one.signal) facts.push(["signal", String(one.signal)]);
  else if (one.code !== null) facts.push(["exit code", String(one.code)]);
  return (
    <dl className="facts">
      {facts.map(([label, content]) => (
        <div key={label} className="facts-row">
          <dt>{label}</dt>
          <dd>{content}</dd>
        </div>
      ))}
    </dl>
  );
}

function LogTail({ context: { run, topology, updates, isLive }, name }: Props): ReactNode {
  const attempt = topology?.attempt;
  const response = useResource<LogPage>(
    apiPath`/runs/${run.id}/lines` + queryString({ replica: name, attempt, limit: 100, ansi: 1 }),
    {
      keepPrevious: true,
    },
  );
  const reload = useThrottled(response.reload, 1000);
  // biome-ignore lint/correctness/useExhaustiveDependencies: reload with every update
  useEffect(() => {
    if (isLive) reload();
  }, [updates.log, isLive, reload]);
  const box = useRef<HTMLPreElement>(null);
  const lines = response.data?.lines;
  // biome-ignore lint/correctness/useExhaustiveDependencies: scroll to the end with new lines
  useEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines]);
  const to = `/runs/${encodeURIComponent(run.id)}/logs${queryString({ replica: name, attempt: attempt === run.attempt ? null : attempt })}`;
  return (
    <section>
      <h3 className="rank-panel-title">
        End of log <Link to={to}>full log</Link>
      </h3>
      {response.error && !lines ? (
        <ErrorMessage error={response.error} retry={response.reload} />
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas need keyboard focus
        <pre className="rank-panel-log" ref={box} tabIndex={0}>
          {lines?.map((line) => (
            <span key={line.cursor} className={`tone-${toneOf(plainText(line.text)) ?? "none"}`}>
              <AnsiText text={line.text} />
              {"\n"}
            </span>
          ))}
          {lines?.length === 0 && <span className="faint">No output.</span>}
        </pre>
      )}
    </section>
  );
}

function Usage({ context: { run, topology, isLive }, name }: Props): ReactNode {
  const path = `${apiPath`/runs/${run.id}/use/${name}`}${queryString({ buckets: 300, attempt: topology?.attempt })}`;
  const response = useResource<ReplicaUsage>(path, { pollMs: isLive ? 5000 : undefined, keepPrevious: true });
  const use = response.data;
  const charts = useMemo(() => (use ? usageCharts(use) : []), [use]);
  if (response.error && !use) return null;
  return (
    <section>
      <h3 className="rank-panel-title">Resource usage</h3>
      {use && !use.times.length && <p className="faint">No samples: the replica ended too soon.</p>}
      {charts.map(({ title, lines, unit }) => (
        <LineChart
          key={title}
          title={title}
          lines={lines}
          x="time"
          height={96}
          group={`use ${name}`}
          fromZero
          {...(unit ? { unit } : {})}
        />
      ))}
    </section>
  );
}

type UsageChart = { title: string; lines: Line[]; unit?: "bytes" | "percent" };

export function usageCharts(use: ReplicaUsage): UsageChart[] {
  if (!use.times.length) return [];
  const start = use.times[0] as number;
  const x = use.times.map((time) => time - start);
  const bytes = (values: (number | null)[]) => values.map((value) => (value === null ? null : value * 1024 * 1024));
  const found: UsageChart[] = [
    { title: "CPU cores", lines: [{ key: "cpu", label: "cores", color: 0, x, y: use.cpu }] },
    {
      title: "Memory",
      unit: "bytes",
      lines: [{ key: "memory", label: "memory", color: 2, x, y: bytes(use.memory_mib) }],
    },
  ];
  const gpus = use.gpus ?? [];
  if (gpus.length) {
    const one = (gpu: (typeof gpus)[number], index: number, y: (number | null)[]): Line => ({
      key: `${gpu.name} ${index}`,
      label: gpu.name,
      color: index,
      x,
      y,
    });
    found.push({ title: "GPU", unit: "percent", lines: gpus.map((gpu, index) => one(gpu, index, gpu.util)) });
    found.push({
      title: "GPU memory",
      unit: "bytes",
      lines: gpus.map((gpu, index) => one(gpu, index, bytes(gpu.memory_mib))),
    });
  }
  return found;
}

function LaunchDetails({ context: { run, topology }, name }: Props): ReactNode {
  const [isOpen, setOpen] = useState(false);
  const path = apiPath`/runs/${run.id}/environment/${name}` + queryString({ attempt: topology?.attempt });
  const response = useResource<Environment>(isOpen ? path : null);
  const found = response.data;
  return (
    <details className="rank-panel-more" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Command and environment</summary>
      {response.error && <ErrorMessage error={response.error} retry={response.reload} />}
      {found && (
        <>
          <div className="typed">
            <code>{found.argv.map(quoted).join(" ")}</code>
            <CopyButton text={found.argv.map(quoted).join(" ")} />
          </div>
          {found.folder && <p className="soft">in {found.folder}</p>}
          <table className="variables">
            <tbody>
              {Object.entries(found.variables)
                .sort(([one], [other]) => (one < other ? -1 : 1))
                .map(([key, value]) => (
                  <tr key={key}>
                    <th scope="row">{key}</th>
                    <td>{value}</td>
                  </tr>
                ))}
            </tbody>
          </table>
        </>
      )}
    </details>
  );
}

function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
