/** Paths of outputs: names, parent folders and URLs. */

import type { OutputRow } from "../types";

export const isFolder = (row: OutputRow): boolean =>
  row.kind === "folder" || row.kind === "dir" || row.leads_to === "folder";

export const nameOf = (path: string): string => path.replace(/\/+$/, "").split("/").pop() ?? path;

/** The direct children of a folder; `""` is the root. */
export const childrenOf = (rows: readonly OutputRow[], folder: string): OutputRow[] =>
  rows.filter(({ path }) => {
    const inside = folder ? (path.startsWith(`${folder}/`) ? path.slice(folder.length + 1) : "") : path;
    return inside !== "" && !inside.includes("/");
  });

/** The parent folders of a path: `a` and `a/b` for `a/b/c`. */
export function ancestors(path: string): string[] {
  const parts = path.split("/");
  return parts.slice(1).map((_, index) => parts.slice(0, index + 1).join("/"));
}

/** Escapes a path for a URL, keeping its slashes. */
export const pathPart = (path: string): string => path.split("/").map(encodeURIComponent).join("/");
