import "./models.css";
import { type ReactNode, useState } from "react";
import { type ModelCandidate, type ModelRow, useResource } from "../api";
import { ago, plural, timestamp, visible } from "../format";
import { Link, match, useParam, useRoute, useTitle } from "../router";
import { EmptyState, ErrorMessage, Spinner } from "../ui";
import { Candidates } from "./Candidates";
import { ModelPage } from "./ModelPage";

/** The model registry: the list of models, or one model. */
export default function ModelsPage(): ReactNode {
  const { path } = useRoute();
  const name = match("/models/*", path)?.rest;
  return name ? <ModelPage key={name} name={name} /> : <Models />;
}

export const modelPath = (name: string): string => `/models/${name.split("/").map(encodeURIComponent).join("/")}`;

function Models(): ReactNode {
  useTitle("Models");
  const [text, setText] = useParam("text");
  const [draft, setDraft] = useState(text);
  const { data, error, reload } = useResource<{ models: ModelRow[] }>(
    `/models?limit=500${text ? `&text=${encodeURIComponent(text)}` : ""}`,
    {
      keepPrevious: true,
      pollMs: 15_000,
    },
  );
  const offered = useResource<{ candidates: ModelCandidate[] }>("/models/-/candidates", {
    keepPrevious: true,
    pollMs: 15_000,
  });
  const isNone = data?.models.length === 0;
  return (
    <div className="page">
      <div className="row models-head">
        <h1 className="grow">Models</h1>
        {(!isNone || text) && (
          <input
            className="field"
            aria-label="Find model"
            placeholder="Find model"
            value={draft}
            onChange={(event) => {
              setDraft(event.target.value);
              setText(event.target.value.trim());
            }}
          />
        )}
      </div>
      {error && <ErrorMessage error={error} retry={reload} />}
      {!data && !error && <Spinner />}
      {isNone && text && <EmptyState title="No matching models" />}
      {isNone && !text && (
        <EmptyState
          title="No models yet"
          command={`python -c 'from phalanx import tracking; tracking.model("model.pt", name="resnet")'`}
        >
          Register model versions from training code with <code>phalanx.tracking</code>. Each version links to its run.
        </EmptyState>
      )}
      {data && !isNone && (
        <div className="card models-list">
          <table className="plain-table">
            <thead>
              <tr>
                <th>Model</th>
                <th>Aliases</th>
                <th className="right">Versions</th>
                <th className="right">Updated</th>
              </tr>
            </thead>
            <tbody>
              {data.models.map((model) => (
                <tr key={model.name}>
                  <td>
                    <Link to={modelPath(model.name)} className="models-name">
                      {visible(model.name)}
                    </Link>
                    {model.description && <p className="soft models-about">{model.description}</p>}
                  </td>
                  <td>
                    <Aliases aliases={model.aliases} />
                  </td>
                  <td className="right" title={plural(model.versions, "version")}>
                    {model.versions}
                  </td>
                  <td className="right soft" title={timestamp(model.updated_at)}>
                    {ago(model.updated_at)}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {!text && <Candidates found={offered.data?.candidates ?? []} hasRun />}
    </div>
  );
}

function Aliases({ aliases }: { aliases: Record<string, number> }): ReactNode {
  return (
    <span className="models-aliases">
      {Object.entries(aliases).map(([alias, version]) => (
        <span key={alias} className="tag is-accent">
          {alias} → {version}
        </span>
      ))}
    </span>
  );
}
