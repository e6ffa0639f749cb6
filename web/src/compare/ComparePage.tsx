/** Compares runs: overlaid charts, differences, parallel coordinates and a scatter plot. */

import "./ComparePage.css";
import { useCallback, useMemo, useState } from "react";
import { queryString, useResource } from "../api";
import { plural } from "../format";
import { currentRoute, Link, navigate, readableParams, useRoute, useTitle } from "../router";
import type { Comparison, RunRow, RunsPage } from "../types";
import { isDone } from "../types";
import { ErrorMessage, Spinner, Tabs } from "../ui";
import { CompareView, VIEW_TITLES } from "./CompareViews";
import { Legend } from "./Legend";
import { AddRun, NoRunsSelected, QueryForm } from "./RunPicker";
import { type Choices, choicesToParams, parseChoices, VIEWS } from "./urlState";
import { useVisibleRuns } from "./visibleRuns";

const LIVE_MS = 5000;
function urlOf(choices: Choices): string {
  const text = readableParams(choicesToParams(choices));
  return text ? `/compare?${text}` : "/compare";
}

export default function ComparePage() {
  const { params } = useRoute();
  const text = params.toString();
  // biome-ignore lint/correctness/useExhaustiveDependencies: `text` is the content of the params
  const choices = useMemo(() => parseChoices(params), [text]);
  const change = useCallback((changes: Partial<Choices>) => {
    const next = { ...parseChoices(currentRoute().params), ...changes };
    const isNewPage = "runs" in changes || "query" in changes || "view" in changes;
    navigate(urlOf(next), { replace: !isNewPage, keepScroll: true });
  }, []);
  const hasRuns = choices.runs.length > 0 || choices.query !== null;
  useTitle("Compare");
  return (
    <div className="compare">
      {hasRuns ? (
        <ComparedRuns choices={choices} onChange={change} />
      ) : (
        <NoRunsSelected choices={choices} onChange={change} />
      )}
    </div>
  );
}

interface Props {
  choices: Choices;
  onChange: (changes: Partial<Choices>) => void;
}

/** The runs to compare: the results of the query, or the selected runs. */
function useRuns(choices: Choices) {
  const { query: q, sort, limit, project, view } = choices;
  const isQuery = q !== null && choices.runs.length === 0;
  const [isLive, setLive] = useState(false);
  const pollMs = isLive ? LIVE_MS : undefined;
  const found = useResource<RunsPage>(isQuery ? `/runs${queryString({ q, sort, limit, project })}` : null, {
    pollMs,
    keepPrevious: true,
  });
  const ids = isQuery ? found.data?.runs.map((run) => run.id) : choices.runs;
  const isNeeded = ids !== undefined && ids.length > 0 && (!isQuery || view === "differences");
  const fields = { run: ids, everything: choices.everything ? 1 : undefined };
  const compared = useResource<Comparison>(isNeeded ? `/compare${queryString(fields)}` : null, {
    pollMs,
    keepPrevious: true,
  });
  const runs = isQuery ? found.data?.runs : compared.data?.runs;
  const isRunning = runs?.some((run) => !isDone(run.status)) ?? false;
  if (isRunning !== isLive) setLive(isRunning);
  return {
    runs,
    compared,
    error: found.error ?? compared.error,
    reload: isQuery ? found.reload : compared.reload,
    isQuery,
  };
}

/** The page that creates a report of these runs. */
function reportUrl({ runs, query, metrics, project }: Choices, rows: readonly RunRow[]): string {
  const params = new URLSearchParams({ new: "1" });
  if (query === null || runs.length) for (const run of runs) params.append("run", run);
  else params.set("q", query);
  if (metrics.length) params.set("metric", metrics.join(", "));
  const own = project || rows[0]?.project;
  if (own) params.set("project", own);
  return `/reports?${params}`;
}

function ComparedRuns({ choices, onChange }: Props) {
  const { runs, compared, error, reload, isQuery } = useRuns(choices);
  if (runs === undefined) {
    return error ? (
      <ErrorMessage error={error} retry={reload} what="Cannot compare these runs" />
    ) : (
      <Spinner label="Loading runs" />
    );
  }
  return (
    <>
      <header className="compare-head">
        <h1>Compare {plural(runs.length, "run")}</h1>
        {isQuery ? (
          <QueryForm key={`${choices.query}|${choices.sort}|${choices.limit}`} choices={choices} onChange={onChange} />
        ) : (
          <AddRun chosen={choices.runs} onAdd={(run) => onChange({ runs: [...choices.runs, run] })} />
        )}
        <Link className="button" to={reportUrl(choices, runs)}>
          New report
        </Link>
      </header>
      {error && <ErrorMessage error={error} retry={reload} />}
      {!isQuery && runs.length > 0 && runs.length < choices.runs.length && (
        <p className="soft">
          {plural(choices.runs.length - runs.length, "run")} not found: deleted, or in a project you cannot access.
        </p>
      )}
      {runs.length === 0 ? (
        <p className="soft compare-none">
          {isQuery ? "No matching runs." : "No runs found: deleted, or in a project you cannot access."}
        </p>
      ) : (
        <ComparisonBody
          runs={runs}
          comparison={compared.data}
          isQuery={isQuery}
          choices={choices}
          onChange={onChange}
        />
      )}
    </>
  );
}

type ComparisonBodyProps = Props & { runs: RunRow[]; comparison: Comparison | undefined; isQuery: boolean };

function ComparisonBody({ runs, comparison, isQuery, choices, onChange }: ComparisonBodyProps) {
  const shown = useVisibleRuns(runs, choices);
  return (
    <>
      <Tabs
        current={choices.view}
        label="Views"
        tabs={VIEWS.map((key) => ({ key, label: VIEW_TITLES[key], to: urlOf({ ...choices, view: key }) }))}
      />
      <div className="compare-body">
        <Legend
          entries={shown.entries}
          rows={shown.rows}
          isGrouped={shown.isGrouped}
          off={choices.off}
          highlighted={shown.highlighted}
          canRemove={!isQuery && runs.length > 1}
          onHighlight={shown.highlight}
          onSwitch={(off) => onChange({ off })}
          onRemove={(run) => onChange({ runs: choices.runs.filter((one) => one !== run) })}
        />
        <div className="compare-view">
          <CompareView shown={shown} comparison={comparison} choices={choices} onChange={onChange} />
        </div>
      </div>
    </>
  );
}
