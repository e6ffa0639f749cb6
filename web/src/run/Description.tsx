/** The description of a run in Markdown, edited in place. */

import "./card.css";
import "./Description.css";
import { type ReactNode, useState } from "react";
import { apiPath, patch } from "../api";
import { Markdown } from "../markdown";
import { ErrorMessage } from "../ui";
import { resolvers } from "./outputs";
import type { RunContext } from "./runContext";

export function Description({ context }: { context: RunContext }): ReactNode {
  const { run, mayEdit, readOnlyReason, reload } = context;
  const [draft, setDraft] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isPreview, setPreview] = useState(false);
  const save = async () => {
    try {
      await patch(apiPath`/runs/${run.id}`, { description: draft ?? "" });
      setDraft(null);
      setPreview(false);
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
          <Markdown text={run.description} {...resolvers(run.id, null)} />
        ) : (
          <p className="card-empty">No description. Markdown is supported.</p>
        )
      ) : (
        <div className="description-edit">
          <div className="segments" role="group" aria-label="Editor">
            <button type="button" aria-pressed={!isPreview} onClick={() => setPreview(false)}>
              Write
            </button>
            <button type="button" aria-pressed={isPreview} onClick={() => setPreview(true)}>
              Preview
            </button>
          </div>
          {isPreview && (
            <div className="description-preview">
              {draft.trim() ? (
                <Markdown text={draft} {...resolvers(run.id, null)} />
              ) : (
                <p className="faint">Nothing to preview.</p>
              )}
            </div>
          )}
          <textarea
            hidden={isPreview}
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
            <button
              type="button"
              className="button small"
              onClick={() => {
                setDraft(null);
                setPreview(false);
              }}
            >
              Cancel
            </button>
            <span className="faint">Ctrl+Enter to save. Images of the run: ![loss](outputs/loss.png)</span>
          </div>
        </div>
      )}
    </section>
  );
}
