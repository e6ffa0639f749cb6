/** The models that a run made: what it kept, and the versions they became in the registry. */

import "./card.css";
import "./ModelsTab.css";
import type { ReactNode } from "react";
import { apiPath, type ModelDetails, useResource, type VersionRow } from "../api";
import { bytes, num, number, timestamp } from "../format";
import { Link } from "../router";
import { EmptyState, ErrorMessage, Spinner } from "../ui";
import type { Known } from "./runContext";

type Kept = { name: string; path: string; size: number | null; at: number };

export default function ModelsTab({ known }: { known: Known }): ReactNode {
  const { run, isLive } = known;
  const answer = useResource<{ events: Kept[] }>(`${apiPath`/runs/${run.id}/events`}?kind=model`, {
    pollMs: isLive ? 15_000 : undefined,
  });
  if (answer.error && !answer.data) return <ErrorMessage error={answer.error} retry={answer.reload} />;
  if (!answer.data) return <Spinner />;
  const kept = answer.data.events;
  if (!kept.length) {
    return (
      <EmptyState title="It kept no model">
        A model that training keeps by <code>phalanx.tracking.model("model.pt", "classifier")</code> becomes a version,
        with its metrics, code and data beside it.
      </EmptyState>
    );
  }
  const names = [...new Set(kept.map((one) => one.name))].slice(0, 50);
  return (
    <div className="models">
      {names.map((name) => (
        <OneModel key={name} id={run.id} name={name} kept={kept.filter((one) => one.name === name)} />
      ))}
    </div>
  );
}

function OneModel({ id, name, kept }: { id: string; name: string; kept: Kept[] }): ReactNode {
  const answer = useResource<ModelDetails>(`/models/${name.split("/").map(encodeURIComponent).join("/")}`);
  const versions = answer.data?.versions.filter((version) => version.run_id === id) ?? [];
  return (
    <section className="card-part">
      <div className="card-head">
        <h2>{versions.length ? <Link to={`/models/${encodeURIComponent(name)}`}>{name}</Link> : name}</h2>
      </div>
      <ul className="model-files">
        {kept.map((one) => (
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
