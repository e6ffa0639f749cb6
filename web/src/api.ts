// The client of the REST API: typed requests, cached responses and event streams.

import { useCallback, useEffect, useRef, useSyncExternalStore } from "react";

export * from "./types";

export const API = "/api/v1";

/** A failed request: the server's message, and a hint on how to fix it. `status` is 0 if the server was not reached. */
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

export const asApiError = (error: unknown): ApiError =>
  error instanceof ApiError ? error : new ApiError(0, String(error));

type Value = string | number | boolean | null | undefined;
export type Fields = Record<string, Value | readonly Value[]>;

/** `?a=1&b=2` without empty values. A list repeats its name. */
export function queryString(fields: Fields): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") params.append(name, String(one));
    }
  }
  const text = params.toString();
  return text ? `?${text}` : "";
}

/** A path with escaped values: apiPath`/runs/${id}/logs`. */
export function apiPath(texts: TemplateStringsArray, ...values: (string | number)[]): string {
  return texts.reduce((path, text, index) => path + encodeURIComponent(String(values[index - 1])) + text);
}

let handleUnauthorized = (): void => {};

/** Sets what happens when the server answers 401. */
export function onUnauthorized(handler: () => void): void {
  handleUnauthorized = handler;
}

export type RequestOptions = { signal?: AbortSignal | undefined; headers?: Record<string, string> };

let gate: Promise<unknown> | null = null;

/** Holds all requests except sign-in until the promise settles. */
export function holdRequestsUntil(done: Promise<unknown>): void {
  gate = done;
}

export async function request<T>(
  method: string,
  path: string,
  body?: unknown,
  options: RequestOptions = {},
): Promise<T> {
  return (await requestTagged<T>(method, path, body, options)).data;
}

/** A response with its version, which a change sends back as `If-Match`. */
export type Tagged<T> = { data: T; tag: string };

export async function requestTagged<T>(
  method: string,
  path: string,
  body?: unknown,
  options: RequestOptions = {},
): Promise<Tagged<T>> {
  if (gate && path !== "/session") await gate;
  const response = await send(method, path, body, options);
  const text = await response.text();
  const content = response.headers.get("content-type")?.startsWith("application/json") ? parseJson(text) : text;
  if (response.ok) return { data: content as T, tag: response.headers.get("etag") ?? "" };
  if (response.status === 401 && path !== "/session") handleUnauthorized();
  throw errorOf(response.status, content);
}

async function send(method: string, path: string, body: unknown, options: RequestOptions): Promise<Response> {
  const { signal, headers: more = {} } = options;
  const isPlain = body === undefined || body instanceof Blob;
  const headers: Record<string, string> = { Accept: "application/json", ...more };
  if (!isPlain) headers["Content-Type"] = "application/json";
  const init: RequestInit = { method, headers, credentials: "same-origin", signal: signal ?? null };
  if (body !== undefined) init.body = isPlain ? (body as Blob) : JSON.stringify(body);
  try {
    return await fetch(API + path, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(
      0,
      "Cannot reach the server.",
      "Is `phalanx serve` still running? The page retries automatically.",
    );
  }
}

function parseJson(text: string): unknown {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return text;
  }
}

function errorOf(status: number, content: unknown): ApiError {
  const error = (content as { error?: { message?: string; hint?: string } } | null)?.error;
  const message =
    error?.message ?? (status >= 500 ? "Internal server error." : `The server responded with status ${status}.`);
  return new ApiError(status, message, error?.hint ?? null, content);
}

export const get = <T>(path: string, options?: RequestOptions): Promise<T> =>
  request<T>("GET", path, undefined, options);
export const post = <T>(path: string, body: unknown = {}, options?: RequestOptions): Promise<T> =>
  request<T>("POST", path, body, options);
export const patch = <T>(path: string, body: unknown, options?: RequestOptions): Promise<T> =>
  request<T>("PATCH", path, body, options);
export const put = <T>(path: string, body: unknown = {}, options?: RequestOptions): Promise<T> =>
  request<T>("PUT", path, body, options);
export const del = <T>(path: string, options?: RequestOptions): Promise<T> =>
  request<T>("DELETE", path, undefined, options);

/** Where TensorBoard shows runs: `url` if the server is on this machine, else only the command to type. */
export type BoardAddress = { url: string | null; command: string };

/** Opens runs in TensorBoard, by their ids or by a query of the runs list. */
export const openTensorBoard = (chosen: readonly string[] | string): Promise<BoardAddress> =>
  post<BoardAddress>("/tensorboard", typeof chosen === "string" ? { query: chosen } : { runs: chosen });

// Cached responses ---------------------------------------------------------------------------------------------------

/** The last response of a path. While `loading`, `data` may be outdated. */
export type CachedResponse<T> = { data: T | undefined; error: ApiError | null; loading: boolean; at: number };

type Entry = {
  response: CachedResponse<unknown>;
  listeners: Set<() => void>;
  pending: AbortController | null;
  /** A reload was requested while a request was pending. */
  isStale: boolean;
};

const EMPTY: CachedResponse<unknown> = { data: undefined, error: null, loading: false, at: 0 };
const LOADING: CachedResponse<unknown> = { ...EMPTY, loading: true };
const FRESH_MS = 1000; // a younger response is not reloaded when another component mounts
const MAX_ENTRIES = 120;
const cache = new Map<string, Entry>();

function entryOf(path: string): Entry {
  let entry = cache.get(path);
  if (!entry) {
    entry = { response: LOADING, listeners: new Set(), pending: null, isStale: false };
    cache.set(path, entry);
    evict();
  }
  return entry;
}

function evict(): void {
  for (const [path, entry] of cache) {
    if (cache.size <= MAX_ENTRIES) return;
    if (entry.listeners.size === 0 && !entry.pending) cache.delete(path);
  }
}

function update(entry: Entry, response: CachedResponse<unknown>): void {
  entry.response = response;
  for (const listener of entry.listeners) listener();
}

async function load(path: string, entry: Entry): Promise<void> {
  if (entry.pending) {
    entry.isStale = true;
    return;
  }
  const pending = new AbortController();
  entry.pending = pending;
  update(entry, { ...entry.response, loading: true });
  let response: CachedResponse<unknown>;
  try {
    response = { data: await get(path, { signal: pending.signal }), error: null, loading: false, at: Date.now() };
  } catch (error) {
    if (pending.signal.aborted) return;
    response = { ...entry.response, error: asApiError(error), loading: false, at: Date.now() };
  }
  entry.pending = null;
  update(entry, response);
  if (entry.isStale) {
    entry.isStale = false;
    if (entry.listeners.size) void load(path, entry);
  }
}

/** Reloads every cached response whose path starts with `prefix`, and drops those no component shows. */
export function refresh(prefix: string): void {
  for (const [path, entry] of cache) {
    if (!path.startsWith(prefix)) continue;
    if (entry.listeners.size) void load(path, entry);
    else if (!entry.pending) cache.delete(path);
  }
}

export type ResourceOptions = {
  /** Reload at this interval while the page is visible. */
  pollMs?: number | undefined;
  /** While a new path loads, keep the data of the previous one. */
  keepPrevious?: boolean | undefined;
};

export type Resource<T> = CachedResponse<T> & { reload: () => void };

/** The response of a path, from the cache first and then reloaded; `null` requests nothing. */
export function useResource<T>(path: string | null, { pollMs, keepPrevious }: ResourceOptions = {}): Resource<T> {
  const subscribe = useCallback(
    (listener: () => void) => {
      if (path === null) return () => {};
      const entry = entryOf(path);
      entry.listeners.add(listener);
      if (!entry.pending && Date.now() - entry.response.at > FRESH_MS) void load(path, entry);
      return () => {
        entry.listeners.delete(listener);
        // A component that remounts subscribes again within a moment.
        setTimeout(() => {
          if (entry.listeners.size || !entry.pending) return;
          entry.pending.abort();
          entry.pending = null;
          entry.response = { ...entry.response, loading: false };
        }, 50);
      };
    },
    [path],
  );
  const response = useSyncExternalStore(subscribe, () =>
    path === null ? EMPTY : entryOf(path).response,
  ) as CachedResponse<T>;
  const previous = useRef<T | undefined>(undefined);
  if (response.data !== undefined) previous.current = response.data;
  const reload = useCallback(() => {
    if (path !== null) void load(path, entryOf(path));
  }, [path]);
  useEffect(() => (pollMs ? pollWhileVisible(pollMs, reload) : undefined), [pollMs, reload]);
  const data = response.data === undefined && keepPrevious ? previous.current : response.data;
  return { ...response, data, reload };
}

/** Calls at an interval while the page is visible, and when it becomes visible. Returns a function that stops it. */
export function pollWhileVisible(intervalMs: number, call: () => void): () => void {
  const timer = setInterval(() => document.hidden || call(), intervalMs);
  const visibilityChanged = (): void => {
    if (!document.hidden) call();
  };
  document.addEventListener("visibilitychange", visibilityChanged);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", visibilityChanged);
  };
}

// Event streams ------------------------------------------------------------------------------------------------------

export type Handlers = Record<string, (data: never) => void> & {
  /** The stream was opened or reopened. Events missed in between are not repeated. */
  open?: () => void;
};
export type StreamState = "off" | "connecting" | "open";

/**
 * Subscribes to a server-sent event stream (`/live`, `/runs/ID/live`) whose events carry JSON. The stream closes while the
 * page is hidden, because browsers limit connections per host, and reconnects after errors. `null` subscribes to nothing.
 */
export function useEventStream(path: string | null, handlers: Handlers): StreamState {
  const latest = useRef(handlers);
  latest.current = handlers;
  const state = useRef<StreamState>("off");
  const names = Object.keys(handlers).sort().join(" ");
  const subscribe = useCallback(
    (listener: () => void) => {
      if (path === null) return () => {};
      return openStream(
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

function openStream(
  path: string,
  names: string[],
  onEvent: (name: string, data: unknown) => void,
  onState: (state: StreamState) => void,
): () => void {
  let source: EventSource | null = null;
  let timer = 0;
  let retryMs = 1000;
  const close = (): void => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const connect = (): void => {
    close();
    if (document.hidden) {
      onState("off");
      return;
    }
    onState("connecting");
    const opened = new EventSource(API + path);
    source = opened;
    opened.onopen = () => {
      retryMs = 1000;
      onState("open");
      onEvent("open", null);
    };
    opened.onerror = () => {
      onState("connecting");
      opened.close();
      timer = window.setTimeout(connect, retryMs);
      retryMs = Math.min(retryMs * 2, 30_000);
    };
    for (const name of names) {
      if (name !== "open") opened.addEventListener(name, (event) => onEvent(name, parseJson(event.data as string)));
    }
  };
  document.addEventListener("visibilitychange", connect);
  connect();
  return () => {
    document.removeEventListener("visibilitychange", connect);
    close();
  };
}
