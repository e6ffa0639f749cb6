/** The compared runs or groups, to show, hide, highlight or remove. */

import "./Legend.css";
import { Swatch } from "../charts";
import { Link } from "../router";
import type { RunRow } from "../types";
import { StatusMark } from "../ui";
import type { Entry } from "./lines";

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
  const { entries, isGrouped, onSwitch } = props;
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
          <LegendEntry key={entry.key} entry={entry} {...props} />
        ))}
      </ul>
    </section>
  );
}

function LegendEntry({ entry, ...props }: Props & { entry: Entry }) {
  const { highlighted, off, onHighlight, onSwitch } = props;
  const row = props.isGrouped ? undefined : props.rows.get(entry.key);
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
        <span className="legend-label">{entry.label}</span>
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
