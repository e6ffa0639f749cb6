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

const RANKS: Record<Role, number> = { viewer: 1, editor: 2, admin: 3 };

/** Whether one may do what a role may, on a project, or on all. While one is unknown: as if, for the server decides. */
export function may(session: Session | undefined, role: Role, project = "*"): boolean {
  if (!session) return true;
  const held = [session.role, session.roles?.["*"], session.roles?.[project]];
  return held.some((one) => one && RANKS[one] >= RANKS[role]);
}

/** Whether one may do so on any project at all. */
export function maySomewhere(session: Session | undefined, role: Role): boolean {
  return may(session, role) || Object.values(session?.roles ?? {}).some((one) => RANKS[one] >= RANKS[role]);
}
