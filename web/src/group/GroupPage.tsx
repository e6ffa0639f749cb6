/** The page of a group: its progress and changes, and tabs for the search, the trials and the timeline. */

import "../run/card.css";
import "./group.css";
import { lazy, type ReactNode, Suspense, useCallback, useMemo, useRef } from "react";
import { apiPath, type GroupDetails, isDone, type ParamImportance, type TrialRow, useResource } from "../api";
import { LazyMount } from "../charts/LazyMount";
import type { Kind } from "../compare/scales";
import { durationText, number, plural, seconds, short } from "../format";
import { Link, useParam } from "../router";
import { type RunContext, useOnFinish } from "../run/runContext";
import { ErrorMessage, Spinner } from "../ui";
import { useNow } from "../ui/hooks";
import { Contour } from "./Contour";
import { Edits } from "./Edits";
import { HistoryPlot } from "./HistoryPlot";
import { Importance } from "./Importance";
import { ParallelAxes } from "./ParallelAxes";
import { type PlotData, plotDataOf } from "./plotData";
import { Rungs, resourceName } from "./Rungs";
import { Slices } from "./Slices";
import { amountsOf, meanText, pointsOf } from "./trials";
import { useTrials } from "./useTrials";

const TrialsTable = lazy(() => import("./TrialsTable").then((module) => ({ default: module.TrialsTable })));
const Timeline = lazy(() => import("./Timeline").then((module) => ({ default: module.Timeline })));

const POLL_MS = 2000;
const IMPORTANCE_POLL_MS = 10_000;

export default function GroupPage({ context, tab }: { context: RunContext; tab: string }): ReactNode {
  const { run, isLive, mayEdit } = context;
  const group = useResource<GroupDetails>(apiPath`/groups/${run.id}`, {
    pollMs: isLive ? POLL_MS : undefined,
    keepPrevious: true,
  });
  const details = useUnchanged(group.data);
  const trials = useTrials(run, isLive);
  useOnFinish(run.finished_at, group.reload);
  const reloadAll = useCallback(() => {
    group.reload();
    trials.reload();
    context.reload();
  }, [group.reload, trials.reload, context.reload]);
  if (!details)
    return group.error ? <ErrorMessage error={group.error} retry={group.reload} what="Group" /> : <Spinner />;
  return (
    <div className="group-page">
      <Progress group={details} isLive={isLive} rows={trials.rows} />
      {mayEdit && <Edits group={details} reload={reloadAll} />}
      {trials.error && <ErrorMessage error={trials.error} retry={trials.reload} what="Trials" />}
      {trials.isLoading && trials.rows.length === 0 ? (
        <Spinner />
      ) : (
        <Suspense fallback={<Spinner />}>
          {tab === "trials" ? (
            <Part title="Trials">
              <TrialsTable rows={trials.rows} group={details} isLive={isLive} />
            </Part>
          ) : tab === "timeline" ? (
            <Part title="Timeline">
              <Timeline rows={trials.rows} group={details} isLive={isLive} />
            </Part>
          ) : (
            <Search group={details} rows={trials.rows} context={context} />
          )}
        </Suspense>
      )}
    </div>
  );
}

/** The same object as long as its content is the same: plots are drawn again only when something has changed. */
function useUnchanged<T>(found: T): T {
  const kept = useRef(found);
  if (JSON.stringify(kept.current) !== JSON.stringify(found)) kept.current = found;
  return kept.current;
}

function Part({ title, note, children }: { title: string; note?: ReactNode; children: ReactNode }): ReactNode {
  return (
    <section className="group-part" aria-label={title}>
      <div className="card-head">
        <h2>{title}</h2>
        {note}
      </div>
      {children}
    </section>
  );
}

// Progress --------------------------------------------------------------------------------------------------------

function Progress({ group, isLive, rows }: { group: GroupDetails; isLive: boolean; rows: TrialRow[] }): ReactNode {
  const now = useNow(isLive ? 1000 : null);
  const { running = 0, ...others } = group.trials;
  const { reported = 0, stopped = 0 } = others;
  const ended = Object.values(others).reduce((sum, count) => sum + count, 0);
  const parts = [
    group.total ? `${reported + stopped} of ${plural(group.total, "trial")}` : plural(reported + stopped, "trial"),
    running > 0 && `${running} running`,
    ...(["failed", "invalid", "stopped"] as const).map(
      (state) => group.trials[state] && `${group.trials[state]} ${state}`,
    ),
    `${group.algorithm}, concurrency ${group.concurrency}`,
  ].filter(Boolean);
  const begun = seconds(group.started_at);
  const share = group.total ? Math.min(1, ended / group.total) : 0;
  const left =
    isLive && !group.paused && begun !== null && share > 0 && share < 1 ? ((now - begun) / share) * (1 - share) : null;
  const best = group.best ? rows[group.best.trial] : undefined;
  return (
    <>
      <div className="group-state">
        {group.total !== null && !isDone(group.status) && (
          <div
            className="meter"
            role="progressbar"
            aria-label="Progress"
            aria-valuemin={0}
            aria-valuemax={group.total}
            aria-valuenow={ended}
          >
            <i style={{ width: `${share * 100}%` }} />
          </div>
        )}
        <span className="number">{parts.join(", ")}</span>
        {left !== null && <span className="soft">about {durationText(left)} left</span>}
      </div>
      {group.best && group.metric && (
        <p className="group-best">
          <span>
            best {group.metric.name} <b className="number">{meanText(group.best)}</b>
          </span>
          <Link to={`/runs/${encodeURIComponent(group.best.run)}`}>trial {group.best.trial}</Link>
          {best && (
            <span className="soft">
              {Object.entries(best.params)
                .map(([name, value]) => `${name} ${short(value)}`)
                .join(", ")}
            </span>
          )}
        </p>
      )}
    </>
  );
}

// The search --------------------------------------------------------------------------------------------------------

function Search({ group, rows, context }: { group: GroupDetails; rows: TrialRow[]; context: RunContext }): ReactNode {
  const { run, isLive } = context;
  const [at, setAt] = useParam("at");
  const [kind, setKind] = useParam("axis");
  const amounts = useMemo(() => amountsOf(rows), [rows]);
  const data = useMemo(
    () => plotDataOf(group, pointsOf(rows, at === "" ? null : Number(at)), (kind || undefined) as Kind | undefined),
    [group, rows, at, kind],
  );
  const importance = useResource<ParamImportance>(group.metric ? apiPath`/groups/${group.id}/importance` : null, {
    pollMs: isLive ? IMPORTANCE_POLL_MS : undefined,
    keepPrevious: true,
  });
  useOnFinish(run.finished_at, importance.reload);
  const resource = resourceName(group);
  const hasRungs = group.rungs.some((rung) => rung.rung > 0);
  const ranked = importance.data?.params.map(({ name }) => name) ?? [];
  const order = [...ranked, ...data.dimensions.map(({ name }) => name).filter((name) => !ranked.includes(name))];
  if (!group.metric) {
    return (
      <Part title="Values">
        <p className="card-empty">
          This group has no metric to compare. Set <code>hptuning.metric</code> in the polyaxonfile. The Trials tab
          lists all trials.
        </p>
      </Part>
    );
  }
  if (data.points.length === 0) return <p className="card-empty group-part">No trials yet.</p>;
  const axis = (
    <fieldset className="segments" aria-label="Value scale">
      {["linear", "log"].map((one) => (
        <button key={one} type="button" aria-pressed={data.scale.kind === one} onClick={() => setKind(one)}>
          {one}
        </button>
      ))}
    </fieldset>
  );
  return (
    <>
      <Part
        title="History"
        note={<HistoryNote at={at} amounts={amounts} setAt={setAt} resource={resource} axis={axis} />}
      >
        <HistoryPlot data={data} />
      </Part>
      <div className="group-columns">
        {hasRungs && (
          <Part title="Rungs">
            <Rungs group={group} />
          </Part>
        )}
        <Part title="Importance">
          {importance.data ? (
            <Importance found={importance.data} resource={resource} />
          ) : (
            <p className="card-empty">{importance.error?.message ?? "Loading…"}</p>
          )}
        </Part>
      </div>
      {data.measured.length === 0 ? (
        <p className="group-note">No trial has a value yet.</p>
      ) : (
        <Plots data={data} order={order} />
      )}
    </>
  );
}

function Plots({ data, order }: { data: PlotData; order: string[] }): ReactNode {
  return (
    <>
      <Part title="Parallel axes">
        <LazyMount height={370}>{() => <ParallelAxes data={data} />}</LazyMount>
      </Part>
      <Part title="Slices" note={<span className="faint">{data.metric} by param; later trials are violet</span>}>
        <Slices data={data} />
      </Part>
      {data.dimensions.length > 1 && (
        <Part title="Contour" note={<span className="faint">{data.metric} by two params</span>}>
          <LazyMount height={450}>{() => <Contour data={data} order={order} />}</LazyMount>
        </Part>
      )}
    </>
  );
}

type NoteProps = { at: string; amounts: number[]; setAt: (at: string) => void; resource: string; axis: ReactNode };

function HistoryNote({ at, amounts, setAt, resource, axis }: NoteProps): ReactNode {
  return (
    <>
      <span className="grow" />
      {amounts.length > 1 && (
        <label className="row">
          <span className="soft">Values</span>
          <select className="field small-field" value={at} onChange={(event) => setAt(event.target.value)}>
            <option value="">last of each trial</option>
            {amounts.map((amount) => (
              <option key={amount} value={amount}>
                after {number(amount)} {resource}
              </option>
            ))}
          </select>
        </label>
      )}
      {axis}
    </>
  );
}
