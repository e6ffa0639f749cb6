/** What stands above the log: search, which ranks, the first error, the end, and how lines are shown. */

import "./LogBar.css";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { apiPath, get, queryString } from "../api";
import { setParams, useParam, useRoute } from "../router";
import { useShortcuts } from "../shortcuts";
import { Icon, Menu, notify } from "../ui";
import type { Asked } from "./logSource";
import { RanksField } from "./RanksField";
import type { Known } from "./runContext";

type FirstError = { lines: { cursor: string }[]; error: number | null };

async function jumpToError(asked: Asked): Promise<void> {
  try {
    const found = await get<FirstError>(
      apiPath`/runs/${asked.id}/first-error` + queryString({ attempt: asked.attempt }),
    );
    const cursor = found.error === null ? null : found.lines[found.error]?.cursor;
    if (cursor) setParams({ at: cursor, jump: null, ranks: null }, { push: true });
    else notify("No line of these logs looks like an error.");
  } catch (fault) {
    notify(fault instanceof Error ? fault.message : String(fault), { bad: true });
  }
  setParams({ jump: null });
}

export function useJump(asked: Asked): void {
  const { params } = useRoute();
  const isWanted = params.get("jump") === "error";
  // biome-ignore lint/correctness/useExhaustiveDependencies: once for each wish
  useEffect(() => {
    if (isWanted) void jumpToError(asked);
  }, [isWanted]);
}

type BarProps = { known: Known; asked: Asked; isFollowing: boolean; onFollow: () => void };

export function LogBar({ known, asked, isFollowing, onFollow }: BarProps): ReactNode {
  const { params } = useRoute();
  const total = known.topology?.replicas.length ?? 0;
  const box = useRef<HTMLInputElement>(null);
  useShortcuts("Log", {
    "/": { label: "search the log", run: () => box.current?.focus() },
    e: { label: "go to the first error", run: () => void jumpToError(asked) },
    "shift+g": { label: "go to the end and follow", run: onFollow },
  });
  return (
    <div className="log-bar">
      <SearchBox box={box} />
      {total > 1 && <RanksField most={total - 1} none="all ranks" />}
      <button
        type="button"
        className="button small"
        onClick={() => void jumpToError(asked)}
        title="The first line that looks like an error"
      >
        First error
      </button>
      <button
        type="button"
        className="button small"
        aria-pressed={isFollowing}
        onClick={onFollow}
        title="Stay at the end as lines come"
      >
        {known.isLive ? "Follow" : "End"}
      </button>
      <Menu label={<Icon name="more" />} name="How lines are shown" className="button icon small" alignRight>
        {(close) => (
          <>
            <Choice label="Wrap long lines" isOn={params.get("wrap") !== "0"} name="wrap" close={close} />
            {total > 1 && <Choice label="Fold lines that ranks share" isOn={asked.fold} name="fold" close={close} />}
            <Choice label="Times" isOn={params.get("times") !== "0"} name="times" close={close} />
            {asked.replicas.length === 1 && (
              <a
                className="menu-item"
                href={`/api/v1${apiPath`/runs/${asked.id}/logs/${asked.replicas[0] as string}`}${queryString({ attempt: asked.attempt })}`}
                download
              >
                <Icon name="download" size={14} /> Download this log
              </a>
            )}
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

function SearchBox({ box }: { box: { current: HTMLInputElement | null } }): ReactNode {
  const [wanted, setWanted] = useParam("q");
  const [draft, setDraft] = useState(wanted);
  useEffect(() => setDraft(wanted), [wanted]);
  return (
    <form
      className="grow"
      onSubmit={(event) => {
        event.preventDefault();
        setWanted(draft.trim());
      }}
    >
      <input
        ref={box}
        type="search"
        className="field"
        placeholder="Search the log, Enter"
        aria-label="Search the log"
        value={draft}
        maxLength={500}
        onChange={(event) => {
          setDraft(event.target.value);
          if (event.target.value === "") setWanted("");
        }}
      />
    </form>
  );
}
