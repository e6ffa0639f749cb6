import type uPlot from "uplot";
import { describe, expect, it } from "vitest";
import { align, extent, nearest, ordered, padded } from "./alignment";
import { chartSvg } from "./chartSvg";
import { csvCell, csvText, fileName, linesCsv } from "./downloads";
import { axisText, chartDescription, spanText, valueText } from "./labels";
import { stretches } from "./overlays";
import { dashOf } from "./palette";
import { oddText, splitMean } from "./rankMeans";
import { RequestBatch } from "./requestBatch";
import { smooth } from "./smoothing";
import { linearTicks, logTicks, timeTicks } from "./ticks";
import { oddReadings, readings } from "./tooltip";
import type { Line } from "./types";

const line = (x: number[], y: (number | null)[], more: Partial<Line> = {}): Line => ({
  key: "a",
  label: "a",
  color: 0,
  x,
  y,
  ...more,
});

describe("smoothing", () => {
  it("keeps a constant, from the first point on", () => {
    expect(smooth([3, 3, 3, 3], 0.9)).toEqual([3, 3, 3, 3].map((value) => expect.closeTo(value, 10)));
  });

  it("starts at the first value and moves towards later ones", () => {
    const [first, second, third] = smooth([0, 10, 10], 0.5) as number[];
    expect(first).toBe(0);
    expect(second).toBeCloseTo(20 / 3, 10); // weights 1/3 and 2/3
    expect(third).toBeGreaterThan(second as number);
    expect(third).toBeLessThan(10);
  });

  it("keeps gaps and continues after them", () => {
    const with_gap = smooth([1, null, 2], 0.6);
    expect(with_gap[1]).toBeNull();
    expect(with_gap[2]).toBeCloseTo(smooth([1, 2], 0.6)[1] as number, 12);
    expect(smooth([1, Number.NaN, 2], 0.6)[1]).toBeNull();
  });

  it("does nothing when it is off", () => {
    expect(smooth([1, 5, null], 0)).toEqual([1, 5, null]);
  });
});

describe("alignment", () => {
  it("distinguishes missing points from gaps", () => {
    const [x, first, second] = align([line([1, 3], [10, null]), line([2, 3], [20, 30])]);
    expect(x).toEqual([1, 2, 3]);
    expect(first).toEqual([10, undefined, null]);
    expect(second).toEqual([undefined, 20, 30]);
  });

  it("keeps the columns of lines with equal x values", () => {
    const one = line([1, 2], [1, 2]);
    const [x, first] = align([one, line([1, 2], [3, 4])]);
    expect(x).toBe(one.x);
    expect(first).toBe(one.y);
  });

  it("sorts by x and keeps the last of equal x", () => {
    const found = ordered(line([3, 1, 3], [30, 10, 33], { low: [29, 9, 32] }), false);
    expect(found.x).toEqual([1, 3]);
    expect(found.y).toEqual([10, 33]);
    expect(found.low).toEqual([9, 32]);
  });

  it("drops values that a logarithmic axis cannot show", () => {
    expect(ordered(line([0, 1, 2], [1, 2, 3]), true).x).toEqual([1, 2]);
  });
});

describe("ranges", () => {
  it("includes spikes of the envelope inside the range", () => {
    const one = line([1, 2, 3], [1, 1, 1], { low: [0, 1, 1], high: [1, 9, 50] });
    expect(extent([one], 1, 2)).toEqual([0, 9]);
    expect(extent([one], 5, 6)).toBeNull();
  });

  it("skips values without a logarithm", () => {
    expect(extent([line([1, 2, 3], [-1, 0, 5])], 0, 9, true)).toEqual([5, 5]);
  });

  it("gives a flat line a range, and no negative axis to non-negative values", () => {
    expect(padded([2, 2], false)).toEqual([1.8, 2.2]);
    expect(padded([0, 0], false)).toEqual([-1, 1]);
    expect(padded([0.01, 10], false)[0]).toBe(0);
  });

  it("finds the nearest index", () => {
    expect(nearest([0, 10, 20], 14)).toBe(1);
    expect(nearest([0, 10, 20], 16)).toBe(2);
    expect(nearest([], 1)).toBe(-1);
    expect(nearest([5], 100)).toBe(0);
  });

  it("finds ranges without gaps", () => {
    expect(stretches([1, null, 3, 4], [1, 2, 3, 4])).toEqual([
      [0, 0],
      [2, 3],
    ]);
  });
});

describe("the description of a chart", () => {
  it("has the last, smallest and largest value", () => {
    const description = chartDescription(
      "train/loss",
      [line([0, 10], [2, 0.5], { low: [1.5, 0.25], high: [3, 0.75] })],
      "step",
    );
    expect(description).toBe("train/loss, by step, 0 to 10. last 0.5, min 0.25, max 3");
  });

  it("says that there are no values", () => {
    expect(chartDescription("loss", [line([1], [null])], "step")).toBe("loss: no values");
  });

  it("has short numbers", () => {
    expect(valueText(0.000012345)).toBe("1.234e-5");
    expect(valueText(1536, "bytes")).toBe("1.5 KiB");
    expect(axisText(12_000)).toBe("12k");
    expect(axisText(2_500_000)).toBe("2.5M");
    expect(spanText(5400)).toBe("1.5 h");
  });
});

describe("batches", () => {
  it("combine all keys of one tick, without duplicates", async () => {
    const asked: string[][] = [];
    const batch = new RequestBatch(async (keys) => {
      asked.push(keys);
      return new Map(keys.map((key) => [key, key.toUpperCase()]));
    });
    expect(await Promise.all([batch.get("a"), batch.get("b"), batch.get("a")])).toEqual(["A", "B", "A"]);
    expect(asked).toEqual([["a", "b"]]);
    await batch.get("a");
    expect(asked).toHaveLength(2);
  });

  it("are limited in size, and resolve missing keys to undefined", async () => {
    const asked: string[][] = [];
    const batch = new RequestBatch<number>(async (keys) => {
      asked.push(keys);
      return new Map();
    }, 2);
    expect(await Promise.all(["a", "b", "c"].map((key) => batch.get(key)))).toEqual([undefined, undefined, undefined]);
    expect(asked.map((keys) => keys.length)).toEqual([2, 1]);
  });

  it("report an error to all callers, and work again afterwards", async () => {
    let count = 0;
    const batch = new RequestBatch<number>(async () => {
      count += 1;
      if (count === 1) throw new Error("no");
      return new Map([["a", 1]]);
    });
    const results = await Promise.allSettled([batch.get("a"), batch.get("b")]);
    expect(results.map((one) => one.status)).toEqual(["rejected", "rejected"]);
    expect(await batch.get("a")).toBe(1);
  });
});

describe("a mean over ranks", () => {
  const mean = (x: number[], ranks: number[]): Line =>
    line(
      x,
      x.map((place) => place * 10),
      { of: 8, ranks },
    );

  it("is one line if each value is of all ranks", () => {
    const whole = line([1, 2], [1, 2], { of: 8 });
    expect(splitMean(whole)).toEqual([whole]);
  });

  it("ends with a dashed line where ranks lag", () => {
    const [main, rest] = splitMean(mean([1, 2, 3, 4], [8, 8, 7, 5]));
    expect(main).toMatchObject({ x: [1, 2], y: [10, 20] });
    expect(rest).toMatchObject({ x: [2, 3, 4], y: [20, 30, 40], ranks: [8, 7, 5], isPartial: true });
  });

  it("begins with a dashed line where ranks came later", () => {
    const [main, rest] = splitMean(mean([1, 2, 3, 4], [5, 5, 8, 8]));
    expect(main?.x).toEqual([3, 4]);
    expect(rest?.x).toEqual([1, 2, 3]);
  });

  it("leaves single incomplete steps out, as where some ranks log less often", () => {
    const lines = splitMean(mean([1, 2, 3, 4, 5], [8, 1, 8, 1, 8]));
    expect(lines).toHaveLength(1);
    expect(lines[0]?.x).toEqual([1, 3, 5]);
  });

  it("has a gap where ranks were away for long", () => {
    const x = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
    const [main, rest] = splitMean(mean(x, [8, 8, 8, 7, 7, 7, 7, 7, 7, 8, 8, 8]));
    expect(main?.x).toEqual([0, 1, 2, 5.5, 9, 10, 11]);
    expect(main?.y[3]).toBeNull();
    expect(rest?.x.slice(0, -1)).toEqual([2, 3, 4, 5, 6, 7, 8, 9]);
  });

  it("is dashed as a whole if no step has all ranks", () => {
    expect(splitMean(mean([1, 2], [7, 7]))).toMatchObject([{ dash: true, x: [1, 2] }]);
  });

  it("is read with the number of its ranks", () => {
    const drawn = splitMean(mean([1, 2, 3], [8, 8, 7])).map((one) => ({ ...one, stroke: "red" }));
    const data = align(drawn) as uPlot.AlignedData;
    const detail = (place: number) => readings({ data }, drawn, place).map((one) => [one.value, one.detail]);
    expect(detail(1)).toEqual([[20, "mean of 8 ranks"]]);
    expect(detail(2)).toEqual([[30, "mean of 7 of 8 ranks"]]);
  });
});

describe("values that are not finite", () => {
  it("are named near the cursor", () => {
    const drawn = [{ ...line([0, 100], [1, null], { odd: [{ x: 100, kind: "NaN", count: 1 }] }), stroke: "red" }];
    const chart = { valToPos: (value: number) => value };
    expect(oddReadings(chart, drawn, 97).map((one) => one.text)).toEqual(["NaN"]);
    expect(oddReadings(chart, drawn, 80)).toEqual([]);
    expect(oddText({ kind: "mixed", count: 3 })).toBe("3 NaN or infinite");
    expect(chartDescription("loss", drawn, "step")).toContain("1 value NaN or infinite");
  });
});

describe("lines", () => {
  it("differ in colour or dashes up to 32", () => {
    const looks = Array.from({ length: 32 }, (_, color) => `${color % 8} ${dashOf({ color }).join(" ")}`);
    expect(new Set(looks).size).toBe(32);
  });
});

describe("a picture of a chart", () => {
  const colors = { series: ["#111"], text: "#222", grid: "#333", mark: "#444", ground: "#fff" };
  const drawn = (label: string, more: Partial<Line> = {}) => ({
    ...line([0, 1, 2], [1, 3, null], more),
    label,
    stroke: "#0072b2",
  });

  it("escapes whatever names contain", () => {
    const name = `</text><script>alert("1")</script>&\u0000\ud800`;
    const svg = chartSvg({
      title: name,
      note: name,
      xName: name,
      x: "metric",
      colors,
      lines: [drawn(name), drawn("b")],
    });
    for (const part of ["<script", "\u0000", "\ud800"]) expect(svg).not.toContain(part);
    expect(svg).toContain("&#60;script&#62;");
  });

  it("has the lines, the band, the marks and a legend", () => {
    const odd = [{ x: 2, kind: "NaN" as const, count: 1 }];
    const svg = chartSvg({
      title: "loss",
      colors,
      lines: [drawn("a", { low: [0, 1, null], high: [2, 4, null], odd }), drawn("b")],
    });
    expect(svg).toContain('fill-opacity="0.16"');
    expect(svg).toContain("m-3-3l6 6m0-6l-6 6");
    expect(svg).toContain(">a</text>");
    expect(svg).not.toContain("NaN");
  });

  it("bears no points, one point, and logarithmic axes", () => {
    for (const lines of [[], [drawn("a", { x: [5], y: [2] })], [drawn("a", { x: [1, 2], y: [0.1, 1000] })]]) {
      const svg = chartSvg({ title: "", colors, lines, logX: true, logY: true });
      expect(svg).not.toMatch(/NaN|Infinity/);
    }
  });

  it("uses different ids in one document", () => {
    const one = () => /id="(plot-\d+)"/.exec(chartSvg({ title: "", colors, lines: [] }))?.[1];
    expect(one()).not.toBe(one());
  });
});

describe("ticks", () => {
  it("are round", () => {
    expect(linearTicks(0.13, 0.97, 4)).toEqual([0.2, 0.4, 0.6, 0.8]);
    expect(linearTicks(5, 5, 4)).toEqual([5]);
    expect(timeTicks(0, 200, 7)).toEqual([0, 30, 60, 90, 120, 150, 180]);
    expect(logTicks(0.001, 1000, 6)).toEqual([0.001, 0.01, 0.1, 1, 10, 100, 1000]);
    expect(logTicks(1, 50, 6)).toEqual([1, 2, 5, 10, 20, 50]);
  });
});

describe("CSV", () => {
  it("runs no formula", () => {
    for (const text of ["=1+1", "+1", "-1", "@x", " =1", "\t=1", "\r=1"]) expect(csvCell(text)).toMatch(/^"?'/);
    expect(csvCell(-1.5)).toBe("-1.5");
    expect(csvCell('a,"b"')).toBe('"a,""b"""');
    expect(csvText(["=x"], [[1, null, "NaN"]])).toBe("'=x\r\n1,,NaN\r\n");
  });

  it("has the points of lines", () => {
    const text = linesCsv([line([1, 2], [5, null], { of: 8, ranks: [8, 7] })], "step");
    expect(text).toBe("line,step,value,low,high,ranks\r\na,1,5,,,8\r\na,2,,,,7\r\n");
  });

  it("is saved under a harmless name", () => {
    expect(fileName("../train/loss.csv")).toBe("_train_loss.csv");
    expect(fileName("..png")).toBe("chart.png");
  });
});
