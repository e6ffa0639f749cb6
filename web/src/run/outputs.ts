/** Paths of outputs: names, parent folders and URLs. */

import { API, apiPath } from "../api";
import type { Resolve } from "../markdown";
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

const ROOTS = ["outputs", "artifacts", "models"];
const OWN_PAGES = /^\/(?:runs|models|compare|queue|projects)(?:[/?#]|$)/;

export const folderOf = (path: string): string => path.split("/").slice(0, -1).join("/");

/** The file that a relative address means, seen from a folder; null if it leads out of the run's folder. */
export function resolvedPath(folder: string, address: string): string | null {
  const plain = address.replace(/[?#].*$/, "");
  const parts = plain.startsWith("/") ? [] : folder.split("/").filter(Boolean);
  for (const part of plain.split("/")) {
    if (part === "..") {
      if (!parts.length) return null;
      parts.pop();
    } else if (part !== "" && part !== ".") parts.push(part);
  }
  return parts.length ? parts.join("/") : null;
}

/** How relative links and images of a text lead to the files of a run. `folder` has the text; notes have none: their
 * addresses start at a folder of the run, or at its outputs. */
export function resolvers(id: string, folder: string | null): { resolveLink: Resolve; resolveImage: Resolve } {
  const pathOf = (address: string): string | null => {
    if (folder !== null) return resolvedPath(folder, address);
    const isWhole = ROOTS.includes(address.replace(/^(?:\.?\/)+/, "").split("/")[0] ?? "");
    return resolvedPath(isWhole ? "" : "outputs", address);
  };
  return {
    resolveLink: (address) => {
      if (OWN_PAGES.test(address)) return address;
      const path = pathOf(address);
      return path && `/runs/${encodeURIComponent(id)}/outputs?path=${encodeURIComponent(path)}`;
    },
    resolveImage: (address) => {
      const path = pathOf(address);
      return path && `${API}${apiPath`/runs/${id}/view`}/${pathPart(path)}`;
    },
  };
}
