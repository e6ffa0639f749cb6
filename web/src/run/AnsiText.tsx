import "./AnsiText.css";
import type { CSSProperties, ReactNode } from "react";
import { ansiPieces } from "./ansi";
import { plainText } from "./logWindow";

/** A line of a log with the colours that the program gave it. */
export function AnsiText({ text }: { text: string }): ReactNode {
  if (!text.includes("\u001b")) return plainText(text);
  return ansiPieces(text).map((piece, index) => (
    <span
      // biome-ignore lint/suspicious/noArrayIndexKey: pieces of a text have no other key
      key={index}
      className={piece.color ? `${piece.className} ansi-any` : piece.className || undefined}
      style={piece.color ? ({ "--ansi": piece.color } as CSSProperties) : undefined}
    >
      {plainText(piece.text)}
    </span>
  ));
}
