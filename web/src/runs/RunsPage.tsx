import "./runs.css";
import { type ReactNode, useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { type Columns, type LiveState, type ProjectRow, query, type RunRow, repeat, useAnswer, useLive } from "../api";
import { many } from "../format";
import { Link, navigate, setParams, useRoute, useTitle } from "../router";
import { useKeys } from "../shortcuts";
import { Empty, Failure, Icon } from "../ui";
import { useSoon } from "../ui/hooks";
import { ActionBar, compare } from "./ActionBar";
import { ColumnsMenu } from "./ColumnsMenu";
import { askedColumns, columnOf, usualColumns, writeColumns } from "./columns";
import { RunList, USUAL_SORT, type Wanted } from "./pagedRuns";
import { QueryBox } from "./QueryBox";
import { type Known, told, withTerm } from "./querySuggestions";
import { RunsTable, type TableHandle } from "./RunsTable";
import { chosenColumns, wantedOf } from "./urlState";

const POLL_MS = 10_000; // where the server cannot tell by itself
const GATHER_MS = 1000; // what changes in this time is asked for at once

/** Common questions, one click away. */
const QUICK: readonly [label: string, status: string][] = [
  ["Running", "running|starting"],
  ["Waiting", "created|scheduled|building|resuming"],
  ["Failed", "failed|upstream_failed"],
  ["Succeeded", "succeeded"],
];

/** The last list, for whoever comes back from a run. */
let kept: RunList | null = null;

const isSame = (a: Wanted, b: Wanted): boolean => a.q === b.q && a.sort === b.sort && a.project === b.project;

/** The list that is wanted, and the one to show: the last one, until there is something of the new. */
function useRunList(wanted: Wanted): { list: RunList; shown: RunList } {
  const { q, sort, project } = wanted;
  const list = useMemo(() => {
    const now = { q, sort, project };
    return kept && isSame(kept.wanted, now) ? kept : new RunList(now);
  }, [q, sort, project]);
  const last = useRef<RunList | null>(null);
  useSyncExternalStore(list.subscribe, list.look);
  useEffect(() => {
    if (list.seen.loading) list.show(0, 50);
    else list.again();
    kept = list;
  }, [list]);
  const isThere = !list.seen.loading && !(list.seen.error && list.rows().length === 0);
  useEffect(() => {
    if (!isThere) return;
    if (last.current !== list) last.current?.end();
    last.current = list;
  }, [isThere, list]);
  return { list, shown: isThere ? list : (last.current ?? list) };
}

export default function RunsPage(): ReactNode {
  const route = useRoute();
  const wanted = wantedOf(route);
  const table = useRef<TableHandle>(null);
  const { list, shown: listed } = useRunList(wanted);
  const { seen } = list;
  const chosen = chosenColumns(route);
  const [usual, setUsual] = useState<{ project: string; keys: string[] } | null>(null);
  const shown = chosen ?? (usual?.project === wanted.project ? usual.keys : null);
  const [selected, setSelected] = useState<ReadonlyMap<string, RunRow>>(new Map());
  const input = useRef<HTMLInputElement>(null);
  const [isAsking, setAsking] = useState(false);
  useTitle(wanted.project ? `Runs of ${wanted.project}` : "Runs");

  // The usual columns are those that the first runs have: known as soon as these are.
  useEffect(() => {
    const rows = list.rows();
    const isNeeded = !seen.loading && rows.length > 0 && usual?.project !== wanted.project;
    if (isNeeded) setUsual({ project: wanted.project, keys: usualColumns(rows, wanted.project !== "") });
  }, [list, seen, usual, wanted.project]);
  const asked = shown ? askedColumns(shown) : null;
  useEffect(() => {
    const isNew = list.columns !== asked && chosen !== null && !list.seen.loading;
    list.columns = asked;
    if (isNew) list.again();
  }, [list, asked, chosen]);

  const following = useFollowing(list, table);
  const columns = useMemo(() => (shown ?? ["took", "created_at"]).map(columnOf).filter((one) => one !== null), [shown]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the list is another with every version
  const runs = useMemo(() => {
    const rows = new Map(selected.size ? list.rows().map((run) => [run.id, run]) : []);
    return [...selected.values()].map((run) => rows.get(run.id) ?? run);
  }, [selected, list, seen.version]);
  const known = useKnown(isAsking, wanted.project, list);
  const setQuery = useCallback((q: string) => setParams({ q }, { push: true }), []);

  useKeys("Runs", {
    "/": { does: "Filter", run: () => input.current?.focus() },
    j: { does: "Next run", run: () => table.current?.move(1) },
    k: { does: "Run before", run: () => table.current?.move(-1) },
    ArrowDown: { does: "", run: () => table.current?.move(1) },
    ArrowUp: { does: "", run: () => table.current?.move(-1) },
    Enter: { does: "Open the run", run: () => table.current?.open() },
    x: { does: "Select the run", run: () => table.current?.select() },
    "shift+x": { does: "Select up to here", run: () => table.current?.select(true) },
    c: { does: "Compare the selected runs", run: () => runs.length > 1 && compare(runs) },
    Escape: { does: "Select nothing", run: () => setSelected(new Map()) },
  });

  const wrong = seen.error?.status === 400 ? seen.error : null;
  const isNothing = !seen.loading && seen.count === 0 && !seen.error;
  return (
    <div className="runs">
      <div className="runs-tools">
        <QueryBox
          q={wanted.q}
          apply={setQuery}
          known={known}
          onFocus={() => setAsking(true)}
          error={wrong}
          input={input}
        />
        <Quick q={wanted.q} apply={setQuery} />
        <span className="grow" />
        <span
          className={following === "open" ? "live-dot is-live" : "live-dot"}
          title={following === "open" ? "Live: changes show up by themselves" : "Asked again now and then"}
        />
        <span className="faint number runs-count" aria-live="polite">
          {seen.loading || seen.error ? "" : many(seen.count, "run")}
        </span>
        <ColumnsMenu
          project={wanted.project}
          shown={shown ?? []}
          rows={() => list.rows()}
          choose={(keys) => setParams({ columns: keys === null ? null : writeColumns(keys) || "none" })}
        />
      </div>
      {seen.error && !wrong && (
        <div className="runs-failure">
          <Failure error={seen.error} again={() => list.again()} />
        </div>
      )}
      {isNothing ? (
        <Nothing wanted={wanted} />
      ) : (
        <RunsTable
          key={keyOf(listed.wanted)}
          ref={table}
          list={listed}
          begin={listed.scroll}
          isOld={listed !== list}
          columns={columns}
          sort={wanted.sort}
          selected={selected}
          onSelected={setSelected}
        />
      )}
      {seen.fresh > 0 && (
        <button
          type="button"
          className="button main small runs-fresh"
          onClick={() => {
            list.takeFresh();
            table.current?.toTop();
          }}
        >
          <Icon name="up" size={13} /> {many(seen.fresh, "new run")}
        </button>
      )}
      {runs.length > 0 && (
        <ActionBar
          runs={runs}
          clear={() => setSelected(new Map())}
          done={() => {
            setSelected(new Map());
            void list.changed(table.current?.isAtTop() ?? true);
          }}
        />
      )}
    </div>
  );
}

const keyOf = ({ q, sort, project }: Wanted): string => JSON.stringify([q, sort, project]);

/** Ask again when the server says that something changed, or now and then where it cannot say so. */
function useFollowing(list: RunList, table: { current: TableHandle | null }): LiveState {
  const changed = useSoon(() => {
    void list.changed(table.current?.isAtTop() ?? true).catch(() => {});
  }, GATHER_MS);
  const opened = useRef(false);
  const state = useLive("/live", {
    run: changed,
    gone: changed,
    open: () => {
      if (opened.current) changed();
      opened.current = true;
    },
  });
  useEffect(() => (state === "open" ? undefined : repeat(POLL_MS, changed)), [state, changed]);
  return state;
}

/** What can be asked for, looked up once somebody writes a query. */
function useKnown(when: boolean, project: string, list: RunList): () => Known {
  const { data: columns } = useAnswer<Columns>(when ? `/runs/columns${query({ project })}` : null);
  const { data: projects } = useAnswer<{ projects: ProjectRow[] }>(when ? "/projects" : null);
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

function Quick({ q, apply }: { q: string; apply: (q: string) => void }): ReactNode {
  const now = told(q, "status");
  return (
    <div className="runs-quick">
      {QUICK.map(([label, status]) => (
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

function Nothing({ wanted }: { wanted: Wanted }): ReactNode {
  if (wanted.q) {
    const all = (
      <button
        type="button"
        className="button"
        onClick={() => setParams({ q: null, sort: wanted.sort === USUAL_SORT ? null : wanted.sort })}
      >
        Remove the filter
      </button>
    );
    return (
      <Empty title="No run is like that" actions={all}>
        Nothing matches <code>{wanted.q}</code>
        {wanted.project && ` in ${wanted.project}`}.
      </Empty>
    );
  }
  if (wanted.project) {
    const all = (
      <button type="button" className="button" onClick={() => navigate("/runs")}>
        Runs of all projects
      </button>
    );
    return (
      <Empty
        title={`No runs in ${wanted.project} yet`}
        type={`phalanx run -f polyaxonfile.yml --project ${wanted.project}`}
        actions={all}
      />
    );
  }
  return (
    <Empty
      title="No runs yet"
      type="phalanx run -f polyaxonfile.yml"
      actions={
        <Link className="button" to="/help">
          What else can be typed
        </Link>
      }
    >
      Start one where your polyaxonfile is, and it shows up here by itself. No file yet? <code>phalanx init</code>{" "}
      writes one.
    </Empty>
  );
}
