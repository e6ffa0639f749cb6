/** What a search of the log found: a list to go through, and a way to search on. */

import "./LogSearch.css";
import { type ReactNode, useCallback, useEffect, useRef, useState } from "react";
import { apiPath, get, type LogLine, type LogMatches, queryString } from "../api";
import { bytes, clock, plural } from "../format";
import { setParams } from "../router";
import { useShortcuts } from "../shortcuts";
import { ErrorMessage } from "../ui";
import { Marked } from "./Highlight";
import type { Asked } from "./logSource";
import { shown } from "./logWindow";

type State = { found: LogLine[]; next: string | null; searched: number; isBusy: boolean; error: unknown };

const NOTHING: State = { found: [], next: null, searched: 0, isBusy: true, error: null };

function added(old: State, page: LogMatches, isBusy: boolean): State {
  return {
    found: [...old.found, ...page.found],
    next: page.next,
    searched: old.searched + page.searched_bytes,
    isBusy,
    error: null,
  };
}

export function LogSearch({ asked, wanted }: { asked: Asked; wanted: string }): ReactNode {
  const { id, attempt, replicas } = asked;
  const [state, setState] = useState<State>(NOTHING);
  const names = replicas.join(" ");
  const asking = useRef<AbortController | null>(null);
  const search = useCallback(
    async (from: string | null) => {
      asking.current?.abort();
      const mine = new AbortController();
      asking.current = mine;
      setState((now) => (from ? { ...now, isBusy: true, error: null } : NOTHING));
      let after = from;
      try {
        // One answer looks through a part of a long log: while it has nothing, the next part is asked for.
        do {
          const fields = { text: wanted, attempt, replica: names ? names.split(" ") : [], after, limit: 100 };
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
    [id, attempt, names, wanted],
  );
  useEffect(() => {
    void search(null);
    return () => asking.current?.abort();
  }, [search]);
  const stop = () => {
    asking.current?.abort();
    setState((now) => ({ ...now, isBusy: false }));
  };
  const { found } = state;
  const place = found.findIndex((line) => line.cursor === asked.at);
  const go = (by: number) => {
    const next = found[place < 0 ? (by > 0 ? 0 : found.length - 1) : (place + by + found.length) % found.length];
    if (next) setParams({ at: next.cursor });
  };
  useShortcuts("Found lines", {
    n: { label: "the next line that was found", run: () => go(1) },
    "shift+n": { label: "the one before", run: () => go(-1) },
  });
  return (
    <section className="log-search" aria-label="Found lines">
      <div className="log-search-head">
        <span aria-live="polite">
          {state.isBusy ? "Searching…" : `${found.length === 0 ? "Nothing" : plural(found.length, "line")} found`}
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
            Search on
          </button>
        )}
        <span className="grow" />
        {found.length > 0 && (
          <span className="faint">
            <kbd>n</kbd> <kbd>N</kbd> go through
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
                className={line.cursor === asked.at ? "is-now" : undefined}
                onClick={() => setParams({ at: line.cursor })}
              >
                <span className="faint">{line.at === null ? "" : clock(line.at)}</span>
                <span className="log-who">[{line.rank ?? line.replica}]</span>
                <span className="cut">
                  <Marked text={shown(line.text)} wanted={wanted} />
                </span>
              </button>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}
