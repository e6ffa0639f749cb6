/** The description of a run in Markdown, edited in place. */

import "./card.css";
import "./Description.css";
import { type ReactNode, useState } from "react";
import { apiPath, patch } from "../api";
import { Markdown } from "../markdown";
import { ErrorMessage } from "../ui";
import type { RunContext } from "./runContext";

export function Description({ context }: { context: RunContext }): ReactNode {
  const { run, mayEdit, readOnlyReason, reload } = context;
  const [draft, setDraft] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const save = async () => {
    try {
      await patch(apiPath`/runs/${run.id}`, { description: draft ?? "" });
      setDraft(null);
      setError(null);
      reload();
    } catch (failure) {
      setError(failure);
    }
  };
  return (
    <section className="card-part description" aria-label="Description">
      <div className="card-head">
        <h2>Description</h2>
        <span className="grow" />
        {draft === null && (
          <button
            type="button"
            className="button plain small"
            disabled={!mayEdit}
            title={readOnlyReason || undefined}
            onClick={() => setDraft(run.description ?? "")}
          >
            {run.description ? "Edit" : "Add"}
          </button>
        )}
      </div>
      {draft === null ? (
        run.description ? (
          <Markdown text={run.description} />
        ) : (
          <p className="card-empty">No description. Markdown is supported.</p>
        )
      ) : (
        <div className="description-edit">
          <textarea
            className="field"
            aria-label="Description in Markdown"
            // biome-ignore lint/a11y/noAutofocus: the user just asked to edit
            autoFocus
            rows={Math.min(24, Math.max(6, draft.split("\n").length + 2))}
            value={draft}
            maxLength={100_000}
            onChange={(event) => setDraft(event.target.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void save();
              if (event.key === "Escape" && draft === (run.description ?? "")) setDraft(null);
            }}
          />
          {error !== null && <ErrorMessage error={error} />}
          <div className="row">
            <button type="button" className="button main small" onClick={() => void save()}>
              Save
            </button>
            <button type="button" className="button small" onClick={() => setDraft(null)}>
              Cancel
            </button>
            <span className="faint">Ctrl+Enter to save</span>
          </div>
        </div>
      )}
    </section>
  );
}
