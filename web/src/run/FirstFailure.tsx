/** The replica that failed first: why, how to fix it, and a link to the log. */

import "./FirstFailure.css";
import { type ReactNode, useEffect, useRef } from "react";
import { timestamp } from "../format";
import { InlineCode } from "../markdown";
import { Link } from "../router";
import { CopyButton, Icon } from "../ui";
import { plainText } from "./logWindow";
import type { RunContext } from "./runContext";

export function FirstFailure({ context, isShort }: { context: RunContext; isShort: boolean }): ReactNode {
  const failure = context.topology?.first_failure;
  if (!failure) return null;
  const { run, topology } = context;
  const log = `/runs/${encodeURIComponent(run.id)}/logs?jump=error${topology && topology.attempt !== run.attempt ? `&attempt=${topology.attempt}` : ""}`;
  const who = failure.rank === null ? failure.replica : `${failure.replica} (rank ${failure.rank})`;
  if (isShort) {
    return (
      <div className="first-failure is-short">
        <Icon name="warning" />
        <span className="cut">
          <b>{who}</b> failed first: {failure.why}
        </span>
        <Link to={log}>Show in log</Link>
      </div>
    );
  }
  const lines = failure.lines.map(plainText);
  return (
    <section className="first-failure" aria-label="First failure">
      <Icon name="warning" />
      <div className="grow">
        <h2>
          {who} failed first{failure.host ? <span className="soft"> on {failure.host}</span> : null}
          {failure.at !== null && <time className="faint"> {timestamp(failure.at)}</time>}
        </h2>
        <p className="first-failure-why">{failure.why}</p>
        {failure.advice && (
          <p className="first-failure-advice">
            <InlineCode text={failure.advice} />
          </p>
        )}
        {lines.length > 0 && <LastLines lines={lines} />}
        <Link to={log} className="button small">
          Show in log
        </Link>
      </div>
    </section>
  );
}

/** Scrolled to the end, where the error is. */
function LastLines({ lines }: { lines: string[] }): ReactNode {
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    box.current?.scrollTo({ top: box.current.scrollHeight }); // braces: newer browsers return a promise, which an effect must not return
  }, []);
  return (
    <div className="first-failure-lines">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: scrollable areas need keyboard focus */}
      <pre ref={box} tabIndex={0}>
        {lines.join("\n")}
      </pre>
      <CopyButton text={lines.join("\n")} label="Copy lines" />
    </div>
  );
}
