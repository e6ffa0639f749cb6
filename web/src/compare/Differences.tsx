/** The table of differences: a column per run, rows for metrics, params, spec and code. */

import "./Differences.css";
import { Swatch } from "../charts";
import { number } from "../format";
import { Link } from "../router";
import type { Comparison, RunRow } from "../types";
import { StatusMark } from "../ui";
import {
  bestIndexes,
  type ComparedRow,
  isLowerBest,
  relativeChange,
  type Section,
  sections,
  TITLES,
} from "./differences";
import { valueText } from "./fields";
import type { Entry } from "./lines";
import type { Choices } from "./urlState";

interface Props {
  comparison: Comparison;
  shown: Set<string>;
  entries: Entry[];
  labels: Map<string, string>;
  choices: Choices;
  onChange: (changes: Partial<Choices>) => void;
}

export function Differences({ comparison, shown, entries, labels, choices, onChange }: Props) {
  const indexes = comparison.runs.flatMap((run, index) => (shown.has(run.id) ? [index] : []));
  const runs = indexes.map((index) => comparison.runs[index] as RunRow);
  const rows = comparison.rows.map((row) => forRuns(row, indexes));
  const found = sections(rows, choices.everything, choices.find);
  const base = runs.findIndex((run) => run.id === choices.baseline);
  const color = (run: string) => entries.find((entry) => entry.runs.includes(run))?.color ?? 0;
  if (runs.length === 0) return <p className="soft compare-none">All runs are hidden.</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas need keyboard focus
    <section className="differences" tabIndex={0} aria-label="Differences">
      <table>
        <thead>
          <tr>
            <th scope="col" className="differences-corner">
              <span className="hidden-text">Name</span>
            </th>
            {runs.map((run) => (
              <RunHead
                key={run.id}
                run={run}
                label={labels.get(run.id) ?? run.id}
                color={color(run.id)}
                isBase={run.id === choices.baseline}
                onBase={() => onChange({ baseline: run.id === choices.baseline ? "" : run.id })}
              />
            ))}
          </tr>
        </thead>
        {found.map((section) => (
          <SectionRows
            key={section.group}
            section={section}
            base={base}
            runs={runs}
            choices={choices}
            onChange={onChange}
          />
        ))}
      </table>
    </section>
  );
}

/** A row restricted to the visible runs; `differs` is computed again for them. */
function forRuns(row: ComparedRow, indexes: number[]): ComparedRow {
  if (indexes.length === row.values.length) return row;
  const values = indexes.map((index) => row.values[index]);
  return { ...row, values, differs: new Set(values.map(valueText)).size > 1 };
}

interface HeadProps {
  run: RunRow;
  label: string;
  color: number;
  isBase: boolean;
  onBase: () => void;
}

function RunHead({ run, label, color, isBase, onBase }: HeadProps) {
  return (
    <th scope="col" className={isBase ? "is-base" : ""}>
      <div className="differences-run">
        <Swatch color={color} />
        <Link to={`/runs/${encodeURIComponent(run.id)}`} title={run.id}>
          {label}
        </Link>
      </div>
      <div className="differences-run">
        <StatusMark status={run.status} />
      </div>
      <button type="button" className="button small" aria-pressed={isBase} onClick={onBase}>
        {isBase ? "Baseline ✓" : "Baseline"}
      </button>
    </th>
  );
}

interface SectionProps {
  section: Section;
  base: number;
  runs: RunRow[];
  choices: Choices;
  onChange: (changes: Partial<Choices>) => void;
}

function SectionRows({ section, base, runs, choices, onChange }: SectionProps) {
  const { group, rows, hidden } = section;
  if (rows.length === 0 && hidden === 0) return null;
  return (
    <tbody>
      <tr className="differences-title">
        <th scope="rowgroup">{TITLES[group] ?? group}</th>
        <td colSpan={runs.length}>{hidden > 0 && <span className="soft">{hidden} without differences</span>}</td>
      </tr>
      {rows.map((row) => (
        <Row key={row.name} row={row} runs={runs} base={base} choices={choices} onChange={onChange} />
      ))}
    </tbody>
  );
}

interface RowProps {
  row: ComparedRow;
  runs: RunRow[];
  base: number;
  choices: Choices;
  onChange: (changes: Partial<Choices>) => void;
}

function Row({ row, runs, base, choices, onChange }: RowProps) {
  const isMetric = row.group === "metrics";
  const lower = isLowerBest(row.name, choices.flipped);
  const best = isMetric ? bestIndexes(row.values, lower) : [];
  const flip = () => {
    const isFlipped = choices.flipped.includes(row.name);
    onChange({
      flipped: isFlipped ? choices.flipped.filter((name) => name !== row.name) : [...choices.flipped, row.name],
    });
  };
  return (
    <tr className={row.differs ? "" : "is-same"}>
      <th scope="row" title={row.name}>
        <span className="row-name">{row.name}</span>
        {isMetric && (
          <button
            type="button"
            className="better-direction"
            onClick={flip}
            title={`${lower ? "Lower" : "Higher"} is better. Click to change.`}
            aria-label={`${row.name}: ${lower ? "lower" : "higher"} is better. Change`}
          >
            {lower ? "↓" : "↑"}
          </button>
        )}
      </th>
      {row.values.map((value, index) => (
        <Cell
          key={runs[index]?.id}
          value={value}
          base={base >= 0 && index !== base ? row.values[base] : undefined}
          isBest={best.includes(index)}
          isBase={index === base}
          isMetric={isMetric}
        />
      ))}
    </tr>
  );
}

interface CellProps {
  value: unknown;
  base: unknown;
  isBest: boolean;
  isBase: boolean;
  isMetric: boolean;
}

function Cell({ value, base, isBest, isBase, isMetric }: CellProps) {
  const whole = valueText(value);
  const text = isMetric && typeof value === "number" ? number(value, 5) : whole;
  const change = base === undefined ? "" : relativeChange(value, base);
  const classes = [isBase ? "is-base" : "", isBest ? "is-best" : "", change === "same" ? "is-same" : ""]
    .join(" ")
    .trim();
  return (
    <td className={classes} title={whole}>
      {whole.includes("\n") ? <pre>{whole}</pre> : <span className="cell-value">{text}</span>}
      {isBest && (
        <span className="best-mark" title="Best value">
          ★<span className="hidden-text"> best</span>
        </span>
      )}
      {change !== "" && <span className="change">{change}</span>}
    </td>
  );
}
