/** A table of chosen runs in a report. */

import { type ReactNode, useEffect, useRef } from "react";
import { differingParams } from "../compare/fields";
import { ago, durationText, elapsedSeconds, num, number, runTitle, timestamp, value } from "../format";
import { Link } from "../router";
import type { Json, RunRow } from "../types";
import { ErrorMessage, Spinner, StatusMark, statusText } from "../ui";
import type { TableBlock } from "./blocks";
import type { BlockProps } from "./ReportChart";
import { useReportRuns } from "./reportRuns";

const DEFAULT_METRICS = 3;

export function ReportTable({ block, project, onReady }: BlockProps<TableBlock>): ReactNode {
  const { runs, error, reload } = useReportRuns(block, project);
  const box = useRef<HTMLDivElement>(null);
  const isLoaded = runs !== undefined;
  useEffect(() => onReady(isLoaded ? () => box.current?.innerHTML ?? "" : null), [isLoaded, onReady]);
  if (error && !runs) return <ErrorMessage error={error} retry={reload} what={block.title || "Table"} />;
  if (!runs) return <Spinner label="Loading runs" />;
  const columns = block.columns.length ? block.columns : defaultColumns(runs);
  return (
    <div ref={box} className="report-scroll">
      <table className="plain-table report-table">
        {block.title && <caption>{block.title}</caption>}
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column} className={isNumber(column) ? "right" : undefined}>
                {columnTitle(column)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={run.id}>
              {columns.map((column) => (
                <td key={column} className={isNumber(column) ? "right" : undefined}>
                  <Cell run={run} column={column} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {runs.length === 0 && <p className="soft">No matching runs.</p>}
    </div>
  );
}

const isNumber = (column: string): boolean => /^(params|metric|min|max)\.|^took$/.test(column);

export function columnTitle(column: string): string {
  if (/^(min|max)\./.test(column)) return `${column.slice(0, 3)} ${column.slice(4)}`;
  return column.replace(/^(params|metric)\./, "").replaceAll("_", " ");
}

/** The name, the status, params that differ, and some metrics. */
export function defaultColumns(runs: readonly RunRow[]): string[] {
  const params = differingParams([...runs]);
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.summary)))];
  return [
    "name",
    "status",
    ...params.slice(0, 5).map((name) => `params.${name}`),
    ...metrics.slice(0, DEFAULT_METRICS).map((name) => `metric.${name}`),
  ];
}

function Cell({ run, column }: { run: RunRow; column: string }): ReactNode {
  if (column === "name") return <Link to={`/runs/${encodeURIComponent(run.id)}`}>{runTitle(run)}</Link>;
  if (column === "status") return <StatusMark status={run.status} />;
  return cellText(run, column);
}

/** The text of a cell; a dash for what a run does not have. */
export function cellText(run: RunRow, column: string): string {
  const [, head = "", name = ""] = /^(params|metric|min|max)\.(.+)$/s.exec(column) ?? [];
  const amount = (found: Json | undefined) => number(num(found ?? null));
  if (head === "params") return value(run.params[name]);
  if (head === "metric") return amount(run.summary[name]);
  if (head === "min" || head === "max") return amount(run.best[name]?.[head]);
  if (column === "took") return durationText(elapsedSeconds(run.started_at, run.finished_at));
  if (column === "tags") return run.tags.join(", ") || "–";
  if (column === "status") return statusText(run.status);
  if (column === "updated_at") return ago(run.updated_at);
  if (column.endsWith("_at")) return timestamp((run as unknown as Record<string, string | null>)[column] ?? null);
  const found = (run as unknown as Record<string, Json | undefined>)[column];
  return found === null || found === undefined || typeof found === "object" ? "–" : String(found);
}
