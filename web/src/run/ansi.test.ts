import { describe, expect, it } from "vitest";
import { ansiPieces } from "./ansi";

const looks = (text: string) => ansiPieces(text).map(({ text: part, className, color }) => [part, className, color]);

describe("colours of terminals", () => {
  it("become pieces of a line", () => {
    expect(looks("plain")).toEqual([["plain", "", null]]);
    expect(looks("\u001b[1;31mERROR\u001b[0m: x")).toEqual([
      ["ERROR", "is-bold ansi-red", null],
      [": x", "", null],
    ]);
    expect(looks("\u001b[92ma\u001b[39mb\u001b[4mc\u001b[m")).toEqual([
      ["a", "ansi-green", null],
      ["b", "", null],
      ["c", "is-underlined", null],
    ]);
  });

  it("may be one of 256 or any; a background is ignored", () => {
    expect(looks("\u001b[38;5;9ma\u001b[38;5;196mb\u001b[38;5;244mc")).toEqual([
      ["a", "ansi-red", null],
      ["b", "", "rgb(255 0 0)"],
      ["c", "", "rgb(128 128 128)"],
    ]);
    expect(looks("\u001b[38;2;1;2;999ma\u001b[48;5;3;1mb")).toEqual([
      ["a", "", "rgb(1 2 255)"],
      ["b", "is-bold", "rgb(1 2 255)"],
    ]);
  });
});
