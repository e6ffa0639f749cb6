/** Selects the runs to compare: by query, name or id. */

import "./RunPicker.css";
import { type FormEvent, useState } from "react";
import { queryString, useResource } from "../api";
import { runTitle } from "../format";
import { Link } from "../router";
import type { RunsPage } from "../types";
import { CommandBox, StatusMark } from "../ui";
import type { Choices } from "./urlState";

interface Props {
  choices: Choices;
  onChange: (changes: Partial<Choices>) => void;
}

export function NoRunsSelected({ choices, onChange }: Props) {
  return (
    <div className="compare-empty">
      <h2>No runs to compare yet</h2>
      <p>
        In the <Link to="/runs">list of runs</Link>, select runs with <kbd>x</kbd> and press <kbd>c</kbd>, or search for
        them here:
      </p>
      <QueryForm choices={choices} onChange={onChange} />
      <p className="soft">The same in a terminal:</p>
      <CommandBox text="phalanx compare -q 'tags:nightly' -s metric.loss" />
    </div>
  );
}

/** The first runs of a query. */
export function QueryForm({ choices, onChange }: Props) {
  const [text, setText] = useState(choices.query ?? "");
  const [sort, setSort] = useState(choices.sort);
  const [limit, setLimit] = useState(String(choices.limit));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const checkedLimit = Math.min(100, Math.max(1, Math.round(Number(limit)) || 50));
    onChange({
      query: text.trim(),
      sort: sort.trim(),
      limit: checkedLimit,
      runs: [],
      off: [],
      brushes: [],
      baseline: "",
    });
  };
  return (
    <form className="query-form" onSubmit={submit}>
      <label className="grow">
        <span>Query</span>
        <input
          className="field"
          value={text}
          onChange={(event) => setText(event.target.value)}
          placeholder="status:succeeded, params.lr:<0.1"
          spellCheck={false}
        />
      </label>
      <label>
        <span>Sort</span>
        <input
          className="field"
          value={sort}
          onChange={(event) => setSort(event.target.value)}
          placeholder="metric.loss"
          spellCheck={false}
        />
      </label>
      <label>
        <span>Limit</span>
        <input
          className="field"
          type="number"
          min={1}
          max={100}
          value={limit}
          onChange={(event) => setLimit(event.target.value)}
        />
      </label>
      <button type="submit" className="button main">
        Compare
      </button>
    </form>
  );
}

/** Searches runs by name or id and adds the selected one. */
export function AddRun({ chosen, onAdd }: { chosen: string[]; onAdd: (run: string) => void }) {
  const [text, setText] = useState("");
  const search = text.trim().replace(/["%,|~<>=:]/g, "");
  const byName = useResource<RunsPage>(
    search ? `/runs${queryString({ q: `name:%${search}%`, sort: "name", limit: 8 })}` : null,
    {
      keepPrevious: true,
    },
  );
  const byId = useResource<RunsPage>(search ? `/runs${queryString({ q: `id:%${search}%`, limit: 4 })}` : null, {
    keepPrevious: true,
  });
  const found = search ? [...(byName.data?.runs ?? []), ...(byId.data?.runs ?? [])] : [];
  const others = found.filter(
    (run, place) => !chosen.includes(run.id) && found.findIndex((one) => one.id === run.id) === place,
  );
  return (
    <div className="add-run">
      <input
        className="field"
        type="search"
        value={text}
        placeholder="Add a run…"
        aria-label="Add a run by name or id"
        onChange={(event) => setText(event.target.value)}
      />
      {others.length > 0 && (
        <ul>
          {others.map((run) => (
            <li key={run.id}>
              <button
                type="button"
                onClick={() => {
                  setText("");
                  onAdd(run.id);
                }}
              >
                <StatusMark status={run.status} bare />
                <span className="cut">{runTitle(run)}</span>
                <span className="faint">{run.id}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
