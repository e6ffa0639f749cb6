import { describe, expect, it } from "vitest";
import type { RunRow } from "../types";
import { TableRows } from "./unfolded";

const run = (id: string): RunRow => ({ id }) as RunRow;
const known: Record<string, number> = { g1: 1, g2: 3 };
const indexOf = (id: string): number | null => known[id] ?? null;

describe("unfolded groups", () => {
  const rows = new TableRows(
    5,
    new Map([
      ["g2", { rows: [run("c")], count: 40 }],
      ["g1", { rows: [run("a"), run("b")], count: 2 }],
      ["elsewhere", { rows: [run("x")], count: 1 }],
    ]),
    indexOf,
  );

  it("have their trials after their row", () => {
    const shown = Array.from({ length: rows.count }, (_, row) => {
      const place = rows.at(row);
      return place.kind === "run" ? place.index : place.kind === "trial" ? place.run.id : `more of ${place.group}`;
    });
    expect(shown).toEqual([0, 1, "a", "b", 2, 3, "c", "more of g2", 4]);
  });

  it("know the row of each run", () => {
    expect([0, 1, 2, 3, 4].map((index) => rows.rowOf(index))).toEqual([0, 1, 4, 5, 8]);
    expect([rows.rowOfTrial("b"), rows.rowOfTrial("c"), rows.rowOfTrial("x")]).toEqual([3, 6, null]);
    expect([0, 2, 3, 4, 7, 8].map((row) => rows.listIndex(row))).toEqual([0, 1, 1, 2, 3, 4]);
  });
});
