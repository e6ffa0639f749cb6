/** The ways to look at runs beside each other, each with what can be chosen about it. */

import type { Comparison } from "../types";
import { Spinner } from "../ui";
import { ChartControls, GroupBy, Toggle } from "./Controls";
import { Differences } from "./Differences";
import { fieldTitle } from "./fields";
import { Picker } from "./MultiSelect";
import { Overlays } from "./Overlays";
import { Parallel } from "./ParallelCoordinates";
import { allFields, defaultAxes, MAX_AXES } from "./plotFields";
import { Scatter } from "./ScatterPlot";
import type { Choices, View } from "./urlState";
import type { Shown } from "./visibleRuns";

export interface ViewProps {
  shown: Shown;
  comparison: Comparison | undefined;
  choices: Choices;
  onChange: (changes: Partial<Choices>) => void;
}

export const NAMES: Record<View, string> = {
  charts: "Charts",
  differences: "Differences",
  parallel: "Parallel axes",
  scatter: "Scatter",
};

export function CompareView(props: ViewProps) {
  switch (props.choices.view) {
    case "charts":
      return <ChartsView {...props} />;
    case "differences":
      return <DifferencesView {...props} />;
    case "parallel":
      return <ParallelView {...props} />;
    default:
      return <Scatter {...plotted(props)} shown={props.shown.shown} />;
  }
}

function ChartsView({ shown, choices, onChange }: ViewProps) {
  const names = choices.metrics.length > 0 ? choices.metrics : shown.metrics;
  const { fields } = shown;
  return (
    <>
      <ChartControls choices={choices} metrics={fields.metrics} params={fields.params} onChange={onChange} />
      {names.length === 0 && <p className="soft compare-none">These runs logged no metrics.</p>}
      <Overlays
        runs={shown.runs}
        names={names}
        known={fields.metrics}
        entries={shown.entries}
        choices={choices}
        highlighted={shown.highlighted}
        onZoom={(zoom) => onChange({ zoom })}
      />
    </>
  );
}

function DifferencesView({ shown, comparison, choices, onChange }: ViewProps) {
  const { entries, labels } = shown;
  return (
    <>
      <div className="compare-controls">
        <Toggle
          label="Only what differs"
          isOn={!choices.everything}
          onChange={(only) => onChange({ everything: !only })}
        />
        <input
          className="field"
          type="search"
          placeholder="Find a row…"
          aria-label="Find a row"
          value={choices.find}
          onChange={(event) => onChange({ find: event.target.value })}
        />
      </div>
      {comparison ? (
        <Differences {...{ comparison, entries, labels, choices, onChange }} shown={shown.shown} />
      ) : (
        <Spinner label="Comparing" />
      )}
    </>
  );
}

function ParallelView(props: ViewProps) {
  const { shown, choices, onChange } = props;
  const fields = allFields(shown.runs);
  return (
    <>
      <div className="compare-controls">
        <Picker
          title="Axes"
          names={fields}
          chosen={choices.axes.length > 0 ? choices.axes : defaultAxes(shown.runs)}
          label={fieldTitle}
          onChange={(axes) => onChange({ axes })}
          most={MAX_AXES}
        />
        <label>
          <span className="soft">Colour by</span>
          <select
            className="field"
            value={choices.colour}
            onChange={(event) => onChange({ colour: event.target.value })}
          >
            <option value="">the last axis</option>
            {fields.map((field) => (
              <option key={field} value={field}>
                {fieldTitle(field)}
              </option>
            ))}
          </select>
        </label>
        <GroupBy choices={choices} params={shown.fields.params} onChange={onChange} />
      </div>
      <Parallel {...plotted(props)} on={shown.on} />
    </>
  );
}

/** What plots over fields need. They point at runs, the legend at its lines: a group lights none of its runs alone. */
function plotted({ shown, choices, onChange }: ViewProps) {
  const { runs, labels, entries, isGrouped } = shown;
  const keyOf = (run: string) => entries.find((entry) => entry.runs.includes(run))?.key ?? null;
  return {
    runs,
    labels,
    choices,
    onChange,
    highlighted: isGrouped ? null : shown.highlighted,
    onHighlight: (run: string | null) => shown.highlight(run === null ? null : keyOf(run)),
  };
}
