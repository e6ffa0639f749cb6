import type { ReactNode } from "react";
import { useResource, type VersionRow } from "../api";
import { plural } from "../format";
import { Link } from "../router";
import { StatusMark } from "../ui";

type Use = {
  run: string;
  name: string | null;
  status: string;
  project: string;
  version: number;
  param: string;
  value: string;
};

const MAX_VERSIONS = 20;
const MAX_RUNS = 8;

/** Where versions come from and who uses them: source run, version, runs whose params name it. One row per version. */
export function LineageGraph({ path, versions }: { path: string; versions: VersionRow[] }): ReactNode {
  const { data } = useResource<{ uses: Use[] }>(`${path}/uses`);
  const shown = versions.slice(0, MAX_VERSIONS);
  return (
    <section aria-label="Lineage">
      <h2>Lineage</h2>
      <ol className="card lineage">
        <li className="lineage-row lineage-head" aria-hidden="true">
          <span>Source</span>
          <span>Version</span>
          <span>Used by</span>
        </li>
        {shown.map((version) => (
          <Row
            key={version.number}
            version={version}
            uses={data?.uses.filter((use) => use.version === version.number) ?? []}
          />
        ))}
      </ol>
      <p className="faint">
        {versions.length > shown.length && `Showing the newest ${plural(shown.length, "version")}. `}
        Runs count as users if one of their params is <code>NAME/VERSION</code>, <code>NAME@ALIAS</code> or{" "}
        <code>models:/NAME/VERSION</code>.
      </p>
    </section>
  );
}

function Row({ version, uses }: { version: VersionRow; uses: Use[] }): ReactNode {
  const runs = [...new Map(uses.map((use) => [use.run, use])).values()];
  return (
    <li className="lineage-row">
      <span className="lineage-node">
        {version.run_id ? (
          <Link to={`/runs/${version.run_id}`} className="cut">
            {sourceName(version)}
          </Link>
        ) : (
          <span className="soft cut">{version.source || "unknown"}</span>
        )}
      </span>
      <a className="lineage-node is-version" href={`#version-${version.number}`}>
        v{version.number}
        {version.aliases.map((alias) => (
          <span key={alias} className="tag is-accent">
            {alias}
          </span>
        ))}
      </a>
      <span className={runs.length ? "lineage-uses" : "lineage-uses is-empty"}>
        {runs.slice(0, MAX_RUNS).map((use) => (
          <Link
            key={use.run}
            to={`/runs/${use.run}`}
            className="lineage-node"
            title={`${use.project}: ${use.param} = ${use.value}`}
          >
            <StatusMark status={use.status} bare />
            <span className="cut">{use.name ?? use.run}</span>
          </Link>
        ))}
        {runs.length > MAX_RUNS && <span className="faint">and {runs.length - MAX_RUNS} more</span>}
        {runs.length === 0 && <span className="faint">no runs recorded</span>}
      </span>
    </li>
  );
}

function sourceName(version: VersionRow): string {
  const run = version.lineage.run;
  const name = run !== null && typeof run === "object" && !Array.isArray(run) ? run.name : null;
  return typeof name === "string" && name ? name : `run ${version.run_id}`;
}
