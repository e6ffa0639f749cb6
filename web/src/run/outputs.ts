/** Paths of outputs: their names, the folders they lie in, and their addresses. */

import type { OutputRow } from "../types";

export const isFolder = (row: OutputRow): boolean =>
  row.kind === "folder" || row.kind === "dir" || row.leads_to === "folder";

export const nameOf = (path: string): string => path.replace(/\/+$/, "").split("/").pop() ?? path;

/** Only what lies right in a folder; `""` is the topmost. */
export const childrenOf = (rows: readonly OutputRow[], folder: string): OutputRow[] =>
  rows.filter(({ path }) => {
    const inside = folder ? (path.startsWith(`${folder}/`) ? path.slice(folder.length + 1) : "") : path;
    return inside !== "" && !inside.includes("/");
  });

/** The folders on the way to a path: of `a/b/c` these are `a` and `a/b`. */
export function ancestors(path: string): string[] {
  const parts = path.split("/");
  return parts.slice(1).map((_, index) => parts.slice(0, index + 1).join("/"));
}

/** A path as part of an address: each of its names escaped, its slashes kept. */
export const pathPart = (path: string): string => path.split("/").map(encodeURIComponent).join("/");
