/** Log lines with time and rank, rendered in groups that React can skip. */

import "./LogLines.css";
import { type CSSProperties, type MouseEvent, memo, type ReactNode, useMemo } from "react";
import type { LogLine } from "../api";
import { clock, timestamp } from "../format";
import { currentRoute, setParams, useRoute, withParams } from "../router";
import { notify } from "../ui";
import { AnsiText } from "./AnsiText";
import { Highlight } from "./Highlight";
import { chunks, plainText, toneOf } from "./logWindow";

/** The rank of each replica by its name. */
export type Ranks = ReadonlyMap<string, number>;

type Props = { lines: LogLine[]; ranks: Ranks; searchText: string; marked: string | null };

export function LogLines({ lines, ranks, searchText, marked }: Props): ReactNode {
  const { params } = useRoute();
  const groups = useMemo(() => chunks(lines), [lines]);
  const hasTimes = params.get("times") !== "0";
  const click = (event: MouseEvent) => {
    const button = (event.target as HTMLElement).closest("[data-link]");
    const cursor = button?.closest<HTMLElement>("[data-cursor]")?.dataset.cursor;
    if (!cursor) return;
    setParams({ at: cursor });
    const url = location.origin + withParams(currentRoute(), { at: cursor });
    const message = "The URL now links to this line.";
    if (!navigator.clipboard)
      notify(message); // only available in secure contexts
    else
      navigator.clipboard.writeText(url).then(
        () => notify("Link to this line copied."),
        () => notify(message),
      );
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: it only handles its buttons
    // biome-ignore lint/a11y/useKeyWithClickEvents: the buttons handle keys
    <div
      className={`log-lines${hasTimes ? "" : " has-no-times"}${ranks.size > 1 ? "" : " has-no-ranks"}`}
      style={{ "--who": `${whoWidth(ranks)}ch` } as CSSProperties}
      onClick={click}
    >
      {groups.map((group) => (
        <Group
          key={(group[0] as LogLine).cursor}
          lines={group}
          searchText={searchText}
          ranks={ranks}
          marked={marked !== null && group.some((line) => line.cursor === marked) ? marked : null}
        />
      ))}
    </div>
  );
}

const Group = memo(
  function Group({ lines, ranks, searchText, marked }: Props): ReactNode {
    return (
      <div className="log-group">
        {lines.map((line) => (
          <LogLineRow
            key={line.cursor}
            line={line}
            ranks={ranks}
            searchText={searchText}
            isMarked={line.cursor === marked}
          />
        ))}
      </div>
    );
  },
  (old, now) =>
    old.searchText === now.searchText &&
    old.marked === now.marked &&
    old.ranks === now.ranks &&
    old.lines.length === now.lines.length &&
    old.lines[0]?.cursor === now.lines[0]?.cursor &&
    old.lines[old.lines.length - 1]?.cursor === now.lines[now.lines.length - 1]?.cursor,
);

function LogLineRow({
  line,
  ranks,
  searchText,
  isMarked,
}: {
  line: LogLine;
  ranks: Ranks;
  searchText: string;
  isMarked: boolean;
}): ReactNode {
  const text = plainText(line.text);
  const tone = toneOf(text);
  return (
    <div className={`log-line${tone ? ` tone-${tone}` : ""}${isMarked ? " is-marked" : ""}`} data-cursor={line.cursor}>
      <button
        type="button"
        className="log-time"
        data-link=""
        tabIndex={-1}
        title={`${line.at === null ? "" : `${timestamp(line.at)}: `}copy a link to this line`}
      >
        {line.at === null ? "·" : clock(line.at)}
      </button>
      {ranks.size > 1 && (
        <span className="log-who" title={whoTitle(line)}>
          {whoText(line, ranks)}
        </span>
      )}
      <span className="log-text">
        {searchText ? <Highlight text={text} searchText={searchText} /> : <AnsiText text={line.text} />}
      </span>
    </div>
  );
}

function whoTitle(line: LogLine): string {
  const names = line.replicas ?? [line.replica];
  return names.length > 6 ? `${names.slice(0, 5).join(", ")} and ${names.length - 5} more` : names.join(", ");
}

const MAX_WHO = 26;

/** The width of the names in characters, so that all lines start at the same place. */
function whoWidth(ranks: Ranks): number {
  const longest = Math.max(3, ...[...ranks.keys()].slice(0, 2000).map((name) => name.length));
  return Math.min(MAX_WHO, longest + (ranks.size > 2 ? 3 : 0)) + 1;
}

/** `worker-3`, `worker-0..2`, `all`. */
export function whoText(line: Pick<LogLine, "replica" | "replicas">, ranks: Ranks): string {
  const names = line.replicas ?? [line.replica];
  if (names.length > 1 && names.length >= ranks.size) return "all";
  return namesText(names);
}

/** Names with ranges of consecutive indices, as in `phalanx logs`. */
export function namesText(names: readonly string[]): string {
  const rows: { role: string; first: number; last: number }[] = [];
  for (const name of names) {
    const match = /^(.*)-(\d+)$/.exec(name);
    const [role, index] = match ? [match[1] as string, Number(match[2])] : [name, -1];
    const before = rows[rows.length - 1];
    if (before && before.role === role && index > 0 && before.last === index - 1) before.last = index;
    else rows.push({ role, first: index, last: index });
  }
  const text = ({ role, first, last }: (typeof rows)[number]) =>
    first < 0 ? role : first === last ? `${role}-${first}` : `${role}-${first}..${last}`;
  return rows.map(text).join(", ");
}
