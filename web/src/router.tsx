// The router: the current URL, navigation, and state in URL parameters.

import { type AnchorHTMLAttributes, type MouseEvent, type ReactNode, useEffect, useSyncExternalStore } from "react";

export type Route = { path: string; params: URLSearchParams; hash: string };

let route = read();
const listeners = new Set<() => void>();

function read(): Route {
  const { pathname, search, hash } = typeof location === "undefined" ? new URL("http://x/") : location;
  return { path: pathname, params: new URLSearchParams(search), hash };
}

function routeChanged(): void {
  route = read();
  for (const listener of listeners) listener();
}

if (typeof window !== "undefined") window.addEventListener("popstate", routeChanged);

export type NavigateOptions = { replace?: boolean; keepScroll?: boolean };

export function navigate(to: string, { replace, keepScroll }: NavigateOptions = {}): void {
  if (to === location.pathname + location.search + location.hash) return;
  if (replace) history.replaceState(history.state, "", to);
  else history.pushState(null, "", to);
  routeChanged();
  if (!replace && !keepScroll) window.scrollTo(0, 0);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useRoute(): Route {
  return useSyncExternalStore(subscribe, () => route);
}

/** The current route, outside components. */
export const currentRoute = (): Route => route;

/** The named parts of a path that matches a pattern such as `/runs/:id/:tab?`, or null. A final `*` matches the rest. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const segments = pattern.split("/").filter(Boolean);
  const parts = path.split("/").filter(Boolean);
  const found: Record<string, string> = {};
  for (const [index, want] of segments.entries()) {
    if (want === "*") {
      found.rest = parts.slice(index).map(decoded).join("/");
      return found;
    }
    const part = parts[index];
    if (part === undefined) {
      if (!want.endsWith("?")) return null;
    } else if (want.startsWith(":")) {
      found[want.slice(1).replace(/\?$/, "")] = decoded(part);
    } else if (want !== part) {
      return null;
    }
  }
  return parts.length > segments.length ? null : found;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export type ParamChanges = Record<string, string | number | boolean | null | undefined | readonly string[]>;

/** A URL with changed parameters; null, undefined, false and "" remove one. */
export function withParams(from: Route, changes: ParamChanges): string {
  const params = new URLSearchParams(from.params);
  for (const [name, value] of Object.entries(changes)) {
    params.delete(name);
    if (Array.isArray(value)) for (const one of value as string[]) params.append(name, one);
    else if (value === true) params.set(name, "1");
    else if (value !== null && value !== undefined && value !== false && value !== "") params.set(name, String(value));
  }
  const text = readableParams(params);
  return from.path + (text ? `?${text}` : "") + from.hash;
}

/** Keeps allowed characters unescaped: `?q=status:running,metric.loss:<0.1` is readable when shared. */
export function readableParams(params: URLSearchParams): string {
  return params
    .toString()
    .replace(/%3A/g, ":")
    .replace(/%2C/g, ",")
    .replace(/%2F/g, "/")
    .replace(/%40/g, "@")
    .replace(/%7C/g, "|");
}

/** Changes parameters of the current URL. Reindexs the history entry unless `push` is set. */
export function setParams(changes: ParamChanges, { push = false }: { push?: boolean } = {}): void {
  navigate(withParams(route, changes), { replace: !push, keepScroll: true });
}

/** A URL parameter and its setter. */
export function useParam(name: string, fallback = ""): [string, (value: string, options?: { push?: boolean }) => void] {
  const { params } = useRoute();
  return [
    params.get(name) ?? fallback,
    (value, options) => setParams({ [name]: value === fallback ? null : value }, options),
  ];
}

/** A repeatable URL parameter and its setter. */
export function useParamList(name: string): [string[], (values: string[], options?: { push?: boolean }) => void] {
  const { params } = useRoute();
  return [params.getAll(name), (values, options) => setParams({ [name]: values }, options)];
}

type LinkProps = AnchorHTMLAttributes<HTMLAnchorElement> & { to: string; replace?: boolean; children?: ReactNode };

/** A link handled by the router. The browser handles clicks with a modifier key or the middle button. */
export function Link({ to, replace = false, onClick, ...rest }: LinkProps): ReactNode {
  const follow = (event: MouseEvent<HTMLAnchorElement>): void => {
    onClick?.(event);
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (event.defaultPrevented || !isPlain || rest.target) return;
    event.preventDefault();
    navigate(to, { replace });
  };
  return <a href={to} onClick={follow} {...rest} />;
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = title ? `${title} · Phalanx` : "Phalanx";
  }, [title]);
}
