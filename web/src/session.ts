// The signed-in user: sign-in by a token in the URL, redirects to the login page, and permissions.

import {
  API,
  ApiError,
  del,
  holdRequestsUntil,
  post,
  queryString,
  type Resource,
  type Role,
  refresh,
  type Session,
  useResource,
} from "./api";
import { currentRoute, navigate } from "./router";

/** The token in a URL's fragment (`#token=…`), which browsers do not send to servers. */
export function tokenFromHash(hash: string): string | null {
  return new URLSearchParams(hash.replace(/^#/, "")).get("token") || null;
}

/** Signs in with the token in the URL, if it has one. All other requests wait until that is done. */
export function signInFromUrl(): void {
  const token = tokenFromHash(location.hash);
  if (!token) return;
  navigate(location.pathname + location.search, { replace: true });
  const signedIn = signIn({ token }).then(
    () => refresh("/"),
    (error: unknown) => goToLogin(error instanceof ApiError ? error.message : ""),
  );
  holdRequestsUntil(signedIn);
}

export type Credentials = { token: string } | { user: string; password: string };

export async function signIn(credentials: Credentials): Promise<void> {
  await post("/session", credentials);
}

export async function signOut(): Promise<void> {
  const { next } = await del<{ next: string | null }>("/session");
  location.assign(next ?? "/login"); // a full page load clears the cache
}

/** Opens the login page, which returns to the current page afterwards. */
export function goToLogin(reason = ""): void {
  if (currentRoute().path === "/login") return;
  const back = location.pathname + location.search;
  const params = new URLSearchParams();
  if (back !== "/") params.set("back", back);
  if (reason) params.set("why", reason);
  const text = params.toString();
  navigate(`/login${text ? `?${text}` : ""}`, { replace: true });
}

/** The path to open after sign-in, always on this site. */
export function returnPath(params: URLSearchParams): string {
  const back = params.get("back") ?? "/runs";
  return /^\/(?![/\\])/.test(back) && !back.startsWith("/login") ? back : "/runs";
}

/** Starts sign-on at the identity provider, which leads back to the page. */
export const signOnPath = (params: URLSearchParams): string =>
  `${API}/sign-on/start${queryString({ next: returnPath(params) })}`;

export const useSession = (): Resource<Session> => useResource<Session>("/session");

const LEVELS: Record<Role, number> = { viewer: 1, editor: 2, admin: 3 };

/**
 * Whether the user may edit runs of a project. The highest of the roles on the project and on all projects (`*`) counts, as
 * on the server. True until the session is loaded: the server checks every request anyway.
 */
export function canEdit(session: Session | undefined, project: string): boolean {
  if (!session) return true;
  const roles = [session.role, session.roles["*"], session.roles[project]];
  return roles.some((role) => role && LEVELS[role] >= LEVELS.editor);
}
