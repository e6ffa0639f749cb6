// Asking the server: typed requests, answers that are remembered, and what the server tells by itself.

import { useCallback, useEffect, useRef, useSyncExternalStore } from "react";

export * from "./types";

export const API = "/api/v1";

/** A request that was refused or failed: what the server says, and what to do. `status` 0: it was not reached. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint: string | null = null,
    readonly body: unknown = null,
  ) {
    super(message);
  }
}

type Value = string | number | boolean | null | undefined;
export type Fields = Record<string, Value | readonly Value[]>;

/** `?a=1&b=2`, without what is empty; lists repeat their name. */
export function query(fields: Fields): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") found.append(name, String(one));
    }
  }
  const text = found.toString();
  return text ? `?${text}` : "";
}

/** `/runs/ID/logs` with each part escaped: at`/runs/${id}/logs`. */
export function at(texts: TemplateStringsArray, ...parts: (string | number)[]): string {
  return texts.reduce((path, text, place) => path + encodeURIComponent(String(parts[place - 1])) + text);
}

let whenSignedOut = (): void => {};

/** What to do when the server does not know who one is. */
export function onSignedOut(act: () => void): void {
  whenSignedOut = act;
}

export type Asking = { signal?: AbortSignal | undefined };

let gate: Promise<unknown> | null = null;

/** Let every request wait until this is done: signing in. */
export function waitFor(done: Promise<unknown>): void {
  gate = done;
}

export async function request<T>(method: string, path: string, body?: unknown, asking: Asking = {}): Promise<T> {
  if (gate && path !== "/session") await gate;
  const answer = await reach(method, path, body, asking);
  const text = await answer.text();
  const told = answer.headers.get("content-type")?.startsWith("application/json") ? parsed(text) : text;
  if (answer.ok) return told as T;
  if (answer.status === 401 && path !== "/session") whenSignedOut();
  throw refusal(answer.status, told);
}

async function reach(method: string, path: string, body: unknown, { signal }: Asking): Promise<Response> {
  const isPlain = body === undefined || body instanceof Blob;
  const headers: Record<string, string> = { Accept: "application/json" };
  if (!isPlain) headers["Content-Type"] = "application/json";
  const init: RequestInit = { method, headers, credentials: "same-origin", signal: signal ?? null };
  if (body !== undefined) init.body = isPlain ? (body as Blob) : JSON.stringify(body);
  try {
    return await fetch(API + path, init);
  } catch (fault) {
    if (signal?.aborted) throw fault;
    throw new ApiError(
      0,
      "The server does not answer.",
      "Is `phalanx serve` still running? It is asked again by itself.",
    );
  }
}

function parsed(text: string): unknown {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return text;
  }
}

function refusal(status: number, told: unknown): ApiError {
  const error = (told as { error?: { message?: string; hint?: string } } | null)?.error;
  const message =
    error?.message ?? (status >= 500 ? "The server could not do this." : `The server answered ${status}.`);
  return new ApiError(status, message, error?.hint ?? null, told);
}

export const get = <T>(path: string, asking?: Asking): Promise<T> => request<T>("GET", path, undefined, asking);
export const post = <T>(path: string, body: unknown = {}, asking?: Asking): Promise<T> =>
  request<T>("POST", path, body, asking);
export const patch = <T>(path: string, body: unknown, asking?: Asking): Promise<T> =>
  request<T>("PATCH", path, body, asking);
export const del = <T>(path: string, asking?: Asking): Promise<T> => request<T>("DELETE", path, undefined, asking);

// Answers that are remembered ------------------------------------------------------------------------------------

/** What is known of one address now. `data` may be of an earlier time while `loading`. */
export type Known<T> = { data: T | undefined; error: ApiError | null; loading: boolean; at: number };

type Entry = { known: Known<unknown>; listeners: Set<() => void>; asking: AbortController | null; again: boolean };

const UNKNOWN: Known<unknown> = { data: undefined, error: null, loading: false, at: 0 };
const WAITING: Known<unknown> = { ...UNKNOWN, loading: true };
const FRESH_MS = 1000; // what is younger is not asked for again when something new shows it
const MOST_KEPT = 120;
const entries = new Map<string, Entry>();

function entryOf(path: string): Entry {
  let entry = entries.get(path);
  if (!entry) {
    entry = { known: WAITING, listeners: new Set(), asking: null, again: false };
    entries.set(path, entry);
    forget();
  }
  return entry;
}

function forget(): void {
  for (const [path, entry] of entries) {
    if (entries.size <= MOST_KEPT) return;
    if (entry.listeners.size === 0 && !entry.asking) entries.delete(path);
  }
}

function tell(entry: Entry, known: Known<unknown>): void {
  entry.known = known;
  for (const listener of entry.listeners) listener();
}

async function load(path: string, entry: Entry): Promise<void> {
  if (entry.asking) {
    entry.again = true;
    return;
  }
  const asking = new AbortController();
  entry.asking = asking;
  tell(entry, { ...entry.known, loading: true });
  let known: Known<unknown>;
  try {
    known = { data: await get(path, { signal: asking.signal }), error: null, loading: false, at: Date.now() };
  } catch (fault) {
    if (asking.signal.aborted) return;
    const error = fault instanceof ApiError ? fault : new ApiError(0, String(fault));
    known = { ...entry.known, error, loading: false, at: Date.now() };
  }
  entry.asking = null;
  tell(entry, known);
  if (entry.again) {
    entry.again = false;
    if (entry.listeners.size) void load(path, entry);
  }
}

/** Begin to ask before anything shows it. */
export function preload(path: string): void {
  const entry = entryOf(path);
  if (!entry.known.at) void load(path, entry);
}

/** Ask again for every remembered answer whose address begins so, or drop it where nobody looks. */
export function refresh(prefix: string): void {
  for (const [path, entry] of entries) {
    if (!path.startsWith(prefix)) continue;
    if (entry.listeners.size) void load(path, entry);
    else if (!entry.asking) entries.delete(path);
  }
}

export type AnswerOptions = {
  /** Ask again every so many milliseconds while the page is looked at. */
  live?: number | undefined;
  /** While a new address loads, show what the last one said. */
  keep?: boolean | undefined;
};

export type Answer<T> = Known<T> & { again: () => void };

/** What the server says at an address; `null` asks nothing. Known answers show at once and are asked for again. */
export function useAnswer<T>(path: string | null, { live, keep }: AnswerOptions = {}): Answer<T> {
  const subscribe = useCallback(
    (listener: () => void) => {
      if (path === null) return () => {};
      const entry = entryOf(path);
      entry.listeners.add(listener);
      if (!entry.asking && Date.now() - entry.known.at > FRESH_MS) void load(path, entry);
      return () => {
        entry.listeners.delete(listener);
        // A component that is drawn anew comes back within a moment.
        setTimeout(() => {
          if (entry.listeners.size || !entry.asking) return;
          entry.asking.abort();
          entry.asking = null;
          entry.known = { ...entry.known, loading: false };
        }, 50);
      };
    },
    [path],
  );
  const known = useSyncExternalStore(subscribe, () => (path === null ? UNKNOWN : entryOf(path).known)) as Known<T>;
  const last = useRef<T | undefined>(undefined);
  if (known.data !== undefined) last.current = known.data;
  const again = useCallback(() => {
    if (path !== null) void load(path, entryOf(path));
  }, [path]);
  useEffect(() => (live ? repeat(live, again) : undefined), [live, again]);
  const data = known.data === undefined && keep ? last.current : known.data;
  return { ...known, data, again };
}

/** Call every so often while the page is looked at, and at once when it is looked at again. Gives what ends it. */
export function repeat(every: number, act: () => void): () => void {
  const timer = setInterval(() => document.hidden || act(), every);
  const seen = (): void => {
    if (!document.hidden) act();
  };
  document.addEventListener("visibilitychange", seen);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", seen);
  };
}

// What the server tells by itself ----------------------------------------------------------------------------------

export type Handlers = Record<string, (data: never) => void> & {
  /** The stream began, again perhaps: what was missed in between is not told. */
  open?: () => void;
};
export type LiveState = "off" | "waiting" | "open";

/**
 * Events of a stream of the server (`/live`, `/runs/ID/live`), each with its JSON. It rests while the page is hidden,
 * for browsers allow few connections, and is begun anew after faults. `null` listens to nothing.
 */
export function useLive(path: string | null, handlers: Handlers): LiveState {
  const latest = useRef(handlers);
  latest.current = handlers;
  const state = useRef<LiveState>("off");
  const names = Object.keys(handlers).sort().join(" ");
  const subscribe = useCallback(
    (listener: () => void) => {
      if (path === null) return () => {};
      return listen(
        path,
        names.split(" "),
        (name, data) => latest.current[name]?.(data as never),
        (now) => {
          state.current = now;
          listener();
        },
      );
    },
    [path, names],
  );
  return useSyncExternalStore(subscribe, () => (path === null ? "off" : state.current));
}

function listen(
  path: string,
  names: string[],
  on: (name: string, data: unknown) => void,
  become: (state: LiveState) => void,
): () => void {
  let source: EventSource | null = null;
  let timer = 0;
  let patience = 1000;
  const end = (): void => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const begin = (): void => {
    end();
    if (document.hidden) {
      become("off");
      return;
    }
    become("waiting");
    const mine = new EventSource(API + path);
    source = mine;
    mine.onopen = () => {
      patience = 1000;
      become("open");
      on("open", null);
    };
    mine.onerror = () => {
      become("waiting");
      mine.close();
      timer = window.setTimeout(begin, patience);
      patience = Math.min(patience * 2, 30_000);
    };
    for (const name of names) {
      if (name !== "open") mine.addEventListener(name, (event) => on(name, parsed(event.data as string)));
    }
  };
  document.addEventListener("visibilitychange", begin);
  begin();
  return () => {
    document.removeEventListener("visibilitychange", begin);
    end();
  };
}
