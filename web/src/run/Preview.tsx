/** A preview of an output file: text, Markdown, notebook, JSON, table, image, audio, or HTML in a sandbox. */

import "./Preview.css";
import { lazy, type ReactNode, Suspense, useState } from "react";
import { API, apiPath, type Preview, useResource } from "../api";
import { bytes, plural, value } from "../format";
import { setParams } from "../router";
import { CopyButton, ErrorMessage, Icon, Spinner } from "../ui";
import { Picture } from "../ui/Picture";
import { CodeView } from "./CodeView";
import { nameOf, pathPart } from "./outputs";

const MarkdownFile = lazy(() => import("./MarkdownFile"));
const Notebook = lazy(() => import("./Notebook"));
const MAX_MARKDOWN = 1 << 20;
const MAX_NOTEBOOK = 24 << 20;

export function FilePreview({ id, path }: { id: string; path: string }): ReactNode {
  const response = useResource<Preview>(`${apiPath`/runs/${id}/preview`}/${pathPart(path)}`);
  const file = `${API}${apiPath`/runs/${id}/outputs`}/${pathPart(path)}`;
  const found = response.data;
  return (
    <article className="preview" aria-label={nameOf(path)}>
      <header className="preview-head">
        <button
          type="button"
          className="button plain icon small preview-back"
          aria-label="Back to files"
          onClick={() => setParams({ path: null })}
        >
          <Icon name="left" />
        </button>
        <div className="grow">
          <h2 className="cut" title={path}>
            {nameOf(path)}
          </h2>
          <p className="faint cut">
            {path}
            {found && ` · ${found.title ?? found.kind} · ${bytes(found.size)}`}
          </p>
        </div>
        <CopyButton text={path} label="Copy path" />
        <a className="button small" href={file} download={nameOf(path)}>
          <Icon name="download" size={14} /> Download
        </a>
      </header>
      {response.error && !found ? <ErrorMessage error={response.error} retry={response.reload} /> : null}
      {!found && !response.error && <Spinner />}
      {found && <Content preview={found} name={nameOf(path)} id={id} path={path} />}
    </article>
  );
}

type ContentProps = { preview: Preview; name: string; id: string; path: string };

function Content({ preview, name, id, path }: ContentProps): ReactNode {
  const { kind, view } = preview;
  if (kind === "image" && view) {
    return (
      <div className="preview-image">
        <Picture src={view} alt={name} />
      </div>
    );
  }
  const Document = documentOf(preview, name);
  if (Document) {
    return (
      <Suspense fallback={<Spinner />}>
        <Document id={id} path={path} />
      </Suspense>
    );
  }
  // biome-ignore lint/a11y/useMediaCaption: audio files of a run have no captions
  if (kind === "audio" && view) return <audio controls src={view} className="preview-audio" />;
  if (kind === "html" && view) return <HtmlPreview view={view} name={name} />;
  if (preview.table) return <TablePreview preview={preview} />;
  const language =
    kind === "json" ? "json" : /\.ya?ml$/i.test(name) ? "yaml" : /\.(?:diff|patch)$/i.test(name) ? "diff" : "text";
  return (
    <>
      <CodeView text={preview.lines.join("\n")} language={language} />
      {preview.is_cut && <p className="faint preview-cut">Truncated. Download the file to see all of it.</p>}
    </>
  );
}

/** The renderer of a document that is not too large. */
function documentOf({ kind, size }: Preview, name: string): typeof MarkdownFile | null {
  if ((kind === "text" || kind === "json") && /\.ipynb$/i.test(name) && size <= MAX_NOTEBOOK) return Notebook;
  return kind === "text" && /\.(?:md|markdown)$/i.test(name) && size <= MAX_MARKDOWN ? MarkdownFile : null;
}

/** Its own content security policy and the sandbox keep the file from this page and from the network. */
function HtmlPreview({ view, name }: { view: string; name: string }): ReactNode {
  const [hasScripts, setScripts] = useState(false);
  const url = hasScripts ? `${view}${view.includes("?") ? "&" : "?"}scripts=1` : view;
  return (
    <div className="preview-page">
      <div className="row preview-page-bar">
        <span className="soft grow">
          {hasScripts ? "Scripts run in a sandbox without network access." : "Scripts are disabled."}
        </span>
        <button type="button" className="button small" onClick={() => setScripts(!hasScripts)}>
          {hasScripts ? "Disable scripts" : "Run scripts"}
        </button>
      </div>
      <iframe
        key={url}
        title={name}
        src={url}
        sandbox={hasScripts ? "allow-scripts" : ""}
        referrerPolicy="no-referrer"
      />
    </div>
  );
}

function TablePreview({ preview }: { preview: Preview }): ReactNode {
  const table = preview.table;
  if (!table) return null;
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas need keyboard focus */}
      <div className="preview-table" tabIndex={0}>
        <table className="plain-table">
          <thead>
            <tr>
              {table.columns.map((name, index) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: columns may share a name
                <th key={index}>{name}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {table.rows.map((row, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: rows have no other key
              <tr key={index}>
                {row.map((cell, at) => (
                  // biome-ignore lint/suspicious/noArrayIndexKey: columns may share a name
                  <td key={at} className={typeof cell === "number" ? "right" : undefined}>
                    {value(cell)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {preview.is_cut && (
        <p className="faint preview-cut">
          Showing the first {plural(table.rows.length, "row")}. Download the file to see all.
        </p>
      )}
    </>
  );
}
