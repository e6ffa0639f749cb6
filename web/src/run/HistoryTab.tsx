/** Every status of a run with its reason and duration, by attempt. */

import "./HistoryTab.css";
import type { ReactNode } from "react";
import { isDone, type StatusRow } from "../api";
import { clock, day, durationText, seconds, timestamp } from "../format";
import { Link } from "../router";
import { StatusMark, statusText, toneOf } from "../ui";
import { useNow } from "../ui/hooks";
import { attemptsOf } from "./history";
import type { RunContext } from "./runContext";

export default function HistoryTab({ context }: { context: RunContext }): ReactNode {
  const { run, isLive } = context;
  const now = useNow(isLive ? 1000 : null);
  const attempts = attemptsOf(run.statuses, now, isDone(run.status));
  const whole = attempts.flatMap((attempt) => attempt.steps);
  const start = whole[0]?.from ?? now;
  const length = Math.max(1, (whole[whole.length - 1]?.to ?? now) - start);
  return (
    <div className="history">
      <div className="history-bar" role="img" aria-label={`From ${timestamp(start)}, ${durationText(length)}`}>
        {whole.map(
          (step) =>
            step.to > step.from && (
              <i
                key={step.row.number}
                className={`is-${toneOf(step.row.status)}`}
                style={{ flexGrow: Math.max((step.to - step.from) / length, 0.004) }}
                title={`${statusText(step.row.status)}: ${durationText(step.to - step.from)}`}
              />
            ),
        )}
      </div>
      {attempts.map((attempt) => (
        <section key={attempt.number} className="history-attempt" aria-label={`Attempt ${attempt.number}`}>
          {attempts.length > 1 && (
            <h2>
              Attempt {attempt.number}
              <span className="faint"> {durationText(attempt.to - attempt.from)}</span>
              <Link to={`/runs/${encodeURIComponent(run.id)}/logs?attempt=${attempt.number}`}>log</Link>
            </h2>
          )}
          <ol>
            {attempt.steps.map((step) => (
              <Step
                key={step.row.number}
                row={step.row}
                length={step.isLast && isDone(step.row.status) ? null : step.to - step.from}
              />
            ))}
          </ol>
        </section>
      ))}
    </div>
  );
}

function Step({ row, length }: { row: StatusRow; length: number | null }): ReactNode {
  return (
    <li className="history-step">
      <time dateTime={row.at} title={timestamp(row.at)} className="number">
        <span className="faint">{day(seconds(row.at))}</span> {clock(row.at)}
      </time>
      <StatusMark status={row.status} />
      <span className="history-reason">{row.reason}</span>
      <span className="number faint">{length === null ? "" : durationText(length)}</span>
    </li>
  );
}
