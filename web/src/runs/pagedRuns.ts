// A long list of runs, of which only the pages are loaded that somebody looks at.

import { ApiError, get, query } from "../api";
import type { RunRow, RunsPage } from "../types";
import { pagesOf } from "../ui/virtualRows";

export const PAGE = 100;
export const USUAL_SORT = "-created_at";
const SETTLE_MS = 70; // what is scrolled past is not asked for
const MOST_PAGES = 60;

export type Wanted = { q: string; sort: string; project: string };

/** The address of rows [offset, offset + limit). Without `columns`, rows carry everything. */
export function pagePath({ q, sort, project }: Wanted, offset: number, limit: number, columns: string | null): string {
  const path = query({ q, sort: sort === USUAL_SORT ? null : sort, project, limit, offset: offset || null });
  return `/runs${path}${columns === null ? "" : `&columns=${encodeURIComponent(columns)}`}`;
}

let early: { path: string; answer: Promise<RunsPage> } | null = null;

/** Ask for the first page before anything is drawn. */
export function askEarly(wanted: Wanted): void {
  const path = pagePath(wanted, 0, PAGE, null);
  early = { path, answer: get<RunsPage>(path) };
  early.answer.catch(() => {}); // told to whoever takes it
}

/** The answer that was asked for early, once. */
function takeEarly(path: string): Promise<RunsPage> | null {
  const found = early?.path === path ? early.answer : null;
  early = null;
  return found;
}

type Page = { runs: RunRow[]; stale: boolean };

export type Seen = {
  count: number;
  /** No page is known yet. */
  loading: boolean;
  error: ApiError | null;
  /** Runs that came since, above what is shown. */
  fresh: number;
  version: number;
};

export class RunList {
  private pages = new Map<number, Page>();
  private asking = new Map<number, AbortController>();
  private window: [number, number] = [0, PAGE];
  private shift = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private wave = 0;
  private listeners = new Set<() => void>();
  private ended = false;
  seen: Seen = { count: 0, loading: true, error: null, fresh: 0, version: 0 };
  columns: string | null = null;
  /** How far it was scrolled when somebody last looked. */
  scroll = 0;

  constructor(readonly wanted: Wanted) {}

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  look = (): Seen => this.seen;

  end(): void {
    this.ended = true;
    clearTimeout(this.timer);
    for (const asking of this.asking.values()) asking.abort();
  }

  row(place: number): RunRow | null {
    return this.pages.get(Math.floor(place / PAGE))?.runs[place % PAGE] ?? null;
  }

  /** Everything that is loaded, in its order. */
  rows(): RunRow[] {
    return [...this.pages.keys()].sort((a, b) => a - b).flatMap((number) => this.pages.get(number)?.runs ?? []);
  }

  has(id: string): boolean {
    return this.placeOf(id) !== null;
  }

  placeOf(id: string): number | null {
    for (const [number, page] of this.pages) {
      const place = page.runs.findIndex((run) => run.id === id);
      if (place >= 0) return number * PAGE + place;
    }
    return null;
  }

  /** Rows [first, last) are in view. */
  show(first: number, last: number): void {
    this.window = [first, last];
    clearTimeout(this.timer);
    if (this.missing().some((page) => !this.asking.has(page))) {
      this.timer = setTimeout(() => this.load(), this.seen.loading ? 0 : SETTLE_MS);
    }
  }

  /** Ask again for what is in view; the rest is asked for when it is looked at. */
  again(): void {
    this.wave += 1;
    for (const page of this.pages.values()) page.stale = true;
    this.load();
  }

  /** Show the runs that came since. */
  takeFresh(): void {
    this.shift = 0;
    this.become({ fresh: 0 });
    this.again();
  }

  /** Something changed: `isAtTop` tells whether new rows may be put in above without moving what is read. */
  async changed(isAtTop: boolean): Promise<void> {
    if (isAtTop || this.wanted.sort !== USUAL_SORT) {
      this.shift = 0;
      if (this.seen.fresh) this.become({ fresh: 0 });
    } else {
      const { count } = await get<RunsPage>(pagePath(this.wanted, 0, 0, null));
      if (this.ended) return;
      this.shift = Math.max(0, count - this.seen.count);
      if (this.shift !== this.seen.fresh) this.become({ fresh: this.shift });
    }
    this.again();
  }

  private missing(): number[] {
    const [first, last] = this.window;
    const end = this.seen.loading ? last : Math.min(last, this.seen.count);
    return pagesOf(first, Math.max(end, first), PAGE).filter((page) => this.pages.get(page)?.stale ?? true);
  }

  private load(): void {
    const missing = this.missing();
    if (this.seen.count === 0 && missing.length === 0) missing.push(0);
    for (const [page, asking] of this.asking) {
      if (!missing.includes(page)) {
        asking.abort();
        this.asking.delete(page);
      }
    }
    for (const page of missing) if (!this.asking.has(page)) void this.ask(page);
  }

  private async ask(number: number): Promise<void> {
    const asking = new AbortController();
    this.asking.set(number, asking);
    const { wave } = this;
    try {
      const path = pagePath(this.wanted, number * PAGE + this.shift, PAGE, this.columns);
      const { count, runs } = await (takeEarly(path) ?? get<RunsPage>(path, { signal: asking.signal }));
      if (asking.signal.aborted) return;
      this.keep(number, runs, wave !== this.wave);
      this.become({ count: Math.max(0, count - this.shift), loading: false, error: null });
    } catch (fault) {
      if (asking.signal.aborted || this.ended) return;
      this.become({ loading: false, error: fault instanceof ApiError ? fault : new ApiError(0, String(fault)) });
    } finally {
      if (this.asking.get(number) === asking) this.asking.delete(number);
      // Something changed while this was on its way.
      if (!this.ended && wave !== this.wave) this.load();
    }
  }

  private keep(number: number, runs: RunRow[], stale: boolean): void {
    // A row that did not change stays the same object, so that it is not drawn again.
    const before = new Map(this.pages.get(number)?.runs.map((run) => [run.id, run]));
    const same = (run: RunRow): RunRow => {
      const old = before.get(run.id);
      return old && JSON.stringify(old) === JSON.stringify(run) ? old : run;
    };
    this.pages.delete(number);
    this.pages.set(number, { runs: runs.map(same), stale });
    for (const oldest of this.pages.keys()) {
      if (this.pages.size <= MOST_PAGES) break;
      this.pages.delete(oldest);
    }
  }

  private become(change: Partial<Seen>): void {
    if (this.ended) return;
    this.seen = { ...this.seen, ...change, version: this.seen.version + 1 };
    for (const listener of this.listeners) listener();
  }
}
