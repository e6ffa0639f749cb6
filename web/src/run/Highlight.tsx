import type { ReactNode } from "react";
import { marked } from "./logWindow";

/** A text in which what was searched for is marked. */
export function Marked({ text, wanted }: { text: string; wanted: string }): ReactNode {
  return marked(text, wanted).map((part, index) =>
    // biome-ignore lint/suspicious/noArrayIndexKey: pieces of a text have no other name
    part.isHit ? <mark key={index}>{part.text}</mark> : part.text,
  );
}
