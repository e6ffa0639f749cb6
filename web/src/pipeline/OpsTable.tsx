/** The ops of a pipeline as a table: for phones, for screen readers, and to read reasons in full. */

import type { ReactNode } from "react";
import type { Json, OpRow } from "../api";
import { short, visible } from "../format";
import { Link } from "../router";
import { StatusMark } from "../ui";
import { useNarrow, useNow } from "../ui/hooks";
import { opTime, opUrl } from "./ops";

export function OpsTable({ ops, isLive }: { ops: readonly OpRow[]; isLive: boolean }): ReactNode {
  const now = useNow(isLive ? 1000 : null);
  const narrow = useNarrow();
  if (narrow) {
    return (
      <ul className="pipeline-cards">
        {ops.map((op) => (
          <li key={op.name}>
            <span className="row">
              <Name op={op} />
              <span className="grow" />
              <span className="faint number">{opTime(op, now)}</span>
            </span>
            <StatusMark status={op.status} />
            <Details op={op} />
          </li>
        ))}
      </ul>
    );
  }
  return (
    <div className="pipeline-scroll">
      <table className="plain-table" aria-label="Ops">
        <thead>
          <tr>
            <th>Op</th>
            <th>Status</th>
            <th>After</th>
            <th className="right">Time</th>
            <th className="right">Retries</th>
            <th>Reason and outputs</th>
          </tr>
        </thead>
        <tbody>
          {ops.map((op) => (
            <tr key={op.name}>
              <td>
                <Name op={op} />
              </td>
              <td>
                <StatusMark status={op.status} />
              </td>
              <td>
                {op.dependencies.map(visible).join(", ")}
                {op.dependencies.length > 0 && op.trigger !== "all_succeeded" && (
                  <span className="faint"> ({op.trigger.replaceAll("_", " ")})</span>
                )}
              </td>
              <td className="right">{opTime(op, now)}</td>
              <td className="right">{op.max_retries ? `${op.retries} of ${op.max_retries}` : ""}</td>
              <td className="pipeline-why">
                <Details op={op} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Name({ op }: { op: OpRow }): ReactNode {
  const to = opUrl(op);
  return (
    <>
      {to ? <Link to={to}>{visible(op.name)}</Link> : <span>{visible(op.name)}</span>}
      {op.kind === "group" && <span className="faint"> group</span>}
      {op.is_reused && <span className="tag">reused</span>}
    </>
  );
}

/** Their reason says nothing more. */
const SELF_EXPLANATORY = ["succeeded", "running", "starting"];

function Details({ op }: { op: OpRow }): ReactNode {
  const isPlain = SELF_EXPLANATORY.includes(op.status) && !op.is_reused;
  const results = [
    ...Object.entries(op.outputs).map(([name, value]: [string, Json]) => `${name} ${short(value)}`),
    ...Object.entries(op.missing).map(([name, why]) => `${name}: ${why}`),
  ];
  return (
    <>
      {op.reason && !isPlain && <span>{visible(op.reason)}</span>}
      {results.length > 0 && <span className="soft">{visible(results.join(", "))}</span>}
    </>
  );
}
