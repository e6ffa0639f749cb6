/** The head of a run's page: what it is, how it is, whose and since when, its tags, and what can be done with it. */

import "./RunHeader.css";
import { type KeyboardEvent, type ReactNode, useState } from "react";
import { apiPath, patch, type RunRow } from "../api";
import { ago, durationText, elapsedSeconds, runTitle, timestamp } from "../format";
import { Link } from "../router";
import { CopyButton, StatusMark } from "../ui";
import { Actions, notifyError } from "./Actions";
import { type Known, useNow } from "./runContext";

export function Head({ known }: { known: Known }): ReactNode {
  const { run } = known;
  return (
    <header className="run-head">
      <div className="run-head-line">
        <div className="grow">
          <div className="run-path">
            <Link to={`/runs?project=${encodeURIComponent(run.project)}`}>{run.project}</Link>
            <span className="faint">/</span>
            <span className="mono faint">{run.id}</span>
            <CopyButton text={run.id} label="Copy the id" />
          </div>
          <h1 className="run-title">
            <Name known={known} />
          </h1>
        </div>
        <Actions known={known} />
      </div>
      <div className="run-state">
        <StatusMark status={run.status} />
        <span className="run-reason">{run.waits_for && !run.started_at ? run.waits_for : run.reason}</span>
      </div>
      <div className="run-about">
        <Facts known={known} />
        <Tags known={known} />
      </div>
    </header>
  );
}

function Name({ known: { run, mayEdit, reload } }: { known: Known }): ReactNode {
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
  const keep = async () => {
    setDraft(null);
    if (draft.trim() !== (run.name ?? "")) await change(run.id, { name: draft.trim() }, reload);
  };
  return (
    <input
      className="field"
      aria-label="Name"
      // biome-ignore lint/a11y/noAutofocus: one has just asked to type here
      autoFocus
      value={draft}
      maxLength={500}
      onChange={(event) => setDraft(event.target.value)}
      onBlur={keep}
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
  } catch (fault) {
    notifyError(fault);
  }
  reload();
}

function Facts({ known: { run, isLive } }: { known: Known }): ReactNode {
  const now = useNow(isLive);
  const length = elapsedSeconds(run.started_at, run.finished_at, now);
  const parts: [string, ReactNode][] = [
    ["by", run.user],
    [
      "created",
      <time key="c" title={timestamp(run.created_at)} dateTime={run.created_at}>
        {ago(run.created_at, now)}
      </time>,
    ],
  ];
  if (length !== null)
    parts.push([
      run.finished_at ? "took" : "for",
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
    parts.push([
      "group",
      <Link key="g" to={`/runs?q=${encodeURIComponent(`group:${run.group}`)}`}>
        {run.group}
      </Link>,
    ]);
  }
  if (run.original) {
    const to = `/runs/${encodeURIComponent(run.original)}`;
    parts.push([
      run.cloning === "copy" ? "copy of" : "restart of",
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

function Tags({ known }: { known: Known }): ReactNode {
  const { run, mayEdit, reload } = known;
  const [draft, setDraft] = useState<string | null>(null);
  const keep = (tags: string[]) => void change(run.id, { tags }, reload);
  const add = () => {
    const tag = draft?.trim();
    setDraft(null);
    if (tag && !run.tags.includes(tag)) keep([...run.tags, tag]);
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
            {tag}
          </Link>
          {mayEdit && (
            <button
              type="button"
              aria-label={`Remove the tag ${tag}`}
              onClick={() => keep(run.tags.filter((one) => one !== tag))}
            >
              ×
            </button>
          )}
        </span>
      ))}
      {draft !== null ? (
        <input
          className="tag-input"
          aria-label="A new tag"
          // biome-ignore lint/a11y/noAutofocus: one has just asked to type here
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
