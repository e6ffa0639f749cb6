/** The newest alerts that the training raised. */

import "./Alerts.css";
import type { ReactNode } from "react";
import { apiPath, queryString, useResource } from "../api";
import { plural, timestamp } from "../format";
import type { RunContext } from "./runContext";

const SHOWN = 5;

type Alert = { at: number; title: string; text: string; level: "INFO" | "WARN" | "ERROR"; replica: string };

export function Alerts({ context: { run, isLive } }: { context: RunContext }): ReactNode {
  const { data } = useResource<{ events: Alert[] }>(
    apiPath`/runs/${run.id}/events` + queryString({ kind: "alert", limit: 10_000 }),
    { pollMs: isLive ? 10_000 : undefined },
  );
  const alerts = [...(data?.events ?? [])].sort((one, other) => other.at - one.at);
  if (!alerts.length) return null;
  return (
    <section className="alerts" aria-label="Alerts">
      {alerts.slice(0, SHOWN).map((alert) => (
        <div key={`${alert.at} ${alert.title}`} className={`alert is-${alert.level.toLowerCase()}`}>
          <strong>{alert.title}</strong> <span>{alert.text}</span>{" "}
          <span className="faint">
            {alert.level}, {timestamp(alert.at)}, {alert.replica}
          </span>
        </div>
      ))}
      {alerts.length > SHOWN && (
        <p className="faint">
          {plural(alerts.length - SHOWN, "earlier alert")}: <code>phalanx events {run.id}</code>
        </p>
      )}
    </section>
  );
}
