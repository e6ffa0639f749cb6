/** Text with line numbers and syntax highlighting. Long texts render only the lines in view. */

import "./CodeView.css";
import { memo, type ReactNode, useMemo } from "react";
import { VirtualList } from "../ui";
import { diffLine, jsonLine, type Piece, yamlLine } from "./syntaxHighlight";

const ROW_HEIGHT = 19;
const MANY = 600;
const LONGEST = 4000;

export type Language = "yaml" | "json" | "diff" | "text";

const READERS: Record<Language, (line: string) => Piece[]> = {
  yaml: yamlLine,
  json: jsonLine,
  diff: diffLine,
  text: (line) => [{ kind: "plain", text: line }],
};

export function CodeView({ text, language, label }: { text: string; language: Language; label?: string }): ReactNode {
  const lines = useMemo(() => text.replace(/\n$/, "").split("\n"), [text]);
  const digits = `${String(lines.length).length}ch`;
  const draw = (index: number) => (
    <CodeLine key={index} number={index + 1} line={lines[index] ?? ""} language={language} digits={digits} />
  );
  if (lines.length > MANY) {
    return (
      <VirtualList count={lines.length} rowHeight={ROW_HEIGHT} className="code is-long" label={label ?? "Text"}>
        {draw}
      </VirtualList>
    );
  }
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas need keyboard focus
    <section className="code" aria-label={label ?? "Text"} tabIndex={0}>
      {lines.map((_, index) => draw(index))}
    </section>
  );
}

type LineProps = { number: number; line: string; language: Language; digits: string };

const CodeLine = memo(function CodeLine({ number, line, language, digits }: LineProps): ReactNode {
  const pieces = READERS[language](line.length > LONGEST ? `${line.slice(0, LONGEST)}…` : line);
  return (
    <div className="code-line">
      <span className="code-number-column" style={{ width: digits }} aria-hidden="true">
        {number}
      </span>
      <span>
        {pieces.map((piece, index) =>
          piece.kind === "plain" ? (
            piece.text
          ) : (
            // biome-ignore lint/suspicious/noArrayIndexKey: pieces of a line have no other key
            <span key={index} className={`code-${piece.kind}`}>
              {piece.text}
            </span>
          ),
        )}
        {line === "" && "\u200b"}
      </span>
    </div>
  );
});
