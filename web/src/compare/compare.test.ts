import { describe, expect, it } from "vitest";
import { brushToText, isInside, parseBrush, withBrush } from "./axisBrush";
import { bestIndexes, isLowerBest, relativeChange, sections } from "./differences";
import { differingParams, fieldsOf, fieldValue, isLowerBetter, type MeasuredRun } from "./fields";
import { orderedMetrics, placesOn } from "./plotFields";
import { groupRuns, meanLine, sharedSteps, valuesAt } from "./runGroups";
import { defaultKind, makeScale, niceSteps, possibleKinds, shortNumber } from "./scales";
import { choicesToParams, parseChoices } from "./urlState";

function run(id: string, params: Record<string, unknown>, summary: Record<string, unknown> = {}): MeasuredRun {
  return { id, params, summary, started_at: "2026-01-01T00:00:00Z", finished_at: "2026-01-01T00:01:30Z" };
}

const RUNS = [
  run("a", { lr: 0.1, seed: 1, net: "small" }, { loss: 0.5 }),
  run("b", { lr: 0.1, seed: 2, net: "small" }, { loss: 0.4 }),
  run("c", { lr: 0.01, seed: 1, net: "small" }, { loss: "NaN" }),
];

describe("fields", () => {
  it("are params, last values of metrics, and the duration", () => {
    expect(fieldValue(RUNS[0] as MeasuredRun, "params.lr")).toBe(0.1);
    expect(fieldValue(RUNS[0] as MeasuredRun, "metric.loss")).toBe(0.5);
    expect(fieldValue(RUNS[2] as MeasuredRun, "metric.loss")).toBeNaN();
    expect(fieldValue(RUNS[0] as MeasuredRun, "took")).toBe(90);
    expect(fieldValue(RUNS[0] as MeasuredRun, "params.none")).toBeUndefined();
  });
  it("list params that differ first", () => {
    expect(fieldsOf(RUNS).params).toEqual(["lr", "seed", "net"]);
    expect(differingParams(RUNS)).toEqual(["lr", "seed"]);
    expect(fieldsOf([]).params).toEqual([]);
  });
  it("tell from the name of a metric whether lower is better", () => {
    for (const name of ["loss", "val_loss", "val/loss", "trainLoss", "eval.perplexity", "test_error", "WER"])
      expect(isLowerBetter(name), name).toBe(true);
    for (const name of ["accuracy", "f1", "closeness", "bleu", "terror"]) expect(isLowerBetter(name), name).toBe(false);
  });
});

describe("grouping", () => {
  it("groups runs with equal values in order of appearance", () => {
    const groups = groupRuns(RUNS, ["lr"]);
    expect(groups.map((group) => [group.label, group.runs])).toEqual([
      ["lr 0.1", ["a", "b"]],
      ["lr 0.01", ["c"]],
    ]);
    expect(groupRuns(RUNS, ["lr", "missing"])[0]?.label).toBe("lr 0.1, missing –");
  });
  it("compares lists by their text", () => {
    const groups = groupRuns([run("a", { units: [64, 32] }), run("b", { units: [64, 32] })], ["units"]);
    expect(groups).toHaveLength(1);
  });
  it("takes the mean over shared steps, interpolating between points", () => {
    const lines = [
      { run: "a", x: [0, 10, 20], y: [1, 2, 3] },
      { run: "b", x: [0, 20], y: [3, 5] },
    ];
    const mean = meanLine(lines, "range");
    expect(mean.x).toEqual([0, 10, 20]);
    expect(mean.y).toEqual([2, 3, 4]);
    expect(mean.low).toEqual([1, 2, 3]);
    expect(mean.high).toEqual([3, 4, 5]);
    expect(mean.count).toEqual([2, 2, 2]);
  });
  it("does not extend a run beyond its last step", () => {
    expect(valuesAt({ run: "a", x: [5, 10], y: [1, 2] }, [0, 5, 10, 15])).toEqual([null, 1, 2, null]);
    const mean = meanLine(
      [
        { run: "a", x: [0, 1], y: [1, 1] },
        { run: "b", x: [0], y: [3] },
      ],
      "deviation",
    );
    expect(mean.y).toEqual([2, 1]);
    expect(mean.count).toEqual([2, 1]);
    expect(mean.low[1]).toBe(1);
  });
  it("skips non-finite values", () => {
    expect(valuesAt({ run: "a", x: [0, 1, 2], y: [0, Number.NaN, 2] }, [0, 1, 2])).toEqual([0, 1, 2]);
    expect(meanLine([{ run: "a", x: [0], y: [null] }], "range").y).toEqual([null]);
  });
  it("thins too many steps and keeps both ends", () => {
    const x = Array.from({ length: 5000 }, (_, place) => place * 3);
    const steps = sharedSteps([{ run: "a", x, y: x }], 100);
    expect(steps).toHaveLength(100);
    expect([steps[0], steps[99]]).toEqual([0, 14_997]);
  });
});

describe("scales", () => {
  it("are logarithmic for wide ranges, linear for others, categories for texts", () => {
    expect(defaultKind([0.001, 0.1])).toBe("log");
    expect(defaultKind([0.001, 0.01])).toBe("log");
    expect(defaultKind([1, 2, undefined])).toBe("linear");
    expect(defaultKind([3, 30])).toBe("linear");
    expect(defaultKind([0, 1000])).toBe("linear");
    expect(defaultKind(["adam", 3])).toBe("category");
    expect(defaultKind([])).toBe("category");
    expect(possibleKinds([0.001, 1])).toEqual(["log", "linear", "category"]);
    expect(possibleKinds([-1, 1])).toEqual(["linear", "category"]);
  });
  it("map values to 0 to 1, and missing values to null", () => {
    const scale = makeScale([10, 20, 30]);
    expect([10, 20, 30].map(scale.place)).toEqual([0, 0.5, 1]);
    expect(scale.place(undefined)).toBeNull();
    expect(scale.place(Number.NaN)).toBeNull();
    expect(scale.valueAt(0.5)).toBe(20);
    const log = makeScale([0.001, 0.1]);
    expect(log.place(0.01)).toBeCloseTo(0.5);
    expect(log.ticks.map((tick) => tick.label)).toEqual(["0.001", "0.01", "0.1"]);
  });
  it("have a margin around a single value", () => {
    expect(makeScale([5]).place(5)).toBe(0.5);
    expect(makeScale([0]).place(0)).toBe(0.5);
    expect(makeScale([5, 5], "log").place(5)).toBeCloseTo(0.5);
  });
  it("sort numeric categories as numbers", () => {
    const scale = makeScale(["b10", "b9", true, "b9"]);
    expect(scale.categories).toEqual(["b9", "b10", "true"]);
    expect(scale.place("b9")).toBeCloseTo(1 / 6);
    expect(scale.valueAt(0.99)).toBe(2);
  });
  it("spread runs of one category in the order of the previous axis", () => {
    const scale = makeScale(["small", "small", "small"]);
    const before = new Map([
      ["a", 0.9],
      ["b", 0.1],
      ["c", 0.5],
    ]);
    const places = placesOn(RUNS, "params.net", scale, before);
    expect(["b", "c", "a"].map((run) => places.get(run))).toEqual(["b", "c", "a"].map((run) => places.get(run)).sort());
    expect(new Set(places.values()).size).toBe(3);
    expect(orderedMetrics([run("a", {}, { epoch: 1, lr: 1, "val/loss": 1, loss: 1 })])).toEqual([
      "val/loss",
      "loss",
      "lr",
      "epoch",
    ]);
  });
  it("ignore an impossible kind", () => {
    expect(makeScale([-1, 1], "log").kind).toBe("linear");
  });
  it("have round ticks and short numbers", () => {
    expect(niceSteps(0.13, 0.87)).toEqual([0.2, 0.4, 0.6, 0.8]);
    expect([0, 1234567, 0.00012, 0.5, 1e6].map(shortNumber)).toEqual(["0", "1.23e6", "1.2e-4", "0.5", "1e6"]);
  });
});

describe("brushes", () => {
  it("survive a round trip through the URL", () => {
    for (const brush of [
      { field: "params.lr", low: 0.001, high: 0.1 },
      { field: "metric.a~b|c", low: -1, high: 2.5 },
      { field: "params.net", names: ["small|er", "big~"] },
    ]) {
      expect(parseBrush(brushToText(brush))).toEqual(brush);
    }
    for (const text of ["", "x", "x~1", "x~2~1", "x~a~b", "%~1~2"]) expect(parseBrush(text), text).toBeNull();
  });
  it("keep the runs inside all of them", () => {
    const low = { field: "params.lr", low: 0.05, high: 1 };
    const seed = { field: "params.seed", names: ["2"] };
    expect(RUNS.filter((one) => isInside(one, [low])).map((one) => one.id)).toEqual(["a", "b"]);
    expect(RUNS.filter((one) => isInside(one, [low, seed])).map((one) => one.id)).toEqual(["b"]);
    expect(isInside(RUNS[2] as MeasuredRun, [{ field: "metric.loss", low: 0, high: 9 }])).toBe(false);
    expect(withBrush([low], "params.lr", null)).toEqual([]);
    expect(withBrush([low], "params.seed", seed)).toEqual([low, seed]);
  });
});

describe("differences", () => {
  const rows = [
    { group: "params", name: "lr", values: [0.1, 0.2], differs: true },
    { group: "params", name: "net", values: ["x", "x"], differs: false },
    { group: "metrics", name: "loss", values: [0.5, 0.4], differs: true },
  ];
  it("shows rows that differ and counts the rest", () => {
    const found = sections(rows, false);
    expect(found.map((section) => [section.group, section.rows.length, section.hidden])).toEqual([
      ["metrics", 1, 0],
      ["params", 1, 1],
    ]);
    expect(sections(rows, true)[1]?.rows).toHaveLength(2);
    expect(sections(rows, true, "NET")[1]?.rows.map((row) => row.name)).toEqual(["net"]);
  });
  it("marks the best values of a metric, including ties", () => {
    expect(bestIndexes([0.5, 0.4, null, "NaN", 0.4], true)).toEqual([1, 4]);
    expect(bestIndexes([0.5, 0.4], false)).toEqual([0]);
    expect(bestIndexes([0.5, 0.5], false)).toEqual([]);
    expect(bestIndexes(["a", 1], true)).toEqual([]);
    expect(isLowerBest("loss", ["loss"])).toBe(false);
  });
  it("shows the change against the baseline", () => {
    expect(relativeChange(0.55, 0.5)).toBe("+10.0%");
    expect(relativeChange(0.45, 0.5)).toBe("−10.0%");
    expect(relativeChange(1, 1)).toBe("same");
    expect(relativeChange("x", "x")).toBe("same");
    expect(relativeChange(1, 0)).toBe("");
    expect(relativeChange(1e6 + 1, 1)).toBe("+1000000×");
    expect(relativeChange("NaN", 1)).toBe("");
  });
});

describe("URL state", () => {
  it("survives a round trip", () => {
    const text =
      "run=a&run=b&view=parallel&metric=loss&x=time&logy=1&smooth=0.6&zoom=100..250.5&by=lr&by=net&band=range&off=c&base=b&all=1" +
      "&flip=loss&axis=params.lr&axis=metric.loss&kind=params.lr%7Elinear&brush=params.lr%7E0.1%7E1&colour=metric.loss" +
      "&across=params.lr&up=metric.loss";
    expect(choicesToParams(parseChoices(new URLSearchParams(text))).toString()).toBe(text);
  });
  it("omits defaults and ignores invalid values", () => {
    const choices = parseChoices(
      new URLSearchParams("q=&limit=9999&view=no&x=no&smooth=7&brush=%%&run=&kind=x&limit=a&zoom=5..2"),
    );
    expect(choices).toMatchObject({
      query: "",
      limit: 100,
      view: "charts",
      x: "step",
      smoothing: 0.99,
      zoom: null,
      brushes: [],
    });
    expect(choicesToParams(parseChoices(new URLSearchParams("q=tags:x"))).toString()).toBe("q=tags%3Ax");
  });
});

describe("axes of whole numbers", () => {
  const labels = (values: number[], kind?: "linear" | "log") => makeScale(values, kind).ticks.map(({ label }) => label);

  it("have whole ticks", () => {
    expect(labels([1, 2, 3], "linear")).toEqual(["1", "2", "3"]);
    expect(labels([4, 4], "linear")).toEqual(["3", "4", "5"]);
    expect(labels([2, 8], "linear")).toEqual(["2", "4", "6", "8"]);
    expect(labels([16, 32, 64], "log")).toEqual(["16", "32", "64"]);
  });

  it("are not forced on fractions", () => {
    expect(labels([0, 0.5, 1], "linear")).toEqual(["0", "0.2", "0.4", "0.6", "0.8", "1"]);
  });
});
