import {
  type CSSProperties,
  type ReactNode,
  type Ref,
  useCallback,
  useImperativeHandle,
  useMemo,
  useRef,
  useState,
} from "react";
import { get, type RunRow, type RunsPage } from "../api";
import { count } from "../format";
import { navigate, setParams } from "../router";
import { notify, VirtualList } from "../ui";
import { useMedia, useNarrow, useNow } from "../ui/hooks";
import { scrollTo } from "../ui/virtualRows";
import { Row } from "./cells";
import { type Column, nextSort } from "./columns";
import { pagePath, type RunList, USUAL_SORT } from "./pagedRuns";

const ROW = 34;
const NARROW_ROW = 56;
const HEAD = 32;
const MOST_SELECTED = 1000;
const LEAD: Column = { key: "name", title: "Run", sort: "name", width: 300 };
const STATUS: Column = { key: "status", title: "Status", sort: "status", width: 122 };

/** What keys do to the table. */
export type TableHandle = {
  move: (by: number) => void;
  open: () => void;
  select: (range?: boolean) => void;
  toTop: () => void;
  isAtTop: () => boolean;
};

type Props = {
  ref: Ref<TableHandle>;
  list: RunList;
  /** How far it is scrolled at first. */
  begin: number;
  /** It is shown until another is loaded. */
  isOld: boolean;
  columns: readonly Column[];
  sort: string;
  selected: ReadonlyMap<string, RunRow>;
  onSelected: (runs: ReadonlyMap<string, RunRow>) => void;
};

const open = (run: RunRow): void => navigate(`/runs/${run.id}`);

export function RunsTable({ ref, list, begin, isOld, columns, sort, selected, onSelected }: Props): ReactNode {
  const narrow = useNarrow();
  const row = narrow ? NARROW_ROW : ROW;
  const head = narrow ? 0 : HEAD;
  const now = useNow(5000);
  const scroller = useRef<HTMLDivElement>(null);
  const [current, setCurrent] = useState<string | null>(null);
  const anchor = useRef(0);
  const { seen } = list;
  const latest = useRef({ selected, list });
  latest.current = { selected, list };

  const select = useCallback(
    (run: RunRow, place: number, range: boolean): void => {
      const { selected, list } = latest.current;
      const next = new Map(selected);
      const [from, to] = range ? [Math.min(anchor.current, place), Math.max(anchor.current, place)] : [place, place];
      if (!range && next.has(run.id)) next.delete(run.id);
      else {
        for (let at = from; at <= to && next.size < MOST_SELECTED; at += 1) {
          const one = list.row(at);
          if (one) next.set(one.id, one);
        }
      }
      anchor.current = place;
      onSelected(next);
    },
    [onSelected],
  );

  const placeNow = (): number | null => (current === null ? null : list.placeOf(current));
  useImperativeHandle(ref, () => ({
    move: (by) => {
      const from = placeNow();
      const place = from === null ? 0 : Math.max(0, Math.min(seen.count - 1, from + by));
      const run = list.row(place);
      if (run) setCurrent(run.id);
      const element = scroller.current;
      const to = element && scrollTo(place, seen.count, row, element.scrollTop, element.clientHeight, head);
      if (element && to !== null) element.scrollTop = to;
    },
    open: () => {
      const place = placeNow();
      const run = place === null ? null : list.row(place);
      if (run) open(run);
    },
    select: (range = false) => {
      const place = placeNow();
      const run = place === null ? null : list.row(place);
      if (run && place !== null) select(run, place, range);
    },
    toTop: () => scroller.current?.scrollTo({ top: 0 }),
    isAtTop: () => (scroller.current?.scrollTop ?? 0) < ROW,
  }));

  const template = useMemo(
    () => `minmax(${LEAD.width}px, 1fr) ${STATUS.width}px ${columns.map(({ width }) => `${width}px`).join(" ")}`,
    [columns],
  );
  const width = LEAD.width + STATUS.width + columns.reduce((sum, column) => sum + column.width, 0);
  const isTight = useMedia(`(max-width: ${width + 40}px)`);
  const selectAll = async (): Promise<void> => {
    if (selected.size) return onSelected(new Map());
    if (seen.count > MOST_SELECTED) {
      return notify(
        `${count(seen.count)} runs are too many at once: filter until there are at most ${count(MOST_SELECTED)}.`,
        { bad: true },
      );
    }
    const { runs } = await get<RunsPage>(pagePath(list.wanted, 0, MOST_SELECTED, list.columns));
    onSelected(new Map(runs.map((run) => [run.id, run])));
  };
  return (
    <VirtualList
      place={scroller}
      className={`runs-table${isOld ? " is-old" : ""}${isTight ? " is-tight" : ""}`}
      begin={begin}
      role="table"
      style={{ "--width": narrow ? "0px" : `${width}px` } as CSSProperties}
      label="Runs"
      count={seen.loading ? 24 : seen.count}
      row={row}
      onWindow={({ first, last }) => {
        list.scroll = scroller.current?.scrollTop ?? 0;
        list.show(first, last);
        if (list.seen.fresh && list.scroll < ROW) list.takeFresh();
      }}
      head={
        narrow ? null : (
          <Head
            columns={columns}
            template={template}
            sort={sort}
            some={selected.size > 0}
            all={() => void selectAll()}
          />
        )
      }
    >
      {(place) => {
        const run = list.row(place);
        if (!run)
          return <Bones key={`bone-${place}`} template={template} columns={columns} place={place} narrow={narrow} />;
        return (
          <Row
            key={run.id}
            run={run}
            place={place}
            columns={columns}
            template={template}
            now={now}
            selected={selected.has(run.id)}
            current={run.id === current}
            narrow={narrow}
            onSelect={select}
            onOpen={open}
          />
        );
      }}
    </VirtualList>
  );
}

type HeadProps = { columns: readonly Column[]; template: string; sort: string; some: boolean; all: () => void };

function Head({ columns, template, sort, some, all }: HeadProps): ReactNode {
  return (
    <div className="runs-head" role="row" style={{ gridTemplateColumns: template }}>
      {[LEAD, STATUS, ...columns].map((column, place) => {
        const way = sort === column.sort ? "ascending" : sort === `-${column.sort}` ? "descending" : undefined;
        return (
          <span
            key={column.key}
            role="columnheader"
            tabIndex={-1}
            aria-sort={way}
            className={place === 0 ? "runs-lead" : column.right ? "right" : ""}
          >
            {place === 0 && (
              <span className="runs-check">
                <input
                  type="checkbox"
                  aria-label="Select all runs"
                  checked={some}
                  ref={(element) => {
                    if (element) element.indeterminate = some;
                  }}
                  onChange={all}
                />
              </span>
            )}
            {column.sort ? (
              <button
                type="button"
                className="cut"
                title={kind(column)}
                onClick={() => {
                  const next = nextSort(sort, column, USUAL_SORT);
                  setParams({ sort: next === USUAL_SORT ? null : next });
                }}
              >
                {column.title}
                {way && <i aria-hidden="true">{way === "ascending" ? " ↑" : " ↓"}</i>}
              </button>
            ) : (
              <span className="cut">{column.title}</span>
            )}
          </span>
        );
      })}
    </div>
  );
}

function kind({ key, title }: Column): string {
  const what = key.startsWith("metric.")
    ? `metric ${title}, its last value`
    : key.startsWith("params.")
      ? `param ${title}`
      : title;
  return `${what}. Click to sort.`;
}

type BonesProps = { template: string; columns: readonly Column[]; place: number; narrow: boolean };

/** A row that is not loaded yet. */
function Bones({ template, columns, place, narrow }: BonesProps): ReactNode {
  if (narrow) return <div className="runs-row is-narrow" />;
  return (
    <div className="runs-row" style={{ gridTemplateColumns: template }}>
      <span className="runs-lead">
        <span className="bone" style={{ width: 90 + ((place * 37) % 80), marginLeft: 34 }} />
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
