import type { ReactNode } from "react";
import { splitMatches } from "./logWindow";

/** A text with the search matches highlighted. */
export function Highlight({ text, searchText }: { text: string; searchText: string }): ReactNode {
  return splitMatches(text, searchText).map((part, index) =>
    // biome-ignore lint/suspicious/noArrayIndexKey: pieces of a text have no other key
    part.isHit ? <mark key={index}>{part.text}</mark> : part.text,
  );
}
