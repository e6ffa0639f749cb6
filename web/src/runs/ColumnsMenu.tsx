import { type ReactNode, useState } from "react";
import { type Columns, queryString, type RunRow, useResource } from "../api";
import { count } from "../format";
import { Icon, Menu } from "../ui";
import { BUILT_IN } from "./columns";

type Props = {
  project: string;
  shown: readonly string[];
  rows: () => RunRow[];
  choose: (keys: string[] | null) => void;
};

/** Selects the columns of the table. */
export function ColumnsMenu(props: Props): ReactNode {
  const label = (
    <>
      <Icon name="columns" size={14} />
      <span className="wide-only">Columns</span>
    </>
  );
  return (
    <Menu label={label} name="Choose columns" alignRight>
      {() => <Choices {...props} />}
    </Menu>
  );
}

const BEST = ["best", "min", "max"] as const;

type Choice = { key: string; name: string; runs: number | null };

function Choices({ project, shown, rows, choose }: Props): ReactNode {
  const [text, setText] = useState("");
  const { data, error } = useResource<Columns>(`/runs/columns${queryString({ project })}`);
  const names = data ?? (error ? columnsOf(rows()) : { params: [], metrics: [] });
  const groups: [string, Choice[]][] = [
    ["Metrics of the first rank", names.metrics.map(({ name, runs }) => ({ key: `metric.${name}`, name, runs }))],
    [
      "Best values of the first rank",
      names.metrics.flatMap(({ name, runs }) =>
        BEST.map((of) => ({ key: `${of}.${name}`, name: `${of} ${name}`, runs })),
      ),
    ],
    ["Params", names.params.map(({ name, runs }) => ({ key: `params.${name}`, name, runs }))],
    ["Run", BUILT_IN.map(({ key, title }) => ({ key, name: title, runs: null }))],
  ];
  const matches = ({ name }: Choice): boolean => name.toLowerCase().includes(text.toLowerCase());
  const toggle = (key: string): void => {
    if (shown.includes(key)) {
      choose(shown.filter((one) => one !== key));
      return;
    }
    const index = shown.findIndex((one) => !one.includes("."));
    const isNamed = key.includes(".") && index >= 0;
    choose(isNamed ? [...shown.slice(0, index), key, ...shown.slice(index)] : [...shown, key]);
  };
  return (
    <div className="columns-menu">
      <input
        className="field"
        placeholder="Find param or metric"
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      {groups.map(([title, choices]) => {
        const found = choices.filter(matches);
        if (!found.length) return null;
        return (
          <fieldset key={title}>
            <legend className="menu-title">{title}</legend>
            {found.slice(0, 60).map(({ key, name, runs }) => (
              <label key={key} className="menu-item">
                <input type="checkbox" checked={shown.includes(key)} onChange={() => toggle(key)} />
                <span className="grow cut" title={name}>
                  {name}
                </span>
                {runs !== null && <span className="faint number">{count(runs)}</span>}
              </label>
            ))}
            {found.length > 60 && (
              <div className="menu-title">and {count(found.length - 60)} more. Type to search.</div>
            )}
          </fieldset>
        );
      })}
      <hr />
      <button type="button" className="menu-item" onClick={() => choose(null)}>
        Default columns
      </button>
    </div>
  );
}

/** The params and metrics of the loaded runs, if the server cannot list all. */
function columnsOf(rows: RunRow[]): Columns {
  const tally = (lists: string[][]): { name: string; runs: number }[] => {
    const counts = new Map<string, number>();
    for (const name of lists.flat()) counts.set(name, (counts.get(name) ?? 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]).map(([name, runs]) => ({ name, runs }));
  };
  return {
    params: tally(rows.map((run) => Object.keys(run.params))),
    metrics: tally(rows.map((run) => Object.keys(run.summary))),
  };
}
