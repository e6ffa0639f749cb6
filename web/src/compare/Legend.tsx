/** The compared runs or groups, to show, hide, highlight or remove. */

import "./Legend.css";
import { useMemo } from "react";
import { Swatch } from "../charts";
import { Link } from "../router";
import type { RunRow } from "../types";
import { StatusMark } from "../ui";
import { differingParams, valueText } from "./fields";
import type { Entry } from "./lines";

const MAX_PARAMS = 8;

interface Props {
  entries: Entry[];
  rows: Map<string, RunRow>;
  isGrouped: boolean;
  off: string[]; // hidden by the user; brushes hide others
  highlighted: string | null;
  canRemove: boolean;
  onHighlight: (key: string | null) => void;
  onSwitch: (off: string[]) => void;
  onRemove: (run: string) => void;
}

export function Legend(props: Props) {
  const { entries, isGrouped, onSwitch, rows } = props;
  const params = useMemo(() => differingParams([...rows.values()]).slice(0, MAX_PARAMS), [rows]);
  const shown = entries.filter((entry) => entry.isOn).length;
  return (
    <section className="compare-legend" aria-label={isGrouped ? "Groups of runs" : "Runs"}>
      <div className="legend-head">
        <span className="soft">
          {shown} of {entries.length} {isGrouped ? "groups" : "runs"}
        </span>
        <button type="button" className="button plain small" onClick={() => onSwitch([])}>
          All
        </button>
        <button
          type="button"
          className="button plain small"
          onClick={() => onSwitch(entries.map((entry) => entry.key))}
        >
          None
        </button>
      </div>
      <ul>
        {entries.map((entry) => (
          <LegendEntry key={entry.key} entry={entry} params={params} {...props} />
        ))}
      </ul>
    </section>
  );
}

/** An entry with the params in which the runs differ. */
function LegendEntry({ entry, params, ...props }: Props & { entry: Entry; params: readonly string[] }) {
  const { highlighted, off, onHighlight, onSwitch } = props;
  const row = props.isGrouped ? undefined : props.rows.get(entry.key);
  const differences = row && params.map((name) => `${name} ${valueText(row.params[name])}`).join(", ");
  const toggle = () => onSwitch(entry.isOn ? [...off, entry.key] : off.filter((key) => key !== entry.key));
  const classes = ["legend-entry", entry.isOn ? "" : "is-off", highlighted === entry.key ? "is-highlighted" : ""].join(
    " ",
  );
  return (
    <li className={classes} onPointerEnter={() => onHighlight(entry.key)} onPointerLeave={() => onHighlight(null)}>
      <button
        type="button"
        className="legend-switch"
        aria-pressed={entry.isOn}
        disabled={!entry.isOn && !off.includes(entry.key)}
        title={entry.isOn ? `Hide ${entry.label}` : `Show ${entry.label}`}
        onClick={toggle}
        onFocus={() => onHighlight(entry.key)}
        onBlur={() => onHighlight(null)}
      >
        <Swatch color={entry.color} />
        <span className="legend-text">
          <span className="legend-label">{entry.label}</span>
          {differences && (
            <span className="legend-params" title={differences}>
              {differences}
            </span>
          )}
        </span>
        {props.isGrouped && <span className="soft">{entry.runs.length}</span>}
      </button>
      {row && (
        <span className="legend-more">
          <StatusMark status={row.status} bare />
          <Link to={`/runs/${encodeURIComponent(row.id)}`} className="legend-open" aria-label={`Open ${entry.label}`}>
            ↗
          </Link>
          {props.canRemove && (
            <button
              type="button"
              className="legend-remove"
              aria-label={`Remove ${entry.label}`}
              title="Remove"
              onClick={() => props.onRemove(row.id)}
            >
              ✕
            </button>
          )}
        </span>
      )}
    </li>
  );
}
