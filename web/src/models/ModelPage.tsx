import type { ReactNode } from "react";
import { API, type Json, type ModelDetails, type ModelEventRow, useResource, type VersionRow } from "../api";
import { ago, bytes, num, number, plural, short, timestamp, value, visible } from "../format";
import { Link, useTitle } from "../router";
import { CommandBox, CopyButton, EmptyState, ErrorMessage, Icon, Spinner } from "../ui";
import { AliasEditor } from "./AliasEditor";
import { LineageGraph } from "./LineageGraph";

/** A model: its versions with aliases and lineage, and its history. */
export function ModelPage({ name }: { name: string }): ReactNode {
  useTitle(name);
  const path = `/models/${name.split("/").map(encodeURIComponent).join("/")}`;
  const { data, error, reload } = useResource<ModelDetails>(path, { pollMs: 15_000 });
  if (!data) {
    return (
      <div className="page">
        {error?.status === 404 ? (
          <EmptyState
            title={`Model ${name} not found`}
            actions={
              <Link className="button" to="/models">
                All models
              </Link>
            }
          />
        ) : error ? (
          <ErrorMessage error={error} retry={reload} />
        ) : (
          <Spinner />
        )}
      </div>
    );
  }
  const versions = [...data.versions].sort((a, b) => b.number - a.number);
  return (
    <div className="page model">
      <header>
        <Link to="/models" className="soft">
          Models
        </Link>
        <h1>{visible(data.name)}</h1>
        <p className="soft">
          {plural(versions.length, "version")} · updated{" "}
          <span title={timestamp(data.updated_at)}>{ago(data.updated_at)}</span>
        </p>
        {data.description && <p>{data.description}</p>}
        <Labels labels={data.labels} />
      </header>
      {error && <ErrorMessage error={error} retry={reload} />}
      <section>
        <h2>Versions</h2>
        {versions.length === 0 && <p className="soft">All versions were deleted.</p>}
        {versions.map((version) => (
          <Version key={version.number} version={version} path={path} aliases={data.aliases} reload={reload} />
        ))}
      </section>
      {versions.length > 0 && <LineageGraph path={path} versions={versions} />}
      <section>
        <h2>Download on the command line</h2>
        <CommandBox text={`phalanx models get ${data.name}${data.latest ? `/${data.latest}` : ""}`} />
      </section>
      <Events events={data.events} />
    </div>
  );
}

function Labels({ labels }: { labels: Record<string, string> }): ReactNode {
  const entries = Object.entries(labels);
  if (entries.length === 0) return null;
  return (
    <p className="models-aliases">
      {entries.map(([label, text]) => (
        <span key={label} className="tag" title={`${label}: ${text}`}>
          {label}: {text}
        </span>
      ))}
    </p>
  );
}

type VersionProps = { version: VersionRow; path: string; aliases: Record<string, number>; reload: () => void };

function Version({ version, path, aliases, reload }: VersionProps): ReactNode {
  const metrics = Object.entries(version.metrics);
  const size = version.size === null ? null : bytes(version.size);
  return (
    <article className="card version" id={`version-${version.number}`}>
      <div className="row version-head">
        <h3>Version {version.number}</h3>
        <AliasEditor version={version} path={path} aliases={aliases} reload={reload} />
        <span className="grow" />
        <span className="faint" title={timestamp(version.created_at)}>
          {visible(version.user)} · {ago(version.created_at)}
        </span>
        {version.files !== null && (
          <a className="button small" href={`${API}${path}/versions/${version.number}/download`} download>
            <Icon name="download" size={14} /> Download
          </a>
        )}
      </div>
      {version.description && <p>{version.description}</p>}
      {metrics.length > 0 && (
        <dl className="version-metrics">
          {metrics.slice(0, 12).map(([name, figure]) => (
            <div key={name}>
              <dt className="faint cut" title={name}>
                {name}
              </dt>
              <dd className="number">{number(num(figure))}</dd>
            </div>
          ))}
        </dl>
      )}
      <dl className="facts">
        <dt>Source</dt>
        <dd>
          {version.run_id ? <Link to={`/runs/${version.run_id}`}>run {version.run_id}</Link> : version.source || "–"}
        </dd>
        {version.run_id && version.source && (
          <>
            <dt>File</dt>
            <dd className="mono">{version.source}</dd>
          </>
        )}
        {size && (
          <>
            <dt>Size</dt>
            <dd>
              {size}
              {version.files !== null && version.files > 1 ? ` in ${plural(version.files, "file")}` : ""}
            </dd>
          </>
        )}
        {version.digest && (
          <>
            <dt>Digest</dt>
            <dd className="row">
              <code className="cut">{version.digest}</code>
              <CopyButton text={version.digest} label="Copy digest" />
            </dd>
          </>
        )}
        {lineageOf(version).map(([name, found]) => (
          <Lineage key={name} name={name} found={found} />
        ))}
      </dl>
      <Labels labels={version.labels} />
    </article>
  );
}

const HIDDEN_KEYS = ["at", "kind"]; // keys of datasets that are not shown

const isEmpty = (found: Json): boolean =>
  found === null || found === "" || (typeof found === "object" && Object.keys(found).length === 0);

/** The lineage of a version without its run, which has its own link. */
const lineageOf = ({ lineage, run_id: run }: VersionRow): [string, Json][] =>
  Object.entries(lineage).filter(([name, found]) => !isEmpty(found) && !(name === "run" && run !== null));

const isPlain = (found: Json): boolean => found === null || typeof found !== "object";

/** An input of a version: params, datasets or code. */
function Lineage({ name, found }: { name: string; found: Json }): ReactNode {
  if (isPlain(found)) return <Fact name={name}>{value(found)}</Fact>;
  const things = Array.isArray(found) ? found : [found];
  return (
    <Fact name={name}>
      {things.slice(0, 20).map((thing) => (
        <div key={JSON.stringify(thing)} className="version-pairs">
          {isPlain(thing)
            ? value(thing)
            : Object.entries(thing as object)
                .filter(([key, one]) => !HIDDEN_KEYS.includes(key) && !isEmpty(one as Json))
                .map(([key, one]) => (
                  <span key={key}>
                    <span className="faint">{key}</span> {short(one as Json)}
                  </span>
                ))}
        </div>
      ))}
    </Fact>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }): ReactNode {
  return (
    <>
      <dt className="version-fact">{name.replaceAll("_", " ")}</dt>
      <dd>{children}</dd>
    </>
  );
}

function Events({ events }: { events: ModelEventRow[] }): ReactNode {
  const newest = [...events].sort((a, b) => b.number - a.number);
  if (newest.length === 0) return null;
  return (
    <section>
      <h2>History</h2>
      <ol className="model-events">
        {newest.slice(0, 200).map((event) => (
          <li key={event.number}>
            <span className="faint number" title={timestamp(event.at)}>
              {ago(event.at)}
            </span>
            <span>
              <b>{visible(event.user)}</b> {eventText(event)}
              {event.reason && <span className="soft"> – {event.reason}</span>}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

/** The text of an event. */
function eventText({ kind, version, data }: ModelEventRow): string {
  const which = version === null ? "the model" : `version ${version}`;
  const alias = value(data.alias);
  switch (kind) {
    case "create":
      return "created the model";
    case "register":
      return `registered ${which}`;
    case "settle":
      return `stored the files of ${which}`;
    case "alias":
      return `set alias “${alias}” to ${which}`;
    case "unalias":
      return `removed alias “${alias}”`;
    case "describe":
      return `edited the description of ${which}`;
    case "label":
      return `edited the labels of ${which}`;
    case "delete":
      return `deleted ${which}`;
    default:
      return `${kind} ${which}`;
  }
}
