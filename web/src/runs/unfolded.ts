// The rows of the table when groups are unfolded: trials follow the row of their group.

import type { RunRow } from "../types";

/** The trials of an unfolded group that are shown, and how many there are. */
export type Trials = { rows: RunRow[]; count: number };

export type Place =
  | { kind: "run"; index: number } // of the list
  | { kind: "trial"; run: RunRow }
  | { kind: "more"; group: string; count: number };

type Part = { index: number; group: string; trials: Trials; length: number };

/** Where each row of the table comes from. */
export class TableRows {
  private readonly parts: Part[];
  readonly count: number;

  constructor(count: number, unfolded: ReadonlyMap<string, Trials>, indexOf: (id: string) => number | null) {
    this.parts = [...unfolded]
      .flatMap(([group, trials]) => {
        const index = indexOf(group);
        const length = trials.rows.length + (trials.count > trials.rows.length ? 1 : 0);
        return index === null ? [] : [{ index, group, trials, length }];
      })
      .sort((a, b) => a.index - b.index);
    this.count = count + this.parts.reduce((sum, part) => sum + part.length, 0);
  }

  at(row: number): Place {
    let before = 0;
    for (const { index, group, trials, length } of this.parts) {
      const first = index + 1 + before;
      if (row < first) break;
      if (row < first + length) {
        const run = trials.rows[row - first];
        return run ? { kind: "trial", run } : { kind: "more", group, count: trials.count };
      }
      before += length;
    }
    return { kind: "run", index: row - before };
  }

  /** The row of the table that shows row `index` of the list. */
  rowOf(index: number): number {
    return index + this.parts.reduce((sum, part) => (part.index < index ? sum + part.length : sum), 0);
  }

  /** The row of a trial, or null. */
  rowOfTrial(id: string): number | null {
    for (const { index, trials } of this.parts) {
      const place = trials.rows.findIndex((run) => run.id === id);
      if (place >= 0) return this.rowOf(index) + 1 + place;
    }
    return null;
  }

  /** The first row of the list that is in view from this row of the table on. */
  listIndex(row: number): number {
    let before = 0;
    for (const { index, length } of this.parts) {
      const first = index + 1 + before;
      if (row < first) break;
      if (row < first + length) return index;
      before += length;
    }
    return row - before;
  }
}
