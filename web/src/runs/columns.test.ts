import { describe, expect, it } from "vitest";
import type { RunRow } from "../types";
import { columnOf, defaultColumns, nextSort, readColumns, requestedColumns, writeColumns } from "./columns";
import { pagePath } from "./pagedRuns";

const run = (params: RunRow["params"], summary: RunRow["summary"]): RunRow => ({ params, summary }) as RunRow;

describe("columns", () => {
  it("are stored in the URL, including names with commas", () => {
    const keys = ["metric.val/loss", "params.a,b", "params.100%", "user"];
    expect(readColumns(writeColumns(keys))).toEqual(keys);
    expect(readColumns("")).toEqual([]);
  });

  it("default to common metrics and params that differ", () => {
    const runs = [
      run({ lr: 1, seed: 1, same: 0 }, { loss: 1, acc: 1, epoch: 3 }),
      run({ lr: 2, seed: 2, same: 0 }, { loss: 2 }),
    ];
    expect(defaultColumns(runs, true)).toEqual([
      "metric.loss",
      "metric.acc",
      "params.lr",
      "user",
      "took",
      "created_at",
    ]);
    expect(defaultColumns([], false)).toEqual(["project", "user", "took", "created_at"]);
  });

  it("that do not exist are ignored", () => {
    expect([columnOf("nonsense"), columnOf("metric."), columnOf("params.x")?.title]).toEqual([null, null, "x"]);
    expect([columnOf("min.a.b")?.title, columnOf("min.a.b")?.sort]).toEqual(["min a.b", "min.a.b"]);
  });

  it("are requested from the server, unless a name has a comma", () => {
    expect(requestedColumns(["metric.loss", "user", "params.lr"])).toBe("metric.loss,params.lr");
    expect(requestedColumns(["params.a,b"])).toBeNull();
  });
});

describe("sorting by a column", () => {
  it("shows the best first, then the worst, then the default order", () => {
    const loss = columnOf("metric.loss");
    const user = columnOf("user");
    if (!loss || !user) throw new Error("no such column");
    const ways = ["-created_at"];
    for (let click = 0; click < 3; click += 1) ways.push(nextSort(ways.at(-1) ?? "", loss, "-created_at"));
    expect(ways).toEqual(["-created_at", "metric.loss", "-metric.loss", "-created_at"]);
    const accuracy = columnOf("best.accuracy");
    expect(accuracy && nextSort("-created_at", accuracy, "-created_at")).toBe("-best.accuracy");
    expect(nextSort("-created_at", user, "-created_at")).toBe("user");
  });

  it("reverses the default order", () => {
    const created = columnOf("created_at");
    if (!created) throw new Error("no such column");
    expect(nextSort("-created_at", created, "-created_at")).toBe("created_at");
    expect(nextSort("created_at", created, "-created_at")).toBe("-created_at");
  });
});

describe("the path of a page of runs", () => {
  it("has only values that differ from the default", () => {
    expect(pagePath({ q: "", sort: "-created_at", project: "" }, 0, 100, null)).toBe("/runs?limit=100&fold=1");
    expect(pagePath({ q: "a:b", sort: "name", project: "x" }, 200, 100, "metric.loss")).toBe(
      "/runs?q=a%3Ab&sort=name&project=x&limit=100&offset=200&columns=metric.loss",
    );
  });

  it("folds groups unless the user looks for runs by their values", () => {
    expect(pagePath({ q: "", sort: "-metric.loss", project: "" }, 0, 100, null)).toBe(
      "/runs?sort=-metric.loss&limit=100",
    );
  });
});
