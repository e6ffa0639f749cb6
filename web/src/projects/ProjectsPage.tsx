import "./projects.css";
import { type ReactNode, useState } from "react";
import { type ProjectRow, query, type RunRow, type RunsPage, useAnswer } from "../api";
import { ago, count, many, moment, title } from "../format";
import { Link, useTitle } from "../router";
import { Empty, Failure, Spinner, StatusMark } from "../ui";

const POLL_MS = 15_000;
const MOST = 200;
const MOST_ASKED = 12; // projects at rest that are asked for one by one
const RUNNING = "status:running|starting";
const NEWEST = { sort: "-updated_at", columns: "id" };

/** Every project, how many runs it has, and what happened last in it. */
export default function ProjectsPage(): ReactNode {
  useTitle("Projects");
  const { data, error, again } = useAnswer<{ projects: ProjectRow[] }>("/projects", { live: POLL_MS });
  const [text, setText] = useState("");
  // What happened last, and what runs: of all projects at once, as far as that reaches.
  const newest = useAnswer<RunsPage>(`/runs${query({ ...NEWEST, limit: 200 })}`, { live: POLL_MS });
  const running = useAnswer<RunsPage>(`/runs${query({ q: RUNNING, columns: "id", limit: 1000 })}`, { live: POLL_MS });
  const last = new Map([...(newest.data?.runs ?? [])].reverse().map((run) => [run.project, run]));
  const found = (data?.projects ?? []).filter(({ name }) => name.toLowerCase().includes(text.toLowerCase()));
  const shown = found.slice(0, MOST);
  const resting = newest.data ? shown.filter(({ name }) => !last.has(name)).slice(0, MOST_ASKED) : [];
  return (
    <div className="page">
      <div className="row projects-head">
        <h1 className="grow">Projects</h1>
        {(data?.projects.length ?? 0) > 8 && (
          <input
            className="field"
            aria-label="Find a project"
            placeholder="Find a project"
            value={text}
            onChange={(event) => setText(event.target.value)}
          />
        )}
      </div>
      {error && <Failure error={error} again={again} />}
      {!data && !error && <Spinner />}
      {data?.projects.length === 0 && (
        <Empty title="No projects yet" type="phalanx run -f polyaxonfile.yml --project vision">
          A project is there as soon as it has a run.
        </Empty>
      )}
      <ul className="projects">
        {shown.map((project) => (
          <Project
            key={project.name}
            project={project}
            running={running.data?.runs.filter((run) => run.project === project.name).length ?? 0}
            newest={last.get(project.name)}
            asks={resting.includes(project)}
          />
        ))}
      </ul>
      {found.length > MOST && (
        <p className="soft">and {many(found.length - MOST, "other")}: write a part of the name.</p>
      )}
    </div>
  );
}

type ProjectProps = { project: ProjectRow; running: number; newest: RunRow | undefined; asks: boolean };

function Project({ project: { name, runs }, running, newest, asks }: ProjectProps): ReactNode {
  const own = useAnswer<RunsPage>(asks ? `/runs${query({ ...NEWEST, project: name, limit: 1 })}` : null);
  const run = newest ?? own.data?.runs[0];
  const to = `/runs?project=${encodeURIComponent(name)}`;
  return (
    <li className="card project">
      <h2 className="cut">
        <Link to={to}>{name}</Link>
      </h2>
      <div className="row soft">
        <span>{many(runs, "run")}</span>
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
            {title(run)}
          </Link>
          <span title={moment(run.updated_at)}>{ago(run.updated_at)}</span>
        </div>
      )}
    </li>
  );
}
