// Tools of the table: sorting where there are no headers, and export.

import type { ReactNode } from "react";
import { API, queryString } from "../api";
import { setParams } from "../router";
import { Icon, Menu } from "../ui";
import { type Column, nextSort, writeColumns } from "./columns";
import { DEFAULT_SORT, isFolded, type RunQuery } from "./pagedRuns";
import { withTerm } from "./querySuggestions";

type SortProps = { columns: readonly Column[]; sort: string };

/** Selects the order of runs; for narrow windows, where the table has no header. */
export function SortMenu({ columns, sort }: SortProps): ReactNode {
  const sortable = columns.filter((column) => column.sort);
  return (
    <Menu label={<Icon name="sort" size={14} />} name="Sort runs" className="button" alignRight>
      {() =>
        sortable.map((column) => {
          const isUp = sort === column.sort;
          const isOn = isUp || sort === `-${column.sort}`;
          return (
            <button
              key={column.key}
              type="button"
              className="menu-item"
              aria-pressed={isOn}
              onClick={() => {
                const next = nextSort(sort, column, DEFAULT_SORT);
                setParams({ sort: next === DEFAULT_SORT ? null : next });
              }}
            >
              <span className="grow cut">{column.title}</span>
              {isOn && <span aria-hidden="true">{isUp ? "↑" : "↓"}</span>}
            </button>
          );
        })
      }
    </Menu>
  );
}

/** The columns of the table by the names of the export. */
export const exportedColumns = (keys: readonly string[]): string =>
  writeColumns(keys.map((key) => (key === "took" ? "duration_s" : key)));

type MoreProps = { query: RunQuery; keys: readonly string[]; apply: (q: string) => void };

export function MoreMenu({ query, keys, apply }: MoreProps): ReactNode {
  const { q, sort, project } = query;
  const fields = { q, sort: sort === DEFAULT_SORT ? null : sort, project, fold: isFolded(query) ? 1 : null };
  const path = `${API}/runs.csv${queryString({ ...fields, columns: exportedColumns(keys) })}`;
  return (
    <Menu label={<Icon name="more" size={14} />} name="More" className="button icon" alignRight>
      {(close) => (
        <>
          <a className="menu-item" href={path} download="runs.csv" onClick={close}>
            <Icon name="download" size={13} /> Export CSV
          </a>
          <hr />
          <button
            type="button"
            className="menu-item"
            onClick={() => {
              close();
              apply(withTerm(q, "starred", "true"));
            }}
          >
            <Icon name="star" size={13} /> Starred runs
          </button>
          <button
            type="button"
            className="menu-item"
            onClick={() => {
              close();
              apply(withTerm(q, "archived", "true"));
            }}
          >
            <Icon name="archive" size={13} /> Archived runs
          </button>
        </>
      )}
    </Menu>
  );
}
