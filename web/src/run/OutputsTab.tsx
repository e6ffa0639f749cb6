/** The outputs of a run: a tree that loads folder by folder, and a file preview. */

import "./OutputsTab.css";
import { type KeyboardEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { apiPath, type OutputRow, queryString, useResource } from "../api";
import { bytes, timestamp } from "../format";
import { setParams, useRoute } from "../router";
import { EmptyState, ErrorMessage, Icon, Spinner } from "../ui";
import { ancestors, childrenOf, isFolder, nameOf } from "./outputs";
import { FilePreview } from "./Preview";
import type { RunContext } from "./runContext";

const MAX_ROWS = 1000;

type Listing = { files: OutputRow[]; count: number };

export default function OutputsTab({ context }: { context: RunContext }): ReactNode {
  const { params } = useRoute();
  const path = params.get("path") ?? "";
  const { id } = context.run;
  const root = useResource<Listing>(apiPath`/runs/${id}/outputs` + queryString({ depth: 1 }), {
    pollMs: context.isLive ? 15_000 : undefined,
  });
  if (root.error && !root.data) return <ErrorMessage error={root.error} retry={root.reload} />;
  if (!root.data) return <Spinner />;
  if (!root.data.files.length) {
    return (
      <EmptyState title="No outputs" command='phalanx.tracking.artifact("model.pt")'>
        Files in <code>$PHALANX_OUTPUTS</code>, artifacts and models are shown here.
      </EmptyState>
    );
  }
  return (
    <div className={`outputs${path ? " has-file" : ""}`}>
      <Tree id={id} rows={childrenOf(root.data.files, "")} chosen={path} isLive={context.isLive} />
      <div className="outputs-file">
        {path ? (
          <FilePreview key={path} id={id} path={path} />
        ) : (
          <p className="faint outputs-hint">Select a file to preview it.</p>
        )}
        {!path && <LeftFiles fact={context.run.facts.files as FilesFact | null | undefined} />}
      </div>
    </div>
  );
}

type FilesFact = { collect: string[]; left: { pattern: string; count: number; size: number; state: string }[] };

/** What the run left in its working folder, and the line of the file that keeps it. */
function LeftFiles({ fact }: { fact?: FilesFact | null }): ReactNode {
  const left = fact?.left.filter((group) => group.state === "left") ?? [];
  if (!fact || !left.length) return null;
  return (
    <p className="soft outputs-hint">
      Not collected from the working directory:{" "}
      {left.map((group) => `${group.pattern} (${bytes(group.size)})`).join(", ")}. To collect them, add{" "}
      <code>{`outputs: {collect: ${JSON.stringify(fact.collect)}}`}</code> to the polyaxonfile.
    </p>
  );
}

type TreeProps = { id: string; rows: OutputRow[]; chosen: string; isLive: boolean };

function Tree({ id, rows, chosen, isLive }: TreeProps): ReactNode {
  const list = useRef<HTMLUListElement>(null);
  const press = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    const buttons = [...(list.current?.querySelectorAll<HTMLElement>("button") ?? [])];
    const next = buttons[buttons.indexOf(document.activeElement as HTMLElement) + by];
    if (!next) return;
    event.preventDefault();
    next.focus();
  };
  return (
    <ul className="tree" ref={list} onKeyDown={press} aria-label="Files">
      {rows.slice(0, MAX_ROWS).map((row) => (
        <Node key={row.path} id={id} row={row} depth={0} chosen={chosen} isLive={isLive} />
      ))}
      <More count={rows.length} depth={0} />
    </ul>
  );
}

function More({ count, depth }: { count: number; depth: number }): ReactNode {
  if (count <= MAX_ROWS) return null;
  return (
    <li className="faint tree-more" style={{ paddingLeft: 14 * depth + 26 }}>
      and {count - MAX_ROWS} more
    </li>
  );
}

type NodeProps = { id: string; row: OutputRow; depth: number; chosen: string; isLive: boolean };

function Node({ id, row, depth, chosen, isLive }: NodeProps): ReactNode {
  const folder = isFolder(row);
  const isAncestor = ancestors(chosen).includes(row.path);
  const [isOpen, setOpen] = useState(isAncestor || depth === 0);
  useEffect(() => {
    if (isAncestor) setOpen(true);
  }, [isAncestor]);
  return (
    <li>
      <button
        type="button"
        className={row.path === chosen ? "tree-row is-chosen" : "tree-row"}
        style={{ paddingLeft: 14 * depth + 6 }}
        aria-expanded={folder ? isOpen : undefined}
        onClick={() => (folder ? setOpen(!isOpen) : setParams({ path: row.path }, { push: true }))}
        onKeyDown={(event) => {
          if (folder && event.key === "ArrowRight") setOpen(true);
          if (folder && event.key === "ArrowLeft") setOpen(false);
        }}
        title={typeof row.at === "string" ? timestamp(row.at) : undefined}
      >
        <span className="tree-sign">{folder && <Icon name={isOpen ? "down" : "right"} size={12} />}</span>
        <Icon name={folder ? "folder" : "file"} size={14} />
        <span className="cut grow">
          {nameOf(row.path)}
          {typeof row.target === "string" && <span className="faint"> → {row.target}</span>}
        </span>
        <span className="faint number">{bytes(row.size)}</span>
      </button>
      {folder && isOpen && <Folder id={id} path={row.path} depth={depth + 1} chosen={chosen} isLive={isLive} />}
    </li>
  );
}

function Folder({
  id,
  path,
  depth,
  chosen,
  isLive,
}: {
  id: string;
  path: string;
  depth: number;
  chosen: string;
  isLive: boolean;
}): ReactNode {
  const response = useResource<Listing>(apiPath`/runs/${id}/outputs` + queryString({ path, depth: 1 }), {
    pollMs: isLive ? 15_000 : undefined,
  });
  if (response.error && !response.data) return <ErrorMessage error={response.error} retry={response.reload} />;
  if (!response.data)
    return (
      <div className="faint tree-more" style={{ paddingLeft: 14 * depth + 26 }}>
        …
      </div>
    );
  const rows = childrenOf(response.data.files, path);
  return (
    <ul>
      {rows.slice(0, MAX_ROWS).map((row) => (
        <Node key={row.path} id={id} row={row} depth={depth} chosen={chosen} isLive={isLive} />
      ))}
      {!rows.length && (
        <li className="faint tree-more" style={{ paddingLeft: 14 * depth + 26 }}>
          empty
        </li>
      )}
      <More count={rows.length} depth={depth} />
    </ul>
  );
}
