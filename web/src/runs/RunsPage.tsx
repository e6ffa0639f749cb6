import "./runs.css";
import {
  lazy,
  type ReactNode,
  Suspense,
  useCallback,
  useEffect,
  useMemo,
  useRef,
  useState,
  useSyncExternalStore,
} from "react";
import {
  type Columns,
  type ProjectRow,
  pollWhileVisible,
  queryString,
  type RunRow,
  type StreamState,
  useEventStream,
  useResource,
} from "../api";
import { count, plural, visible } from "../format";
import { Link, navigate, setParams, useRoute, useTitle } from "../router";
import { useShortcuts } from "../shortcuts";
import { EmptyState, ErrorMessage, Icon, Spinner } from "../ui";
import { useCoalesced, useNarrow } from "../ui/hooks";
import { ActionBar, openComparison } from "./ActionBar";
import { ColumnsMenu } from "./ColumnsMenu";
import { columnOf, defaultColumns, requestedColumns, writeColumns } from "./columns";
import { GroupMenu } from "./GroupMenu";
import { DEFAULT_SORT, PagedRuns, type RunQuery } from "./pagedRuns";
import { QueryBox } from "./QueryBox";
import { type KnownValues, termValue, withTerm } from "./querySuggestions";
import { RunsTable, type TableHandle } from "./RunsTable";
import { useStars } from "./stars";
import { MoreMenu, SortMenu } from "./TableTools";
import { LEAD, STATUS } from "./tableHead";
import { chosenColumns, groupFields, runQueryOf } from "./urlState";
import { ViewsMenu } from "./ViewsMenu";

const GroupedTable = lazy(() => import("./GroupedTable"));

const POLL_MS = 10_000; // without an event stream
const COALESCE_MS = 1000; // changes within this time cause one reload

const QUICK_FILTERS: readonly [label: string, status: string][] = [
  ["Running", "running|starting"],
  ["Waiting", "created|scheduled|building|resuming"],
  ["Failed", "failed|upstream_failed"],
  ["Succeeded", "succeeded"],
];

/** The last list, shown again when the user comes back from a run. */
let lastList: PagedRuns | null = null;

const isSameQuery = (a: RunQuery, b: RunQuery): boolean => a.q === b.q && a.sort === b.sort && a.project === b.project;

/** The list of the query, and the list to show: the previous one until the new one is loaded. */
function useRunList(query: RunQuery): { list: PagedRuns; shown: PagedRuns } {
  const { q, sort, project } = query;
  const list = useMemo(() => {
    const now = { q, sort, project };
    return lastList && isSameQuery(lastList.query, now) ? lastList : new PagedRuns(now);
  }, [q, sort, project]);
  const last = useRef<PagedRuns | null>(null);
  useSyncExternalStore(list.subscribe, list.getState);
  useEffect(() => {
    if (list.state.loading) list.setVisible(0, 50);
    else list.reload();
    lastList = list;
  }, [list]);
  const isLoaded = !list.state.loading && !(list.state.error && list.rows().length === 0);
  useEffect(() => {
    if (!isLoaded) return;
    if (last.current !== list) last.current?.close();
    last.current = list;
  }, [isLoaded, list]);
  return { list, shown: isLoaded ? list : (last.current ?? list) };
}

export default function RunsPage(): ReactNode {
  const route = useRoute();
  const query = runQueryOf(route);
  const table = useRef<TableHandle>(null);
  const { list, shown: listed } = useRunList(query);
  const { state } = list;
  const chosen = chosenColumns(route);
  const [defaults, setDefaults] = useState<{ project: string; keys: string[] } | null>(null);
  const shown = chosen ?? (defaults?.project === query.project ? defaults.keys : null);
  const [selected, setSelected] = useState<ReadonlyMap<string, RunRow>>(new Map());
  const input = useRef<HTMLInputElement>(null);
  const [isEditing, setEditing] = useState(false);
  const by = groupFields(route);
  const narrow = useNarrow();
  const { stars, toggle: toggleStar } = useStars();
  useTitle(query.project ? `Runs of ${visible(query.project)}` : "Runs");

  // The default columns depend on the first runs.
  useEffect(() => {
    const rows = list.rows();
    const isNeeded = !state.loading && rows.length > 0 && defaults?.project !== query.project;
    if (isNeeded) setDefaults({ project: query.project, keys: defaultColumns(rows, query.project !== "") });
  }, [list, state, defaults, query.project]);
  const requested = shown ? requestedColumns(shown) : null;
  useEffect(() => {
    const isNew = list.columns !== requested && chosen !== null && !list.state.loading;
    list.columns = requested;
    if (isNew) list.reload();
  }, [list, requested, chosen]);

  const streamState = useLiveUpdates(list, table);
  const columns = useMemo(() => (shown ?? ["took", "created_at"]).map(columnOf).filter((one) => one !== null), [shown]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: rows change with the version
  const runs = useMemo(() => {
    const rows = new Map(selected.size ? list.rows().map((run) => [run.id, run]) : []);
    return [...selected.values()].map((run) => rows.get(run.id) ?? run);
  }, [selected, list, state.version]);
  const known = useKnownValues(isEditing, query.project, list);
  const setQuery = useCallback((q: string) => setParams({ q }, { push: true }), []);

  useShortcuts("Runs", {
    "/": { label: "Filter", run: () => input.current?.focus() },
    j: { label: "Next run", run: () => table.current?.move(1) },
    k: { label: "Previous run", run: () => table.current?.move(-1) },
    ArrowDown: { label: "", run: () => table.current?.move(1) },
    ArrowUp: { label: "", run: () => table.current?.move(-1) },
    Enter: { label: "Open run", run: () => table.current?.open() },
    s: { label: "Star run", run: () => table.current?.star() },
    x: { label: "Select run", run: () => table.current?.select() },
    "shift+x": { label: "Select range", run: () => table.current?.select(true) },
    c: { label: "Compare selected runs", run: () => runs.length > 1 && openComparison(runs) },
    Escape: { label: "Clear selection", run: () => setSelected(new Map()) },
  });

  const queryError = state.error?.status === 400 ? state.error : null;
  const isEmpty = !state.loading && state.count === 0 && !state.error;
  return (
    <div className="runs">
      <div className="runs-tools">
        <QueryBox
          q={query.q}
          apply={setQuery}
          known={known}
          onFocus={() => setEditing(true)}
          error={queryError}
          input={input}
        />
        <QuickFilters q={query.q} apply={setQuery} />
        <span className="grow" />
        <span
          className={streamState === "open" ? "live-dot is-live" : "live-dot"}
          title={streamState === "open" ? "Live updates" : "Updates every 10 seconds"}
        />
        <span className="faint number runs-count" aria-live="polite">
          {state.loading || state.error ? "" : plural(state.count, "run")}
        </span>
        {!state.loading && state.archived > 0 && (
          <button
            type="button"
            className="button plain small"
            title="Show archived runs"
            onClick={() => setQuery(withTerm(query.q, "archived", "true"))}
          >
            {count(state.archived)} archived
          </button>
        )}
        {narrow && <SortMenu columns={[LEAD, STATUS, ...columns]} sort={query.sort} />}
        <ViewsMenu project={query.project} />
        <GroupMenu
          project={query.project}
          by={by}
          choose={(fields) => setParams({ by: writeColumns(fields) || null }, { push: true })}
        />
        <ColumnsMenu
          project={query.project}
          shown={shown ?? []}
          rows={() => list.rows()}
          choose={(keys) => setParams({ columns: keys === null ? null : writeColumns(keys) || "none" })}
        />
        <MoreMenu query={query} keys={columns.map(({ key }) => key)} apply={setQuery} />
      </div>
      {state.error && !queryError && (
        <div className="runs-failure">
          <ErrorMessage error={state.error} retry={() => list.reload()} />
        </div>
      )}
      {isEmpty ? (
        <NoRuns query={query} archived={state.archived} />
      ) : by.length ? (
        <Suspense fallback={<Spinner />}>
          <GroupedTable
            key={`${query.q} ${query.project} ${by.join()}`}
            query={query}
            by={by}
            columns={columns}
            version={state.version}
            selected={selected}
            onSelected={setSelected}
            stars={stars}
            onStar={toggleStar}
          />
        </Suspense>
      ) : (
        <RunsTable
          key={keyOf(listed.query)}
          ref={table}
          list={listed}
          initialScroll={listed.scroll}
          isStale={listed !== list}
          columns={columns}
          sort={query.sort}
          selected={selected}
          onSelected={setSelected}
          stars={stars}
          onStar={toggleStar}
        />
      )}
      {state.newRuns > 0 && !by.length && (
        <button
          type="button"
          className="button main small runs-fresh"
          onClick={() => {
            list.showNewRuns();
            table.current?.toTop();
          }}
        >
          <Icon name="up" size={13} /> {plural(state.newRuns, "new run")}
        </button>
      )}
      {runs.length > 0 && (
        <ActionBar
          runs={runs}
          clear={() => setSelected(new Map())}
          done={() => {
            setSelected(new Map());
            void list.refresh(table.current?.isAtTop() ?? true);
          }}
        />
      )}
    </div>
  );
}

const keyOf = ({ q, sort, project }: RunQuery): string => JSON.stringify([q, sort, project]);

/** Reloads the list on events from the server; polls while the event stream is down. */
function useLiveUpdates(list: PagedRuns, table: { current: TableHandle | null }): StreamState {
  const refresh = useCoalesced(() => {
    void list.refresh(table.current?.isAtTop() ?? true).catch(() => {});
  }, COALESCE_MS);
  const opened = useRef(false);
  const state = useEventStream("/live", {
    run: refresh,
    gone: refresh,
    open: () => {
      if (opened.current) refresh();
      opened.current = true;
    },
  });
  useEffect(() => (state === "open" ? undefined : pollWhileVisible(POLL_MS, refresh)), [state, refresh]);
  return state;
}

/** Names and values to suggest, loaded when the user starts to type a query. */
function useKnownValues(when: boolean, project: string, list: PagedRuns): () => KnownValues {
  const { data: columns } = useResource<Columns>(when ? `/runs/columns${queryString({ project })}` : null);
  const { data: projects } = useResource<{ projects: ProjectRow[] }>(when ? "/projects" : null);
  return useCallback(() => {
    const rows = list.rows();
    const distinct = (values: (string | null)[]): string[] =>
      [...new Set(values.filter((value) => value !== null))].slice(0, 200);
    const values: Record<string, string[]> = {
      project: projects?.projects.map(({ name }) => name) ?? [],
      tags: distinct(rows.flatMap((run) => run.tags)),
    };
    for (const field of ["user", "name", "framework", "backend", "group", "kind"] as const) {
      values[field] = distinct(rows.map((run) => run[field]));
    }
    for (const run of rows) {
      for (const [name, value] of Object.entries(run.params)) {
        const all = values[`params.${name}`] ?? [];
        values[`params.${name}`] = all;
        const text = typeof value === "string" ? value : JSON.stringify(value);
        if (all.length < 50 && !all.includes(text)) all.push(text);
      }
    }
    const names = (field: "params" | "summary"): string[] => distinct(rows.flatMap((run) => Object.keys(run[field])));
    return {
      params: columns?.params.map(({ name }) => name) ?? names("params"),
      metrics: columns?.metrics.map(({ name }) => name) ?? names("summary"),
      values,
    };
  }, [columns, projects, list]);
}

function QuickFilters({ q, apply }: { q: string; apply: (q: string) => void }): ReactNode {
  const now = termValue(q, "status");
  return (
    <div className="runs-quick">
      {QUICK_FILTERS.map(([label, status]) => (
        <button
          key={label}
          type="button"
          className="button plain small"
          aria-pressed={now === status}
          onClick={() => apply(withTerm(q, "status", now === status ? null : status))}
        >
          {label}
        </button>
      ))}
    </div>
  );
}

function NoRuns({ query, archived }: { query: RunQuery; archived: number }): ReactNode {
  if (archived > 0) {
    const show = (
      <button
        type="button"
        className="button"
        onClick={() => setParams({ q: withTerm(query.q, "archived", "true") }, { push: true })}
      >
        Show archived runs
      </button>
    );
    return <EmptyState title="All matching runs are archived" actions={show} />;
  }
  if (query.q) {
    const all = (
      <button
        type="button"
        className="button"
        onClick={() => setParams({ q: null, sort: query.sort === DEFAULT_SORT ? null : query.sort })}
      >
        Clear filter
      </button>
    );
    return (
      <EmptyState title="No matching runs" actions={all}>
        No runs match <code>{query.q}</code>
        {query.project && ` in ${visible(query.project)}`}.
      </EmptyState>
    );
  }
  if (query.project) {
    const all = (
      <button type="button" className="button" onClick={() => navigate("/runs")}>
        Show all projects
      </button>
    );
    return (
      <EmptyState
        title={`No runs in ${visible(query.project)} yet`}
        command={`phalanx run -f polyaxonfile.yml --project ${query.project}`}
        actions={all}
      />
    );
  }
  return (
    <EmptyState
      title="No runs yet"
      command="phalanx run -f polyaxonfile.yml"
      actions={
        <Link className="button" to="/help">
          Help
        </Link>
      }
    >
      Run this next to your polyaxonfile. To create one, run <code>phalanx init</code>.
    </EmptyState>
  );
}
