import { type FormEvent, type ReactNode, useState } from "react";
import { isDone, type RunRow } from "../api";
import { many, title } from "../format";
import { navigate } from "../router";
import { canEdit, useSession } from "../session";
import { Confirm, Dialog, Icon, type IconName } from "../ui";
import { act, DEEDS, type Deed, tag } from "./bulkActions";

const ICONS: Record<Deed, IconName> = { stop: "stop", restart: "restart", delete: "trash" };
const MOST_COMPARED = 100;

export function compare(runs: readonly RunRow[]): void {
  const chosen = runs.slice(0, MOST_COMPARED).map((run) => `run=${encodeURIComponent(run.id)}`);
  navigate(`/compare?${chosen.join("&")}`);
}

type Props = { runs: readonly RunRow[]; clear: () => void; done: () => void };

/** What can be done with the runs that are selected. */
export function ActionBar({ runs, clear, done }: Props): ReactNode {
  const [asked, setAsked] = useState<Deed | null>(null);
  const [tagging, setTagging] = useState(false);
  const [busy, setBusy] = useState(false);
  const { data: session } = useSession();
  const isAllowed = runs.every((run) => canEdit(session, run.project));
  const fitting = (deed: Deed): RunRow[] => runs.filter((run) => DEEDS[deed].may(run, isDone(run.status)));
  const work = async (doing: Promise<void>): Promise<void> => {
    setBusy(true);
    await doing;
    setBusy(false);
    setAsked(null);
    setTagging(false);
    done();
  };
  return (
    <div className="runs-actions" role="toolbar" aria-label="With the selected runs">
      <b>{many(runs.length, "run")}</b>
      <button
        type="button"
        className="button small"
        onClick={() => compare(runs)}
        disabled={runs.length < 2 || runs.length > MOST_COMPARED}
      >
        <Icon name="compare" size={13} /> Compare
      </button>
      {isAllowed &&
        (Object.keys(DEEDS) as Deed[]).map((deed) => (
          <button
            key={deed}
            type="button"
            className={deed === "delete" ? "button small danger" : "button small"}
            aria-label={DEEDS[deed].verb}
            title={DEEDS[deed].verb}
            disabled={busy || fitting(deed).length === 0}
            onClick={() => setAsked(deed)}
          >
            <Icon name={ICONS[deed]} size={13} /> <span className="wide-only">{DEEDS[deed].verb}</span>
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
        aria-label="Select nothing"
        title="Select nothing (Escape)"
        onClick={clear}
      >
        <Icon name="close" size={14} />
      </button>
      {asked && (
        <Confirm
          title={`${DEEDS[asked].verb} ${many(fitting(asked).length, "run")}?`}
          verb={DEEDS[asked].verb}
          danger={asked === "delete"}
          busy={busy}
          onYes={() => void work(act(asked, fitting(asked)))}
          onNo={() => setAsked(null)}
        >
          <Which runs={fitting(asked)} of={runs.length} deed={asked} />
        </Confirm>
      )}
      {tagging && (
        <Tagging runs={runs} busy={busy} close={() => setTagging(false)} give={(word) => void work(tag(runs, word))} />
      )}
    </div>
  );
}

const TOLD: Record<Deed, string> = {
  stop: "Every replica is asked to end, and ended after its grace.",
  restart: "Each begins anew, as a new run.",
  delete: "Their metrics, logs and files go with them. This cannot be undone.",
};

function Which({ runs, of, deed }: { runs: RunRow[]; of: number; deed: Deed }): ReactNode {
  const rest = of - runs.length;
  return (
    <>
      <p>{TOLD[deed]}</p>
      <ul className="runs-which">
        {runs.slice(0, 8).map((run) => (
          <li key={run.id} className="cut">
            {title(run)} <span className="faint mono">{run.id}</span>
          </li>
        ))}
        {runs.length > 8 && <li className="faint">and {many(runs.length - 8, "other")}</li>}
      </ul>
      {rest > 0 && (
        <p className="soft">
          {many(rest, "selected run")} {rest === 1 ? "is" : "are"} left alone:{" "}
          {deed === "stop" ? "already done." : "not done yet. Stop first."}
        </p>
      )}
    </>
  );
}

type TaggingProps = { runs: readonly RunRow[]; busy: boolean; close: () => void; give: (word: string) => void };

function Tagging({ runs, busy, close, give }: TaggingProps): ReactNode {
  const [word, setWord] = useState("");
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (word.trim()) give(word.trim());
  };
  return (
    <Dialog title={`Tag ${many(runs.length, "run")}`} onClose={close}>
      <form className="row" onSubmit={submit}>
        <input
          className="field grow"
          aria-label="Tag"
          placeholder="baseline"
          maxLength={100}
          value={word}
          onChange={(event) => setWord(event.target.value)}
        />
        <button type="submit" className="button main" disabled={busy || !word.trim()}>
          Add
        </button>
      </form>
    </Dialog>
  );
}
