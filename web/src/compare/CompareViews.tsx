/** The views of a comparison, each with its controls. */

import type { Comparison } from "../types";
import { Spinner } from "../ui";
import { ChartControls, GroupBy, Toggle } from "./Controls";
import { Differences } from "./Differences";
import { fieldTitle } from "./fields";
import { MultiSelect } from "./MultiSelect";
import { Overlays } from "./Overlays";
import { ParallelCoordinates } from "./ParallelCoordinates";
import { allFields, defaultAxes, MAX_AXES } from "./plotFields";
import { ScatterPlot } from "./ScatterPlot";
import type { Choices, View } from "./urlState";
import type { VisibleRuns } from "./visibleRuns";

export interface ViewProps {
  shown: VisibleRuns;
  comparison: Comparison | undefined;
  choices: Choices;
  onChange: (changes: Partial<Choices>) => void;
}

export const VIEW_TITLES: Record<View, string> = {
  charts: "Charts",
  differences: "Differences",
  parallel: "Parallel coordinates",
  scatter: "Scatter plot",
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
      return <ScatterPlot {...plotProps(props)} shown={props.shown.shown} />;
  }
}

function ChartsView({ shown, choices, onChange }: ViewProps) {
  const names = choices.metrics.length > 0 ? choices.metrics : shown.metrics;
  const { fields } = shown;
  return (
    <>
      <ChartControls choices={choices} metrics={fields.metrics} params={fields.params} onChange={onChange} />
      {names.length === 0 && <p className="soft compare-none">These runs have no metrics.</p>}
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
          label="Only differences"
          isOn={!choices.everything}
          onChange={(only) => onChange({ everything: !only })}
        />
        <input
          className="field"
          type="search"
          placeholder="Filter rows"
          aria-label="Filter rows"
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
        <MultiSelect
          title="Axes"
          names={fields}
          chosen={choices.axes.length > 0 ? choices.axes : defaultAxes(shown.runs)}
          label={fieldTitle}
          onChange={(axes) => onChange({ axes })}
          max={MAX_AXES}
        />
        <label>
          <span className="soft">Colour by</span>
          <select
            className="field"
            value={choices.colour}
            onChange={(event) => onChange({ colour: event.target.value })}
          >
            <option value="">last axis</option>
            {fields.map((field) => (
              <option key={field} value={field}>
                {fieldTitle(field)}
              </option>
            ))}
          </select>
        </label>
        <GroupBy choices={choices} params={shown.fields.params} onChange={onChange} />
      </div>
      <ParallelCoordinates {...plotProps(props)} on={shown.on} />
    </>
  );
}

/** The props of both plots. Plots highlight runs, the legend highlights entries; with groups, no single run is highlighted. */
function plotProps({ shown, choices, onChange }: ViewProps) {
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
