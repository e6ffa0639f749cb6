import {
  type CSSProperties,
  type ReactNode,
  type Ref,
  useCallback,
  useEffect,
  useImperativeHandle,
  useMemo,
  useRef,
  useState,
} from "react";
import { get, PARTS, type RunRow, type RunsPage } from "../api";
import { count, plural } from "../format";
import { Link, navigate, setParams } from "../router";
import { notify, VirtualList } from "../ui";
import { useMediaQuery, useNarrow, useNow } from "../ui/hooks";
import { scrollTo } from "../ui/virtualRows";
import { Row } from "./cells";
import type { Column } from "./columns";
import { DEFAULT_SORT, isFolded, type PagedRuns, pagePath } from "./pagedRuns";
import { Head, LEAD, STATUS, tableGrid } from "./tableHead";
import { TableRows, type Trials } from "./unfolded";

const ROW_HEIGHT = 34;
const NARROW_ROW_HEIGHT = 56;
const HEAD_HEIGHT = 32;
const MAX_SELECTED = 1000;
const MAX_TRIALS = 100; // of an unfolded group

/** What shortcuts do to the table. */
export type TableHandle = {
  move: (by: number) => void;
  open: () => void;
  select: (range?: boolean) => void;
  star: () => void;
  toTop: () => void;
  isAtTop: () => boolean;
};

type Props = {
  ref: Ref<TableHandle>;
  list: PagedRuns;
  /** The initial scroll position. */
  initialScroll: number;
  /** Shown until another list is loaded. */
  isStale: boolean;
  columns: readonly Column[];
  sort: string;
  selected: ReadonlyMap<string, RunRow>;
  onSelected: (runs: ReadonlyMap<string, RunRow>) => void;
  stars: ReadonlySet<string>;
  onStar: (run: RunRow) => void;
};

const open = (run: RunRow): void => navigate(`/runs/${run.id}`);

export function RunsTable({
  ref,
  list,
  initialScroll,
  isStale,
  columns,
  sort,
  selected,
  onSelected,
  stars,
  onStar,
}: Props): ReactNode {
  const narrow = useNarrow();
  const rowHeight = narrow ? NARROW_ROW_HEIGHT : ROW_HEIGHT;
  const head = narrow ? 0 : HEAD_HEIGHT;
  const now = useNow(5000);
  const scroller = useRef<HTMLDivElement>(null);
  const [current, setCurrent] = useState<string | null>(null);
  const anchor = useRef(0);
  const { state } = list;
  const { unfolded, toggle } = useUnfolded(list);
  const rows = new TableRows(state.count, unfolded, (id) => list.indexOf(id));
  const rowAt = (row: number): RunRow | null => {
    const place = rows.at(row);
    return place.kind === "run" ? list.row(place.index) : place.kind === "trial" ? place.run : null;
  };
  const latest = useRef({ selected, rowAt });
  latest.current = { selected, rowAt };

  const select = useCallback(
    (run: RunRow, index: number, range: boolean): void => {
      const { selected, rowAt } = latest.current;
      const next = new Map(selected);
      const [from, to] = range ? [Math.min(anchor.current, index), Math.max(anchor.current, index)] : [index, index];
      if (!range && next.has(run.id)) next.delete(run.id);
      else {
        for (let at = from; at <= to && next.size < MAX_SELECTED; at += 1) {
          const one = rowAt(at);
          if (one) next.set(one.id, one);
        }
      }
      anchor.current = index;
      onSelected(next);
    },
    [onSelected],
  );

  const currentIndex = (): number | null => {
    if (current === null) return null;
    const index = list.indexOf(current);
    return index === null ? rows.rowOfTrial(current) : rows.rowOf(index);
  };
  useImperativeHandle(ref, () => ({
    move: (by) => {
      const from = currentIndex();
      const index = from === null ? 0 : Math.max(0, Math.min(rows.count - 1, from + by));
      const run = rowAt(index);
      if (run) setCurrent(run.id);
      const element = scroller.current;
      const to = element && scrollTo(index, rows.count, rowHeight, element.scrollTop, element.clientHeight, head);
      if (element && to !== null) element.scrollTop = to;
    },
    open: () => {
      const index = currentIndex();
      const run = index === null ? null : rowAt(index);
      if (run) open(run);
    },
    select: (range = false) => {
      const index = currentIndex();
      const run = index === null ? null : rowAt(index);
      if (run && index !== null) select(run, index, range);
    },
    star: () => {
      const index = currentIndex();
      const run = index === null ? null : rowAt(index);
      if (run) onStar(run);
    },
    toTop: () => scroller.current?.scrollTo({ top: 0 }),
    isAtTop: () => (scroller.current?.scrollTop ?? 0) < ROW_HEIGHT,
  }));

  const { template, width } = useMemo(() => tableGrid(columns), [columns]);
  const isTight = useMediaQuery(`(max-width: ${width + 40}px)`);
  const selectAll = async (): Promise<void> => {
    if (selected.size) return onSelected(new Map());
    if (state.count > MAX_SELECTED) {
      return notify(`Cannot select ${count(state.count)} runs at once. Filter to at most ${count(MAX_SELECTED)}.`, {
        bad: true,
      });
    }
    const { runs } = await get<RunsPage>(pagePath(list.query, 0, MAX_SELECTED, list.columns));
    onSelected(new Map(runs.map((run) => [run.id, run])));
  };
  return (
    <VirtualList
      scrollerRef={scroller}
      className={`runs-table${isStale ? " is-old" : ""}${isTight ? " is-tight" : ""}`}
      initialScroll={initialScroll}
      role="table"
      style={{ "--width": narrow ? "0px" : `${width}px` } as CSSProperties}
      label="Runs"
      count={state.loading ? 24 : rows.count}
      rowHeight={rowHeight}
      onWindow={({ first, last }) => {
        list.scroll = scroller.current?.scrollTop ?? 0;
        list.setVisible(rows.listIndex(first), rows.listIndex(last));
        if (list.state.newRuns && list.scroll < ROW_HEIGHT) list.showNewRuns();
      }}
      head={
        narrow ? null : (
          <Head
            columns={[LEAD, STATUS, ...columns]}
            template={template}
            sort={sort}
            onSort={(next) => setParams({ sort: next === DEFAULT_SORT ? null : next })}
            selection={{ some: selected.size > 0, all: () => void selectAll() }}
          />
        )
      }
    >
      {(index) => {
        const place = rows.at(index);
        if (place.kind === "more") {
          const kind = list.row(list.indexOf(place.group) ?? -1)?.kind ?? "group";
          return <MoreParts key={`more-${place.group}`} {...place} part={PARTS[kind] ?? "run"} narrow={narrow} />;
        }
        const run = rowAt(index);
        if (!run)
          return (
            <SkeletonRow
              key={`skeleton-${index}`}
              template={template}
              columns={columns}
              index={index}
              narrow={narrow}
            />
          );
        return (
          <Row
            key={run.id}
            run={run}
            index={index}
            columns={columns}
            template={template}
            now={now}
            selected={selected.has(run.id)}
            current={run.id === current}
            narrow={narrow}
            isTrial={place.kind === "trial"}
            isUnfolded={unfolded.has(run.id)}
            starred={stars.has(run.id)}
            onStar={onStar}
            onFold={isFolded(list.query) ? toggle : null}
            onSelect={select}
            onOpen={open}
          />
        );
      }}
    </VirtualList>
  );
}

/** The trials of the groups that are unfolded, reloaded with the list. */
function useUnfolded(list: PagedRuns) {
  const [unfolded, setUnfolded] = useState<ReadonlyMap<string, Trials>>(new Map());
  const load = useCallback(
    async (group: string): Promise<void> => {
      const query = { ...list.query, q: `group:${group}` };
      const { runs, count } = await get<RunsPage>(pagePath(query, 0, MAX_TRIALS, list.columns));
      setUnfolded((now) => new Map(now).set(group, { rows: runs, count }));
    },
    [list],
  );
  const toggle = useCallback(
    (group: string): void => {
      setUnfolded((now) => {
        const next = new Map(now);
        next.delete(group);
        return next;
      });
      if (!unfolded.has(group)) load(group).catch((error: unknown) => notify(String(error), { bad: true }));
    },
    [unfolded, load],
  );
  const groups = [...unfolded.keys()].join(" ");
  const { version } = list.state;
  // biome-ignore lint/correctness/useExhaustiveDependencies: reloads when the list has changed
  useEffect(() => {
    for (const group of groups.split(" ")) if (group) load(group).catch(() => {}); // the next change loads them again
  }, [version, load]);
  return { unfolded, toggle };
}

type MoreProps = { group: string; count: number; part: string; narrow: boolean };

/** A link to all trials of a group, or ops of a pipeline, that has many. */
function MoreParts({ group, count: all, part, narrow }: MoreProps): ReactNode {
  return (
    <div className={narrow ? "runs-row is-narrow runs-more" : "runs-row runs-more"} role="row">
      <Link role="cell" to={`/runs?q=${encodeURIComponent(`group:${group}`)}`}>
        All {plural(all, part)}
      </Link>
    </div>
  );
}

type SkeletonProps = { template: string; columns: readonly Column[]; index: number; narrow: boolean };

/** A placeholder for a row that is not loaded yet. */
function SkeletonRow({ template, columns, index, narrow }: SkeletonProps): ReactNode {
  if (narrow) return <div className="runs-row is-narrow" />;
  return (
    <div className="runs-row" style={{ gridTemplateColumns: template }}>
      <span className="runs-lead">
        <span className="bone" style={{ width: 90 + ((index * 37) % 80), marginLeft: 34 }} />
      </span>
      <span>
        <span className="bone" style={{ width: 60 }} />
      </span>
      {columns.map(({ key }) => (
        <span key={key} className="right">
          <span className="bone" style={{ width: 40 }} />
        </span>
      ))}
    </div>
  );
}
