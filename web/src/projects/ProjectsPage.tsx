import "./projects.css";
import { type ReactNode, useState } from "react";
import { type ProjectRow, queryString, type RunRow, type RunsPage, useResource } from "../api";
import { ago, count, plural, runTitle, timestamp, visible } from "../format";
import { Link, useTitle } from "../router";
import { EmptyState, ErrorMessage, Spinner, StatusMark } from "../ui";

const POLL_MS = 15_000;
const MAX = 200;
const MAX_IDLE = 12; // idle projects whose last run is requested one by one
const RUNNING = "status:running|starting";
const NEWEST = { sort: "-updated_at", columns: "id" };

/** All projects with their number of runs and latest activity. */
export default function ProjectsPage(): ReactNode {
  useTitle("Projects");
  const { data, error, reload } = useResource<{ projects: ProjectRow[] }>("/projects", { pollMs: POLL_MS });
  const [text, setText] = useState("");
  // The latest and the running runs of all projects in two requests, up to their limits.
  const newest = useResource<RunsPage>(`/runs${queryString({ ...NEWEST, limit: 200 })}`, { pollMs: POLL_MS });
  const running = useResource<RunsPage>(`/runs${queryString({ q: RUNNING, columns: "id", limit: 1000 })}`, {
    pollMs: POLL_MS,
  });
  const last = new Map([...(newest.data?.runs ?? [])].reverse().map((run) => [run.project, run]));
  const found = (data?.projects ?? []).filter(({ name }) => name.toLowerCase().includes(text.toLowerCase()));
  const shown = found.slice(0, MAX);
  const idle = newest.data ? shown.filter(({ name }) => !last.has(name)).slice(0, MAX_IDLE) : [];
  return (
    <div className="page">
      <div className="row projects-head">
        <h1 className="grow">Projects</h1>
        {(data?.projects.length ?? 0) > 8 && (
          <input
            className="field"
            aria-label="Find project"
            placeholder="Find project"
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        )}
      </div>
      {error && <ErrorMessage error={error} retry={reload} />}
      {!data && !error && <Spinner />}
      {data?.projects.length === 0 && (
        <EmptyState title="No projects yet" command="phalanx run -f polyaxonfile.yml --project vision">
          A project is created with its first run.
        </EmptyState>
      )}
      <ul className="projects">
        {shown.map((project) => (
          <Project
            key={project.name}
            project={project}
            running={running.data?.runs.filter((run) => run.project === project.name).length ?? 0}
            newest={last.get(project.name)}
            loadsLatest={idle.includes(project)}
          />
        ))}
      </ul>
      {found.length > MAX && <p className="soft">{plural(found.length - MAX, "more project")}. Type to search.</p>}
    </div>
  );
}

type ProjectProps = { project: ProjectRow; running: number; newest: RunRow | undefined; loadsLatest: boolean };

function Project({ project: { name, runs }, running, newest, loadsLatest }: ProjectProps): ReactNode {
  const own = useResource<RunsPage>(loadsLatest ? `/runs${queryString({ ...NEWEST, project: name, limit: 1 })}` : null);
  const run = newest ?? own.data?.runs[0];
  const to = `/runs?project=${encodeURIComponent(name)}`;
  return (
    <li className="card project">
      <h2 className="cut">
        <Link to={to}>{visible(name)}</Link>
      </h2>
      <div className="row soft">
        <span>{plural(runs, "run")}</span>
        {running > 0 && (
          <Link to={`${to}&q=${RUNNING}`} className="tag is-accent">
            {count(running)} running
          </Link>
        )}
      </div>
      {run && (
        <div className="row faint project-last">
          <StatusMark status={run.status} bare />
          <Link to={`/runs/${run.id}`} className="cut grow">
            {runTitle(run)}
          </Link>
          <span title={timestamp(run.updated_at)}>{ago(run.updated_at)}</span>
        </div>
      )}
    </li>
  );
}
