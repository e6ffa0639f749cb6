/** The page of a run: header, replicas and tabs. Each tab loads its data when it is opened. */

import "./RunPage.css";
import { type ComponentType, lazy, type ReactNode, Suspense } from "react";
import { runTitle } from "../format";
import { Link, match, navigate, useRoute, useTitle } from "../router";
import { useShortcuts } from "../shortcuts";
import { EmptyState, ErrorMessage, Spinner, type Tab, Tabs } from "../ui";
import { ErrorBoundary } from "../ui/ErrorBoundary";
import { FirstFailure } from "./FirstFailure";
import { Overview } from "./Overview";
import { RankPanel } from "./RankPanel";
import { RunHeader } from "./RunHeader";
import { type RunContext, useRun } from "./runContext";
import { TopologyStrip } from "./Topology";

const ChartsTab = lazy(() => import("./ChartsTab"));
const LogsTab = lazy(() => import("./LogsTab"));
const MediaTab = lazy(() => import("./MediaTab"));
const OutputsTab = lazy(() => import("./OutputsTab"));
const ModelsTab = lazy(() => import("./ModelsTab"));
const HistoryTab = lazy(() => import("./HistoryTab"));
const SpecTab = lazy(() => import("./SpecTab"));
const GroupPage = lazy(() => import("../group/GroupPage"));
const PipelinePage = lazy(() => import("../pipeline/PipelinePage"));

const TABS = {
  overview: { label: "Overview", page: Overview },
  charts: { label: "Charts", page: ChartsTab },
  logs: { label: "Logs", page: LogsTab },
  outputs: { label: "Outputs", page: OutputsTab },
  media: { label: "Media", page: MediaTab },
  models: { label: "Models", page: ModelsTab },
  history: { label: "History", page: HistoryTab },
  spec: { label: "Spec", page: SpecTab },
} as const;

type TabName = keyof typeof TABS;

/** Runs that consist of other runs have pages and tabs of their own; the history and the spec are as those of a run. */
type Whole = { name: string; page: ComponentType<{ context: RunContext; tab: string }>; tabs: Record<string, string> };

const SHARED = { history: "History", spec: "Spec" };
const PIPELINE: Whole = {
  name: "pipeline",
  page: PipelinePage,
  tabs: { overview: "Graph", ops: "Ops", ...SHARED },
};
const WHOLES: Record<string, Whole> = {
  group: {
    name: "group",
    page: GroupPage,
    tabs: { overview: "Search", trials: "Trials", timeline: "Timeline", ...SHARED },
  },
  pipeline: PIPELINE,
  schedule: { ...PIPELINE, name: "schedule" },
};

export default function RunPage(): ReactNode {
  const { path, params } = useRoute();
  const { id = "", rest = "" } = match("/runs/:id/*", path) ?? {};
  const { context, error, reload } = useRun(id, params.get("attempt") ?? "");
  const whole = WHOLES[context?.run.kind ?? ""];
  const tabs = whole?.tabs ?? TABS;
  const [named = ""] = rest.split("/");
  const tab = named in tabs ? named : "overview";
  useTitle(context ? runTitle(context.run) : id);
  useTabKeys(id, Object.keys(tabs), tab);
  if (!context && error?.status === 404) return <RunNotFound id={id} />;
  if (!context) {
    return (
      <div className="page">
        {error ? <ErrorMessage error={error} retry={reload} what={`Run ${id}`} /> : <Spinner />}
      </div>
    );
  }
  if (whole) return <WholeBody whole={whole} context={context} tab={tab} />;
  return <RunBody context={context} tab={tab as TabName} />;
}

function RunNotFound({ id }: { id: string }): ReactNode {
  const all = (
    <Link className="button" to="/runs">
      All runs
    </Link>
  );
  return (
    <EmptyState title={`Run ${id} not found`} actions={all}>
      It was deleted, or you do not have access to its project.
    </EmptyState>
  );
}

function RunBody({ context, tab }: { context: RunContext; tab: TabName }): ReactNode {
  const { params } = useRoute();
  const rank = params.get("replica-panel") ?? "";
  const Page = TABS[tab].page;
  return (
    <div className={`page run is-${tab}`}>
      <RunHeader context={context} />
      <TopologyStrip context={context} />
      <FirstFailure context={context} isShort={tab !== "overview"} />
      <Tabs tabs={tabsOf(context)} current={tab} label="Tabs of this run" />
      <div className="run-tab">
        <ErrorBoundary key={tab}>
          <Suspense fallback={<Spinner />}>
            <Page context={context} />
          </Suspense>
        </ErrorBoundary>
      </div>
      {rank && <RankPanel key={rank} context={context} name={rank} />}
    </div>
  );
}

function WholeBody({ whole, context, tab }: { whole: Whole; context: RunContext; tab: string }): ReactNode {
  const { run } = context;
  const tabs = Object.entries(whole.tabs).map(([key, label]) => ({ key, label, to: tabUrl(run.id, key) }));
  const Shared = tab in SHARED ? TABS[tab as keyof typeof SHARED].page : null;
  return (
    <div className={`page run is-${tab}`}>
      <RunHeader context={context} />
      <Tabs tabs={tabs} current={tab} label={`Tabs of this ${whole.name}`} />
      <div className="run-tab">
        <ErrorBoundary key={tab}>
          <Suspense fallback={<Spinner />}>
            {Shared ? <Shared context={context} /> : <whole.page context={context} tab={tab} />}
          </Suspense>
        </ErrorBoundary>
      </div>
    </div>
  );
}

function tabsOf({ run }: RunContext): Tab[] {
  const counts: Partial<Record<TabName, number>> = { charts: Object.keys(run.summaries).length };
  return Object.entries(TABS).map(([key, { label }]) => ({
    key,
    label,
    to: tabUrl(run.id, key),
    count: counts[key as TabName] ?? null,
  }));
}

export function tabUrl(id: string, tab: string): string {
  return `/runs/${encodeURIComponent(id)}${tab === "overview" ? "" : `/${tab}`}`;
}

function useTabKeys(id: string, names: string[], tab: string): void {
  const go = (by: number) => () => {
    const next = names[(names.indexOf(tab) + by + names.length) % names.length] as string;
    navigate(tabUrl(id, next), { keepScroll: true });
  };
  useShortcuts("This run", {
    "[": { label: "Previous tab", run: go(-1) },
    "]": { label: "Next tab", run: go(1) },
  });
}
