/** The controls above the log: search, ranks, first error, follow and display options. */

import "./LogBar.css";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { API, apiPath, get, queryString } from "../api";
import { setParams, useParam, useRoute } from "../router";
import { useShortcuts } from "../shortcuts";
import { Icon, Menu, notify } from "../ui";
import { notifyError } from "../ui/notifyError";
import type { LogQuery } from "./logSource";
import { ReplicaField } from "./ReplicaField";
import type { RunContext } from "./runContext";

type FirstError = { lines: { cursor: string }[]; error: number | null };

async function jumpToError(query: LogQuery): Promise<void> {
  try {
    const found = await get<FirstError>(
      apiPath`/runs/${query.id}/first-error` + queryString({ attempt: query.attempt }),
    );
    const cursor = found.error === null ? null : found.lines[found.error]?.cursor;
    if (cursor) setParams({ at: cursor, jump: null, replica: null }, { push: true });
    else notify("No error found in these logs.");
  } catch (error) {
    notifyError(error);
  }
  setParams({ jump: null });
}

export function useJumpToError(query: LogQuery): void {
  const { params } = useRoute();
  const isWanted = params.get("jump") === "error";
  // biome-ignore lint/correctness/useExhaustiveDependencies: only when the URL asks for it
  useEffect(() => {
    if (isWanted) void jumpToError(query);
  }, [isWanted]);
}

type BarProps = { context: RunContext; query: LogQuery; isFollowing: boolean; onFollow: () => void };

export function LogBar({ context, query, isFollowing, onFollow }: BarProps): ReactNode {
  const { params } = useRoute();
  const total = context.topology?.replicas.length ?? 0;
  const box = useRef<HTMLInputElement>(null);
  useShortcuts("Log", {
    "/": { label: "Search the log", run: () => box.current?.focus() },
    e: { label: "Go to the first error", run: () => void jumpToError(query) },
    "shift+g": { label: "Go to the end and follow", run: onFollow },
  });
  return (
    <div className="log-bar">
      <SearchBox box={box} />
      {total > 1 && <ReplicaField replicas={context.topology?.replicas ?? []} />}
      <button
        type="button"
        className="button small"
        onClick={() => void jumpToError(query)}
        title="Go to the first line that looks like an error"
      >
        First error
      </button>
      <button
        type="button"
        className="button small"
        aria-pressed={isFollowing}
        onClick={onFollow}
        title="Scroll with new lines"
      >
        {context.isLive ? "Follow" : "End"}
      </button>
      <a
        className="button icon small"
        href={downloadUrl(query, params)}
        download
        title="Download the log as shown"
        aria-label="Download log"
      >
        <Icon name="download" size={14} />
      </a>
      <Menu label={<Icon name="more" />} name="Display options" className="button icon small" alignRight>
        {(close) => (
          <>
            <Choice label="Wrap long lines" isOn={params.get("wrap") !== "0"} name="wrap" close={close} />
            {total > 1 && (
              <Choice
                label="Collapse identical lines of several replicas"
                isOn={query.fold}
                name="fold"
                close={close}
              />
            )}
            <Choice label="Show times" isOn={params.get("times") !== "0"} name="times" close={close} />
          </>
        )}
      </Menu>
    </div>
  );
}

function Choice({
  label,
  isOn,
  name,
  close,
}: {
  label: string;
  isOn: boolean;
  name: string;
  close: () => void;
}): ReactNode {
  return (
    <button
      type="button"
      className="menu-item"
      aria-pressed={isOn}
      onClick={() => {
        setParams({ [name]: isOn ? "0" : null });
        close();
      }}
    >
      <span className="menu-check">{isOn && <Icon name="check" size={14} />}</span> {label}
    </button>
  );
}

function downloadUrl(query: LogQuery, params: URLSearchParams): string {
  const [text, regex] = [params.get("q"), params.get("regex")];
  const fields = {
    replica: query.replicas || null,
    attempt: query.attempt,
    text: text || null,
    regex: text ? regex : null,
  };
  return `${API}${apiPath`/runs/${query.id}/lines/download`}${queryString(fields)}`;
}

function SearchBox({ box }: { box: { current: HTMLInputElement | null } }): ReactNode {
  const [searchText, setSearchText] = useParam("q");
  const [regex, setRegex] = useParam("regex");
  const [draft, setDraft] = useState(searchText);
  useEffect(() => setDraft(searchText), [searchText]);
  return (
    <form
      className="grow log-query"
      onSubmit={(event) => {
        event.preventDefault();
        setSearchText(draft.trim());
      }}
    >
      <input
        ref={box}
        type="search"
        className="field"
        placeholder={regex ? "Search by regular expression" : "Search the log"}
        aria-label="Search the log"
        value={draft}
        maxLength={500}
        onChange={(event) => {
          setDraft(event.target.value);
          if (event.target.value === "") setSearchText("");
        }}
      />
      <button
        type="button"
        className="button plain small log-regex"
        aria-pressed={regex === "1"}
        aria-label="Regular expression"
        title="Regular expression (RE2 syntax; ignores case)"
        onClick={() => setRegex(regex ? "" : "1")}
      >
        .*
      </button>
    </form>
  );
}
