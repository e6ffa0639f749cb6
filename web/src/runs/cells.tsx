// The rows and cells of the runs table.

import { memo, type ReactNode } from "react";
import { ago, durationText, elapsedSeconds, exact, num, number, runTitle, short, timestamp, value } from "../format";
import { currentRoute, Link, setParams } from "../router";
import { isDone, type RunRow } from "../types";
import { StatusMark, statusText } from "../ui";
import type { Column } from "./columns";
import { quoted, withTerm } from "./querySuggestions";

const TIMES = ["created_at", "started_at", "finished_at", "updated_at"] as const;
const isTime = (key: string): key is (typeof TIMES)[number] => (TIMES as readonly string[]).includes(key);

export function cell(run: RunRow, key: string, now: number): ReactNode {
  const [, head, name] = /^(metric|min|max)\.(.+)$/s.exec(key) ?? [];
  if (head && name) {
    const found = num(head === "metric" ? run.summary[name] : run.best[name]?.[head as "min" | "max"]);
    return found === null ? null : <span title={exact(found)}>{number(found)}</span>;
  }
  if (key.startsWith("params.")) {
    const found = run.params[key.slice(7)];
    return found === undefined ? null : <span title={value(found)}>{short(found)}</span>;
  }
  if (isTime(key)) return run[key] ? <span title={timestamp(run[key])}>{ago(run[key], now)}</span> : null;
  switch (key) {
    case "took":
      return run.started_at ? durationText(elapsedSeconds(run.started_at, run.finished_at, now)) : null;
    case "commit":
      return run.commit ? <code title={run.commit}>{run.commit.slice(0, 8)}</code> : null;
    case "attempt":
    case "priority":
      return number(run[key]);
    case "project":
    case "user":
    case "framework":
    case "backend":
    case "group":
    case "kind":
      return run[key];
    default:
      return null;
  }
}

const SELF_EXPLANATORY = ["succeeded", "running", "starting"];

/** The reason for a status: why a run failed, or what it waits for. */
const statusReason = (run: RunRow): string =>
  (!isDone(run.status) && run.waits_for) ||
  (SELF_EXPLANATORY.includes(run.status) || run.reason === "submitted" ? "" : run.reason);

export type RowProps = {
  run: RunRow;
  index: number;
  columns: readonly Column[];
  template: string;
  now: number;
  selected: boolean;
  current: boolean;
  narrow: boolean;
  onSelect: (run: RunRow, index: number, range: boolean) => void;
  onOpen: (run: RunRow) => void;
};

const Check = ({
  run,
  index,
  selected,
  onSelect,
}: Pick<RowProps, "run" | "index" | "selected" | "onSelect">): ReactNode => (
  <label className="runs-check" onClick={(event) => event.stopPropagation()} onKeyDown={() => {}}>
    <input
      type="checkbox"
      aria-label={`Select ${runTitle(run)}`}
      checked={selected}
      onClick={(event) => onSelect(run, index, event.shiftKey)}
      onChange={() => {}}
    />
  </label>
);

export const Row = memo(function Row(props: RowProps): ReactNode {
  const { run, columns, template, now, selected, current, narrow, onOpen } = props;
  const open = (event: { target: EventTarget }): void => {
    const isControl = event.target instanceof Element && event.target.closest("a, button, input, label");
    if (!isControl && !getSelection()?.toString()) onOpen(run);
  };
  const className = `runs-row${selected ? " is-selected" : ""}${current ? " is-current" : ""}`;
  if (narrow) return <NarrowRow {...props} className={className} open={open} />;
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: j, k and Enter do the same
    <div
      className={className}
      role="row"
      aria-rowindex={props.index + 2}
      style={{ gridTemplateColumns: template }}
      onClick={open}
    >
      <span role="cell" className="runs-lead">
        <Check {...props} />
        <Name run={run} />
      </span>
      <span role="cell">
        <StatusMark status={run.status} reason={statusReason(run)} />
      </span>
      {columns.map((column) => (
        <span key={column.key} role="cell" className={column.right ? "cut right" : "cut"}>
          {cell(run, column.key, now)}
        </span>
      ))}
    </div>
  );
});

/** Adds a tag to the filter. */
function filterByTag(tag: string): void {
  setParams({ q: withTerm(currentRoute().params.get("q") ?? "", "tags", quoted(tag)) }, { push: true });
}

function Name({ run }: { run: RunRow }): ReactNode {
  const reason = statusReason(run);
  return (
    <>
      <Link to={`/runs/${run.id}`} className="runs-name cut" title={run.description ?? undefined}>
        {runTitle(run)}
      </Link>
      {run.name && <span className="faint mono runs-id">{run.id}</span>}
      {run.tags.slice(0, 2).map((tag) => (
        <button
          key={tag}
          type="button"
          className="tag cut"
          title={`Filter by tag ${tag}`}
          onClick={() => filterByTag(tag)}
        >
          {tag}
        </button>
      ))}
      {run.tags.length > 2 && (
        <span className="tag" title={run.tags.slice(2).join(", ")}>
          +{run.tags.length - 2}
        </span>
      )}
      {reason && (
        <span className="faint cut runs-why" title={reason}>
          {reason}
        </span>
      )}
    </>
  );
}

type NarrowProps = RowProps & { className: string; open: (event: { target: EventTarget }) => void };

function NarrowRow({ className, open, ...props }: NarrowProps): ReactNode {
  const { run, columns, now } = props;
  const shown = columns.filter(({ key }) => key.startsWith("metric.") && cell(run, key, now) !== null).slice(0, 2);
  const reason = statusReason(run) || (shown.length ? "" : statusText(run.status));
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the name is a link
    <div className={`${className} is-narrow`} role="row" aria-rowindex={props.index + 2} onClick={open}>
      <span role="cell">
        <Check {...props} />
      </span>
      <span role="cell" className="runs-card">
        <span className="row">
          <StatusMark status={run.status} bare />
          <Link to={`/runs/${run.id}`} className="runs-name cut is-wide">
            {runTitle(run)}
          </Link>
          <span className="faint">{ago(run.created_at, now)}</span>
        </span>
        <span className="row faint cut">
          {reason ? (
            <span className="cut">{reason}</span>
          ) : (
            shown.map(({ key, title: name }) => (
              <span key={key} className="cut">
                {name} <span className="runs-figure">{cell(run, key, now)}</span>
              </span>
            ))
          )}
          <span className="grow" />
          <span>{cell(run, "took", now)}</span>
        </span>
      </span>
    </div>
  );
}
