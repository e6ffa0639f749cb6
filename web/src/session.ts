// Who one is: signing in by a token in the address, and where to go when the server does not know one.

import { type Answer, ApiError, del, post, type Role, refresh, type Session, useAnswer, waitFor } from "./api";
import { here, navigate } from "./router";

/** The token that an address carries: `#token=…`. Browsers do not send this part to servers. */
export function tokenOf(hash: string): string | null {
  return new URLSearchParams(hash.replace(/^#/, "")).get("token") || null;
}

/** Sign in with the token of the address, if it has one; everything that is asked waits for that. */
export function begin(): void {
  const token = tokenOf(location.hash);
  if (!token) return;
  navigate(location.pathname + location.search, { replace: true });
  const signing = signIn({ token }).then(
    () => refresh("/"),
    (fault: unknown) => leave(fault instanceof ApiError ? fault.message : ""),
  );
  waitFor(signing);
}

export type Credentials = { token: string } | { user: string; password: string };

export async function signIn(credentials: Credentials): Promise<void> {
  await post("/session", credentials);
}

export async function signOut(): Promise<void> {
  await del("/session");
  location.assign("/login"); // with all that was remembered
}

/** Go and sign in, and come back here afterwards. */
export function leave(why = ""): void {
  const { path } = here();
  if (path === "/login") return;
  const back = location.pathname + location.search;
  const params = new URLSearchParams();
  if (back !== "/") params.set("back", back);
  if (why) params.set("why", why);
  const text = params.toString();
  navigate(`/login${text ? `?${text}` : ""}`, { replace: true });
}

/** Where to go after signing in: only within this page. */
export function backOf(params: URLSearchParams): string {
  const back = params.get("back") ?? "/runs";
  return /^\/(?![/\\])/.test(back) && !back.startsWith("/login") ? back : "/runs";
}

export const useSession = (): Answer<Session> => useAnswer<Session>("/session");

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
