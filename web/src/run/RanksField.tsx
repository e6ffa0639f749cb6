import "./RanksField.css";
import { type ReactNode, useEffect, useState } from "react";
import { useParam } from "../router";
import { parseRanks, rankText } from "./ranks";

/** Which ranks, as `0-3,7`; it stands in the address as `ranks`. */
export function RanksField({ most, none }: { most: number; none: string }): ReactNode {
  const [now, setNow] = useParam("ranks");
  const [draft, setDraft] = useState(now);
  useEffect(() => setDraft(now), [now]);
  const ranks = parseRanks(draft);
  const isWrong = draft.trim() !== "" && ranks === null;
  const keep = () => {
    if (!isWrong) setNow(ranks ? rankText(ranks) : "");
  };
  return (
    <input
      className="field ranks-field"
      placeholder={`${none}, or ${most > 2 ? "0-1,3" : "0"}`}
      aria-label="Which ranks"
      aria-invalid={isWrong}
      title={isWrong ? "Ranks and ranges of them, as 0-3,7" : undefined}
      value={draft}
      onChange={(event) => setDraft(event.target.value)}
      onBlur={keep}
      onKeyDown={(event) => event.key === "Enter" && keep()}
    />
  );
}
