import { type ReactNode, useState } from "react";
import { type ProjectRow, useResource } from "../api";
import { count, visible } from "../format";
import { navigate, setParams, useRoute } from "../router";
import { Icon, Menu, Spinner } from "../ui";

/** Selects the project, which is part of the URL. */
export function ProjectMenu(): ReactNode {
  const { path, params } = useRoute();
  const project = params.get("project");
  const label = (
    <>
      <span className="cut">{visible(project ?? "All projects")}</span>
      <Icon name="down" size={12} />
    </>
  );
  const choose = (name: string | null): void => {
    if (path === "/" || path === "/runs") setParams({ project: name, columns: null }, { push: true });
    else navigate(name === null ? "/runs" : `/runs?project=${encodeURIComponent(name)}`);
  };
  return (
    <Menu label={label} name="Project" className="button plain frame-project">
      {(close) => (
        <ProjectList
          now={project}
          choose={(name) => {
            close();
            choose(name);
          }}
        />
      )}
    </Menu>
  );
}

function ProjectList({ now, choose }: { now: string | null; choose: (name: string | null) => void }): ReactNode {
  const { data } = useResource<{ projects: ProjectRow[] }>("/projects");
  const [text, setText] = useState("");
  if (!data) return <Spinner />;
  const found = data.projects.filter(({ name }) => name.toLowerCase().includes(text.toLowerCase()));
  return (
    <>
      {data.projects.length > 8 && (
        <input
          className="field frame-find"
          placeholder="Find project"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      )}
      <ProjectItem name={null} label="All projects" runs={null} now={now} choose={choose} />
      {found.slice(0, 100).map(({ name, runs }) => (
        <ProjectItem key={name} name={name} label={visible(name)} runs={runs} now={now} choose={choose} />
      ))}
    </>
  );
}

type ProjectItemProps = {
  name: string | null;
  label: string;
  runs: number | null;
  now: string | null;
  choose: (name: string | null) => void;
};

function ProjectItem({ name, label, runs, now, choose }: ProjectItemProps): ReactNode {
  return (
    <button type="button" className="menu-item" aria-pressed={name === now} onClick={() => choose(name)}>
      <span className="grow cut">{label}</span>
      {runs !== null && <span className="faint number">{count(runs)}</span>}
      {name === now && <Icon name="check" size={14} />}
    </button>
  );
}
