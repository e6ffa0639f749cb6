import { type FormEvent, type ReactNode, useState } from "react";
import type { RunRow } from "../api";
import { plural, runTitle, visible } from "../format";
import { navigate } from "../router";
import { canEdit, useSession } from "../session";
import { useTensorBoard } from "../tensorboard/useTensorBoard";
import { Confirm, Dialog, Icon, type IconName } from "../ui";
import { BULK_ACTIONS, type BulkAction, performBulk, type TagChange, tagRuns } from "./bulkActions";

const ICONS: Record<BulkAction, IconName> = {
  stop: "stop",
  restart: "restart",
  archive: "archive",
  unarchive: "archive",
  delete: "trash",
};
/** Actions that can be undone need no confirmation. */
const UNDOABLE: readonly BulkAction[] = ["archive", "unarchive"];
export const MAX_COMPARED = 100;

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
  const board = useTensorBoard();
  const { data: session } = useSession();
  const isAllowed = runs.every((run) => canEdit(session, run.project));
  const applicable = (action: BulkAction): RunRow[] => runs.filter(BULK_ACTIONS[action].appliesTo);
  const areArchived = runs.every((run) => run.archived);
  const isShown = (action: BulkAction): boolean => action !== (areArchived ? "archive" : "unarchive");
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
      <button
        type="button"
        className="button small"
        aria-label="TensorBoard"
        title="Open in TensorBoard"
        disabled={board.isBusy || runs.length > MAX_COMPARED}
        onClick={() => void board.open(runs.map((run) => run.id))}
      >
        <Icon name="chart" size={13} /> <span className="wide-only">TensorBoard</span>
      </button>
      {board.dialog}
      {isAllowed &&
        (Object.keys(BULK_ACTIONS) as BulkAction[]).filter(isShown).map((action) => (
          <button
            key={action}
            type="button"
            className={action === "delete" ? "button small danger" : "button small"}
            aria-label={BULK_ACTIONS[action].verb}
            title={BULK_ACTIONS[action].verb}
            disabled={busy || applicable(action).length === 0}
            onClick={() =>
              UNDOABLE.includes(action) ? void work(performBulk(action, applicable(action))) : setConfirming(action)
            }
          >
            <Icon name={ICONS[action]} size={13} /> <span className="wide-only">{BULK_ACTIONS[action].verb}</span>
          </button>
        ))}
      {isAllowed && (
        <button
          type="button"
          className="button small"
          aria-label="Tags"
          title="Edit tags"
          disabled={busy}
          onClick={() => setTagging(true)}
        >
          <Icon name="tag" size={13} /> <span className="wide-only">Tags</span>
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
          onTag={(change) => void work(tagRuns(runs, change))}
        />
      )}
    </div>
  );
}

const CONSEQUENCES: Partial<Record<BulkAction, string>> = {
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

type TagDialogProps = {
  runs: readonly RunRow[];
  busy: boolean;
  close: () => void;
  onTag: (change: TagChange) => void;
};

/** Adds tags to the selected runs, and removes tags that they have. */
function TagDialog({ runs, busy, close, onTag }: TagDialogProps): ReactNode {
  const [text, setText] = useState("");
  const [removed, setRemoved] = useState<readonly string[]>([]);
  const counts = new Map<string, number>();
  for (const tag of runs.flatMap((run) => run.tags)) counts.set(tag, (counts.get(tag) ?? 0) + 1);
  const add = text
    .split(",")
    .map((tag) => tag.trim())
    .filter(Boolean);
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (add.length || removed.length) onTag({ add, remove: removed.filter((tag) => !add.includes(tag)) });
  };
  const toggle = (tag: string): void =>
    setRemoved(removed.includes(tag) ? removed.filter((one) => one !== tag) : [...removed, tag]);
  return (
    <Dialog title={`Tags of ${plural(runs.length, "run")}`} onClose={close}>
      <form className="runs-tagging" onSubmit={submit}>
        <input
          className="field"
          aria-label="Add tags"
          placeholder="Add tags, separated by commas"
          maxLength={500}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        {counts.size > 0 && (
          <fieldset>
            <legend className="menu-title">Remove</legend>
            {[...counts].slice(0, 50).map(([tag, count]) => (
              <label key={tag} className="menu-item">
                <input type="checkbox" checked={removed.includes(tag)} onChange={() => toggle(tag)} />
                <span className="grow cut">{visible(tag)}</span>
                <span className="faint number">{plural(count, "run")}</span>
              </label>
            ))}
          </fieldset>
        )}
        <button type="submit" className="button main" disabled={busy || !(add.length || removed.length)}>
          Apply
        </button>
      </form>
    </Dialog>
  );
}
