/** The controls of the charts of a comparison. */

import "./Controls.css";
import { useEffect, useState } from "react";
import { MultiSelect } from "./MultiSelect";
import type { Band } from "./runGroups";
import type { Choices, XAxis } from "./urlState";

interface Props {
  choices: Choices;
  metrics: string[];
  params: string[];
  onChange: (changes: Partial<Choices>) => void;
}

export function ChartControls({ choices, metrics, params, onChange }: Props) {
  return (
    <div className="compare-controls">
      <MultiSelect
        title="Metrics"
        names={metrics}
        chosen={choices.metrics}
        none="all"
        onChange={(names) => onChange({ metrics: names })}
      />
      <GroupBy choices={choices} params={params} onChange={onChange} />
      {choices.by.length > 0 && (
        <label>
          <span className="soft">Band</span>
          <select
            className="field"
            value={choices.band}
            onChange={(event) => onChange({ band: event.target.value as Band })}
          >
            <option value="deviation">± standard deviation</option>
            <option value="range">min to max</option>
          </select>
        </label>
      )}
      <label>
        <span className="soft">X axis</span>
        <select
          className="field"
          value={choices.x}
          onChange={(event) => onChange({ x: event.target.value as XAxis, zoom: null })}
        >
          <option value="step">step</option>
          <option value="time">time</option>
          <option value="epoch">epoch</option>
          <optgroup label="metric">
            {metrics.map((name) => (
              <option key={name} value={`metric.${name}`}>
                {name}
              </option>
            ))}
          </optgroup>
        </select>
      </label>
      <Smoothing value={choices.smoothing} onChange={(smoothing) => onChange({ smoothing })} />
      <Toggle label="log x" isOn={choices.logX} onChange={(logX) => onChange({ logX })} />
      <Toggle label="log y" isOn={choices.logY} onChange={(logY) => onChange({ logY })} />
    </div>
  );
}

export function GroupBy({ choices, params, onChange }: Omit<Props, "metrics">) {
  // Groups and runs have different keys, so hidden entries do not carry over.
  return (
    <MultiSelect
      title="Group by"
      names={params}
      chosen={choices.by}
      onChange={(by) => onChange({ by, off: [] })}
      max={6}
    />
  );
}

export function Toggle({ label, isOn, onChange }: { label: string; isOn: boolean; onChange: (isOn: boolean) => void }) {
  return (
    <label className="compare-toggle">
      <input type="checkbox" checked={isOn} onChange={(event) => onChange(event.target.checked)} />
      <span>{label}</span>
    </label>
  );
}

/** Updates the label while dragging, and the URL after a pause. */
function Smoothing({ value, onChange }: { value: number; onChange: (value: number) => void }) {
  const [now, setNow] = useState(value);
  useEffect(() => setNow(value), [value]);
  useEffect(() => {
    if (now === value) return;
    const timer = setTimeout(() => onChange(now), 120);
    return () => clearTimeout(timer);
  }, [now, value, onChange]);
  return (
    <label>
      <span className="soft">Smoothing</span>
      <input
        type="range"
        min={0}
        max={0.99}
        step={0.01}
        value={now}
        onChange={(event) => setNow(Number(event.target.value))}
      />
      <span className="number smoothing-value">{now === 0 ? "off" : now.toFixed(2)}</span>
    </label>
  );
}
