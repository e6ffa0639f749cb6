/** The actions on a run: stop, restart (also with its outputs), resume, delete. Each asks for confirmation. */

import { type ReactNode, useState } from "react";
import { apiPath, del, isDone, post, type RunRow } from "../api";
import { runTitle } from "../format";
import { Link, navigate } from "../router";
import { useTensorBoard } from "../tensorboard/useTensorBoard";
import { Confirm, Icon, type IconName, Menu, notify } from "../ui";
import { notifyError } from "../ui/notifyError";
import type { RunContext } from "./runContext";

type RunAction = {
  key: "stop" | "restart" | "resume" | "copy" | "delete";
  label: string;
  icon: IconName;
  confirmation: string;
  danger?: boolean;
};

const ACTIONS: Record<RunAction["key"], RunAction> = {
  stop: {
    key: "stop",
    label: "Stop",
    icon: "stop",
    confirmation:
      "All replicas receive SIGTERM, and SIGKILL after the grace period. Logs, metrics and outputs are kept.",
    danger: true,
  },
  restart: {
    key: "restart",
    label: "Restart",
    icon: "restart",
    confirmation: "Starts a new run with the same spec and code and empty outputs. This run is kept.",
  },
  resume: {
    key: "resume",
    label: "Resume",
    icon: "right",
    confirmation: "Starts a new attempt of this run in the same folder, so that it can continue from its checkpoints.",
  },
  copy: {
    key: "copy",
    label: "Restart with outputs",
    icon: "copy",
    confirmation: "Starts a new run with the same spec and code, from a copy of this run's outputs. This run is kept.",
  },
  delete: {
    key: "delete",
    label: "Delete",
    icon: "trash",
    confirmation: "Deletes the run with its metrics, logs and outputs. This cannot be undone.",
    danger: true,
  },
};

/** Why an action is disabled for this user and run; empty if it is enabled. */
export function disabledReason(
  act: RunAction["key"],
  { run, readOnlyReason }: Pick<RunContext, "run" | "readOnlyReason">,
): string {
  if (readOnlyReason) return readOnlyReason;
  const isAgain = act === "restart" || act === "resume" || act === "copy";
  return isAgain && run.backend === "outside"
    ? "This run was tracked but not started by Phalanx, so Phalanx cannot restart it."
    : "";
}

export function Actions({ context }: { context: RunContext }): ReactNode {
  const { run } = context;
  const [confirming, setConfirming] = useState<RunAction | null>(null);
  const [isBusy, setBusy] = useState(false);
  const board = useTensorBoard();
  const isOver = isDone(run.status);
  const first = isOver ? [ACTIONS.resume, ACTIONS.restart] : [ACTIONS.stop];
  const more = isOver ? [ACTIONS.copy, ACTIONS.delete] : [ACTIONS.restart, ACTIONS.copy];
  const go = async (act: RunAction) => {
    setBusy(true);
    await perform(act, context);
    setBusy(false);
    setConfirming(null);
  };
  return (
    <div className="run-actions">
      {first.map((act) => (
        <button
          key={act.key}
          type="button"
          className={act.danger ? "button danger" : "button"}
          disabled={disabledReason(act.key, context) !== ""}
          title={disabledReason(act.key, context) || act.confirmation}
          onClick={() => setConfirming(act)}
        >
          <Icon name={act.icon} size={14} /> {act.label}
        </button>
      ))}
      <More context={context} acts={more} onAsk={setConfirming} onBoard={() => void board.open([run.id])} />
      {board.dialog}
      {confirming && (
        <Confirm
          title={`${confirming.label} ${runTitle(run)}?`}
          verb={confirming.label}
          danger={confirming.danger ?? false}
          busy={isBusy}
          onYes={() => void go(confirming)}
          onNo={() => setConfirming(null)}
        >
          {confirming.confirmation}
        </Confirm>
      )}
    </div>
  );
}

function More({
  context,
  acts,
  onAsk,
  onBoard,
}: {
  context: RunContext;
  acts: RunAction[];
  onAsk: (act: RunAction) => void;
  onBoard: () => void;
}): ReactNode {
  const { run, readOnlyReason } = context;
  return (
    <Menu label={<Icon name="more" />} name="More" className="button icon" alignRight>
      {(close) => (
        <>
          <Link className="menu-item" to={`/compare?run=${encodeURIComponent(run.id)}`}>
            <Icon name="compare" size={14} /> Compare
          </Link>
          <button
            type="button"
            className="menu-item"
            onClick={() => {
              close();
              onBoard();
            }}
          >
            <Icon name="chart" size={14} /> TensorBoard
          </button>
          <hr />
          {acts.map((act) => (
            <button
              key={act.key}
              type="button"
              className={act.danger ? "menu-item danger" : "menu-item"}
              disabled={disabledReason(act.key, context) !== ""}
              title={disabledReason(act.key, context) || act.confirmation}
              onClick={() => {
                close();
                onAsk(act);
              }}
            >
              <Icon name={act.icon} size={14} /> {act.label}
            </button>
          ))}
          {readOnlyReason && <p className="menu-title">{readOnlyReason}</p>}
        </>
      )}
    </Menu>
  );
}

async function perform(act: RunAction, { run, reload }: RunContext): Promise<void> {
  try {
    if (act.key === "delete") {
      await del(apiPath`/runs/${run.id}`);
      notify(`${runTitle(run)} deleted.`);
      navigate("/runs");
      return;
    }
    const created = await post<RunRow>(`${apiPath`/runs/${run.id}`}/${act.key}`);
    if (created.id !== run.id) {
      notify(`${runTitle(created)} submitted.`);
      navigate(`/runs/${encodeURIComponent(created.id)}`);
    } else {
      notify(act.key === "stop" ? "Stopping." : "Resumed.");
    }
  } catch (error) {
    notifyError(error);
  }
  reload();
}
