/** The matches of a log search, and a button to continue the search. */

import "./LogSearch.css";
import { type ReactNode, useCallback, useEffect, useRef, useState } from "react";
import { apiPath, get, type LogMatches, queryString } from "../api";
import { bytes, clock, plural } from "../format";
import { setParams } from "../router";
import { useShortcuts } from "../shortcuts";
import { ErrorMessage } from "../ui";
import type { LogQuery } from "./logSource";

type FoundLine = LogMatches["found"][number];
type ReplicaState = { found: FoundLine[]; next: string | null; searched: number; isBusy: boolean; error: unknown };

const NOTHING: ReplicaState = { found: [], next: null, searched: 0, isBusy: true, error: null };

function added(old: ReplicaState, page: LogMatches, isBusy: boolean): ReplicaState {
  return {
    found: [...old.found, ...page.found],
    next: page.next,
    searched: old.searched + page.searched_bytes,
    isBusy,
    error: null,
  };
}

type Props = { query: LogQuery; searchText: string; isRegex: boolean };

export function LogSearch({ query, searchText, isRegex }: Props): ReactNode {
  const { id, attempt, replicas } = query;
  const [state, setState] = useState<ReplicaState>(NOTHING);
  const pending = useRef<AbortController | null>(null);
  const search = useCallback(
    async (from: string | null) => {
      pending.current?.abort();
      const mine = new AbortController();
      pending.current = mine;
      setState((now) => (from ? { ...now, isBusy: true, error: null } : NOTHING));
      let after = from;
      try {
        // A response covers a part of a long log. Continue until a part has matches.
        do {
          const fields = {
            text: searchText,
            regex: isRegex ? 1 : null,
            attempt,
            replica: replicas || null,
            after,
            limit: 100,
          };
          const page = await get<LogMatches>(apiPath`/runs/${id}/lines/search` + queryString(fields), {
            signal: mine.signal,
          });
          after = page.found.length ? null : page.next;
          setState((now) => added(now, page, after !== null));
        } while (after);
      } catch (error) {
        if (!mine.signal.aborted) setState((now) => ({ ...now, isBusy: false, error }));
      }
    },
    [id, attempt, replicas, searchText, isRegex],
  );
  useEffect(() => {
    void search(null);
    return () => pending.current?.abort();
  }, [search]);
  const stop = () => {
    pending.current?.abort();
    setState((now) => ({ ...now, isBusy: false }));
  };
  const { found } = state;
  const place = found.findIndex((line) => line.cursor === query.at);
  const go = (by: number) => {
    const next = found[place < 0 ? (by > 0 ? 0 : found.length - 1) : (place + by + found.length) % found.length];
    if (next) setParams({ at: next.cursor });
  };
  useShortcuts("Matches", {
    n: { label: "Next match", run: () => go(1) },
    "shift+n": { label: "Previous match", run: () => go(-1) },
  });
  return (
    <section className="log-search" aria-label="Matches">
      <div className="log-search-head">
        <span aria-live="polite">
          {state.isBusy ? "Searching…" : found.length === 0 ? "No matches" : plural(found.length, "match", "matches")}
          <span className="faint">
            {" "}
            in {bytes(state.searched)}
            {state.next ? " so far" : ""}
          </span>
        </span>
        {state.isBusy && (
          <button type="button" className="button small" onClick={stop}>
            Stop
          </button>
        )}
        {state.next && !state.isBusy && (
          <button type="button" className="button small" onClick={() => void search(state.next)}>
            Continue search
          </button>
        )}
        <span className="grow" />
        {found.length > 0 && (
          <span className="faint">
            <kbd>n</kbd> <kbd>N</kbd> next, previous
          </span>
        )}
        <button type="button" className="button plain small" onClick={() => setParams({ q: null })}>
          Close
        </button>
      </div>
      {state.error !== null && <ErrorMessage error={state.error} retry={() => void search(state.next)} />}
      {found.length > 0 && (
        <ol className="log-hits">
          {found.map((line) => (
            <li key={line.cursor}>
              <button
                type="button"
                className={line.cursor === query.at ? "is-now" : undefined}
                onClick={() => setParams({ at: line.cursor })}
              >
                <span className="faint">{line.at === null ? "" : clock(line.at)}</span>
                <span className="log-who">{line.replica}</span>
                <span className="cut">
                  <Hit line={line} />
                </span>
              </button>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}

/** A line with the match that the server found. */
function Hit({ line: { text, span } }: { line: FoundLine }): ReactNode {
  // Positions count characters, not UTF-16 units.
  const signs = [...text];
  const [first, end] = span;
  return (
    <>
      {signs.slice(0, first).join("")}
      <mark>{signs.slice(first, end).join("")}</mark>
      {signs.slice(end).join("")}
    </>
  );
}
