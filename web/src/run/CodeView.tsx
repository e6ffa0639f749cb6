/** Text with line numbers and some colour; of long ones only what is in view is drawn. */

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

export function Code({ text, language, label }: { text: string; language: Language; label?: string }): ReactNode {
  const lines = useMemo(() => text.replace(/\n$/, "").split("\n"), [text]);
  const digits = `${String(lines.length).length}ch`;
  const draw = (place: number) => (
    <CodeLine key={place} number={place + 1} line={lines[place] ?? ""} language={language} digits={digits} />
  );
  if (lines.length > MANY) {
    return (
      <VirtualList count={lines.length} rowHeight={ROW_HEIGHT} className="code is-long" label={label ?? "Text"}>
        {draw}
      </VirtualList>
    );
  }
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by keys
    <section className="code" aria-label={label ?? "Text"} tabIndex={0}>
      {lines.map((_, place) => draw(place))}
    </section>
  );
}

type LineProps = { number: number; line: string; language: Language; digits: string };

const CodeLine = memo(function CodeLine({ number, line, language, digits }: LineProps): ReactNode {
  const pieces = READERS[language](line.length > LONGEST ? `${line.slice(0, LONGEST)}…` : line);
  return (
    <div className="code-line">
      <span className="code-place" style={{ width: digits }} aria-hidden="true">
        {number}
      </span>
      <span>
        {pieces.map((piece, index) =>
          piece.kind === "plain" ? (
            piece.text
          ) : (
            // biome-ignore lint/suspicious/noArrayIndexKey: pieces of a line have no other name
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
