import { describe, expect, it } from "vitest";
import type { Chart, ChartLine, LogLine, OutputRow, StatusRow, TopologyReplica } from "../types";
import { linesOf, oddOf, panelLines, ranksNote, stepsOf, stepValues, valueAt, xChoice } from "./chartLines";
import { attemptsOf } from "./history";
import { whoText } from "./LogLines";
import { movedPanel, panelOf, panelTitle, toggledPanel } from "./layout";
import { chunks, opened, plainText, splitMatches, toneOf, withEarlier, withLater } from "./logWindow";
import { bars, dots, groupMedia, type MediaEvent } from "./media";
import { grouped, inSections, matcher, naturalOrder } from "./metricSections";
import { ancestors, childrenOf, pathPart } from "./outputs";
import { progressOf, secondsLeft } from "./progress";
import { parseRanks, rankText } from "./ranks";
import { byRole, countByMark, markOf, shownLags } from "./replicaLag";
import { diffLine, jsonLine, yamlLine } from "./syntaxHighlight";

const replica = (rank: number, more: Partial<TopologyReplica> = {}): TopologyReplica => ({
  name: `worker-${rank}`,
  role: "worker",
  index: rank,
  rank,
  host: "a",
  status: "running",
  reason: "",
  cause: null,
  code: null,
  signal: null,
  started_at: null,
  finished_at: null,
  step: null,
  step_at: null,
  behind: null,
  lag: null,
  ...more,
});

describe("lag", () => {
  it("is shown as the server says, for running replicas only", () => {
    const all = [replica(0, { lag: 0 }), replica(1, { lag: 2 }), replica(2, { lag: 3, status: "failed" })];
    expect(shownLags(all)).toEqual(new Set([0, 2]));
    expect(shownLags([replica(0)])).toEqual(new Set([0]));
  });

  it("has a mark for each state", () => {
    expect(markOf(replica(0, { status: "failed" }))).toBe("bad");
    expect(markOf(replica(0, { status: "failed", cause: "lost" }))).toBe("lost");
    expect(markOf(replica(0, { status: "succeeded" }))).toBe("ok");
    expect(markOf(replica(0, { status: "scheduled" }))).toBe("wait");
    expect(countByMark([replica(0), replica(1), replica(2, { status: "failed" })])).toEqual([
      { mark: "bad", count: 1 },
      { mark: "run", count: 2 },
    ]);
  });

  it("is grouped by role, in order of ranks", () => {
    const found = byRole([replica(2), replica(0, { role: "master" }), replica(1)]);
    expect(found.map(({ role, replicas }) => [role, replicas.map((one) => one.rank)])).toEqual([
      ["master", [0]],
      ["worker", [1, 2]],
    ]);
  });
});

describe("ranks", () => {
  it("survive a round trip as short text", () => {
    expect(rankText([3, 0, 1, 2, 7, 9, 10])).toBe("0-3,7,9,10");
    expect(parseRanks("0-3,7, 9")).toEqual([0, 1, 2, 3, 7, 9]);
    for (const wrong of ["", "a", "3-1", "1-", "0-9999999"]) expect(parseRanks(wrong)).toBeNull();
  });

  it("prefix the lines that they share", () => {
    const ranks = new Map([0, 1, 2, 3].map((rank) => [`worker-${rank}`, rank]));
    const line = (replicas: string[]) => ({ replica: "worker-0", rank: 0, replicas });
    expect(whoText(line(["worker-0"]), ranks)).toBe("worker-0");
    expect(whoText(line(["worker-0", "worker-1", "worker-2"]), ranks)).toBe("worker-0..2");
    expect(whoText(line([...ranks.keys()]), ranks)).toBe("all");
    expect(whoText(line(["worker-0", "other"]), ranks)).toBe("worker-0, other");
  });
});

const logLine = (number: number): LogLine => ({
  at: number,
  replica: "worker-0",
  rank: 0,
  text: `line ${number}`,
  cursor: `c${number}`,
});
const page = (from: number, to: number, more: { at_start?: boolean; at_end?: boolean } = {}) => ({
  lines: Array.from({ length: to - from }, (_, index) => logLine(from + index)),
  first: `before ${from}`,
  last: `after ${to - 1}`,
  at_start: false,
  at_end: false,
  ...more,
});

describe("the window over a log", () => {
  it("grows in both directions without duplicates", () => {
    let window = opened(page(100, 110, { at_end: true }));
    window = withEarlier(window, page(90, 101));
    window = withLater(window, page(109, 120, { at_end: true }));
    expect(window.lines.map((line) => line.at)).toEqual(Array.from({ length: 30 }, (_, index) => 90 + index));
    expect([window.first, window.last, window.atStart, window.atEnd]).toEqual(["before 90", "after 119", false, true]);
  });

  it("drops the far end and keeps a cursor there", () => {
    const window = withEarlier(opened(page(100, 110, { at_end: true })), page(92, 100, { at_start: true }), 12);
    expect(window.lines).toHaveLength(12);
    expect([window.atStart, window.atEnd, window.last]).toEqual([true, false, "c103"]);
    const later = withLater(opened(page(0, 10, { at_start: true })), page(10, 20), 12);
    expect([later.lines[0]?.at, later.atStart, later.first]).toEqual([8, false, "c8"]);
  });

  it("treats an empty page as the end", () => {
    const window = withLater(opened(page(0, 5)), { ...page(5, 5, { at_end: true }), last: "z" });
    expect([window.lines.length, window.atEnd, window.last]).toEqual([5, true, "z"]);
  });

  it("has groups that stay stable when lines are added", () => {
    const before = chunks(page(500, 1500).lines, 50).map((group) => group[0]?.cursor);
    const after = chunks(page(300, 1600).lines, 50).map((group) => group[0]?.cursor);
    const kept = before.slice(1).filter((cursor) => after.includes(cursor));
    expect(kept.length).toBeGreaterThan((before.length - 1) * 0.9);
    expect(chunks(page(0, 1000).lines, 50).flat()).toHaveLength(1000);
  });
});

describe("lines", () => {
  it("are coloured by severity", () => {
    expect(toneOf("RuntimeError: CUDA error")).toBe("error");
    expect(toneOf('  File "train.py", line 3, in <module>')).toBe("trace");
    expect(toneOf("UserWarning: slow")).toBe("warn");
    expect(toneOf("step 10 loss 0.5")).toBeNull();
    expect(toneOf("mean_squared_error: 0.12")).toBeNull();
    expect(toneOf("finished, 0 errors")).toBeNull();
  });

  it("are shown as in a terminal", () => {
    expect(plainText("\u001b[31mred\u001b[0m")).toBe("red");
    expect(plainText(" 10%\r 50%\r100%\r")).toBe("100%");
    expect(plainText("a\u0007b")).toBe("a\ufffdb");
    expect(plainText("\u001b]8;;http://x\u0007link\u001b]8;;\u0007")).toBe("link");
  });

  it("highlight matches, ignoring case", () => {
    expect(splitMatches("An Error, an error", "error")).toEqual([
      { text: "An ", isHit: false },
      { text: "Error", isHit: true },
      { text: ", an ", isHit: false },
      { text: "error", isHit: true },
    ]);
    expect(splitMatches("x", "")).toEqual([{ text: "x", isHit: false }]);
  });
});

const chart = (more: Partial<Chart> = {}): Chart => ({
  name: "loss",
  mode: "mean",
  of: 4,
  lines: [
    {
      replica: null,
      rank: null,
      steps: [0, 10, 20],
      times: [100, 110, 130],
      low: [1, 0.5, 0.1],
      high: [2, "Infinity", 0.3],
      mean: [1.5, "NaN", 0.2],
      last: [1.5, "NaN", 0.2],
    },
  ],
  ...more,
});

describe("lines of a chart", () => {
  const axis = { x: "step", startedAt: 90 } as const;

  it("have gaps and marks for values that are not finite", () => {
    const [first] = chart().lines;
    const [line] = linesOf(chart({ lines: [{ ...(first as ChartLine), odd: [0, 1, 0] }] }), axis);
    expect(line?.y).toEqual([1.5, null, 0.2]);
    expect(line?.high).toEqual([2, null, 0.3]);
    expect(line?.odd).toEqual([{ x: 10, kind: "NaN", count: 1 }]);
  });

  it("say what a bucket hides as far as it is known", () => {
    const odd = oddOf({ odd: [1, 1, 3, 1, 0], last: ["Infinity", "-Infinity", "NaN", 2, 1] }, [0, 1, 2, 3, 4]);
    expect(odd.map(({ x, kind }) => [x, kind])).toEqual([
      [0, "∞"],
      [1, "−∞"],
      [2, "mixed"],
      [3, "mixed"],
    ]);
  });

  it("say of which ranks they are", () => {
    expect(ranksNote(chart()).note).toBe("mean of 4 ranks");
    const late = { count: 1, replicas: [{ replica: "worker-2", rank: 3, step: 17 }] };
    expect(ranksNote(chart({ behind: late }))).toEqual({
      note: "mean of 4 ranks, 1 behind",
      title: "Behind: worker-2 at step 17. Dashed: steps that lack ranks.",
    });
    const [first] = chart().lines;
    const ranks = { ...(first as ChartLine), replica: "worker-3", rank: 4 };
    expect(linesOf(chart({ mode: "ranks", lines: [ranks] }), axis)[0]?.label).toBe("worker-3 (rank 4)");
    expect(linesOf(chart({ mode: "ranks", lines: [{ ...ranks, rank: 3 }] }), axis)[0]?.label).toBe("worker-3");
    expect(ranksNote(chart({ mode: "ranks" })).note).toBe("1 of 4 ranks");
  });

  it("have steps, time since start, time of day or any metric as x", () => {
    const x = (kind: "step" | "time" | "clock" | "metric") =>
      linesOf(chart(), { x: kind, startedAt: 90, values: { steps: [0, 20], values: [1, 2] } })[0]?.x;
    expect(x("step")).toEqual([0, 10, 20]);
    expect(x("time")).toEqual([10, 20, 40]);
    expect(x("clock")).toEqual([100, 110, 130]);
    expect(x("metric")).toEqual([1, 1.5, 2]);
  });

  it("mark where an attempt started, and show overwritten points faintly", () => {
    const lines = linesOf(
      chart({
        attempts: [
          { attempt: 1, first_step: 0 },
          { attempt: 2, first_step: 10 },
        ],
        overwritten: [{ replica: "worker-0", attempt: 1, steps: [10, 11], times: [110, 111], last: [3, 4] }],
      }),
      axis,
    );
    expect(lines[0]?.marks).toEqual([10]);
    expect(lines[1]).toMatchObject({ faint: true, x: [10, 11], y: [3, 4] });
  });

  it("have no envelope if buckets have single values", () => {
    const thin = chart();
    const line = thin.lines[0];
    if (line)
      [line.low, line.high, line.mean, line.last] = [
        [1, 2, 3],
        [1, 2, 3],
        [1, 2, 3],
        [1, 2, 3],
      ];
    expect(linesOf(thin, axis)[0]?.low).toBeUndefined();
  });

  it("convert a range on any axis to steps", () => {
    expect(stepsOf([3.2, 17.9], [chart()], axis)).toEqual([3, 18]);
    expect(stepsOf([12, 25], [chart()], { ...axis, x: "time" })).toEqual([0, 20]);
    expect(stepsOf([500, 600], [chart()], { ...axis, x: "time" })).toBeNull();
  });

  it("interpolate the metric of the x axis", () => {
    expect(stepValues(chart({ name: "epoch" }))).toEqual({ steps: [0, 20], values: [1.5, 0.2] });
    expect(valueAt({ steps: [0, 100], values: [0, 2] }, 25)).toBe(0.5);
    expect(xChoice("epoch")).toEqual(xChoice("metric.epoch"));
    expect(xChoice("metric.train/tokens")).toEqual({ x: "metric", name: "train/tokens" });
    for (const text of [null, "", "metric.", "nonsense"]) expect(xChoice(text).x).toBe("step");
  });

  it("of several metrics are named by them, each with its own colour", () => {
    const lines = panelLines([chart(), chart({ name: "val/loss" })], axis);
    expect(lines.map(({ label, color }) => [label, color])).toEqual([
      ["loss", 0],
      ["val/loss", 1],
    ]);
    const [first] = chart().lines;
    const ranks = [0, 1].map((rank) => ({ ...(first as ChartLine), replica: `worker-${rank}`, rank }));
    const all = panelLines(
      [chart({ mode: "ranks", lines: ranks }), chart({ name: "b", mode: "ranks", lines: ranks })],
      axis,
    );
    expect(all.map(({ label }) => label)).toEqual([
      "loss · worker-0",
      "loss · worker-1",
      "b · worker-0",
      "b · worker-1",
    ]);
    expect(new Set(all.map(({ key }) => key)).size).toBe(4);
  });
});

describe("groups of metrics", () => {
  it("are sorted by prefix, pinned ones first", () => {
    const names = ["val/loss", "train/loss", "lr", "train/acc", "sys/cpu"];
    expect(grouped(names, ["val/loss"], "").map(({ name, metrics }) => [name, ...metrics])).toEqual([
      ["pinned", "val/loss"],
      ["", "lr"],
      ["train", "train/loss", "train/acc"],
      ["sys", "sys/cpu"],
    ]);
  });

  it("are in natural order", () => {
    expect(naturalOrder(["layer/10", "layer/2", "acc"])).toEqual(["acc", "layer/2", "layer/10"]);
  });

  it("are filtered by words and wildcards", () => {
    expect(["train/loss", "val/loss", "lr"].filter(matcher("LOSS tr"))).toEqual(["train/loss"]);
    expect(["layers/01/w", "layers/02/b"].filter(matcher("layers*b"))).toEqual(["layers/02/b"]);
    expect(["a(b"].filter(matcher("(*"))).toEqual(["a(b"]);
  });
});

describe("syntax highlighting", () => {
  const kinds = (pieces: { kind: string; text: string }[]) =>
    pieces.filter(({ text }) => text.trim()).map(({ kind, text }) => `${kind}:${text.trim()}`);

  it("splits YAML", () => {
    expect(kinds(yamlLine("  rate: 0.1 # small"))).toEqual(["key:rate", "mark::", "number:0.1", "comment:# small"]);
    expect(kinds(yamlLine('- name: "a # b"'))).toEqual(["mark:-", "key:name", "mark::", 'text:"a # b"']);
    expect(kinds(yamlLine("url: http://x/#y"))).toEqual(["key:url", "mark::", "plain:http://x/#y"]);
    expect(kinds(yamlLine("ok: true"))).toEqual(["key:ok", "mark::", "word:true"]);
  });

  it("loses no character", () => {
    for (const line of [
      "a: {b: [1, 'x']}",
      "  - -x",
      "# all",
      "cmd: python t.py --a={{ b }} # c",
      "\"k\": 'v'",
      "",
      "a:b",
      "---",
    ]) {
      expect(
        yamlLine(line)
          .map(({ text }) => text)
          .join(""),
      ).toBe(line);
      expect(
        jsonLine(line)
          .map(({ text }) => text)
          .join(""),
      ).toBe(line);
      expect(
        diffLine(line)
          .map(({ text }) => text)
          .join(""),
      ).toBe(line);
    }
  });

  it("splits JSON", () => {
    expect(kinds(jsonLine('  "a": [1, "b", null],'))).toEqual([
      'key:"a"',
      "mark::",
      "mark:[",
      "number:1",
      "mark:,",
      'text:"b"',
      "mark:,",
      "word:null",
      "mark:],",
    ]);
  });
});

describe("the history of a run", () => {
  const row = (number: number, attempt: number, status: StatusRow["status"], second: number): StatusRow => ({
    run_id: "a",
    number,
    attempt,
    status,
    reason: "",
    at: new Date(second * 1000).toISOString(),
  });

  it("is grouped by attempt, with durations", () => {
    const found = attemptsOf(
      [row(1, 0, "created", 0), row(2, 1, "running", 5), row(3, 2, "running", 15), row(4, 2, "succeeded", 40)],
      99,
      true,
    );
    expect(found.map(({ number, from, to }) => [number, from, to])).toEqual([
      [1, 0, 15],
      [2, 15, 40],
    ]);
  });

  it("extends to now while the run is active", () => {
    expect(attemptsOf([row(1, 1, "running", 5)], 99, false)[0]?.to).toBe(99);
  });
});

describe("progress", () => {
  it("is a share or a count", () => {
    expect(progressOf({ done: 0.25, total: null })).toMatchObject({ share: 0.25, text: "" });
    expect(progressOf({ done: 50, total: 200, label: "batches" })).toMatchObject({
      share: 0.25,
      text: "50 of 200 batches",
    });
    for (const wrong of [undefined, null, "a", { done: 5, total: null }, { done: 1, total: 0 }])
      expect(progressOf(wrong)).toBeNull();
  });

  it("estimates the time left", () => {
    const found = progressOf({ done: 50, total: 100, at: 150, since: { at: 100, done: 0 } });
    expect(found && secondsLeft(found, 160)).toBe(40);
    expect(secondsLeft({ share: 0.5, text: "", at: 1, since: null }, 2)).toBeNull();
  });
});

describe("outputs", () => {
  const row = (path: string): OutputRow => ({ path, size: 1, kind: "file" });

  it("are listed by folder", () => {
    const rows = ["a", "a/b", "a/b/c", "ab"].map(row);
    expect(childrenOf(rows, "").map(({ path }) => path)).toEqual(["a", "ab"]);
    expect(childrenOf(rows, "a").map(({ path }) => path)).toEqual(["a/b"]);
    expect(ancestors("a/b/c")).toEqual(["a", "a/b"]);
  });

  it("are escaped in URLs", () => {
    expect(pathPart("a b/ä?#.txt")).toBe("a%20b/%C3%A4%3F%23.txt");
  });
});

describe("media", () => {
  const image = (name: string, step: number | null, more: Partial<MediaEvent> = {}): MediaEvent => ({
    kind: "image",
    name,
    step,
    at: 1,
    replica: "worker-0",
    attempt: 1,
    ...more,
  });

  it("are grouped by name in order of steps; newer attempts replace older ones", () => {
    const found = groupMedia([
      image("b", 20),
      image("a", 1),
      image("b", 10),
      image("b", 10, { attempt: 2, path: "new" }),
    ]);
    expect(found.map(({ name, events }) => [name, events.map((event) => event.step)])).toEqual([
      ["b", [10, 20]],
      ["a", [1]],
    ]);
    expect(found[0]?.events[0]?.path).toBe("new");
  });

  it("are all kept if they have no step", () => {
    expect(groupMedia([image("a", null, { at: 1 }), image("a", null, { at: 2 })])[0]?.events).toHaveLength(2);
  });

  it("show points within their range", () => {
    expect(
      dots([
        [0, 10, 5],
        [4, 20],
        [2, null],
        [Number.NaN, 1],
      ]),
    ).toEqual([
      { x: 0, y: 1 },
      { x: 1, y: 0 },
    ]);
    expect(dots([[3, 3]])).toEqual([{ x: 0.5, y: 0.5 }]);
    expect(dots([])).toEqual([]);
  });

  it("show histograms as bars", () => {
    expect(bars([0, 1, 4], [5, 10])).toEqual([
      { left: 0, width: 0.25, height: 0.5 },
      { left: 0.25, width: 0.75, height: 1 },
    ]);
    expect(bars([3, 3], [0])).toEqual([{ left: 0, width: 0, height: 0 }]);
  });
});

describe("pinned charts", () => {
  const [loss, both] = [panelOf(["loss"]), panelOf(["loss", "val/loss"])];

  it("are pinned, unpinned and moved", () => {
    expect(toggledPanel([loss], both)).toEqual([loss, both]);
    expect(toggledPanel([loss, both], panelOf(["loss"]))).toEqual([both]);
    expect(movedPanel([loss, both], both, -1)).toEqual([both, loss]);
    expect(movedPanel([loss, both], both, 1)).toEqual([loss, both]);
    expect(panelTitle(both)).toBe("loss, val/loss");
  });
});

describe("sections", () => {
  it("keep the order in which metrics come", () => {
    expect(inSections(["val/loss", "loss", "val/acc"])).toEqual([
      { name: "val", metrics: ["val/loss", "val/acc"] },
      { name: "", metrics: ["loss"] },
    ]);
  });
});
