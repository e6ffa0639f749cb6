/** The description of a run: Markdown that is written where it is read. */

import "./card.css";
import "./Description.css";
import { type ReactNode, useState } from "react";
import { apiPath, patch } from "../api";
import { Markdown } from "../markdown";
import { ErrorMessage } from "../ui";
import type { Known } from "./runContext";

export function Notes({ known }: { known: Known }): ReactNode {
  const { run, mayEdit, whyNot, reload } = known;
  const [draft, setDraft] = useState<string | null>(null);
  const [fault, setFault] = useState<unknown>(null);
  const keep = async () => {
    try {
      await patch(apiPath`/runs/${run.id}`, { description: draft ?? "" });
      setDraft(null);
      setFault(null);
      reload();
    } catch (refused) {
      setFault(refused);
    }
  };
  return (
    <section className="card-part notes" aria-label="Notes">
      <div className="card-head">
        <h2>Notes</h2>
        <span className="grow" />
        {draft === null && (
          <button
            type="button"
            className="button plain small"
            disabled={!mayEdit}
            title={whyNot || undefined}
            onClick={() => setDraft(run.description ?? "")}
          >
            {run.description ? "Edit" : "Write"}
          </button>
        )}
      </div>
      {draft === null ? (
        run.description ? (
          <Markdown text={run.description} />
        ) : (
          <p className="card-empty">Nothing is noted. Markdown is understood.</p>
        )
      ) : (
        <div className="notes-edit">
          <textarea
            className="field"
            aria-label="Notes in Markdown"
            // biome-ignore lint/a11y/noAutofocus: one has just asked to type here
            autoFocus
            rows={Math.min(24, Math.max(6, draft.split("\n").length + 2))}
            value={draft}
            maxLength={100_000}
            onChange={(event) => setDraft(event.target.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void keep();
              if (event.key === "Escape" && draft === (run.description ?? "")) setDraft(null);
            }}
          />
          {fault !== null && <ErrorMessage error={fault} />}
          <div className="row">
            <button type="button" className="button main small" onClick={() => void keep()}>
              Keep
            </button>
            <button type="button" className="button small" onClick={() => setDraft(null)}>
              Cancel
            </button>
            <span className="faint">Ctrl+Enter keeps it</span>
          </div>
        </div>
      )}
    </section>
  );
}
