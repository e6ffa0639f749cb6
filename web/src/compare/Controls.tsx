/** How the charts of a comparison are drawn. */

import "./Controls.css";
import { useEffect, useState } from "react";
import { Picker } from "./MultiSelect";
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
      <Picker
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
            <option value="deviation">± deviation</option>
            <option value="range">smallest to largest</option>
          </select>
        </label>
      )}
      <label>
        <span className="soft">Across</span>
        <select
          className="field"
          value={choices.x}
          onChange={(event) => onChange({ x: event.target.value as XAxis, zoom: null })}
        >
          <option value="step">step</option>
          <option value="time">time</option>
          <option value="epoch">epoch</option>
        </select>
      </label>
      <Smoothing value={choices.smoothing} onChange={(smoothing) => onChange({ smoothing })} />
      <Toggle label="log x" isOn={choices.logX} onChange={(logX) => onChange({ logX })} />
      <Toggle label="log y" isOn={choices.logY} onChange={(logY) => onChange({ logY })} />
    </div>
  );
}

export function GroupBy({ choices, params, onChange }: Omit<Props, "metrics">) {
  // Groups have other keys than runs: what was switched off among the ones says nothing of the others.
  return (
    <Picker title="Group by" names={params} chosen={choices.by} onChange={(by) => onChange({ by, off: [] })} most={6} />
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

/** It is drawn while it is dragged; the address is written when it stands still. */
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
