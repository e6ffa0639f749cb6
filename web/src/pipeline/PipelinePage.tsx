/** The page of a pipeline: its progress, and its ops as a graph or a table; of a schedule, its ticks. */

import "../run/card.css";
import "./pipeline.css";
import { lazy, type ReactNode, Suspense, useEffect } from "react";
import {
  apiPath,
  isDone,
  type PipelineDetails,
  pollWhileVisible,
  type RunRow,
  useEventStream,
  useResource,
} from "../api";
import { ago, count, durationText, timestamp } from "../format";
import { Link } from "../router";
import { type RunContext, useOnFinish } from "../run/runContext";
import { ErrorMessage, Spinner, StatusMark, statusText } from "../ui";
import { useNarrow, useNow, useReload } from "../ui/hooks";
import { OpsTable } from "./OpsTable";

const PipelineGraph = lazy(() => import("./PipelineGraph").then((module) => ({ default: module.PipelineGraph })));

const POLL_MS = 5000; // without an event stream
const RELOAD_MS = 500;

/** The pipeline, loaded again when it or one of its runs changes. */
function usePipeline({ run, isLive }: RunContext) {
  const response = useResource<PipelineDetails>(apiPath`/pipelines/${run.id}`, { keepPrevious: true });
  const reload = useReload(response.reload, RELOAD_MS);
  const state = useEventStream(isLive ? "/live" : null, {
    // Ops may have got runs that the page does not know yet: any change in the project counts.
    run: ({ project }: Pick<RunRow, "project">) => {
      if (project === run.project) reload();
    },
    open: reload,
  });
  useEffect(() => {
    if (isLive && state !== "open") return pollWhileVisible(POLL_MS, reload);
  }, [isLive, state, reload]);
  useOnFinish(run.finished_at, reload);
  return response;
}

export default function PipelinePage({ context, tab }: { context: RunContext; tab: string }): ReactNode {
  const { data, error, reload } = usePipeline(context);
  const narrow = useNarrow();
  if (!data) return error ? <ErrorMessage error={error} retry={reload} what="Pipeline" /> : <Spinner />;
  return (
    <div className="pipeline-page">
      <Progress pipeline={data} isLive={context.isLive} />
      {data.kind === "schedule" && <Ticks pipeline={data} />}
      <section className="group-part pipeline-part" aria-label="Ops">
        {tab === "ops" || narrow ? (
          <OpsTable ops={data.ops} isLive={context.isLive} />
        ) : (
          <Suspense fallback={<Spinner />}>
            <PipelineGraph pipeline={data} isLive={context.isLive} />
          </Suspense>
        )}
      </section>
    </div>
  );
}

/** The order in which statuses are listed: what needs attention first. */
const ORDER = ["failed", "upstream_failed", "running", "starting", "waiting", "succeeded"];
const place = (status: string): number => (ORDER.indexOf(status) + ORDER.length + 1) % (ORDER.length + 1);

function Progress({ pipeline, isLive }: { pipeline: PipelineDetails; isLive: boolean }): ReactNode {
  const now = useNow(isLive ? 1000 : null);
  const total = pipeline.ops.length;
  const ended = pipeline.ops.filter(({ status }) => status !== "waiting" && isDone(status)).length;
  const counts = Object.entries(pipeline.counts).sort(([a], [b]) => place(a) - place(b));
  const by = pipeline.scheduled_by;
  return (
    <div className="pipeline-state">
      {isLive && pipeline.kind === "pipeline" && (
        <div
          className="meter"
          role="progressbar"
          aria-label="Progress"
          aria-valuemin={0}
          aria-valuemax={total}
          aria-valuenow={ended}
        >
          <i style={{ width: `${(ended / Math.max(1, total)) * 100}%` }} />
        </div>
      )}
      {pipeline.kind === "pipeline" && (
        <span className="number">
          {ended} of {count(total)} ops ended
        </span>
      )}
      {pipeline.kind === "pipeline" &&
        counts.map(([status, found]) => (
          <StatusMark key={status} status={status} label={`${found} ${statusText(status)}`} />
        ))}
      {pipeline.timeout_s !== null && <span className="soft">timeout {durationText(pipeline.timeout_s)}</span>}
      {pipeline.next_tick && (
        <span title={timestamp(pipeline.next_tick)}>
          next run in {durationText(Math.max(0, Date.parse(pipeline.next_tick) / 1000 - now))}
        </span>
      )}
      {by && (
        <span className="soft">
          started by schedule <Link to={`/runs/${encodeURIComponent(by)}`}>{by}</Link>
        </span>
      )}
    </div>
  );
}

function Ticks({ pipeline }: { pipeline: PipelineDetails }): ReactNode {
  return (
    <section className="group-part pipeline-part" aria-label="Runs of this schedule">
      <div className="card-head">
        <h2>Runs of this schedule</h2>
      </div>
      {pipeline.ticks.length === 0 ? (
        <p className="card-empty">No runs yet.</p>
      ) : (
        <table className="plain-table">
          <thead>
            <tr>
              <th>Time</th>
              <th>Pipeline</th>
              <th>Status</th>
            </tr>
          </thead>
          <tbody>
            {pipeline.ticks.map((tick) => (
              <tr key={tick.run_id}>
                <td title={timestamp(tick.at)}>{ago(tick.at)}</td>
                <td>
                  <Link to={`/runs/${encodeURIComponent(tick.run_id)}`} className="mono">
                    {tick.run_id}
                  </Link>
                </td>
                <td>{tick.status ? <StatusMark status={tick.status} /> : <span className="faint">deleted</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}
