/** A Markdown file of a run; its relative links and images lead to the run's files. */

import { type ReactNode, useState } from "react";
import { Markdown } from "../markdown";
import { ErrorMessage, Spinner } from "../ui";
import { CodeView } from "./CodeView";
import { folderOf, resolvers } from "./outputs";
import { useFileText } from "./useFileText";

export default function MarkdownFile({ id, path }: { id: string; path: string }): ReactNode {
  const { text, error } = useFileText(id, path);
  const [isSource, setSource] = useState(false);
  if (error) return <ErrorMessage error={error} />;
  if (text === null) return <Spinner />;
  return (
    <>
      <div className="row preview-page-bar">
        <span className="soft grow">Markdown</span>
        <div className="segments" role="group" aria-label="View">
          <button type="button" aria-pressed={!isSource} onClick={() => setSource(false)}>
            Preview
          </button>
          <button type="button" aria-pressed={isSource} onClick={() => setSource(true)}>
            Source
          </button>
        </div>
      </div>
      {isSource ? (
        <CodeView text={text} language="text" />
      ) : (
        <div className="preview-document">
          <Markdown text={text} {...resolvers(id, folderOf(path))} />
        </div>
      )}
    </>
  );
}
