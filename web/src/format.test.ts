import { describe, expect, it } from "vitest";
import {
  ago,
  bytes,
  clock,
  day,
  durationText,
  elapsedSeconds,
  mib,
  num,
  number,
  plural,
  runTitle,
  short,
  value,
  visible,
} from "./format";

describe("numbers", () => {
  it("have about four digits and no trailing zeros", () => {
    const texts = [0.1, 0.123456, 12.3456, 1234.56, 123456.7, 5, 12_004, -0.5].map((one) => number(one));
    expect(texts).toEqual(["0.1", "0.1235", "12.35", "1,234.6", "123,457", "5", "12,004", "−0.5"]);
  });

  it("have an exponent if they are very large or small", () => {
    expect([1e-5, 1.234e-7, 3e9, 1.5e12].map((one) => number(one))).toEqual(["1e-5", "1.23e-7", "3e9", "1.5e12"]);
  });

  it("that are NaN or infinite have symbols", () => {
    expect([num("NaN"), num("Infinity"), num("-Infinity"), null].map((one) => number(one))).toEqual([
      "NaN",
      "∞",
      "−∞",
      "–",
    ]);
    expect(num("text")).toBeNull();
    expect(num(null)).toBeNull();
  });

  it("of params lose only floating-point noise", () => {
    expect([0.1 + 0.2, 3e-4, 64, "adam", true, null, [1, 2]].map((one) => short(one))).toEqual([
      "0.3",
      "0.0003",
      "64",
      "adam",
      "true",
      "–",
      "[1,2]",
    ]);
    expect(value(0.1 + 0.2)).toBe("0.30000000000000004");
  });

  it("have a singular and a plural", () => {
    expect([plural(0, "run"), plural(1, "run"), plural(12_004, "run"), plural(2, "entry", "entries")]).toEqual([
      "0 runs",
      "1 run",
      "12,004 runs",
      "2 entries",
    ]);
  });
});

describe("sizes", () => {
  it("stay below 1024 in each unit", () => {
    expect([0, 999, 1024, 1536, 1024 ** 2 - 1, 5 * 1024 ** 3, null].map((one) => bytes(one))).toEqual([
      "0 B",
      "999 B",
      "1 KiB",
      "1.5 KiB",
      "1 MiB",
      "5 GiB",
      "–",
    ]);
    expect(mib(2048)).toBe("2 GiB");
  });
});

describe("times", () => {
  it("are durations of at most two units", () => {
    expect([0.0421, 1, 12.9, 65, 3661, 90_000].map((one) => durationText(one))).toEqual([
      "42 ms",
      "1.0 s",
      "12 s",
      "1 min 05 s",
      "1 h 01 min",
      "1 d 1 h",
    ]);
  });

  it("are relative, or the date if they are long ago", () => {
    const now = Date.parse("2026-03-01T12:00:00Z") / 1000;
    expect([now - 2, now - 59, now - 61, now - 7200, now - 3 * 86_400].map((one) => ago(one, now))).toEqual([
      "now",
      "59 s ago",
      "1 min ago",
      "2 h ago",
      "3 d ago",
    ]);
    expect(ago("2025-01-15T12:00:00Z", now)).toBe(day("2025-01-15T12:00:00Z"));
    expect(ago(null, now)).toBe("–");
    expect(ago("no time", now)).toBe("–");
  });

  it("are in the local time zone", () => {
    const local = new Date(2026, 0, 31, 13, 45, 7);
    expect([day(local.toISOString()), clock(local.getTime() / 1000)]).toEqual(["2026-01-31", "13:45:07"]);
  });

  it("of running things count until now", () => {
    expect(elapsedSeconds("2026-01-01T00:00:00Z", null, Date.parse("2026-01-01T00:01:00Z") / 1000)).toBe(60);
    expect(elapsedSeconds("2026-01-01T00:00:00Z", "2026-01-01T00:00:30Z")).toBe(30);
    expect(elapsedSeconds(null, null)).toBeNull();
  });
});

it("spells out what cannot be seen in a name", () => {
  expect(visible("model\u202egnp.exe")).toBe("model\\u{202e}gnp.exe");
  expect(visible("a\u200bb\u2066c\u{e0041}")).toBe("a\\u{200b}b\\u{2066}c\\u{e0041}");
  expect(visible("می\u200cخواهم 👩\u200d🔬 Übung")).toBe("می\u200cخواهم 👩\u200d🔬 Übung");
  expect(runTitle({ id: "x", name: "\u202eevil" })).toBe("\\u{202e}evil");
});
