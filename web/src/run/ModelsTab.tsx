/** The models that a run logged, and their versions in the registry. */

import "./card.css";
import "./ModelsTab.css";
import type { ReactNode } from "react";
import { apiPath, type ModelCandidate, type ModelDetails, useResource, type VersionRow } from "../api";
import { bytes, num, number, timestamp } from "../format";
import { Candidates } from "../models/Candidates";
import { Link } from "../router";
import { EmptyState, ErrorMessage, Spinner } from "../ui";
import type { RunContext } from "./runContext";

type LoggedModel = { name: string; path: string; size: number | null; at: number };

export default function ModelsTab({ context }: { context: RunContext }): ReactNode {
  const { run, isLive } = context;
  const response = useResource<{ events: LoggedModel[] }>(`${apiPath`/runs/${run.id}/events`}?kind=model`, {
    pollMs: isLive ? 15_000 : undefined,
  });
  const offered = useResource<{ candidates: ModelCandidate[] }>(
    `/models/-/candidates?run=${encodeURIComponent(run.id)}&limit=100`,
    { pollMs: isLive ? 15_000 : undefined },
  );
  if (response.error && !response.data) return <ErrorMessage error={response.error} retry={response.reload} />;
  if (!response.data) return <Spinner />;
  const models = response.data.events;
  const candidates = offered.data?.candidates ?? [];
  if (!models.length && !candidates.length) {
    return (
      <EmptyState title="No models">
        <code>phalanx.tracking.model("model.pt", "classifier")</code> registers a model version with its metrics, code
        and data.
      </EmptyState>
    );
  }
  const names = [...new Set(models.map((one) => one.name))].slice(0, 50);
  return (
    <div className="models">
      {names.map((name) => (
        <ModelCard key={name} id={run.id} name={name} models={models.filter((one) => one.name === name)} />
      ))}
      <Candidates found={candidates} />
    </div>
  );
}

function ModelCard({ id, name, models }: { id: string; name: string; models: LoggedModel[] }): ReactNode {
  const response = useResource<ModelDetails>(`/models/${name.split("/").map(encodeURIComponent).join("/")}`);
  const versions = response.data?.versions.filter((version) => version.run_id === id) ?? [];
  return (
    <section className="card-part">
      <div className="card-head">
        <h2>{versions.length ? <Link to={`/models/${encodeURIComponent(name)}`}>{name}</Link> : name}</h2>
      </div>
      <ul className="model-files">
        {models.map((one) => (
          <li key={one.path}>
            <Link to={`${apiPath`/runs/${id}/outputs`}?path=${encodeURIComponent(one.path)}`} className="mono cut">
              {one.path}
            </Link>
            <span className="faint number">{bytes(one.size)}</span>
            <span className="faint number">{timestamp(one.at)}</span>
          </li>
        ))}
      </ul>
      {versions.map((version) => (
        <Version key={version.number} version={version} />
      ))}
    </section>
  );
}

function Version({ version }: { version: VersionRow }): ReactNode {
  const metrics = Object.entries(version.metrics).slice(0, 8);
  return (
    <div className="model-version">
      <b>version {version.number}</b>
      {version.aliases.map((alias) => (
        <span key={alias} className="tag is-accent">
          {alias}
        </span>
      ))}
      <span className="soft">{timestamp(version.created_at)}</span>
      {metrics.map(([name, value]) => (
        <span key={name} className="number">
          <span className="soft">{name}</span> {number(num(value))}
        </span>
      ))}
    </div>
  );
}
