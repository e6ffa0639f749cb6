import { type KeyboardEvent, type ReactNode, useState } from "react";
import { type ProjectRow, queryString, type RunsPage, useResource } from "../api";
import { ago, runTitle, visible } from "../format";
import { navigate } from "../router";
import { quoted } from "../runs/querySuggestions";
import { Dialog, Icon, StatusMark } from "../ui";
import { useDebounced } from "../ui/hooks";

const PAUSE_MS = 150;
const PAGES: readonly [to: string, label: string][] = [
  ["/runs", "Runs"],
  ["/compare", "Compare"],
  ["/queue", "Queue and machine"],
  ["/models", "Models"],
  ["/projects", "Projects"],
  ["/help", "Help"],
];

type Target = { to: string; mark: ReactNode; label: string; about: string };

/** Search for a run, project or page, and open it. */
export default function QuickJump({ close }: { close: () => void }): ReactNode {
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const targets = useTargets(text.trim());
  const go = (target: Target | undefined): void => {
    if (!target) return;
    close();
    navigate(target.to);
  };
  const press = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (by) {
      event.preventDefault();
      setActive((active + by + targets.length) % Math.max(1, targets.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      go(targets[active]);
    }
  };
  return (
    <Dialog title="Go to" onClose={close}>
      <input
        className="field jump-field"
        role="combobox"
        aria-label="Part of a name or id"
        aria-expanded="true"
        aria-controls="jump-targets"
        placeholder="Run, project or page"
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          setActive(0);
        }}
        onKeyDown={press}
      />
      <div id="jump-targets" role="listbox" aria-label="Results" className="jump-targets">
        {targets.map((target, number) => (
          <button
            key={target.to}
            type="button"
            role="option"
            tabIndex={-1}
            aria-selected={number === active}
            className="menu-item"
            onClick={() => go(target)}
          >
            {target.mark}
            <span className="cut">{target.label}</span>
            <span className="grow faint cut">{target.about}</span>
          </button>
        ))}
        {targets.length === 0 && <p className="faint jump-none">No matches.</p>}
      </div>
    </Dialog>
  );
}

function useTargets(text: string): Target[] {
  const search = useDebounced(text, PAUSE_MS);
  const isSearch = search !== "";
  // The query language has no "or" between fields, so names and ids are two requests.
  const word = search.replaceAll(/[",|]/g, "");
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
      about: `${run.id} · ${visible(run.project)} · ${ago(run.created_at)}`,
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
