/** All trials of a group: state, value, params, duration, and why each ended. */

import "./TrialsTable.css";
import { type CSSProperties, type ReactNode, useMemo } from "react";
import { durationText, elapsedSeconds, exact, num, number, plural } from "../format";
import { Link, setParams, useParam } from "../router";
import type { GroupDetails, TrialRow, TrialState } from "../types";
import { StatusMark, VirtualList } from "../ui";
import { useNarrow, useNow } from "../ui/hooks";
import { paramText } from "./plotData";
import { resourceName } from "./Rungs";
import { endText, meanText, topRungs } from "./trials";

const ROW_HEIGHT = 32;
const NARROW_ROW_HEIGHT = 62;
const MOST_PARAMS = 8; // as columns; the others are on the page of the run
const STATES: readonly TrialState[] = ["running", "reported", "failed", "invalid", "stopped"];
const TONES: Record<TrialState, "running" | "succeeded" | "failed" | "warning" | "stopped"> = {
  running: "running",
  reported: "succeeded",
  failed: "failed",
  invalid: "warning",
  stopped: "stopped",
};

export function TrialsTable({
  rows,
  group,
  isLive,
}: {
  rows: TrialRow[];
  group: GroupDetails;
  isLive: boolean;
}): ReactNode {
  const [state, setState] = useParam("state");
  const [sort] = useParam("sort", group.metric ? "value" : "trial");
  const narrow = useNarrow();
  const now = useNow(isLive ? 5000 : null);
  const tops = useMemo(() => topRungs(rows), [rows]);
  const shown = useMemo(() => {
    const found = state ? rows.filter((row) => row.state === state) : [...rows];
    return sort === "value" ? found.sort((a, b) => worth(b, group) - worth(a, group) || a.trial - b.trial) : found;
  }, [rows, state, sort, group]);
  const names = group.settings.dimensions.slice(0, MOST_PARAMS).map((dimension) => dimension.name);
  const width = rows.some((row) => row.interval) ? 140 : 96;
  const template = `64px 104px ${width}px ${hasRungs(group) ? "76px " : ""}${names.map(() => "minmax(76px, 1fr) ").join("")}86px minmax(220px, 2.4fr)`;
  const least = 700 + names.length * 86;
  const counts = new Map<string, number>();
  for (const { state } of rows) counts.set(state, (counts.get(state) ?? 0) + 1);
  const row = (index: number): ReactNode => {
    const found = shown[index];
    if (!found) return null;
    const text = { why: endText(found, tops), took: durationText(took(found, now)) };
    if (narrow) return <NarrowRow key={found.trial} row={found} names={names} {...text} />;
    return <WideRow key={found.trial} row={found} names={names} template={template} group={group} {...text} />;
  };
  return (
    <>
      <div className="group-controls">
        <fieldset className="segments" aria-label="State">
          {["", ...STATES.filter((one) => counts.has(one))].map((one) => (
            <button key={one} type="button" aria-pressed={state === one} onClick={() => setState(one)}>
              {one || "all"} {one ? counts.get(one) : rows.length}
            </button>
          ))}
        </fieldset>
        <fieldset className="segments" aria-label="Order">
          {["value", "trial"].map((one) => (
            <button key={one} type="button" aria-pressed={sort === one} onClick={() => setParams({ sort: one })}>
              {one === "value" ? "best first" : "by number"}
            </button>
          ))}
        </fieldset>
        <span className="faint number">{plural(shown.length, "trial")}</span>
      </div>
      <VirtualList
        className="trials-table"
        role="table"
        label="Trials"
        count={shown.length}
        rowHeight={narrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT}
        style={
          {
            "--least": narrow ? "0px" : `${least}px`,
            height: Math.min(640, shown.length * (narrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT) + 36),
          } as CSSProperties
        }
        head={
          narrow ? undefined : (
            <div className="trials-row is-head" role="row" style={{ gridTemplateColumns: template }}>
              {[
                "Trial",
                "State",
                group.metric?.name ?? "Value",
                ...(hasRungs(group) ? [resourceName(group) || "Rung"] : []),
                ...names,
                "Duration",
                "Reason",
              ].map((title) => (
                <span key={title} role="columnheader" className="cut" title={title}>
                  {title}
                </span>
              ))}
            </div>
          )
        }
      >
        {row}
      </VirtualList>
    </>
  );
}

const hasRungs = (group: GroupDetails): boolean => group.rungs.some((rung) => rung.rung > 0);

/** Greater is better; trials without a finite value are last. */
function worth(row: TrialRow, group: GroupDetails): number {
  const value = num(row.value);
  if (value === null || !Number.isFinite(value)) return Number.NEGATIVE_INFINITY;
  return group.metric?.maximize ? value : -value;
}

function took(row: TrialRow, now: number): number | null {
  let sum: number | null = null;
  for (const one of row.attempts) {
    const length = elapsedSeconds(one.started_at, one.finished_at, now);
    if (length !== null) sum = (sum ?? 0) + length;
  }
  return sum;
}

type RowProps = { row: TrialRow; names: string[]; why: string; took: string };

function WideRow({
  row,
  names,
  why,
  took,
  template,
  group,
}: RowProps & { template: string; group: GroupDetails }): ReactNode {
  const value = num(row.value);
  return (
    <div className={rowClass(row, group)} role="row" style={{ gridTemplateColumns: template }}>
      <span role="cell">
        <TrialLink row={row} />
      </span>
      <span role="cell">
        <StatusMark status={TONES[row.state]} label={row.state} />
      </span>
      <span role="cell" className="number" title={value === null ? undefined : exact(value)}>
        {meanText(row)}
      </span>
      {hasRungs(group) && (
        <span role="cell" className="number">
          {row.resource === null ? row.rung : number(row.resource)}
        </span>
      )}
      {names.map((name) => (
        <span key={name} role="cell" className="cut number" title={paramText(row, name)}>
          {paramText(row, name)}
        </span>
      ))}
      <span role="cell" className="number">
        {took}
      </span>
      <span role="cell" className="cut soft" title={[why, row.decision].filter(Boolean).join("\n")}>
        {why}
      </span>
    </div>
  );
}

function NarrowRow({ row, names, why, took }: RowProps): ReactNode {
  return (
    <div className="trials-row is-narrow" role="row">
      <span role="cell" className="row">
        <StatusMark status={TONES[row.state]} label={row.state} bare />
        <TrialLink row={row} />
        <b className="number">{meanText(row)}</b>
        <span className="grow" />
        <span className="faint">{took}</span>
      </span>
      <span role="cell" className="cut soft">
        {names.map((name) => `${name} ${paramText(row, name)}`).join(", ")}
      </span>
      <span role="cell" className="cut faint">
        {why}
      </span>
    </div>
  );
}

function TrialLink({ row }: { row: TrialRow }): ReactNode {
  return (
    <Link to={`/runs/${encodeURIComponent(row.run)}`} className="number" title={`Run ${row.run}`}>
      {row.trial}
      {row.added && (
        <span className="faint" title="Added by a user">
          {" +"}
        </span>
      )}
    </Link>
  );
}

const rowClass = (row: TrialRow, group: GroupDetails): string =>
  group.best?.trial === row.trial ? "trials-row is-best" : "trials-row";
