import { type FormEvent, type ReactNode, useId, useState } from "react";
import { asApiError, del, put, type VersionRow } from "../api";
import { canEdit, useSession } from "../session";
import { Dialog, ErrorMessage, Icon, notify } from "../ui";
import { notifyError } from "../ui/notifyError";

const COMMON = ["champion", "production", "staging", "candidate"];

type Props = { version: VersionRow; path: string; aliases: Record<string, number>; reload: () => void };

/** The aliases of a version. Editors add one, which moves it from another version, or remove it. */
export function AliasEditor({ version, path, aliases, reload }: Props): ReactNode {
  const { data: session } = useSession();
  const [isOpen, setOpen] = useState(false);
  const isAllowed = canEdit(session, projectOf(version));
  const remove = async (alias: string): Promise<void> => {
    try {
      await del(`${path}/aliases/${encodeURIComponent(alias)}`);
      notify(`Alias ${alias} removed.`);
    } catch (error) {
      notifyError(error);
    }
    reload();
  };
  return (
    <>
      {version.aliases.map((alias) => (
        <span key={alias} className="tag is-accent">
          {alias}
          {isAllowed && (
            <button type="button" aria-label={`Remove alias ${alias}`} onClick={() => void remove(alias)}>
              ×
            </button>
          )}
        </span>
      ))}
      {isAllowed && (
        <button type="button" className="button plain small" onClick={() => setOpen(true)}>
          <Icon name="plus" size={12} /> Alias
        </button>
      )}
      {isOpen && (
        <AliasDialog version={version} path={path} aliases={aliases} reload={reload} close={() => setOpen(false)} />
      )}
    </>
  );
}

/** The project of the run that made a version; empty for a version of no run, which only editors of all change. */
function projectOf({ lineage }: VersionRow): string {
  const run = lineage.run;
  const project = run !== null && typeof run === "object" && !Array.isArray(run) ? run.project : null;
  return typeof project === "string" ? project : "";
}

function AliasDialog({ version, path, aliases, reload, close }: Props & { close: () => void }): ReactNode {
  const [alias, setAlias] = useState("");
  const [reason, setReason] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const id = useId();
  const wanted = alias.trim();
  const before = aliases[wanted];
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    if (!wanted) return;
    setBusy(true);
    try {
      await put(`${path}/aliases/${encodeURIComponent(wanted)}`, { version: version.number, reason: reason.trim() });
      notify(`Alias ${wanted} now points to version ${version.number}.`);
      close();
      reload();
    } catch (failure) {
      setError(asApiError(failure));
    }
    setBusy(false);
  };
  return (
    <Dialog title={`Add an alias to version ${version.number}`} onClose={close}>
      <form className="alias-form" onSubmit={(event) => void submit(event)}>
        <label className="labelled">
          Alias
          <input
            className="field"
            list={id}
            placeholder="champion"
            maxLength={100}
            value={alias}
            onChange={(event) => setAlias(event.target.value)}
          />
        </label>
        <datalist id={id}>
          {[...new Set([...Object.keys(aliases), ...COMMON])].map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
        <label className="labelled">
          Reason (optional)
          <input className="field" maxLength={500} value={reason} onChange={(event) => setReason(event.target.value)} />
        </label>
        {before !== undefined && before !== version.number && (
          <p className="soft">
            {wanted} moves from version {before} to version {version.number}.
          </p>
        )}
        {error !== null && <ErrorMessage error={error} />}
        <div className="row">
          <span className="grow" />
          <button type="submit" className="button main" disabled={isBusy || !wanted}>
            {before !== undefined && before !== version.number ? "Move alias" : "Add alias"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
