/** A scatter plot of any two fields: a mark per run, coloured by a third field. */

import "./plot.css";
import "./ScatterPlot.css";
import { useMemo } from "react";
import { usePalette } from "../charts";
import { plural } from "../format";
import { Link } from "../router";
import { useEffectiveTheme } from "../theme";
import type { RunRow } from "../types";
import { ColourKey, shapePath } from "./ColourKey";
import { differingParams, fieldTitle, fieldValue } from "./fields";
import { allFields, colourRuns, describeRun, mainMetric, placesOn, scaleOf, useWidth } from "./plotFields";
import { type Kind, possibleKinds, type Scale } from "./scales";
import type { Choices } from "./urlState";

const HEIGHT = 440;
const LEFT = 70;
const BOTTOM = 46;
const MARGIN = 16;
const PADDING = 0.04; // as a share, so that no mark is on an edge

interface Props {
  runs: RunRow[];
  shown: Set<string>;
  labels: Map<string, string>;
  choices: Choices;
  highlighted: string | null;
  onHighlight: (run: string | null) => void;
  onChange: (changes: Partial<Choices>) => void;
}

/** The selected fields, or defaults. */
function selectedFields(runs: RunRow[], choices: Choices): { across: string; up: string; colour: string } {
  const metric = mainMetric(runs);
  const [param, second] = differingParams(runs);
  return {
    across: choices.across || (param === undefined ? "took" : `params.${param}`),
    up: choices.up || (metric === null ? "took" : `metric.${metric}`),
    colour: choices.colour || (second === undefined ? "took" : `params.${second}`),
  };
}

export function ScatterPlot({ runs, shown, labels, choices, highlighted, onHighlight, onChange }: Props) {
  const [box, width] = useWidth<HTMLDivElement>(800);
  const { across, up, colour } = selectedFields(runs, choices);
  const [x, y, paintScale] = useMemo(
    () => [across, up, colour].map((field) => scaleOf(runs, field, choices.kinds)) as [Scale, Scale, Scale],
    [runs, across, up, colour, choices.kinds],
  );
  const paint = colourRuns(paintScale, colour, usePalette(), useEffectiveTheme());
  const [placesX, placesY] = useMemo(
    () => [placesOn(runs, across, x), placesOn(runs, up, y)],
    [runs, across, up, x, y],
  );
  const marks = runs.flatMap((run) => {
    const [atX, atY] = [placesX.get(run.id) ?? null, placesY.get(run.id) ?? null];
    return shown.has(run.id) && atX !== null && atY !== null ? [{ run, atX, atY }] : [];
  });
  const shapeOf = (run: RunRow) => {
    const at = paintScale.kind === "category" ? paintScale.place(fieldValue(run, colour)) : null;
    return at === null ? 0 : paintScale.valueAt(at);
  };
  const missing = runs.filter((run) => shown.has(run.id)).length - marks.length;
  const toX = (at: number) => LEFT + (PADDING + at * (1 - 2 * PADDING)) * Math.max(50, width - LEFT - MARGIN);
  const toY = (at: number) => MARGIN + (1 - PADDING - at * (1 - 2 * PADDING)) * (HEIGHT - MARGIN - BOTTOM);
  const setKind = (field: string, kind: Kind) => onChange({ kinds: { ...choices.kinds, [field]: kind } });
  const fields = allFields(runs);
  const highlightedMark = marks.find(({ run }) => run.id === highlighted);
  return (
    <div className="scatter">
      <div className="compare-controls">
        <FieldChoice
          label="Y axis"
          field={up}
          fields={fields}
          runs={runs}
          scale={y}
          onKind={setKind}
          onField={(field) => onChange({ up: field })}
        />
        <FieldChoice
          label="X axis"
          field={across}
          fields={fields}
          runs={runs}
          scale={x}
          onKind={setKind}
          onField={(field) => onChange({ across: field })}
        />
        <FieldChoice
          label="Colour"
          field={colour}
          fields={fields}
          runs={runs}
          scale={paintScale}
          onKind={setKind}
          onField={(field) => onChange({ colour: field })}
        />
        <ColourKey field={colour} scale={paintScale} />
      </div>
      <div ref={box} className="plot-scroll">
        <svg
          width={width}
          height={HEIGHT}
          role="group"
          aria-label={`${fieldTitle(up)} against ${fieldTitle(across)} of ${marks.length} runs`}
        >
          <g className="plot-axis">
            <line x1={LEFT} x2={LEFT} y1={MARGIN} y2={HEIGHT - BOTTOM} />
            <line x1={LEFT} x2={width - MARGIN} y1={HEIGHT - BOTTOM} y2={HEIGHT - BOTTOM} />
            {x.ticks.map((tick) => (
              <g key={tick.label}>
                <line className="plot-grid" x1={toX(tick.at)} x2={toX(tick.at)} y1={MARGIN} y2={HEIGHT - BOTTOM} />
                <text x={toX(tick.at)} y={HEIGHT - BOTTOM + 16} textAnchor="middle">
                  {short(tick.label, 12)}
                </text>
              </g>
            ))}
            {y.ticks.map((tick) => (
              <g key={tick.label}>
                <line className="plot-grid" x1={LEFT} x2={width - MARGIN} y1={toY(tick.at)} y2={toY(tick.at)} />
                <text x={LEFT - 6} y={toY(tick.at) + 4} textAnchor="end">
                  {short(tick.label, 9)}
                </text>
              </g>
            ))}
            <text className="axis-name" x={(LEFT + width) / 2} y={HEIGHT - 8} textAnchor="middle">
              {fieldTitle(across)}
            </text>
            <text className="axis-name" transform={`translate(14 ${HEIGHT / 2}) rotate(-90)`} textAnchor="middle">
              {fieldTitle(up)}
            </text>
          </g>
          {marks.map(({ run, atX, atY }) => (
            <Link
              key={run.id}
              to={`/runs/${encodeURIComponent(run.id)}`}
              aria-label={describeRun(run, [across, up, colour], labels)}
              onPointerEnter={() => onHighlight(run.id)}
              onPointerLeave={() => onHighlight(null)}
              onFocus={() => onHighlight(run.id)}
              onBlur={() => onHighlight(null)}
            >
              <path
                className={`scatter-mark ${highlighted !== null && highlighted !== run.id ? "is-outside" : ""}`}
                d={shapePath(shapeOf(run))}
                transform={`translate(${toX(atX).toFixed(1)} ${toY(atY).toFixed(1)}) scale(${highlighted === run.id ? 1.5 : 1})`}
                fill={paint(run)}
                data-run={run.id}
              />
            </Link>
          ))}
          {highlightedMark && (
            <text
              className="scatter-name"
              x={toX(highlightedMark.atX)}
              y={toY(highlightedMark.atY) - 13}
              textAnchor={highlightedMark.atX > 0.7 ? "end" : highlightedMark.atX < 0.3 ? "start" : "middle"}
            >
              {labels.get(highlightedMark.run.id) ?? highlightedMark.run.id}
            </text>
          )}
        </svg>
      </div>
      <p className="soft plot-note" aria-live="polite">
        {highlightedMark
          ? describeRun(highlightedMark.run, [across, up, colour], labels)
          : "Hover over a mark or Tab to it to see its run. Enter opens it."}
        {missing > 0 && ` ${plural(missing, "run")} without one of the two values are not shown.`}
      </p>
    </div>
  );
}

const short = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

interface FieldChoiceProps {
  label: string;
  field: string;
  fields: string[];
  runs: RunRow[];
  scale: Scale;
  onField: (field: string) => void;
  onKind: (field: string, kind: Kind) => void;
}

function FieldChoice({ label, field, fields, runs, scale, onField, onKind }: FieldChoiceProps) {
  const kinds = possibleKinds(runs.map((run) => fieldValue(run, field)));
  return (
    <span className="field-choice">
      <label>
        <span className="soft">{label}</span>
        <select className="field" value={field} onChange={(event) => onField(event.target.value)}>
          {[...new Set([field, ...fields])].map((name) => (
            <option key={name} value={name}>
              {name.startsWith("metric.") ? `${fieldTitle(name)} (metric)` : fieldTitle(name)}
            </option>
          ))}
        </select>
      </label>
      <select
        className="field"
        aria-label={`Scale of ${label.toLowerCase()}`}
        value={scale.kind}
        disabled={kinds.length < 2}
        onChange={(event) => onKind(field, event.target.value as Kind)}
      >
        {kinds.map((kind) => (
          <option key={kind} value={kind}>
            {kind}
          </option>
        ))}
      </select>
    </span>
  );
}
