/** The replicas of a run as cells, grouped by role and coloured by state and lag. */

import "./Topology.css";
import { type KeyboardEvent, type MouseEvent, memo, type ReactNode, useMemo, useRef, useState } from "react";
import type { Lag, TopologyReplica } from "../api";
import { ago, number, plural } from "../format";
import { setParams, useRoute } from "../router";
import { rankText } from "./ranks";
import { byRole, countByMark, LAG_LABELS, MARKS, markOf, shownLags } from "./replicaLag";
import type { RunContext } from "./runContext";

const MAX_SIDE_BY_SIDE = 24; // replicas: with more, the summary is above the cells
const MAX_WITH_INDEX = 64; // replicas: with more, cells do not show their index

export function TopologyStrip({ context }: { context: RunContext }): ReactNode {
  const { topology } = context;
  const { params } = useRoute();
  if (!topology?.replicas.length) return null;
  const opened = params.get("replica-panel") ?? "";
  return (
    <section
      className={topology.replicas.length <= MAX_SIDE_BY_SIDE ? "topology is-few" : "topology"}
      aria-label="Replicas"
    >
      <Cells replicas={topology.replicas} opened={opened} />
      <div className="topology-summary">
        <ReplicaSummary context={context} />
        <Legend replicas={topology.replicas} />
      </div>
    </section>
  );
}

function ReplicaSummary({ context }: { context: RunContext }): ReactNode {
  const { topology, run } = context;
  if (!topology) return null;
  const { replicas, front, straggler, attempts } = topology;
  const last = replicas.find((one) => one.name === straggler);
  return (
    <div className="topology-counts">
      <b>{plural(replicas.length, "replica")}</b>
      {countByMark(replicas).map(({ mark, count }) => (
        <span key={mark} className={`topology-count is-${mark}`}>
          {count === replicas.length ? "all" : count} {MARKS[mark].label}
        </span>
      ))}
      {front !== null && (
        <span className="soft">
          latest step <span className="number">{number(front)}</span>
        </span>
      )}
      {last && (
        <button
          type="button"
          className="topology-straggler"
          onClick={() => setParams({ "replica-panel": last.name }, { push: true })}
        >
          {last.name} is {plural(last.behind ?? 0, "step")} behind
        </button>
      )}
      {attempts.length > 1 && (
        <label className="topology-attempt">
          <span className="soft">attempt</span>
          <select
            className="field"
            value={topology.attempt}
            onChange={(event) => {
              const selected = Number(event.target.value);
              setParams({ attempt: selected === run.attempt ? null : selected });
            }}
          >
            {attempts.map((attempt) => (
              <option key={attempt} value={attempt}>
                {attempt}
                {attempt === run.attempt ? " (current)" : ""}
              </option>
            ))}
          </select>
        </label>
      )}
    </div>
  );
}

type CellsProps = { replicas: TopologyReplica[]; opened: string };

const Cells = memo(function Cells({ replicas, opened }: CellsProps): ReactNode {
  const groups = useMemo(() => byRole(replicas), [replicas]);
  const naturalOrder = useMemo(() => groups.flatMap((group) => group.replicas), [groups]);
  const [near, setNear] = useState<{ one: TopologyReplica; left: number; top: number } | null>(null);
  const [focusedSeries, setFocused] = useState(0);
  const place = useRef<HTMLDivElement>(null);
  const size = replicas.length <= MAX_WITH_INDEX ? "is-large" : replicas.length <= 256 ? "is-middle" : "is-small";

  const find = (event: { target: EventTarget }) => {
    const cell = (event.target as HTMLElement).closest<HTMLElement>("[data-place]");
    return cell && { cell, at: Number(cell.dataset.place) };
  };
  const point = (event: { target: EventTarget }) => {
    const found = find(event);
    const one = found && naturalOrder[found.at];
    if (!found || !one || !place.current) return setNear(null);
    const [box, whole] = [found.cell.getBoundingClientRect(), place.current.getBoundingClientRect()];
    const left = Math.min(box.left - whole.left, Math.max(0, whole.width - 270));
    setNear({ one, left, top: box.bottom - whole.top + 6 });
  };
  const open = (event: MouseEvent) => {
    const one = naturalOrder[find(event)?.at ?? -1];
    if (one) setParams({ "replica-panel": one.name === opened ? null : one.name }, { push: true });
  };
  const press = (event: KeyboardEvent) => {
    const next = moved(event.key, focusedSeries, naturalOrder.length, place.current);
    if (next === null) return;
    event.preventDefault();
    setFocused(next);
    place.current?.querySelector<HTMLElement>(`[data-place="${next}"]`)?.focus();
  };
  let at = 0;
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: it only handles events of its buttons
    <div
      ref={place}
      className={`topology-cells ${size}`}
      onMouseOver={point}
      onFocus={(event) => {
        const found = find(event);
        if (found) setFocused(found.at);
        point(event);
      }}
      onMouseLeave={() => setNear(null)}
      onBlur={() => setNear(null)}
      onClick={open}
      onKeyDown={press}
    >
      {groups.map((group) => (
        <div key={group.role} className="topology-role">
          <span className="topology-role-name">
            {group.role} {group.replicas.length > 1 && <span className="faint">× {group.replicas.length}</span>}
            {hasOtherRanks(group.replicas) && <span className="faint"> · {ranksOf(group.replicas)}</span>}
          </span>
          <div className="topology-grid">
            {group.replicas.map((one) => {
              const number = at++;
              return (
                <Cell
                  key={one.name}
                  one={one}
                  place={number}
                  lag={one.lag ?? 0}
                  isOpen={one.name === opened}
                  isFirst={number === focusedSeries}
                  isNamed={size === "is-large"}
                />
              );
            })}
          </div>
        </div>
      ))}
      {near && <Tip {...near} />}
    </div>
  );
});

/** Cells show the index of a replica in its role; the ranks are beside the role if they are others. */
const hasOtherRanks = (replicas: readonly TopologyReplica[]): boolean => replicas.some((one) => one.rank !== one.index);

const ranksOf = (replicas: readonly TopologyReplica[]): string =>
  `${replicas.length > 1 ? "ranks" : "rank"} ${rankText(replicas.map((one) => one.rank)).replaceAll("-", "–")}`;

type CellProps = { one: TopologyReplica; place: number; lag: Lag; isOpen: boolean; isFirst: boolean; isNamed: boolean };

const Cell = memo(function Cell({ one, place, lag, isOpen, isFirst, isNamed }: CellProps): ReactNode {
  const mark = markOf(one);
  const symbol = MARKS[mark].symbol;
  return (
    <button
      type="button"
      data-place={place}
      className={`cell is-${mark}${mark === "run" ? ` lag-${lag}` : ""}`}
      tabIndex={isFirst ? 0 : -1}
      aria-pressed={isOpen}
      aria-label={replicaLabel(one)}
    >
      {isNamed ? one.index : ""}
      {symbol && <i aria-hidden="true">{symbol}</i>}
    </button>
  );
});

function replicaLabel(one: TopologyReplica): string {
  const parts = [one.name, `rank ${one.rank}`, MARKS[markOf(one)].label];
  if (one.step !== null) parts.push(`step ${one.step}`);
  if (one.behind) parts.push(`${plural(one.behind, "step")} behind`);
  return parts.join(", ");
}

/** The cell that an arrow key moves to. Rows depend on the layout. */
function moved(key: string, from: number, count: number, place: HTMLElement | null): number | null {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (step) return Math.min(count - 1, Math.max(0, from + step));
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  if ((key !== "ArrowUp" && key !== "ArrowDown") || !place) return null;
  const cells = [...place.querySelectorAll<HTMLElement>("[data-place]")];
  const here = cells[from]?.getBoundingClientRect();
  if (!here) return null;
  const by = key === "ArrowDown" ? 1 : -1;
  let row: number | null = null;
  let best: { at: number; apart: number } | null = null;
  for (let at = from + by; at >= 0 && at < count; at += by) {
    const box = (cells[at] as HTMLElement).getBoundingClientRect();
    if (Math.abs(box.top - here.top) < 2) continue;
    row ??= box.top;
    if (Math.abs(box.top - row) > 2) break;
    const apart = Math.abs(box.left - here.left);
    if (!best || apart < best.apart) best = { at, apart };
  }
  return best?.at ?? null;
}

function Tip({ one, left, top }: { one: TopologyReplica; left: number; top: number }): ReactNode {
  return (
    <div className="topology-tip" style={{ left, top }} aria-hidden="true">
      <b>{one.name}</b> <span className="soft">rank {one.rank}</span>
      <div>
        {MARKS[markOf(one)].label}
        {one.host && <span className="soft"> on {one.host}</span>}
      </div>
      {one.step !== null && (
        <div className="number">
          step {number(one.step)}
          {one.behind ? <span className="is-behind"> · {plural(one.behind, "step")} behind</span> : null}
          {one.step_at && <span className="soft"> · {ago(one.step_at)}</span>}
        </div>
      )}
      {one.reason && <div className="soft">{one.reason}</div>}
    </div>
  );
}

/** Only the states and lags that occur. */
function Legend({ replicas }: Omit<CellsProps, "opened">): ReactNode {
  const marks = countByMark(replicas).filter(({ mark }) => mark !== "run");
  const lags = shownLags(replicas);
  const hasLag = [...lags].some((lag) => lag > 0);
  return (
    <ul className="topology-legend" aria-label="Legend">
      {lags.size > 0 &&
        ([0, 1, 2, 3] as Lag[])
          .filter((lag) => hasLag || lag === 0)
          .map((lag) => (
            <li key={lag}>
              <span className={`cell is-run lag-${lag}`} /> {hasLag ? LAG_LABELS[lag] : "running"}
            </li>
          ))}
      {marks.map(({ mark }) => (
        <li key={mark}>
          <span className={`cell is-${mark}`}>
            <i aria-hidden="true">{MARKS[mark].symbol}</i>
          </span>
          {MARKS[mark].label}
        </li>
      ))}
    </ul>
  );
}
