import { describe, expect, it } from "vitest";
import { queryString } from "./api";
import { match, withParams } from "./router";

const route = (path: string, params = "") => ({ path, params: new URLSearchParams(params), hash: "" });

describe("a path", () => {
  it("is matched by a pattern", () => {
    expect(match("/runs/:id/*", "/runs/abc/logs/x")).toEqual({ id: "abc", rest: "logs/x" });
    expect(match("/runs/:id/*", "/runs/abc")).toEqual({ id: "abc", rest: "" });
    expect(match("/models/:name?", "/models")).toEqual({});
    expect(match("/models/*", "/models/a%2Fb/c")).toEqual({ rest: "a/b/c" });
  });

  it("does not match a shorter, longer or different pattern", () => {
    expect([match("/runs", "/runs/a"), match("/runs/:id", "/runs"), match("/runs", "/queue")]).toEqual([
      null,
      null,
      null,
    ]);
  });

  it("with invalid escapes is kept as it is", () => {
    expect(match("/runs/:id", "/runs/%zz")).toEqual({ id: "%zz" });
  });
});

describe("URL parameters", () => {
  it("stay readable and keep unchanged values", () => {
    expect(withParams(route("/runs", "project=vision"), { q: "status:running|starting, metric.loss:1" })).toBe(
      "/runs?project=vision&q=status:running|starting,+metric.loss:1",
    );
  });

  it("are removed when empty, and repeated for lists", () => {
    expect(withParams(route("/runs", "q=a&sort=b"), { q: "", sort: null })).toBe("/runs");
    expect(withParams(route("/compare"), { run: ["a", "b"], all: true, none: false })).toBe(
      "/compare?run=a&run=b&all=1",
    );
  });

  it("survive a round trip", () => {
    const q = 'name:"a & b? #100%", tags:+x';
    const [, search] = withParams(route("/runs"), { q }).split(/\?(.*)/s);
    expect(new URLSearchParams(search).get("q")).toBe(q);
  });

  it("omit empty values in requests", () => {
    expect(queryString({ q: "a:b", sort: null, run: ["x", "y"], limit: 0, none: "" })).toBe(
      "?q=a%3Ab&run=x&run=y&limit=0",
    );
  });
});
