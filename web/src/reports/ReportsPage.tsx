/** All reports, and one of them. */

import "./reports.css";
import { lazy, type ReactNode, Suspense, useCallback, useEffect, useRef, useState } from "react";
import {
  type ApiError,
  apiPath,
  asApiError,
  type ProjectRow,
  post,
  queryString,
  requestTagged,
  type Tagged,
  useResource,
} from "../api";
import { download } from "../charts/downloads";
import { ago, plural, timestamp } from "../format";
import { currentRoute, Link, match, navigate, setParams, useRoute, useTitle } from "../router";
import { canEdit, useSession } from "../session";
import { Confirm, CopyButton, Dialog, EmptyState, ErrorMessage, Icon, Menu, notify, Spinner } from "../ui";
import { htmlFile } from "./htmlFile";
import { ReportBody, type StaticParts } from "./ReportBody";

const ReportEditor = lazy(() => import("./ReportEditor"));

const MAX = 200;

type ReportRow = {
  id: string;
  project: string;
  title: string;
  created_at: string;
  created_by: string;
  updated_at: string;
  updated_by: string;
};
export type Report = ReportRow & { text: string };

const pathOf = (id: string): string => apiPath`/reports/${id}`;
const urlOf = (id: string): string => `/reports/${encodeURIComponent(id)}`;

export default function ReportsPage(): ReactNode {
  const { path } = useRoute();
  const id = match("/reports/:id", path)?.id;
  return id ? <ReportPage key={id} id={id} /> : <ReportList />;
}

// The list ------------------------------------------------------------------------------------------------------------

function ReportList(): ReactNode {
  useTitle("Reports");
  const { params } = useRoute();
  const project = params.get("project");
  const path = `/reports${queryString({ project, limit: MAX })}`;
  const { data, error, reload } = useResource<{ count: number; reports: ReportRow[] }>(path);
  const isNew = params.has("new");
  return (
    <div className="page">
      <div className="row report-head">
        <h1 className="grow">Reports</h1>
        <button type="button" className="button main" onClick={() => setParams({ new: true })}>
          New report
        </button>
      </div>
      {error && <ErrorMessage error={error} retry={reload} />}
      {!data && !error && <Spinner />}
      {data?.reports.length === 0 && (
        <EmptyState title="No reports yet">
          A report is Markdown with live charts and tables of runs, at an address to share.
        </EmptyState>
      )}
      {data && data.reports.length > 0 && (
        <div className="report-scroll">
          <table className="plain-table report-list">
            <thead>
              <tr>
                <th>Title</th>
                <th>Project</th>
                <th>Changed</th>
                <th>By</th>
              </tr>
            </thead>
            <tbody>
              {data.reports.map((report) => (
                <tr key={report.id}>
                  <td>
                    <Link to={urlOf(report.id)}>{report.title}</Link>
                  </td>
                  <td>{report.project}</td>
                  <td title={timestamp(report.updated_at)}>{ago(report.updated_at)}</td>
                  <td>{report.updated_by}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {data && data.count > data.reports.length && (
        <p className="soft">{plural(data.count - data.reports.length, "more report")}.</p>
      )}
      {isNew && <NewReport project={project} />}
    </div>
  );
}

function NewReport({ project }: { project: string | null }): ReactNode {
  const session = useSession();
  const { data } = useResource<{ projects: ProjectRow[] }>("/projects");
  const projects = (data?.projects ?? []).map(({ name }) => name).filter((name) => canEdit(session.data, name));
  const [chosen, setChosen] = useState(project ?? "");
  const [title, setTitle] = useState("");
  const [error, setError] = useState<ApiError | null>(null);
  const name = chosen || projects[0] || "";
  const create = async () => {
    try {
      const made = await post<Report>("/reports", { project: name, title, text: template(currentRoute().params) });
      navigate(`${urlOf(made.id)}?edit=1`);
    } catch (failure) {
      setError(asApiError(failure));
    }
  };
  const foot = (
    <button type="submit" form="new-report" className="button main" disabled={!title.trim() || !name}>
      Create
    </button>
  );
  return (
    <Dialog title="New report" onClose={() => setParams({ new: null })} foot={foot}>
      <form
        id="new-report"
        className="report-form"
        onSubmit={(event) => {
          event.preventDefault();
          void create();
        }}
      >
        <label>
          <span>Title</span>
          <input className="field" maxLength={200} value={title} onChange={(event) => setTitle(event.target.value)} />
        </label>
        <label>
          <span>Project</span>
          <select className="field" value={name} onChange={(event) => setChosen(event.target.value)}>
            {projects.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        {error && <ErrorMessage error={error} />}
      </form>
    </Dialog>
  );
}

/** A first text: a chart and a table of the runs that the URL names, or of the last ones. */
function template(params: URLSearchParams): string {
  const runs = params.getAll("run").join(", ");
  const chosen = runs ? `runs: ${runs}` : `query: ${params.get("q") ?? "status:succeeded"}\nlimit: 10`;
  const metric = params.get("metric") ?? "loss";
  return [
    "What was tried, and what came of it.",
    `\`\`\`chart\nmetric: ${metric}\n${chosen}\n\`\`\``,
    `\`\`\`table\n${chosen}\n\`\`\`\n`,
  ].join("\n\n");
}

// One report ----------------------------------------------------------------------------------------------------------

function ReportPage({ id }: { id: string }): ReactNode {
  const { params } = useRoute();
  const session = useSession();
  const [found, setFound] = useState<Tagged<Report> | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const load = useCallback(() => {
    requestTagged<Report>("GET", pathOf(id)).then(setFound, (failure: unknown) => setError(asApiError(failure)));
  }, [id]);
  useEffect(load, [load]);
  useTitle(found?.data.title ?? "Report");
  if (error?.status === 404) {
    return (
      <EmptyState
        title="Report not found"
        actions={
          <Link className="button" to="/reports">
            All reports
          </Link>
        }
      >
        It was deleted, or you have no access to its project.
      </EmptyState>
    );
  }
  if (!found) return <div className="page">{error ? <ErrorMessage error={error} retry={load} /> : <Spinner />}</div>;
  const mayEdit = canEdit(session.data, found.data.project);
  if (params.has("edit") && mayEdit) {
    return (
      <Suspense fallback={<Spinner />}>
        <ReportEditor
          found={found}
          onSaved={(saved) => {
            setFound(saved);
            setParams({ edit: null });
          }}
          onCancel={() => setParams({ edit: null })}
        />
      </Suspense>
    );
  }
  return <ReportView found={found} mayEdit={mayEdit} />;
}

function ReportView({ found: { data: report, tag }, mayEdit }: { found: Tagged<Report>; mayEdit: boolean }): ReactNode {
  const drawing = useRef<StaticParts | null>(null);
  const [isDeleting, setDeleting] = useState(false);
  const about = `${report.project} · changed ${timestamp(report.updated_at)} by ${report.updated_by}`;
  const save = () => {
    const parts = drawing.current?.();
    if (!parts) return notify("Some charts are still loading. Try again in a moment.", { bad: true });
    const { title } = report;
    const text = htmlFile({ title, about, address: location.origin + urlOf(report.id), parts });
    download(`${title}.html`, new Blob([text], { type: "text/html;charset=utf-8" }));
  };
  const remove = async () => {
    try {
      await requestTagged("DELETE", pathOf(report.id), undefined, { headers: { "If-Match": tag } });
      navigate("/reports");
    } catch (failure) {
      setDeleting(false);
      notify(asApiError(failure).message, { bad: true });
    }
  };
  return (
    <article className="page report" aria-label={report.title}>
      <header className="report-head">
        <div className="grow">
          <h1>{report.title}</h1>
          <p className="soft">{about}</p>
        </div>
        <div className="row report-actions">
          <CopyButton text={location.origin + urlOf(report.id)} label="Copy link" />
          <button type="button" className="button" onClick={save}>
            <Icon name="download" size={14} /> Export HTML
          </button>
          {mayEdit && (
            <button type="button" className="button" onClick={() => setParams({ edit: true }, { push: true })}>
              Edit
            </button>
          )}
          {mayEdit && (
            <Menu label={<Icon name="more" />} name="More" className="button icon" alignRight>
              {(close) => (
                <button
                  type="button"
                  className="menu-item"
                  onClick={() => {
                    close();
                    setDeleting(true);
                  }}
                >
                  <Icon name="trash" size={14} /> Delete
                </button>
              )}
            </Menu>
          )}
        </div>
      </header>
      <ReportBody text={report.text} project={report.project} drawing={drawing} />
      {isDeleting && (
        <Confirm title="Delete this report?" verb="Delete" danger onYes={remove} onNo={() => setDeleting(false)}>
          <p>“{report.title}” is deleted for everyone. Its runs stay.</p>
        </Confirm>
      )}
    </article>
  );
}
