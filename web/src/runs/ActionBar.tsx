import { type FormEvent, type ReactNode, useState } from "react";
import type { RunRow } from "../api";
import { plural, runTitle } from "../format";
import { navigate } from "../router";
import { canEdit, useSession } from "../session";
import { Confirm, Dialog, Icon, type IconName } from "../ui";
import { BULK_ACTIONS, type BulkAction, performBulk, tagRuns } from "./bulkActions";

const ICONS: Record<BulkAction, IconName> = { stop: "stop", restart: "restart", delete: "trash" };
const MAX_COMPARED = 100;

export function openComparison(runs: readonly RunRow[]): void {
  const chosen = runs.slice(0, MAX_COMPARED).map((run) => `run=${encodeURIComponent(run.id)}`);
  navigate(`/compare?${chosen.join("&")}`);
}

type Props = { runs: readonly RunRow[]; clear: () => void; done: () => void };

/** The toolbar for the selected runs. */
export function ActionBar({ runs, clear, done }: Props): ReactNode {
  const [confirming, setConfirming] = useState<BulkAction | null>(null);
  const [tagging, setTagging] = useState(false);
  const [busy, setBusy] = useState(false);
  const { data: session } = useSession();
  const isAllowed = runs.every((run) => canEdit(session, run.project));
  const applicable = (action: BulkAction): RunRow[] => runs.filter(BULK_ACTIONS[action].appliesTo);
  const work = async (action: Promise<void>): Promise<void> => {
    setBusy(true);
    await action;
    setBusy(false);
    setConfirming(null);
    setTagging(false);
    done();
  };
  return (
    <div className="runs-actions" role="toolbar" aria-label="Actions on the selected runs">
      <b>{plural(runs.length, "run")}</b>
      <button
        type="button"
        className="button small"
        onClick={() => openComparison(runs)}
        disabled={runs.length < 2 || runs.length > MAX_COMPARED}
      >
        <Icon name="compare" size={13} /> Compare
      </button>
      {isAllowed &&
        (Object.keys(BULK_ACTIONS) as BulkAction[]).map((action) => (
          <button
            key={action}
            type="button"
            className={action === "delete" ? "button small danger" : "button small"}
            aria-label={BULK_ACTIONS[action].verb}
            title={BULK_ACTIONS[action].verb}
            disabled={busy || applicable(action).length === 0}
            onClick={() => setConfirming(action)}
          >
            <Icon name={ICONS[action]} size={13} /> <span className="wide-only">{BULK_ACTIONS[action].verb}</span>
          </button>
        ))}
      {isAllowed && (
        <button
          type="button"
          className="button small"
          aria-label="Tag"
          title="Tag"
          disabled={busy}
          onClick={() => setTagging(true)}
        >
          <Icon name="tag" size={13} /> <span className="wide-only">Tag</span>
        </button>
      )}
      <button
        type="button"
        className="button plain icon small"
        aria-label="Clear selection"
        title="Clear selection (Escape)"
        onClick={clear}
      >
        <Icon name="close" size={14} />
      </button>
      {confirming && (
        <Confirm
          title={`${BULK_ACTIONS[confirming].verb} ${plural(applicable(confirming).length, "run")}?`}
          verb={BULK_ACTIONS[confirming].verb}
          danger={confirming === "delete"}
          busy={busy}
          onYes={() => void work(performBulk(confirming, applicable(confirming)))}
          onNo={() => setConfirming(null)}
        >
          <AffectedRuns runs={applicable(confirming)} of={runs.length} action={confirming} />
        </Confirm>
      )}
      {tagging && (
        <TagDialog
          runs={runs}
          busy={busy}
          close={() => setTagging(false)}
          onTag={(name) => void work(tagRuns(runs, name))}
        />
      )}
    </div>
  );
}

const CONSEQUENCES: Record<BulkAction, string> = {
  stop: "All replicas receive SIGTERM, and SIGKILL after the grace period.",
  restart: "Each run starts again as a new run with empty outputs.",
  delete: "Deletes the runs with their metrics, logs and outputs. This cannot be undone.",
};

function AffectedRuns({ runs, of, action }: { runs: RunRow[]; of: number; action: BulkAction }): ReactNode {
  const rest = of - runs.length;
  return (
    <>
      <p>{CONSEQUENCES[action]}</p>
      <ul className="runs-which">
        {runs.slice(0, 8).map((run) => (
          <li key={run.id} className="cut">
            {runTitle(run)} <span className="faint mono">{run.id}</span>
          </li>
        ))}
        {runs.length > 8 && <li className="faint">and {plural(runs.length - 8, "other")}</li>}
      </ul>
      {rest > 0 && (
        <p className="soft">
          {plural(rest, "selected run")} skipped:{" "}
          {action === "stop" ? "already finished." : "not finished. Stop them first."}
        </p>
      )}
    </>
  );
}

type TagDialogProps = { runs: readonly RunRow[]; busy: boolean; close: () => void; onTag: (name: string) => void };

function TagDialog({ runs, busy, close, onTag }: TagDialogProps): ReactNode {
  const [name, setName] = useState("");
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (name.trim()) onTag(name.trim());
  };
  return (
    <Dialog title={`Tag ${plural(runs.length, "run")}`} onClose={close}>
      <form className="row" onSubmit={submit}>
        <input
          className="field grow"
          aria-label="Tag"
          placeholder="baseline"
          maxLength={100}
          value={name}
          onChange={(event) => setName(event.target.value)}
        />
        <button type="submit" className="button main" disabled={busy || !name.trim()}>
          Add
        </button>
      </form>
    </Dialog>
  );
}
