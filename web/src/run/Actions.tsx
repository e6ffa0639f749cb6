/** What can be done with a run: stop, restart, resume, copy, delete; each is asked about before it is done. */

import { type ReactNode, useState } from "react";
import { ApiError, apiPath, del, isDone, post, type RunRow } from "../api";
import { runTitle } from "../format";
import { Link, navigate } from "../router";
import { Confirm, Icon, type IconName, Menu, notify } from "../ui";
import type { Known } from "./runContext";

type Act = {
  key: "stop" | "restart" | "resume" | "copy" | "delete";
  label: string;
  icon: IconName;
  asks: string;
  danger?: boolean;
};

const ACTS: Record<Act["key"], Act> = {
  stop: {
    key: "stop",
    label: "Stop",
    icon: "stop",
    asks: "All replicas are told to end. What they wrote stays.",
    danger: true,
  },
  restart: {
    key: "restart",
    label: "Restart",
    icon: "restart",
    asks: "A new run begins with the same file and code. This one stays as it is.",
  },
  resume: {
    key: "resume",
    label: "Resume",
    icon: "right",
    asks: "This run goes on as a new attempt, with what it wrote in its folder.",
  },
  copy: {
    key: "copy",
    label: "Copy",
    icon: "copy",
    asks: "A new run begins with the same file and code, and with a copy of what this one wrote.",
  },
  delete: {
    key: "delete",
    label: "Delete",
    icon: "trash",
    asks: "The run, its metrics, logs and outputs are removed. This cannot be undone.",
    danger: true,
  },
};

/** Why something cannot be done with a run by this person; empty when it can. */
export function refusal(act: Act["key"], { run, whyNot }: Pick<Known, "run" | "whyNot">): string {
  if (whyNot) return whyNot;
  const isAgain = act === "restart" || act === "resume" || act === "copy";
  return isAgain && run.backend === "outside"
    ? "It was tracked, not started, by Phalanx: there is nothing to run again."
    : "";
}

export function Actions({ known }: { known: Known }): ReactNode {
  const { run } = known;
  const [asked, setAsked] = useState<Act | null>(null);
  const [isBusy, setBusy] = useState(false);
  const isOver = isDone(run.status);
  const first = isOver ? [ACTS.resume, ACTS.restart] : [ACTS.stop];
  const more = isOver ? [ACTS.copy, ACTS.delete] : [ACTS.restart, ACTS.copy];
  const go = async (act: Act) => {
    setBusy(true);
    await perform(act, known);
    setBusy(false);
    setAsked(null);
  };
  return (
    <div className="run-actions">
      {first.map((act) => (
        <button
          key={act.key}
          type="button"
          className={act.danger ? "button danger" : "button"}
          disabled={refusal(act.key, known) !== ""}
          title={refusal(act.key, known) || act.asks}
          onClick={() => setAsked(act)}
        >
          <Icon name={act.icon} size={14} /> {act.label}
        </button>
      ))}
      <More known={known} acts={more} onAsk={setAsked} />
      {asked && (
        <Confirm
          title={`${asked.label} ${runTitle(run)}?`}
          verb={asked.label}
          danger={asked.danger ?? false}
          busy={isBusy}
          onYes={() => void go(asked)}
          onNo={() => setAsked(null)}
        >
          {asked.asks}
        </Confirm>
      )}
    </div>
  );
}

function More({ known, acts, onAsk }: { known: Known; acts: Act[]; onAsk: (act: Act) => void }): ReactNode {
  const { run, whyNot } = known;
  return (
    <Menu label={<Icon name="more" />} name="More" className="button icon" alignRight>
      {(close) => (
        <>
          <Link className="menu-item" to={`/compare?run=${encodeURIComponent(run.id)}`}>
            <Icon name="compare" size={14} /> Compare
          </Link>
          <hr />
          {acts.map((act) => (
            <button
              key={act.key}
              type="button"
              className={act.danger ? "menu-item danger" : "menu-item"}
              disabled={refusal(act.key, known) !== ""}
              title={refusal(act.key, known) || act.asks}
              onClick={() => {
                close();
                onAsk(act);
              }}
            >
              <Icon name={act.icon} size={14} /> {act.label}
            </button>
          ))}
          {whyNot && <p className="menu-title">{whyNot}</p>}
        </>
      )}
    </Menu>
  );
}

async function perform(act: Act, { run, reload }: Known): Promise<void> {
  try {
    if (act.key === "delete") {
      await del(apiPath`/runs/${run.id}`);
      notify(`${runTitle(run)} is deleted.`);
      navigate("/runs");
      return;
    }
    const made = await post<RunRow>(`${apiPath`/runs/${run.id}`}/${act.key}`);
    if (made.id !== run.id) {
      notify(`${runTitle(made)} is on its way.`);
      navigate(`/runs/${encodeURIComponent(made.id)}`);
    } else {
      notify(act.key === "stop" ? "It is told to stop." : "It goes on.");
    }
  } catch (fault) {
    notifyError(fault);
  }
  reload();
}

/** Say in the corner what could not be done, and what to do. */
export function notifyError(fault: unknown): void {
  const hint = fault instanceof ApiError && fault.hint ? ` (${fault.hint})` : "";
  notify(`${fault instanceof Error ? fault.message : String(fault)}${hint}`, { bad: true });
}
