/** Who failed first, why, what to do, and where it stands in the log. */

import "./FirstFailure.css";
import { type ReactNode, useEffect, useRef } from "react";
import { timestamp } from "../format";
import { InlineMarkdown } from "../markdown";
import { Link } from "../router";
import { CopyButton, Icon } from "../ui";
import { shown } from "./logWindow";
import type { Known } from "./runContext";

export function FirstFailure({ known, isShort }: { known: Known; isShort: boolean }): ReactNode {
  const failure = known.topology?.first_failure;
  if (!failure) return null;
  const { run, topology } = known;
  const log = `/runs/${encodeURIComponent(run.id)}/logs?jump=error${topology && topology.attempt !== run.attempt ? `&attempt=${topology.attempt}` : ""}`;
  const who = failure.rank === null ? failure.replica : `${failure.replica} (rank ${failure.rank})`;
  if (isShort) {
    return (
      <div className="first-failure is-short">
        <Icon name="warning" />
        <span className="cut">
          <b>{who}</b> failed first: {failure.why}
        </span>
        <Link to={log}>in the log</Link>
      </div>
    );
  }
  const lines = failure.lines.map(shown);
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
            <InlineMarkdown text={failure.advice} />
          </p>
        )}
        {lines.length > 0 && <LastLines lines={lines} />}
        <Link to={log} className="button small">
          Show it in the log
        </Link>
      </div>
    </section>
  );
}

/** It opens at its end: there stands what happened. */
function LastLines({ lines }: { lines: string[] }): ReactNode {
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    box.current?.scrollTo({ top: box.current.scrollHeight }); // newer browsers answer with a promise, which is no way to end it
  }, []);
  return (
    <div className="first-failure-lines">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by keys */}
      <pre ref={box} tabIndex={0}>
        {lines.join("\n")}
      </pre>
      <CopyButton text={lines.join("\n")} label="Copy these lines" />
    </div>
  );
}
