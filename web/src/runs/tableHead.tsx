import type { ReactNode } from "react";
import { isLowerBetter } from "../metricDirection";
import { type Column, nextSort } from "./columns";
import { DEFAULT_SORT } from "./pagedRuns";

export const LEAD: Column = { key: "name", title: "Run", sort: "name", width: 320 };
export const STATUS: Column = { key: "status", title: "Status", sort: "status", width: 122 };

/** The grid of all rows of a table, and its width. */
export function tableGrid(columns: readonly Column[]): { template: string; width: number } {
  const fixed = [STATUS, ...columns].map(({ width }) => width);
  return {
    template: `minmax(${LEAD.width}px, 1fr) ${fixed.map((width) => `${width}px`).join(" ")}`,
    width: fixed.reduce((sum, width) => sum + width, LEAD.width),
  };
}

type HeadProps = {
  /** All columns; the first one is that of the names. */
  columns: readonly Column[];
  template: string;
  sort: string;
  onSort: (sort: string) => void;
  /** Whether runs are selected, and a function that selects all or none. */
  selection?: { some: boolean; all: () => void };
};

export function Head({ columns, template, sort, onSort, selection }: HeadProps): ReactNode {
  return (
    <div className="runs-head" role="row" style={{ gridTemplateColumns: template }}>
      {columns.map((column, index) => {
        const direction = sort === column.sort ? "ascending" : sort === `-${column.sort}` ? "descending" : undefined;
        return (
          <span
            key={column.key}
            role="columnheader"
            tabIndex={-1}
            aria-sort={direction}
            className={index === 0 ? "runs-lead" : column.right ? "right" : ""}
          >
            {index === 0 && !selection && <span className="runs-check" />}
            {index === 0 && selection && (
              <span className="runs-check">
                <input
                  type="checkbox"
                  aria-label="Select all runs"
                  checked={selection.some}
                  ref={(element) => {
                    if (element) element.indeterminate = selection.some;
                  }}
                  onChange={selection.all}
                />
              </span>
            )}
            {column.sort ? (
              <button
                type="button"
                className="cut"
                title={headerTitle(column)}
                onClick={() => onSort(nextSort(sort, column, DEFAULT_SORT))}
              >
                {column.title}
                {direction && <i aria-hidden="true">{direction === "ascending" ? " ↑" : " ↓"}</i>}
              </button>
            ) : (
              <span className="cut">{column.title}</span>
            )}
          </span>
        );
      })}
    </div>
  );
}

const FIRST_RANK = "of the first rank that logged it";

function headerTitle({ key, title }: Column): string {
  const [, head = "", name = title] = /^(metric|min|max|best|params)\.(.+)$/s.exec(key) ?? [];
  const what: Record<string, string> = {
    metric: `Last value of metric ${name} ${FIRST_RANK}`,
    min: `Smallest value of metric ${name} ${FIRST_RANK}`,
    max: `Largest value of metric ${name} ${FIRST_RANK}`,
    best: `${isLowerBetter(name) ? "Smallest" : "Largest"} value of metric ${name} ${FIRST_RANK}`,
    params: `Param ${name}`,
  };
  return `${what[head] ?? title}. Click to sort.`;
}
