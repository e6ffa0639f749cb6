/** Edits a report: the text beside its preview. */

import { type ReactNode, useEffect, useRef, useState } from "react";
import { type ApiError, apiPath, asApiError, requestTagged, type Tagged } from "../api";
import { ErrorMessage } from "../ui";
import { useDebounced } from "../ui/hooks";
import { ReportBody } from "./ReportBody";
import type { Report } from "./ReportsPage";

const PREVIEW_MS = 500;

const SNIPPETS: Record<string, string> = {
  Chart: "```chart\nmetric: loss\nquery: status:succeeded\nlimit: 10\n```\n",
  "Chart by group": "```chart\nmetric: loss\nquery: status:succeeded\nby: lr\n```\n",
  Table: "```table\nquery: status:succeeded\nsort: metric.loss\nlimit: 10\n```\n",
};

type Props = { found: Tagged<Report>; onSaved: (saved: Tagged<Report>) => void; onCancel: () => void };

export default function ReportEditor({ found, onSaved, onCancel }: Props): ReactNode {
  const [base, setBase] = useState(found);
  const [title, setTitle] = useState(found.data.title);
  const [text, setText] = useState(found.data.text);
  const [error, setError] = useState<ApiError | null>(null);
  const [theirs, setTheirs] = useState<Tagged<Report> | null>(null);
  const [isSaving, setSaving] = useState(false);
  const preview = useDebounced(text, PREVIEW_MS);
  const area = useRef<HTMLTextAreaElement>(null);
  const path = apiPath`/reports/${base.data.id}`;
  const isChanged = title !== base.data.title || text !== base.data.text;
  useLeaveWarning(isChanged);

  const save = async (tag: string) => {
    setSaving(true);
    setError(null);
    try {
      onSaved(await requestTagged<Report>("PUT", path, { title, text }, { headers: { "If-Match": tag } }));
    } catch (failure) {
      const known = asApiError(failure);
      if (known.status === 412) setTheirs(await requestTagged<Report>("GET", path).catch(() => null));
      setError(known);
    } finally {
      setSaving(false);
    }
  };
  const takeTheirs = (other: Tagged<Report>) => {
    setBase(other);
    setTitle(other.data.title);
    setText(other.data.text);
    setTheirs(null);
    setError(null);
  };
  const insert = (snippet: string) => {
    const at = area.current?.selectionStart ?? text.length;
    const before = text.slice(0, at);
    const gap = before && !before.endsWith("\n\n") ? (before.endsWith("\n") ? "\n" : "\n\n") : "";
    setText(`${before}${gap}${snippet}${text.slice(at)}`);
    area.current?.focus();
  };
  return (
    <div className="page report-editor">
      <div className="row report-head">
        <input
          className="field grow report-title"
          aria-label="Title"
          maxLength={200}
          value={title}
          onChange={(event) => setTitle(event.target.value)}
        />
        <button type="button" className="button" onClick={onCancel}>
          Cancel
        </button>
        <button
          type="button"
          className="button main"
          disabled={isSaving || !title.trim() || !isChanged}
          onClick={() => save(base.tag)}
        >
          Save
        </button>
      </div>
      {theirs ? (
        <div className="report-faults" role="alert">
          <b>{theirs.data.updated_by} has changed this report meanwhile.</b>
          <div className="row">
            <button type="button" className="button small" onClick={() => save(theirs.tag)}>
              Replace it with mine
            </button>
            <button type="button" className="button small" onClick={() => takeTheirs(theirs)}>
              Discard mine
            </button>
          </div>
        </div>
      ) : (
        error && <ErrorMessage error={error} />
      )}
      <div className="report-columns">
        <div className="report-source">
          <div className="row report-snippets">
            <span className="soft">Insert</span>
            {Object.entries(SNIPPETS).map(([name, snippet]) => (
              <button key={name} type="button" className="button small" onClick={() => insert(snippet)}>
                {name}
              </button>
            ))}
          </div>
          <textarea
            ref={area}
            className="field mono"
            aria-label="Text in Markdown"
            spellCheck="true"
            maxLength={200_000}
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        </div>
        <section className="report-preview" aria-label="Preview">
          <ReportBody text={preview} project={base.data.project} />
        </section>
      </div>
    </div>
  );
}

/** Asks before the browser leaves the page with unsaved changes. */
function useLeaveWarning(isChanged: boolean): void {
  useEffect(() => {
    if (!isChanged) return;
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener("beforeunload", warn);
    return () => window.removeEventListener("beforeunload", warn);
  }, [isChanged]);
}
