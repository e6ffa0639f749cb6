/** A Jupyter notebook: its cells and stored outputs. Nothing of it is executed. */

import "./Notebook.css";
import { type ReactNode, useMemo } from "react";
import { plural } from "../format";
import { Markdown } from "../markdown";
import { ErrorMessage, Spinner } from "../ui";
import { Picture } from "../ui/Picture";
import { AnsiText } from "./AnsiText";
import { type NotebookCell, type NotebookOutput, readNotebook } from "./notebook";
import { folderOf, resolvers } from "./outputs";
import { SafeHtml } from "./SafeHtml";
import { useFileText } from "./useFileText";

export default function Notebook({ id, path }: { id: string; path: string }): ReactNode {
  const { text, error } = useFileText(id, path);
  const found = useMemo(() => {
    try {
      return text === null ? null : { notebook: readNotebook(text), error: null };
    } catch (failure) {
      return { notebook: null, error: failure };
    }
  }, [text]);
  if (error || found?.error) return <ErrorMessage error={error ?? found?.error} what="Notebook" />;
  if (!found?.notebook) return <Spinner />;
  const { cells, leftOut } = found.notebook;
  return (
    <div className="notebook">
      {cells.map((cell, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: cells of old notebooks have no id
        <Cell key={index} cell={cell} links={resolvers(id, folderOf(path))} />
      ))}
      {cells.length === 0 && <p className="faint">This notebook has no cells.</p>}
      {leftOut > 0 && <p className="faint">{plural(leftOut, "more cell")} not shown. Download the file to see all.</p>}
    </div>
  );
}

function Cell({ cell, links }: { cell: NotebookCell; links: ReturnType<typeof resolvers> }): ReactNode {
  if (cell.kind === "markdown") {
    return (
      <div className="notebook-cell">
        <span className="notebook-count" />
        <Markdown text={cell.source} {...links} />
      </div>
    );
  }
  return (
    <>
      <div className="notebook-cell">
        <span className="notebook-count faint">[{cell.count ?? " "}]</span>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas need keyboard focus */}
        <pre className="notebook-source" tabIndex={0}>
          {cell.source}
        </pre>
      </div>
      {cell.outputs.map((output, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: outputs have no other key
        <div key={index} className="notebook-cell">
          <span className="notebook-count" />
          <Output output={output} />
        </div>
      ))}
      {cell.isCut && <p className="faint">More outputs of this cell are not shown.</p>}
    </>
  );
}

function Output({ output }: { output: NotebookOutput }): ReactNode {
  if (output.kind === "image") return <Picture src={output.src} alt="output" className="notebook-image" />;
  if (output.kind === "html") return <SafeHtml html={output.html} fallback={output.text} />;
  return (
    <pre className={output.isError ? "notebook-text is-error" : "notebook-text"}>
      {output.text
        .trimEnd()
        .split("\n")
        .map((line, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: lines have no other key
          <span key={index}>
            <AnsiText text={line} />
            {"\n"}
          </span>
        ))}
    </pre>
  );
}
