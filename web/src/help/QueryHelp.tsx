import type { ReactNode } from "react";
import { Link } from "../router";
import { FIELDS } from "../runs/querySuggestions";

const EXAMPLES: readonly [q: string, about: string][] = [
  ["status:running|starting", "any of these"],
  ["metric.loss:<0.1", "the last value of a metric"],
  ["min.loss:<0.05", "the smallest value of a metric; max. for the largest, best. for the better of them"],
  ["params.lr:>=0.01, params.optimizer:adam", "a comma means “and”"],
  ["name:%resnet%", "contains, ignoring case"],
  ["tags:~debug", "not"],
  ["created_at:>1h, gpus:>2", "in the last hour (s, m, h, d, w), with more than two GPUs in all"],
  ["finished_at:<7d", "more than a week ago"],
  ["created_at:2026-01-01..2026-01-31", "a range of days (UTC)"],
  ["started_at:>2026-01-31 13:45", "after a time"],
  ["params.lr:nil", "without a value"],
  ["archived:true", "archived runs, which lists leave out otherwise"],
  ['name:"a,b: c"', "quotes for special characters"],
];

/** Examples of the query language of `phalanx ps -q`. */
export function QueryHelp(): ReactNode {
  return (
    <>
      <table className="plain-table help-examples">
        <tbody>
          {EXAMPLES.map(([q, about]) => (
            <tr key={q}>
              <td>
                <Link to={`/runs?q=${encodeURIComponent(q)}`}>
                  <code>{q}</code>
                </Link>
              </td>
              <td className="soft">{about}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p className="soft">
        Fields: {FIELDS.map(({ name }) => name).join(", ")}, <code>params.NAME</code>, <code>metric.NAME</code>,{" "}
        <code>min.NAME</code>, <code>max.NAME</code>, <code>best.NAME</code>. The same queries work in a terminal:{" "}
        <code>phalanx ps -q 'status:failed'</code>.
      </p>
    </>
  );
}
