import "./RanksField.css";
import { type ReactNode, useEffect, useState } from "react";
import { useParam } from "../router";
import { parseRanks, rankText } from "./ranks";

/** An input for ranks such as `0-3,7`, stored in the URL as `ranks`. */
export function RanksField({ most, none }: { most: number; none: string }): ReactNode {
  const [now, setNow] = useParam("ranks");
  const [draft, setDraft] = useState(now);
  useEffect(() => setDraft(now), [now]);
  const ranks = parseRanks(draft);
  const isWrong = draft.trim() !== "" && ranks === null;
  const save = () => {
    if (!isWrong) setNow(ranks ? rankText(ranks) : "");
  };
  return (
    <input
      className="field ranks-field"
      placeholder={`${none}, or ${most > 2 ? "0-1,3" : "0"}`}
      aria-label="Ranks"
      aria-invalid={isWrong}
      title={isWrong ? "Ranks and ranges, such as 0-3,7" : undefined}
      value={draft}
      onChange={(event) => setDraft(event.target.value)}
      onBlur={save}
      onKeyDown={(event) => event.key === "Enter" && save()}
    />
  );
}
