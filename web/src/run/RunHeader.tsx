/** The header of a run's page: name, status, owner, times, tags and actions. */

import "./RunHeader.css";
import { type KeyboardEvent, type ReactNode, useState } from "react";
import { apiPath, patch, type RunRow } from "../api";
import { ago, durationText, elapsedSeconds, runTitle, timestamp, visible } from "../format";
import { Link } from "../router";
import { isDone } from "../types";
import { CopyButton, StatusMark } from "../ui";
import { useNow } from "../ui/hooks";
import { notifyError } from "../ui/notifyError";
import { Actions } from "./Actions";
import type { RunContext } from "./runContext";

export function RunHeader({ context }: { context: RunContext }): ReactNode {
  const { run } = context;
  return (
    <header className="run-head">
      <div className="run-head-line">
        <div className="grow">
          <div className="run-path">
            <Link to={`/runs?project=${encodeURIComponent(run.project)}`}>{visible(run.project)}</Link>
            <span className="faint">/</span>
            <span className="mono faint">{run.id}</span>
            <CopyButton text={run.id} label="Copy id" />
          </div>
          <h1 className="run-title">
            <Name context={context} />
          </h1>
        </div>
        <Actions context={context} />
      </div>
      <div className="run-state">
        <StatusMark status={run.status} />
        <span className="run-reason">{(!isDone(run.status) && run.waits_for) || run.reason}</span>
      </div>
      {run.kind === "notebook" && !isDone(run.status) && <NotebookAccess id={run.id} />}
      <div className="run-about">
        <Facts context={context} />
        <Tags context={context} />
      </div>
    </header>
  );
}

/** How to reach a notebook. The server does not know its token: the command line reads it where the notebook was started. */
function NotebookAccess({ id }: { id: string }): ReactNode {
  const command = `phalanx notebook --url ${id}`;
  return (
    <p className="run-access">
      <span className="soft">To open the notebook, run where you started it:</span> <code>{command}</code>
      <CopyButton text={command} label="Copy command" />
    </p>
  );
}

function Name({ context: { run, mayEdit, reload } }: { context: RunContext }): ReactNode {
  const [draft, setDraft] = useState<string | null>(null);
  if (draft === null) {
    return (
      <>
        {runTitle(run)}
        {mayEdit && (
          <button type="button" className="button plain small run-rename" onClick={() => setDraft(run.name ?? "")}>
            Rename
          </button>
        )}
      </>
    );
  }
  const save = async () => {
    setDraft(null);
    if (draft.trim() !== (run.name ?? "")) await change(run.id, { name: draft.trim() }, reload);
  };
  return (
    <input
      className="field"
      aria-label="Name"
      // biome-ignore lint/a11y/noAutofocus: the user just asked to edit
      autoFocus
      value={draft}
      maxLength={500}
      onChange={(event) => setDraft(event.target.value)}
      onBlur={save}
      onKeyDown={(event) => {
        if (event.key === "Enter") event.currentTarget.blur();
        if (event.key === "Escape") setDraft(null);
      }}
    />
  );
}

async function change(id: string, what: Partial<RunRow>, reload: () => void): Promise<void> {
  try {
    await patch(apiPath`/runs/${id}`, what);
  } catch (error) {
    notifyError(error);
  }
  reload();
}

function Facts({ context: { run, isLive } }: { context: RunContext }): ReactNode {
  const now = useNow(isLive ? 1000 : null);
  const length = elapsedSeconds(run.started_at, run.finished_at, now);
  const parts: [string, ReactNode][] = [
    ["by", run.user && visible(run.user)],
    [
      "created",
      <time key="c" title={timestamp(run.created_at)} dateTime={run.created_at}>
        {ago(run.created_at, now)}
      </time>,
    ],
  ];
  if (length !== null)
    parts.push([
      run.finished_at ? "took" : "running for",
      <span key="t" className="number">
        {durationText(length)}
      </span>,
    ]);
  if (run.framework) parts.push(["", run.framework]);
  parts.push(["on", run.backend]);
  if (run.attempt > 1)
    parts.push([
      "attempt",
      <span key="a" className="number">
        {run.attempt}
      </span>,
    ]);
  if (run.group) {
    const group = encodeURIComponent(run.group);
    const isPart = run.is_trial || run.is_op;
    parts.push([
      run.is_trial ? "trial of" : run.is_op ? "op of" : "group",
      <Link key="g" to={isPart ? `/runs/${group}` : `/runs?q=group:${group}`}>
        {visible(run.group)}
      </Link>,
    ]);
  }
  if (run.original) {
    const to = `/runs/${encodeURIComponent(run.original)}`;
    parts.push([
      run.cloning === "copy" ? "restarted with outputs of" : "restarted from",
      <Link key="o" to={to} className="mono">
        {run.original}
      </Link>,
    ]);
  }
  if (run.commit)
    parts.push([
      "commit",
      <code key="h" title={run.commit}>
        {run.commit.slice(0, 10)}
      </code>,
    ]);
  return (
    <dl className="run-facts">
      {parts.map(([label, content]) => (
        <div key={label || "framework"}>
          <dt className={label ? undefined : "hidden-text"}>{label || "framework"}</dt>
          <dd>{content}</dd>
        </div>
      ))}
    </dl>
  );
}

// Tags ---------------------------------------------------------------------------------------------------------------

function Tags({ context }: { context: RunContext }): ReactNode {
  const { run, mayEdit, reload } = context;
  const [draft, setDraft] = useState<string | null>(null);
  const save = (tags: string[]) => void change(run.id, { tags }, reload);
  const add = () => {
    const tag = draft?.trim();
    setDraft(null);
    if (tag && !run.tags.includes(tag)) save([...run.tags, tag]);
  };
  const press = (event: KeyboardEvent<HTMLInputElement>) => {
    if (event.key === "Enter") add();
    if (event.key === "Escape") setDraft(null);
  };
  if (!run.tags.length && !mayEdit) return null;
  return (
    <div className="run-tags">
      {run.tags.map((tag) => (
        <span key={tag} className="tag">
          <Link to={`/runs?q=${encodeURIComponent(`tags:${tag}`)}`} className="cut">
            {visible(tag)}
          </Link>
          {mayEdit && (
            <button
              type="button"
              aria-label={`Remove tag ${tag}`}
              onClick={() => save(run.tags.filter((one) => one !== tag))}
            >
              ×
            </button>
          )}
        </span>
      ))}
      {draft !== null ? (
        <input
          className="tag-input"
          aria-label="New tag"
          // biome-ignore lint/a11y/noAutofocus: the user just asked to edit
          autoFocus
          value={draft}
          maxLength={100}
          onChange={(event) => setDraft(event.target.value)}
          onBlur={add}
          onKeyDown={press}
        />
      ) : (
        mayEdit && (
          <button type="button" className="tag tag-add" onClick={() => setDraft("")}>
            + tag
          </button>
        )
      )}
    </div>
  );
}
