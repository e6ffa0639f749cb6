/** What the replicas printed, as one: a window over logs of any length, with search, and links to lines. */

import "./LogsTab.css";
import { type ReactNode, useMemo, useRef } from "react";
import { plural } from "../format";
import { useRoute } from "../router";
import { EmptyState, ErrorMessage, Icon, Spinner } from "../ui";
import { LogBar, useJump } from "./LogBar";
import { LogLines, type Ranks } from "./LogLines";
import { LogSearch } from "./LogSearch";
import { useRest, useScrolling } from "./logScroll";
import { type Asked, useLog } from "./logSource";
import { shown as shownText } from "./logWindow";
import { parseRanks } from "./ranks";
import type { Known } from "./runContext";

export default function LogsTab({ known }: { known: Known }): ReactNode {
  const asked = useAsked(known);
  const { params } = useRoute();
  const log = useLog(asked, known);
  const { window: shown } = log;
  const scroller = useRef<HTMLDivElement>(null);
  const { isFollowing, follow, onScroll } = useScrolling(scroller, log, asked);
  useJump(asked);
  useRest(scroller);
  const isWrapped = params.get("wrap") !== "0";
  const wanted = params.get("q") ?? "";
  const ranks = useRanks(known);
  return (
    <div className="logs">
      <LogBar known={known} isFollowing={isFollowing} onFollow={follow} asked={asked} />
      {wanted && <LogSearch asked={asked} wanted={wanted} />}
      {shown && log.error ? <ErrorMessage error={log.error} retry={log.reload} /> : null}
      {shown && shown.leftOut > 0 && (
        <p className="soft log-note">{plural(shown.leftOut, "further log")} are not read: choose ranks to see them.</p>
      )}
      {log.error && !shown ? (
        <ErrorMessage error={log.error} retry={log.reload} />
      ) : (
        <section
          className={`log-window${isWrapped ? " is-wrapped" : ""}`}
          ref={scroller}
          onScroll={onScroll}
          // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by keys
          tabIndex={0}
          aria-label="Log"
        >
          {!shown && <Spinner />}
          {shown && !shown.atStart && <div className="log-end">{log.isAsking ? "Earlier lines…" : "\u00a0"}</div>}
          {shown?.atStart && shown.lines.length > 0 && <div className="log-end">This is where it begins.</div>}
          {shown && shown.lines.length === 0 && shown.atEnd && (
            <EmptyState title={known.isLive ? "Nothing was printed yet" : "Nothing was printed"}>
              {asked.replicas.length ? "By these ranks, in this attempt." : "Lines appear here as replicas print them."}
            </EmptyState>
          )}
          {shown && <LogLines lines={shown.lines} ranks={ranks} wanted={wanted} marked={asked.at} />}
          {shown?.atEnd && <Unfinished rows={shown.unfinished} />}
          {shown && !shown.atEnd && <div className="log-end">{log.isAsking ? "Later lines…" : "\u00a0"}</div>}
        </section>
      )}
      {shown && !isFollowing && (log.hasMore || asked.at) && (
        <button type="button" className="button small log-down" onClick={follow}>
          <Icon name="down" size={14} /> {log.hasMore ? "New lines" : "To the end"}
        </button>
      )}
    </div>
  );
}

function Unfinished({ rows }: { rows: { replica: string; rank: number | null; text: string }[] }): ReactNode {
  return rows.slice(0, 64).map((row) => (
    <div key={row.replica} className="log-line log-unfinished">
      <span className="log-time">…</span>
      <span className="log-who">[{row.rank ?? row.replica}]</span>
      <span className="log-text">{shownText(row.text)}</span>
    </div>
  ));
}

/** Names and ranks; the same object as long as they are the same, so that lines are not drawn anew. */
function useRanks({ topology }: Known): Ranks {
  const text = (topology?.replicas ?? []).map((one) => `${one.name} ${one.rank}`).join();
  return useMemo(() => {
    const pairs = text
      .split(",")
      .filter(Boolean)
      .map((pair) => pair.split(" ") as [string, string]);
    return new Map(pairs.map(([name, rank]) => [name, Number(rank)]));
  }, [text]);
}

function useAsked({ run, topology }: Known): Asked {
  const { params } = useRoute();
  const ranks = params.get("ranks") ?? "";
  const names = useMemo(() => {
    const wanted = parseRanks(ranks);
    if (!wanted) return "";
    const found = (topology?.replicas ?? []).filter((one) => wanted.includes(one.rank)).map((one) => one.name);
    return found.join(" ");
  }, [ranks, topology]);
  const attempt = params.get("attempt");
  const fold = params.get("fold") !== "0";
  const marked = params.get("at");
  return useMemo(
    () => ({ id: run.id, attempt, fold, at: marked, replicas: names ? names.split(" ") : [] }),
    [run.id, attempt, fold, marked, names],
  );
}
