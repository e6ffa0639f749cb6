import type { ReactNode } from "react";
import { splitMatches } from "./logWindow";

/** A text with the search matches highlighted. */
export function Highlight({ text, wanted }: { text: string; wanted: string }): ReactNode {
  return splitMatches(text, wanted).map((part, index) =>
    // biome-ignore lint/suspicious/noArrayIndexKey: pieces of a text have no other key
    part.isHit ? <mark key={index}>{part.text}</mark> : part.text,
  );
}
