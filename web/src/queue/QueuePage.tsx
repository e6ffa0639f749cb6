import "./queue.css";
import { type ReactNode, useState } from "react";
import {
  apiPath,
  type Machine,
  post,
  type Queue,
  type QueueRow,
  type ResourceRequest,
  useEventStream,
  useResource,
} from "../api";
import { ago, durationText, elapsedSeconds, mib, plural, runTitle, timestamp, visible } from "../format";
import { Link, useTitle } from "../router";
import { canEdit, useSession } from "../session";
import { Confirm, EmptyState, ErrorMessage, Icon, notify, Spinner, StatusMark } from "../ui";
import { useCoalesced, useNow } from "../ui/hooks";
import { notifyError } from "../ui/notifyError";
import { MachineCard } from "./MachineCard";

const POLL_MS = 5000;
const WAITING = ["created", "scheduled", "building", "resuming"];

/** Running and waiting runs, and the free resources of the machine. */
export default function QueuePage(): ReactNode {
  useTitle("Queue");
  const queue = useResource<Queue>("/queue", { pollMs: POLL_MS });
  const machine = useResource<Machine>("/machine", { pollMs: POLL_MS });
  const now = useNow(1000);
  const reloadSoon = useCoalesced(queue.reload, 1000);
  useEventStream("/live", { run: reloadSoon, gone: reloadSoon });
  const rows = queue.data?.runs ?? [];
  const waiting = rows.filter(({ status }) => WAITING.includes(status));
  const running = rows.filter(({ status }) => !WAITING.includes(status));
  return (
    <div className="page queue">
      {machine.data && <MachineCard machine={machine.data} />}
      {machine.error && !machine.data && <ErrorMessage error={machine.error} retry={machine.reload} what="Machine" />}
      {queue.error && <ErrorMessage error={queue.error} retry={queue.reload} what="Queue" />}
      {!queue.data && queue.loading && <Spinner />}
      {queue.data && rows.length === 0 && (
        <EmptyState title="The queue is empty" command="phalanx run -f polyaxonfile.yml">
          Submitted runs appear here until they finish.
        </EmptyState>
      )}
      {running.length > 0 && <Running rows={running} now={now} reload={queue.reload} />}
      {waiting.length > 0 && <Waiting rows={waiting} now={now} reload={queue.reload} />}
      {queue.data?.schedules === false && waiting.length > 0 && (
        <p className="soft">
          No scheduler is running, so waiting runs do not start. Start one with <code>phalanx serve</code>.
        </p>
      )}
    </div>
  );
}

type RowsProps = { rows: QueueRow[]; now: number; reload: () => void };

function Running({ rows, now, reload }: RowsProps): ReactNode {
  return (
    <section>
      <h2>{plural(rows.length, "run")} active</h2>
      <div className="card queue-card">
        {rows.map((run) => (
          <div key={run.id} className="queue-row">
            <StatusMark status={run.status} reason={run.reason} bare />
            <Which run={run} />
            <span className="faint queue-request">{requestText(run.asked)}</span>
            <span className="number queue-time" title={timestamp(run.started_at)}>
              {run.started_at ? durationText(elapsedSeconds(run.started_at, null, now)) : run.status}
            </span>
            <RowActions run={run} reload={reload} />
          </div>
        ))}
      </div>
    </section>
  );
}

function Waiting({ rows, now, reload }: RowsProps): ReactNode {
  return (
    <section>
      <h2>{plural(rows.length, "run")} waiting</h2>
      <div className="card queue-card">
        {rows.map((run, index) => (
          <div key={run.id} className="queue-row">
            <span className="queue-place number" title="Position in the queue">
              {run.place ?? index + 1}
            </span>
            <Which run={run} />
            <span className="faint queue-request">{requestText(run.asked)}</span>
            <span className="number queue-time" title={timestamp(run.created_at)}>
              {ago(run.created_at, now)}
            </span>
            <RowActions run={run} reload={reload} isWaiting />
          </div>
        ))}
      </div>
    </section>
  );
}

type ActionProps = { run: QueueRow; reload: () => void; isWaiting?: boolean };

/** Priority up and down while a run waits, and stop. */
function RowActions({ run, reload, isWaiting = false }: ActionProps): ReactNode {
  const { data: session } = useSession();
  const [isConfirming, setConfirming] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const isAllowed = canEdit(session, run.project);
  const change = async (verb: "priority" | "stop", body: Record<string, number>, done: string): Promise<void> => {
    setBusy(true);
    try {
      await post(`${apiPath`/runs/${run.id}`}/${verb}`, body);
      notify(done);
    } catch (error) {
      notifyError(error);
    }
    setBusy(false);
    setConfirming(false);
    reload();
  };
  const priority = (by: number): void => {
    const next = run.priority + by;
    void change("priority", { priority: next }, `Priority of ${runTitle(run)} set to ${next}.`);
  };
  return (
    <span className="queue-actions">
      {isWaiting && (
        <span className="queue-priority" title="Runs with a higher priority start first">
          {isAllowed && (
            <PriorityButton
              label={`Lower priority of ${runTitle(run)}`}
              icon="down"
              isBusy={isBusy}
              go={() => priority(-1)}
            />
          )}
          <span className="number">
            <span className="faint">priority</span> {run.priority}
          </span>
          {isAllowed && (
            <PriorityButton
              label={`Raise priority of ${runTitle(run)}`}
              icon="up"
              isBusy={isBusy}
              go={() => priority(1)}
            />
          )}
        </span>
      )}
      {isAllowed && (
        <button
          type="button"
          className="button danger small"
          aria-label={`Stop ${runTitle(run)}`}
          disabled={isBusy}
          onClick={() => setConfirming(true)}
        >
          <Icon name="stop" size={12} /> Stop
        </button>
      )}
      {isConfirming && (
        <Confirm
          title={`Stop ${runTitle(run)}?`}
          verb="Stop"
          danger
          busy={isBusy}
          onYes={() => void change("stop", {}, `Stopping ${runTitle(run)}.`)}
          onNo={() => setConfirming(false)}
        >
          {isWaiting
            ? "The run leaves the queue without starting."
            : "All replicas receive SIGTERM, and SIGKILL after the grace period. Logs, metrics and outputs are kept."}
        </Confirm>
      )}
    </span>
  );
}

type PriorityProps = { label: string; icon: "up" | "down"; isBusy: boolean; go: () => void };

function PriorityButton({ label, icon, isBusy, go }: PriorityProps): ReactNode {
  return (
    <button
      type="button"
      className="button plain icon small"
      aria-label={label}
      title={label}
      disabled={isBusy}
      onClick={go}
    >
      <Icon name={icon} size={14} />
    </button>
  );
}

function Which({ run }: { run: QueueRow }): ReactNode {
  const why = run.waits_for || (WAITING.includes(run.status) ? run.reason || run.status : "");
  return (
    <span className="queue-which">
      <span className="row">
        <Link to={`/runs/${run.id}`} className="cut queue-name">
          {runTitle(run)}
        </Link>
        {run.name && <span className="faint mono">{run.id}</span>}
        <Link to={`/runs?project=${encodeURIComponent(run.project)}`} className="tag">
          {visible(run.project)}
        </Link>
        {run.backend !== "native" && <span className="tag">{run.backend}</span>}
      </span>
      {why && <span className="soft queue-why">{why}</span>}
    </span>
  );
}

/** `4 cores · 8 GiB · 1 GPU`. */
function requestText(request: ResourceRequest | null | undefined): string {
  if (!request) return "";
  const parts = [
    request.cpu ? plural(request.cpu, "core") : "",
    request.memory_mib ? mib(request.memory_mib) : "",
    request.gpus ? plural(request.gpus, "GPU") : "",
  ];
  return parts.filter(Boolean).join(" · ");
}
