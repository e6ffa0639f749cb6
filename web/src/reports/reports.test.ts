import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import type { RunRow } from "../types";
import { partsOf } from "./blocks";
import { htmlFile } from "./htmlFile";
import { cellText, columnTitle, defaultColumns } from "./ReportTable";
import { runsPath } from "./reportRuns";

const FIXTURE = fileURLToPath(new URL("../../../tests/fixtures/report_blocks.json", import.meta.url));
const CASES: { text: string; kinds: string[]; faults: string[] }[] = JSON.parse(readFileSync(FIXTURE, "utf8"));

const fence = (kind: string, ...lines: string[]): string => [`\`\`\`${kind}`, ...lines, "```"].join("\n");

describe("the text of a report", () => {
  it("is Markdown with charts and tables between", () => {
    const parts = partsOf(
      `# A\n\n${fence("chart", "metric: loss, val/loss", "runs: a1, b2", "log_y: true")}\ntext\n${fence("table", "query: tags:x")}`,
    );
    expect(parts.map(({ kind }) => kind)).toEqual(["markdown", "chart", "markdown", "table"]);
    const chart = parts[1];
    expect(chart?.kind === "chart" && chart.block).toMatchObject({
      metrics: ["loss", "val/loss"],
      runs: ["a1", "b2"],
      query: null,
      logY: true,
      smoothing: 0,
    });
  });

  it("keeps other code as it is, also if it shows a block", () => {
    const text = `~~~md\n${fence("chart", "metric: loss")}\n~~~\n\n${fence("python", "x = 1")}`;
    expect(partsOf(text)).toEqual([{ kind: "markdown", text }]);
  });

  it("says what is wrong with a block", () => {
    const faults = (...lines: string[]) => {
      const part = partsOf(fence("chart", ...lines))[0];
      return part?.kind === "chart" ? part.faults.join(" ") : "";
    };
    expect(faults("metrc: loss")).toMatch(/Unknown key “metrc”.*needs `metric/);
    expect(faults("metric: loss", "smooth: 2")).toContain("from 0 to 0.99");
    expect(faults("metric: loss", "range: 5..1")).toContain("100..500");
    expect(faults("metric: loss", "x: nothing")).toContain("metric.NAME");
    expect(faults("metric: loss", "nonsense")).toContain("key: value");
    expect(faults("metric: loss", "runs: a", "query: b")).toContain("either");
    expect(faults("metric: loss", "# a comment", "x: metric.epoch", "limit: 5")).toBe("");
  });

  it("is split as the command line does", () => {
    for (const { text, kinds, faults } of CASES) {
      const parts = partsOf(text);
      expect(parts.map(({ kind }) => kind)).toEqual(kinds);
      expect(parts.flatMap((part) => (part.kind === "markdown" ? [] : part.faults))).toEqual(faults);
    }
  });

  it("may end inside of a block, and be huge", () => {
    expect(partsOf("```chart\nmetric: loss")[0]?.kind).toBe("chart");
    expect(partsOf("```\n".repeat(20_000)).length).toBe(1);
  });
});

describe("the runs of a block", () => {
  const choice = { runs: [], query: "tags:x", sort: "", limit: 5, project: "" };

  it("are of the report's project, or of the one it names", () => {
    expect(runsPath(choice, "vision")).toBe("/runs?q=tags%3Ax&limit=5&project=vision");
    expect(runsPath({ ...choice, project: "speech" }, "vision")).toContain("project=speech");
  });

  it("are ids that cannot change the query", () => {
    expect(runsPath({ ...choice, runs: ["a1", "b2, status:failed", "c|d"] }, "v")).toBe("/runs?q=id%3Aa1&limit=1");
  });
});

describe("a table", () => {
  const run = {
    id: "a1",
    name: null,
    status: "succeeded",
    params: { lr: 0.1, seed: 1 },
    summary: { loss: "NaN", acc: 0.5 },
    best: { loss: { min: 0.25, max: 1 } },
    tags: ["x", "y"],
    started_at: "2026-01-01T00:00:00Z",
    finished_at: "2026-01-01T00:02:00Z",
  } as unknown as RunRow;

  it("has texts for all that a run has, and dashes for the rest", () => {
    const text = (column: string) => cellText(run, column);
    expect(
      ["params.lr", "metric.loss", "min.loss", "max.none", "took", "tags", "nonsense", "params"].map(text),
    ).toEqual(["0.1", "NaN", "0.25", "–", "2 min 00 s", "x, y", "–", "–"]);
    expect(columnTitle("min.loss")).toBe("min loss");
  });

  it("shows params that differ by default", () => {
    const other = { ...run, params: { lr: 0.2, seed: 1 } } as RunRow;
    expect(defaultColumns([run, other])).toEqual(["name", "status", "params.lr", "metric.loss", "metric.acc"]);
  });
});

describe("the file", () => {
  it("escapes its title and forbids scripts", () => {
    const html = htmlFile({
      title: "</title><script>x</script>",
      about: "<b>",
      address: 'http://x/"><script>',
      parts: ["<p>a</p>"],
    });
    expect(html).not.toContain("<script");
    expect(html).toContain("default-src 'none'");
    expect(html).toContain("<section><p>a</p></section>");
  });
});
