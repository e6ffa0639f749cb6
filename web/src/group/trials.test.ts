import { describe, expect, it } from "vitest";
import type { TrialRow } from "../types";
import {
  amountsOf,
  endText,
  goodness,
  meanText,
  merged,
  pointsOf,
  runningBest,
  sampled,
  slotsOf,
  surface,
  topRungs,
} from "./trials";

const trial = (number: number, more: Partial<TrialRow> = {}): TrialRow => ({
  trial: number,
  run: `run${number}`,
  state: "reported",
  status: "succeeded",
  bracket: 0,
  rung: 0,
  resource: null,
  value: number,
  values: [{ rung: 0, resource: 1, value: number }],
  params: {},
  why: "",
  decision: "",
  added: false,
  attempts: [],
  ...more,
});

const at = (second: number): string => new Date(second * 1000).toISOString();
const attempt = (queued: number, started: number | null, finished: number | null, rung = 0) => ({
  attempt: 1,
  rung,
  queued_at: at(queued),
  started_at: started === null ? null : at(started),
  finished_at: finished === null ? null : at(finished),
});

describe("trials", () => {
  it("are replaced by their number, and an unchanged list stays the same", () => {
    const rows = [trial(0), trial(1)];
    expect(merged(rows, [trial(1)])).toBe(rows);
    expect(merged(rows, [trial(1, { value: 7 }), trial(2)]).map((row) => row.value)).toEqual([0, 7, 2]);
  });

  it("have a value at each amount of the resource", () => {
    const two = trial(1, {
      value: 5,
      values: [
        { rung: 0, resource: 1, value: 9 },
        { rung: 1, resource: 3, value: 5 },
      ],
    });
    expect(amountsOf([trial(0), two])).toEqual([1, 3]);
    expect(pointsOf([trial(0), two], 3).map((point) => point.value)).toEqual([null, 5]);
    expect(pointsOf([trial(0), two], 3).map((point) => point.look)).toEqual([null, "value"]);
    expect(pointsOf([trial(0), two], null).map((point) => point.value)).toEqual([0, 5]);
  });

  it("have a running best that leaves out NaN and failures", () => {
    const points = pointsOf(
      [
        trial(0, { value: "NaN" }),
        trial(1, { value: 3 }),
        trial(2, { value: null }),
        trial(3, { value: 1 }),
        trial(4, { value: 2 }),
      ],
      null,
    );
    expect(runningBest(points, false)).toEqual([null, 3, 3, 1, 1]);
    expect(runningBest(points, true)).toEqual([null, 3, 3, 3, 3]);
  });

  it("are ranked from worst to best", () => {
    const points = [{ value: 5 }, { value: 1 }, { value: 1e9 }];
    expect(goodness(points, false)).toEqual([0.5, 1, 0]);
    expect(goodness(points, true)).toEqual([0.5, 0, 1]);
  });

  it("are sampled with the best among them", () => {
    const points = Array.from({ length: 10_000 }, (_, value) => ({ value: (value * 7919) % 10_000 }));
    const found = sampled(points, false, 1000);
    expect(found.length).toBeLessThanOrEqual(1001);
    expect(found.length).toBeGreaterThan(900);
    expect(found.some((point) => point.value === 0)).toBe(true);
    expect(sampled(points.slice(0, 10), false, 1000)).toHaveLength(10);
  });

  it("are marked by how they ended", () => {
    const states = [
      { value: "NaN" as const },
      { value: null, state: "failed" as const },
      { value: null, state: "running" as const },
    ];
    const rows = states.map((more, number) => trial(number, more));
    expect(pointsOf(rows, null).map((point) => point.look)).toEqual(["nan", "failed", null]);
  });

  it("say why they ended", () => {
    const rows = [trial(0), trial(1, { rung: 2 }), trial(2, { state: "failed", why: "exit code 1" })];
    const tops = topRungs(rows);
    expect(rows.map((row) => endText(row, tops))).toEqual(["ended at rung 0 of 2", "reported", "exit code 1"]);
  });
});

describe("slots", () => {
  it("take the next attempt when they are free, and the rest is waiting or idle", () => {
    const rows = [
      trial(0, { attempts: [attempt(0, 1, 5)] }),
      trial(1, { attempts: [attempt(0, 0, 2), attempt(6, 6, 10, 1)] }),
      trial(2, { attempts: [attempt(2, 3, null)], state: "running" }),
    ];
    const found = slotsOf(rows, 2, 10);
    expect(found?.slots.map((slot) => slot.map((stay) => stay.row.trial))).toEqual([
      [0, 1],
      [1, 2],
    ]);
    expect(found?.running).toBeCloseTo((4 + 2 + 4 + 7) / 20);
    expect(found?.waiting).toBeCloseTo(2 / 20);
    expect(found?.idle).toBeCloseTo(1 / 20);
  });

  it("are at least as many as the concurrency, and none without attempts", () => {
    expect(slotsOf([trial(0, { attempts: [attempt(0, 0, 1)] })], 3, 1)?.slots).toHaveLength(3);
    expect(slotsOf([trial(0)], 3, 1)).toBeNull();
  });
});

describe("a surface", () => {
  it("is high where trials are good and empty where none are", () => {
    const found = surface(
      [
        { x: 0.1, y: 0.1, good: 1 },
        { x: 0.9, y: 0.1, good: 0 },
      ],
      0.05,
      0.05,
    );
    const value = (x: number, y: number) => found[Math.floor(y * 48)]?.[Math.floor(x * 48)] ?? Number.NaN;
    expect(value(0.1, 0.1)).toBeCloseTo(1);
    expect(value(0.9, 0.1)).toBeCloseTo(0);
    expect(value(0.5, 0.9)).toBeNaN();
  });
});

describe("meanText", () => {
  it("adds half of the interval of repeated runs", () => {
    expect(meanText(trial(1, { value: 0.31, interval: [0.29, 0.33] }))).toBe("0.31 ± 0.02");
    expect(meanText(trial(1, { value: 0.31, interval: null }))).toBe("0.31");
    expect(meanText(trial(1, { value: null }))).toBe("–");
  });
});
