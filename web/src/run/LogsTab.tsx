/** The merged logs of all replicas: a window over logs of any length, with search and links to lines. */

import "./LogsTab.css";
import { type ReactNode, useMemo, useRef } from "react";
import { plural } from "../format";
import { useRoute } from "../router";
import { EmptyState, ErrorMessage, Icon, Spinner } from "../ui";
import { LogBar, useJumpToError } from "./LogBar";
import { LogLines, type Ranks } from "./LogLines";
import { LogSearch } from "./LogSearch";
import { useFillHeight, useLogScroll } from "./logScroll";
import { type LogQuery, useLog } from "./logSource";
import { plainText } from "./logWindow";
import type { RunContext } from "./runContext";

export default function LogsTab({ context }: { context: RunContext }): ReactNode {
  const query = useLogQuery(context);
  const { params } = useRoute();
  const log = useLog(query, context);
  const { window: shown } = log;
  const scroller = useRef<HTMLDivElement>(null);
  const { isFollowing, follow, onScroll } = useLogScroll(scroller, log, query);
  useJumpToError(query);
  useFillHeight(scroller);
  const isWrapped = params.get("wrap") !== "0";
  const searchText = params.get("q") ?? "";
  const isRegex = params.get("regex") === "1";
  const ranks = useRanks(context);
  return (
    <div className="logs">
      <LogBar context={context} isFollowing={isFollowing} onFollow={follow} query={query} />
      {searchText && <LogSearch query={query} searchText={searchText} isRegex={isRegex} />}
      {shown && log.error ? <ErrorMessage error={log.error} retry={log.reload} /> : null}
      {shown && shown.leftOut > 0 && (
        <p className="soft log-note">
          Logs of {plural(shown.leftOut, "more replica")} are not shown. Select replicas to see them.
        </p>
      )}
      {log.error && !shown ? (
        <ErrorMessage error={log.error} retry={log.reload} />
      ) : (
        <section
          className={`log-window${isWrapped ? " is-wrapped" : ""}`}
          ref={scroller}
          onScroll={onScroll}
          // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas need keyboard focus
          tabIndex={0}
          aria-label="Log"
        >
          {!shown && <Spinner />}
          {shown && !shown.atStart && (
            <div className="log-end">{log.isLoading ? "Loading earlier lines…" : "\u00a0"}</div>
          )}
          {shown?.atStart && shown.lines.length > 0 && <div className="log-end">Start of the log</div>}
          {shown && shown.lines.length === 0 && shown.atEnd && (
            <EmptyState title={context.isLive ? "No output yet" : "No output"}>
              {query.replicas
                ? "The selected replicas wrote nothing in this attempt."
                : "Lines appear as soon as a replica writes them."}
            </EmptyState>
          )}
          {shown && (
            <LogLines lines={shown.lines} ranks={ranks} searchText={isRegex ? "" : searchText} marked={query.at} />
          )}
          {shown?.atEnd && <Unfinished rows={shown.unfinished} />}
          {shown && !shown.atEnd && <div className="log-end">{log.isLoading ? "Loading later lines…" : "\u00a0"}</div>}
        </section>
      )}
      {shown && !isFollowing && (log.hasMore || query.at) && (
        <button type="button" className="button small log-down" onClick={follow}>
          <Icon name="down" size={14} /> {log.hasMore ? "New lines" : "Go to end"}
        </button>
      )}
    </div>
  );
}

function Unfinished({ rows }: { rows: { replica: string; rank: number | null; text: string }[] }): ReactNode {
  return rows.slice(0, 64).map((row) => (
    <div key={row.replica} className="log-line log-unfinished">
      <span className="log-time">…</span>
      <span className="log-who">{row.replica}</span>
      <span className="log-text">{plainText(row.text)}</span>
    </div>
  ));
}

/** Ranks by replica name; the same object while they are unchanged, so that React skips unchanged lines. */
function useRanks({ topology }: RunContext): Ranks {
  const text = (topology?.replicas ?? []).map((one) => `${one.name} ${one.rank}`).join();
  return useMemo(() => {
    const pairs = text
      .split(",")
      .filter(Boolean)
      .map((pair) => pair.split(" ") as [string, string]);
    return new Map(pairs.map(([name, rank]) => [name, Number(rank)]));
  }, [text]);
}

function useLogQuery({ run }: RunContext): LogQuery {
  const { params } = useRoute();
  const replicas = params.get("replica") ?? "";
  const attempt = params.get("attempt");
  const fold = params.get("fold") !== "0";
  const marked = params.get("at");
  return useMemo(
    () => ({ id: run.id, attempt, fold, at: marked, replicas }),
    [run.id, attempt, fold, marked, replicas],
  );
}
