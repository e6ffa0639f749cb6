import { type CSSProperties, type ReactNode, useCallback, useEffect, useMemo, useState } from "react";
import {
  asApiError,
  type GroupedRuns,
  type GroupedRunsRow,
  get,
  type MetricSpread,
  queryString,
  type RunRow,
  type RunsPage,
  useResource,
} from "../api";
import { ago, count, exact, num, number, plural, short, timestamp } from "../format";
import { isLowerBetter } from "../metricDirection";
import { navigate, setParams } from "../router";
import { EmptyState, ErrorMessage, Icon, notify, Spinner } from "../ui";
import { useDebounced, useNarrow, useNow } from "../ui/hooks";
import { MAX_COMPARED, openComparison } from "./ActionBar";
import { Row } from "./cells";
import { type Column, writeColumns } from "./columns";
import { groupTitle } from "./GroupMenu";
import { DEFAULT_SORT, pagePath, type RunQuery } from "./pagedRuns";
import { normalizeQuery } from "./querySuggestions";
import { Head, LEAD, STATUS, tableGrid } from "./tableHead";

const PAGE = 100;
const MAX_RUNS = 100; // of an unfolded group
const MAX_METRICS = 12;
const RELOAD_MS = 1000;

const RANGE_WIDTH = 110; // for the range of a metric

const isMetric = ({ key }: Column): boolean => /^(metric|min|max|best)\./.test(key);

type Props = {
  query: RunQuery;
  by: readonly string[];
  columns: readonly Column[];
  /** Changes when runs have changed. */
  version: number;
  selected: ReadonlyMap<string, RunRow>;
  onSelected: (runs: ReadonlyMap<string, RunRow>) => void;
  stars: ReadonlySet<string>;
  onStar: (run: RunRow) => void;
};

/** The runs of a query that belong to a group. */
const queryOf = (query: RunQuery, group: GroupedRunsRow): RunQuery => ({
  ...query,
  q: [normalizeQuery(query.q), group.query].filter(Boolean).join(", "),
});

/** Runs grouped by values: one row per group, with the mean and range of its metrics. */
export default function GroupedTable({
  query,
  by,
  columns: chosen,
  version,
  selected,
  onSelected,
  stars,
  onStar,
}: Props): ReactNode {
  const narrow = useNarrow();
  const now = useNow(5000);
  const [limit, setLimit] = useState(PAGE);
  const columns = useMemo(
    () => chosen.map((column) => (isMetric(column) ? { ...column, width: column.width + RANGE_WIDTH } : column)),
    [chosen],
  );
  const metrics = columns.filter(isMetric).slice(0, MAX_METRICS);
  const path = `/runs/grouped${queryString({
    by: writeColumns(by),
    q: query.q,
    project: query.project,
    sort: query.sort === DEFAULT_SORT ? null : query.sort,
    limit,
    columns: writeColumns(metrics.map(({ key }) => key)),
  })}`;
  const { data, error, reload } = useResource<GroupedRuns>(path, { keepPrevious: true });
  const changed = useDebounced(version, RELOAD_MS);
  // biome-ignore lint/correctness/useExhaustiveDependencies: reloads when runs have changed
  useEffect(reload, [changed]);
  const best = useMemo(() => bestMeans(data?.groups ?? []), [data]);
  const [unfolded, setUnfolded] = useState<ReadonlySet<string>>(new Set());
  const toggle = useCallback((group: string): void => {
    setUnfolded((now) => {
      const next = new Set(now);
      if (!next.delete(group)) next.add(group);
      return next;
    });
  }, []);
  const { template, width } = useMemo(() => tableGrid(columns), [columns]);
  if (error) {
    return (
      <div className="runs-failure">
        <ErrorMessage error={error} retry={reload} />
      </div>
    );
  }
  if (!data) return <Spinner />;
  if (!data.count) return <EmptyState title="No matching runs" />;
  const lead = { ...LEAD, title: by.map(groupTitle).join(", "), sort: "value" };
  const sort = query.sort === DEFAULT_SORT ? "value" : query.sort;
  return (
    <div
      className="runs-table"
      role="table"
      aria-label={`Runs grouped by ${by.map(groupTitle).join(", ")}`}
      style={{ "--width": narrow ? "0px" : `${width}px` } as CSSProperties}
    >
      {!narrow && (
        <Head
          columns={[
            lead,
            { ...STATUS, sort: null },
            ...columns.map((column) =>
              isMetric(column) || column.key === "created_at" ? column : { ...column, sort: null },
            ),
          ]}
          template={template}
          sort={sort}
          onSort={(next) => setParams({ sort: next === "value" || next === DEFAULT_SORT ? null : next })}
        />
      )}
      {data.groups.map((group) => (
        <GroupRows
          key={group.query}
          group={group}
          query={query}
          by={by}
          columns={columns}
          best={best}
          template={template}
          now={now}
          narrow={narrow}
          version={changed}
          isUnfolded={unfolded.has(group.query)}
          toggle={toggle}
          selected={selected}
          onSelected={onSelected}
          stars={stars}
          onStar={onStar}
        />
      ))}
      {data.count > data.groups.length && (
        <button type="button" className="button runs-more-groups" onClick={() => setLimit(Math.min(10_000, limit * 3))}>
          Show more of {count(data.count)} groups
        </button>
      )}
    </div>
  );
}

/** The best mean of each metric column among several groups. */
function bestMeans(groups: readonly GroupedRunsRow[]): Map<string, number> {
  const found = new Map<string, number>();
  for (const { metrics } of groups.length > 1 ? groups : []) {
    for (const [field, { mean }] of Object.entries(metrics)) {
      const value = num(mean);
      if (value === null || !Number.isFinite(value)) continue;
      const before = found.get(field);
      const isBetter = before === undefined || (isLowerBetter(field) ? value < before : value > before);
      if (isBetter) found.set(field, value);
    }
  }
  return found;
}

type GroupProps = Omit<Props, "version"> & {
  group: GroupedRunsRow;
  best: ReadonlyMap<string, number>;
  template: string;
  now: number;
  narrow: boolean;
  version: number;
  isUnfolded: boolean;
  toggle: (group: string) => void;
};

function GroupRows(props: GroupProps): ReactNode {
  const { group, query, by, columns, best, template, now, narrow, isUnfolded, toggle } = props;
  const title = by.map((field, place) => `${groupTitle(field)} ${valueTitle(group.values[place])}`).join(", ");
  const compare = async (): Promise<void> => {
    const { runs } = await get<RunsPage>(pagePath(queryOf(query, group), 0, MAX_COMPARED, ""));
    openComparison(runs);
  };
  const fold = (
    <button
      type="button"
      className="runs-fold"
      aria-expanded={isUnfolded}
      aria-label={`${isUnfolded ? "Hide" : "Show"} the runs of ${title}`}
      onClick={() => toggle(group.query)}
    >
      <Icon name={isUnfolded ? "down" : "right"} size={13} />
    </button>
  );
  const tools = (
    <button
      type="button"
      className="button plain small runs-group-compare"
      aria-label={`Compare the runs of ${title}`}
      title="Compare these runs"
      disabled={group.runs < 2}
      onClick={() => void compare().catch((error: unknown) => notify(asApiError(error).message, { bad: true }))}
    >
      <Icon name="compare" size={13} /> <span className="wide-only">Compare</span>
    </button>
  );
  const values = (
    <span className="runs-group-values cut" title={title}>
      {group.values.map((value, place) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: one value for each field
        <span key={place}>{value === null || value === undefined ? <i className="faint">none</i> : short(value)}</span>
      ))}
    </span>
  );
  const runs = <span className="faint number">{plural(group.runs, "run")}</span>;
  return (
    <>
      {narrow ? (
        <div className="runs-row is-narrow is-group" role="row">
          <span role="cell">{fold}</span>
          <span role="cell" className="runs-card">
            <span className="row">
              {values}
              <span className="grow" />
              {runs}
              {tools}
            </span>
            <span className="row faint cut">
              {columns
                .filter((column) => isMetric(column) && group.metrics[column.key]?.runs)
                .slice(0, 2)
                .map(({ key, title: name }) => (
                  <span key={key} className="cut">
                    {name} <span className="runs-figure">{spreadText(group.metrics[key], best.get(key))}</span>
                  </span>
                ))}
            </span>
          </span>
        </div>
      ) : (
        <div className="runs-row is-group" role="row" style={{ gridTemplateColumns: template }}>
          <span role="cell" className="runs-lead">
            <span className="runs-group-fold">{fold}</span>
            {values}
            {runs}
            {tools}
          </span>
          <span role="cell">
            <StateCounts {...group.statuses} />
          </span>
          {columns.map((column) => (
            <span key={column.key} role="cell" className={column.right ? "cut right" : "cut"}>
              {isMetric(column) ? (
                spreadText(group.metrics[column.key], best.get(column.key))
              ) : column.key === "created_at" ? (
                <span title={`Newest run: ${timestamp(group.last_at)}`}>{ago(group.last_at, now)}</span>
              ) : null}
            </span>
          ))}
        </div>
      )}
      {isUnfolded && <RunRows {...props} />}
    </>
  );
}

const valueTitle = (value: GroupedRunsRow["values"][number] | undefined): string =>
  value === null || value === undefined ? "none" : short(value);

/** The mean of a metric, and its range where runs differ. */
function spreadText(spread: MetricSpread | undefined, best: number | undefined): ReactNode {
  const [mean, low, high] = [num(spread?.mean), num(spread?.min), num(spread?.max)];
  if (!spread || mean === null) return null;
  const range = low === null || high === null ? "" : `, ${exact(low)} to ${exact(high)}`;
  const isWide = spread.runs > 1 && low !== null && high !== null && low !== high;
  return (
    <span
      title={`Mean of ${plural(spread.runs, "run")}: ${exact(mean)}${range}${mean === best ? ". The best group." : ""}`}
    >
      <span className={mean === best ? "runs-best" : undefined}>{number(mean)}</span>
      {isWide && (
        <span className="faint runs-range">
          {number(low, 3)} to {number(high, 3)}
        </span>
      )}
    </span>
  );
}

const STATES = [
  ["active", "active"],
  ["succeeded", "succeeded"],
  ["failed", "failed"],
  ["stopped", "stopped"],
] as const;

function StateCounts(states: GroupedRunsRow["statuses"]): ReactNode {
  const shown = STATES.filter(([key]) => states[key]);
  return (
    <span className="runs-states" title={shown.map(([key, word]) => `${count(states[key])} ${word}`).join(", ")}>
      {shown.map(([key, word]) => (
        <span key={key} className={`is-${key}`}>
          {count(states[key])} <span className="runs-state-word">{word}</span>
        </span>
      ))}
    </span>
  );
}

/** The runs of an unfolded group. */
function RunRows(props: GroupProps): ReactNode {
  const { group, query, columns, template, now, narrow, version, selected, onSelected, stars, onStar } = props;
  const inner = queryOf(query, group);
  const path = pagePath(
    inner,
    0,
    MAX_RUNS,
    writeColumns(columns.map(({ key }) => key).filter((key) => key.includes("."))),
  );
  const { data, error, reload } = useResource<RunsPage>(path, { keepPrevious: true });
  // biome-ignore lint/correctness/useExhaustiveDependencies: reloads when runs have changed
  useEffect(reload, [version]);
  const select = (run: RunRow): void => {
    const next = new Map(selected);
    if (!next.delete(run.id)) next.set(run.id, run);
    onSelected(next);
  };
  if (error) return <ErrorMessage error={error} retry={reload} />;
  return (
    <>
      {data?.runs.map((run, index) => (
        <Row
          key={run.id}
          run={run}
          index={index}
          columns={columns}
          template={template}
          now={now}
          selected={selected.has(run.id)}
          current={false}
          narrow={narrow}
          isTrial
          isUnfolded={false}
          starred={stars.has(run.id)}
          onStar={onStar}
          onFold={null}
          onSelect={select}
          onOpen={(one) => navigate(`/runs/${one.id}`)}
        />
      ))}
      {data && data.count > data.runs.length && (
        <div className="runs-row runs-more" role="row">
          <button
            type="button"
            className="button plain small"
            onClick={() => setParams({ q: inner.q, by: null }, { push: true })}
          >
            All {count(data.count)} runs
          </button>
        </div>
      )}
    </>
  );
}
