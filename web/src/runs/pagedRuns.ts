// A long list of runs that loads only the pages in view.

import { type ApiError, asApiError, get, queryString } from "../api";
import type { RunRow, RunsPage } from "../types";
import { pagesOf } from "../ui/virtualRows";

export const PAGE = 100;
export const DEFAULT_SORT = "-created_at";
const SCROLL_PAUSE_MS = 70; // pages scrolled past are not requested
const MAX_PAGES = 60;

export type RunQuery = { q: string; sort: string; project: string };

/** Whether trials are hidden behind the row of their group: not when the user looks for runs by their values. */
export const isFolded = ({ q, sort }: RunQuery): boolean => q === "" && !sort.includes(".");

/** The path of rows [offset, offset + limit). Without `columns`, rows have all params and metrics. */
export function pagePath(query: RunQuery, offset: number, limit: number, columns: string | null): string {
  const { q, sort, project } = query;
  const path = queryString({
    q,
    sort: sort === DEFAULT_SORT ? null : sort,
    project,
    limit,
    offset: offset || null,
    fold: isFolded(query) ? 1 : null,
  });
  return `/runs${path}${columns === null ? "" : `&columns=${encodeURIComponent(columns)}`}`;
}

let prefetched: { path: string; response: Promise<RunsPage> } | null = null;

/** Requests the first page before React renders. */
export function prefetchFirstPage(query: RunQuery): void {
  const path = pagePath(query, 0, PAGE, null);
  prefetched = { path, response: get<RunsPage>(path) };
  prefetched.response.catch(() => {}); // handled by takePrefetched's caller
}

/** The prefetched response, for its first caller only. */
function takePrefetched(path: string): Promise<RunsPage> | null {
  const found = prefetched?.path === path ? prefetched.response : null;
  prefetched = null;
  return found;
}

type Page = { runs: RunRow[]; stale: boolean };

export type ListState = {
  count: number;
  /** No page is loaded yet. */
  loading: boolean;
  error: ApiError | null;
  /** Matching runs that are left out because they are archived. */
  archived: number;
  /** Runs created since the list was loaded, not shown yet. */
  newRuns: number;
  version: number;
};

export class PagedRuns {
  private pages = new Map<number, Page>();
  private pending = new Map<number, AbortController>();
  private window: [number, number] = [0, PAGE];
  private shift = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private generation = 0;
  private listeners = new Set<() => void>();
  private isClosed = false;
  state: ListState = { count: 0, loading: true, error: null, archived: 0, newRuns: 0, version: 0 };
  columns: string | null = null;
  /** The last scroll position. */
  scroll = 0;

  constructor(readonly query: RunQuery) {}

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  getState = (): ListState => this.state;

  close(): void {
    this.isClosed = true;
    clearTimeout(this.timer);
    for (const pending of this.pending.values()) pending.abort();
  }

  row(index: number): RunRow | null {
    return this.pages.get(Math.floor(index / PAGE))?.runs[index % PAGE] ?? null;
  }

  /** All loaded rows in order. */
  rows(): RunRow[] {
    return [...this.pages.keys()].sort((a, b) => a - b).flatMap((number) => this.pages.get(number)?.runs ?? []);
  }

  indexOf(id: string): number | null {
    for (const [number, page] of this.pages) {
      const index = page.runs.findIndex((run) => run.id === id);
      if (index >= 0) return number * PAGE + index;
    }
    return null;
  }

  /** Sets rows [first, last) as the rows in view. */
  setVisible(first: number, last: number): void {
    this.window = [first, last];
    clearTimeout(this.timer);
    if (this.missing().some((page) => !this.pending.has(page))) {
      this.timer = setTimeout(() => this.load(), this.state.loading ? 0 : SCROLL_PAUSE_MS);
    }
  }

  /** Reloads the rows in view; other rows when they come into view. */
  reload(): void {
    this.generation += 1;
    for (const page of this.pages.values()) page.stale = true;
    this.load();
  }

  /** Shows the runs created since the list was loaded. */
  showNewRuns(): void {
    this.shift = 0;
    this.setState({ newRuns: 0 });
    this.reload();
  }

  /** Reloads after a change on the server. Unless the list is scrolled to the top, new runs are only counted. */
  async refresh(isAtTop: boolean): Promise<void> {
    if (isAtTop || this.query.sort !== DEFAULT_SORT) {
      this.shift = 0;
      if (this.state.newRuns) this.setState({ newRuns: 0 });
    } else {
      const { count } = await get<RunsPage>(pagePath(this.query, 0, 0, null));
      if (this.isClosed) return;
      this.shift = Math.max(0, count - this.state.count);
      if (this.shift !== this.state.newRuns) this.setState({ newRuns: this.shift });
    }
    this.reload();
  }

  private missing(): number[] {
    const [first, last] = this.window;
    const end = this.state.loading ? last : Math.min(last, this.state.count);
    return pagesOf(first, Math.max(end, first), PAGE).filter((page) => this.pages.get(page)?.stale ?? true);
  }

  private load(): void {
    const missing = this.missing();
    if (this.state.count === 0 && missing.length === 0) missing.push(0);
    for (const [page, pending] of this.pending) {
      if (!missing.includes(page)) {
        pending.abort();
        this.pending.delete(page);
      }
    }
    for (const page of missing) if (!this.pending.has(page)) void this.loadPage(page);
  }

  private async loadPage(number: number): Promise<void> {
    const pending = new AbortController();
    this.pending.set(number, pending);
    const { generation } = this;
    try {
      const path = pagePath(this.query, number * PAGE + this.shift, PAGE, this.columns);
      const { count, runs, archived } = await (takePrefetched(path) ?? get<RunsPage>(path, { signal: pending.signal }));
      if (pending.signal.aborted) return;
      this.store(number, runs, generation !== this.generation);
      this.setState({ count: Math.max(0, count - this.shift), archived, loading: false, error: null });
    } catch (error) {
      if (pending.signal.aborted || this.isClosed) return;
      this.setState({ loading: false, error: asApiError(error) });
    } finally {
      if (this.pending.get(number) === pending) this.pending.delete(number);
      // The list changed while the request was pending.
      if (!this.isClosed && generation !== this.generation) this.load();
    }
  }

  private store(number: number, runs: RunRow[], stale: boolean): void {
    // An unchanged row keeps its identity, so that React does not render it again.
    const before = new Map(this.pages.get(number)?.runs.map((run) => [run.id, run]));
    const same = (run: RunRow): RunRow => {
      const old = before.get(run.id);
      return old && JSON.stringify(old) === JSON.stringify(run) ? old : run;
    };
    this.pages.delete(number);
    this.pages.set(number, { runs: runs.map(same), stale });
    for (const oldest of this.pages.keys()) {
      if (this.pages.size <= MAX_PAGES) break;
      this.pages.delete(oldest);
    }
  }

  private setState(change: Partial<ListState>): void {
    if (this.isClosed) return;
    this.state = { ...this.state, ...change, version: this.state.version + 1 };
    for (const listener of this.listeners) listener();
  }
}
