import { describe, expect, it } from "vitest";
import { queryString } from "./api";
import { match, withParams } from "./router";

const route = (path: string, params = "") => ({ path, params: new URLSearchParams(params), hash: "" });

describe("a path", () => {
  it("is taken apart by a pattern", () => {
    expect(match("/runs/:id/*", "/runs/abc/logs/x")).toEqual({ id: "abc", rest: "logs/x" });
    expect(match("/runs/:id/*", "/runs/abc")).toEqual({ id: "abc", rest: "" });
    expect(match("/models/:name?", "/models")).toEqual({});
    expect(match("/models/*", "/models/a%2Fb/c")).toEqual({ rest: "a/b/c" });
  });

  it("is none of a pattern that is shorter, longer or another", () => {
    expect([match("/runs", "/runs/a"), match("/runs/:id", "/runs"), match("/runs", "/queue")]).toEqual([
      null,
      null,
      null,
    ]);
  });

  it("that is badly escaped is taken as it is", () => {
    expect(match("/runs/:id", "/runs/%zz")).toEqual({ id: "%zz" });
  });
});

describe("choices in an address", () => {
  it("stay readable and keep what is not changed", () => {
    expect(withParams(route("/runs", "project=vision"), { q: "status:running|starting, metric.loss:1" })).toBe(
      "/runs?project=vision&q=status:running|starting,+metric.loss:1",
    );
  });

  it("go when they are empty, and repeat when they are many", () => {
    expect(withParams(route("/runs", "q=a&sort=b"), { q: "", sort: null })).toBe("/runs");
    expect(withParams(route("/compare"), { run: ["a", "b"], all: true, none: false })).toBe(
      "/compare?run=a&run=b&all=1",
    );
  });

  it("come back as they were", () => {
    const q = 'name:"a & b? #100%", tags:+x';
    const [, search] = withParams(route("/runs"), { q }).split(/\?(.*)/s);
    expect(new URLSearchParams(search).get("q")).toBe(q);
  });

  it("are asked of the server without what is empty", () => {
    expect(queryString({ q: "a:b", sort: null, run: ["x", "y"], limit: 0, none: "" })).toBe(
      "?q=a%3Ab&run=x&run=y&limit=0",
    );
  });
});
