// The rows and cells of the runs table.

import { memo, type ReactNode } from "react";
import {
  ago,
  durationText,
  elapsedSeconds,
  exact,
  mib,
  num,
  number,
  plural,
  runTitle,
  short,
  timestamp,
  value,
  visible,
} from "../format";
import { isLowerBetter } from "../metricDirection";
import { currentRoute, Link, setParams } from "../router";
import { isDone, PARTS, type RunRow } from "../types";
import { Icon, StatusMark, statusText } from "../ui";
import type { Column } from "./columns";
import { quoted, withTerm } from "./querySuggestions";

const TIMES = ["created_at", "started_at", "finished_at", "updated_at"] as const;
const isTime = (key: string): key is (typeof TIMES)[number] => (TIMES as readonly string[]).includes(key);

export function cell(run: RunRow, key: string, now: number): ReactNode {
  const [, head, name] = /^(metric|min|max|best)\.(.+)$/s.exec(key) ?? [];
  if (head && name) {
    if (run.search?.metric?.name === name) return bestOf(run, head);
    const end = head === "best" ? (isLowerBetter(name) ? "min" : "max") : (head as "min" | "max");
    const found = num(head === "metric" ? run.summary[name] : run.best[name]?.[end]);
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
    case "gpus":
    case "cpus":
      return run[key] === null ? null : number(run[key]);
    case "memory":
      return run.memory_mib === null ? null : mib(run.memory_mib);
    case "replicas":
      return run.replica_count === null ? null : number(run.replica_count);
    case "project":
    case "user":
    case "framework":
    case "backend":
    case "group":
    case "kind":
      return run[key] && visible(run[key]);
    default:
      return null;
  }
}

/** The best value of a group's trials, in the columns of its metric. */
function bestOf({ search }: RunRow, head: string): ReactNode {
  const found = num(search?.best?.value);
  const isOpposite = head === (search?.metric?.maximize ? "min" : "max");
  return found === null || isOpposite ? null : (
    <span title={`Best of its trials: ${exact(found)}`}>{number(found)}</span>
  );
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
  /** A trial below the row of its group. */
  isTrial: boolean;
  isUnfolded: boolean;
  starred: boolean;
  onStar: (run: RunRow) => void;
  /** Unfolds or folds a group; null where trials are in the list itself. */
  onFold: ((group: string) => void) | null;
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

const Star = ({ run, starred, onStar }: Pick<RowProps, "run" | "starred" | "onStar">): ReactNode => (
  <button
    type="button"
    className="runs-star"
    aria-label={`Star ${runTitle(run)}`}
    aria-pressed={starred}
    title={starred ? "Remove star" : "Star"}
    onClick={() => onStar(run)}
  >
    {starred ? "★" : "☆"}
  </button>
);

export const Row = memo(function Row(props: RowProps): ReactNode {
  const { run, columns, template, now, selected, current, narrow, onOpen } = props;
  const open = (event: { target: EventTarget }): void => {
    const isControl = event.target instanceof Element && event.target.closest("a, button, input, label");
    if (!isControl && !getSelection()?.toString()) onOpen(run);
  };
  const className = `runs-row${props.isTrial ? " is-trial" : ""}${selected ? " is-selected" : ""}${current ? " is-current" : ""}`;
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
        <Star {...props} />
        <Fold {...props} />
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

/** The button of a group or pipeline that shows its trials or ops below it. */
function Fold({ run, isUnfolded, isTrial, onFold }: RowProps): ReactNode {
  const part = PARTS[run.kind];
  if (!part || isTrial || !onFold) return null;
  const label = `${isUnfolded ? "Hide" : "Show"} the ${part}s of ${runTitle(run)}`;
  return (
    <button
      type="button"
      className="runs-fold"
      aria-expanded={isUnfolded}
      aria-label={label}
      title={label}
      onClick={() => onFold(run.id)}
    >
      <Icon name={isUnfolded ? "down" : "right"} size={13} />
    </button>
  );
}

/** `40 trials, best loss 0.078` */
function searchText({ search }: RunRow): string {
  if (!search) return "";
  const count = Object.values(search.trials).reduce((sum, found) => sum + found, 0);
  const best = num(search.best?.value);
  return (
    plural(count, "trial") + (best === null || !search.metric ? "" : `, best ${search.metric.name} ${number(best)}`)
  );
}

/** `3 of 5 ops succeeded, 1 failed` */
function pipelineText({ pipeline }: RunRow): string {
  if (!pipeline) return "";
  const { succeeded = 0, failed = 0, upstream_failed = 0 } = pipeline.ops;
  const bad = failed + upstream_failed;
  return `${succeeded} of ${plural(pipeline.total, "op")} succeeded${bad ? `, ${bad} failed` : ""}`;
}

function Name({ run }: { run: RunRow }): ReactNode {
  const reason = statusReason(run);
  return (
    <>
      <Link to={`/runs/${run.id}`} className="runs-name cut" title={run.description ?? undefined}>
        {runTitle(run)}
      </Link>
      {run.name && <span className="faint mono runs-id">{run.id}</span>}
      {run.archived && <span className="tag">archived</span>}
      {run.search && <span className="tag cut runs-search">{searchText(run)}</span>}
      {run.pipeline && <span className="tag cut runs-search">{pipelineText(run)}</span>}
      {run.tags.slice(0, 2).map((tag) => (
        <button
          key={tag}
          type="button"
          className="tag cut"
          title={`Filter by tag ${tag}`}
          onClick={() => filterByTag(tag)}
        >
          {visible(tag)}
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
  const shown = columns
    .filter(({ key }) => /^(metric|min|max|best)\./.test(key) && cell(run, key, now) !== null)
    .slice(0, 2);
  const reason = statusReason(run) || searchText(run) || (shown.length ? "" : statusText(run.status));
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the name is a link
    <div className={`${className} is-narrow`} role="row" aria-rowindex={props.index + 2} onClick={open}>
      <span role="cell">
        <Check {...props} />
      </span>
      <span role="cell" className="runs-card">
        <span className="row">
          <Fold {...props} />
          <StatusMark status={run.status} bare />
          <Link to={`/runs/${run.id}`} className="runs-name cut is-wide">
            {runTitle(run)}
          </Link>
          {run.archived && <span className="tag">archived</span>}
          <span className="faint">{ago(run.created_at, now)}</span>
          <Star {...props} />
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
