import { type KeyboardEvent, type ReactNode, useEffect, useState } from "react";
import { type ProjectRow, queryString, type RunsPage, useResource } from "../api";
import { ago, runTitle } from "../format";
import { navigate } from "../router";
import { quoted } from "../runs/querySuggestions";
import { Dialog, Icon, StatusMark } from "../ui";

const PAUSE_MS = 150;
const PAGES: readonly [to: string, label: string][] = [
  ["/runs", "Runs"],
  ["/compare", "Compare"],
  ["/queue", "Queue and machine"],
  ["/models", "Models"],
  ["/projects", "Projects"],
  ["/help", "Help"],
];

type Goal = { to: string; mark: ReactNode; label: string; about: string };

/** Type a part of a name, and go there. */
export default function Jump({ close }: { close: () => void }): ReactNode {
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const goals = useGoals(text.trim());
  const go = (goal: Goal | undefined): void => {
    if (!goal) return;
    close();
    navigate(goal.to);
  };
  const press = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (by) {
      event.preventDefault();
      setActive((active + by + goals.length) % Math.max(1, goals.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      go(goals[active]);
    }
  };
  return (
    <Dialog title="Go to" onClose={close}>
      <input
        className="field jump-field"
        role="combobox"
        aria-label="A part of a name or id"
        aria-expanded="true"
        aria-controls="jump-goals"
        placeholder="A run, project or page"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setActive(0);
        }}
        onKeyDown={press}
      />
      <div id="jump-goals" role="listbox" aria-label="Where to" className="jump-goals">
        {goals.map((goal, number) => (
          <button
            key={goal.to}
            type="button"
            role="option"
            tabIndex={-1}
            aria-selected={number === active}
            className="menu-item"
            onClick={() => go(goal)}
          >
            {goal.mark}
            <span className="cut">{goal.label}</span>
            <span className="grow faint cut">{goal.about}</span>
          </button>
        ))}
        {goals.length === 0 && <p className="faint jump-none">Nothing is called that.</p>}
      </div>
    </Dialog>
  );
}

function useGoals(text: string): Goal[] {
  const [asked, setAsked] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(text), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const isSearch = asked !== "";
  // The language has no "or" between fields: names and ids are asked for each by itself.
  const word = asked.replaceAll(/[",|]/g, "");
  const byName = useResource<RunsPage>(
    `/runs${queryString({ q: isSearch ? `name:%${word}%` : "", limit: 6, columns: "id" })}`,
    { keepPrevious: true },
  );
  const isId = /^[0-9a-z-]{3,}$/.test(word);
  const byId = useResource<RunsPage>(
    isId ? `/runs${queryString({ q: `id:${quoted(word).replaceAll('"', "")}%`, limit: 4, columns: "id" })}` : null,
  );
  const projects = useResource<{ projects: ProjectRow[] }>("/projects");
  const has = (name: string): boolean => name.toLowerCase().includes(text.toLowerCase());
  const runs = [...(byId.data?.runs ?? []), ...(byName.data?.runs ?? [])];
  const unique = [...new Map(runs.map((run) => [run.id, run])).values()];
  return [
    ...(text ? [] : PAGES.map(([to, label]) => ({ to, label, mark: <Icon name="right" size={14} />, about: "" }))),
    ...unique.map((run) => ({
      to: `/runs/${run.id}`,
      label: runTitle(run),
      mark: <StatusMark status={run.status} bare />,
      about: `${run.id} · ${run.project} · ${ago(run.created_at)}`,
    })),
    ...(text
      ? PAGES.filter(([, label]) => has(label)).map(([to, label]) => ({
          to,
          label,
          mark: <Icon name="right" size={14} />,
          about: "page",
        }))
      : []),
    ...(projects.data?.projects ?? [])
      .filter(({ name }) => text && has(name))
      .slice(0, 5)
      .map(({ name }) => ({
        to: `/runs?project=${encodeURIComponent(name)}`,
        label: name,
        mark: <Icon name="folder" size={14} />,
        about: "project",
      })),
  ];
}
