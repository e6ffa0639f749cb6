import { describe, expect, it } from "vitest";
import type { Role } from "./api";
import { canEdit, returnPath, tokenFromHash } from "./session";

describe("signing in", () => {
  it("takes the token from the fragment", () => {
    expect([
      tokenFromHash("#token=ab-c_1"),
      tokenFromHash("#x=1&token=t"),
      tokenFromHash("#tokens"),
      tokenFromHash(""),
    ]).toEqual(["ab-c_1", "t", null, null]);
  });

  it("returns to the previous page, but never to another site", () => {
    const back = (to: string): string => returnPath(new URLSearchParams({ back: to }));
    expect(back("/runs/a?tab=1")).toBe("/runs/a?tab=1");
    for (const to of [
      "//evil.example",
      "/\\evil.example",
      "https://evil.example",
      "javascript:alert(1)",
      "/login?back=/x",
    ]) {
      expect(back(to)).toBe("/runs");
    }
  });
});

describe("edit permission", () => {
  const session = (roles: Record<string, Role>) => ({ name: "ada", kind: "user", role: roles["*"] ?? null, roles });

  it("needs the editor role on the project or on all projects", () => {
    expect(canEdit(session({ vision: "editor" }), "vision")).toBe(true);
    expect(canEdit(session({ vision: "editor" }), "speech")).toBe(false);
    expect(canEdit(session({ vision: "viewer" }), "vision")).toBe(false);
    expect(canEdit(session({ "*": "admin" }), "speech")).toBe(true);
  });

  it("follows the highest role, wherever it was given", () => {
    expect(canEdit(session({ "*": "editor", vision: "viewer" }), "vision")).toBe(true);
    expect(canEdit(session({ "*": "viewer", vision: "editor" }), "vision")).toBe(true);
  });

  it("is assumed until the session is loaded", () => {
    expect(canEdit(undefined, "vision")).toBe(true);
  });
});
