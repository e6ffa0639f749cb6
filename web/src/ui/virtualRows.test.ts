import { describe, expect, it } from "vitest";
import { MAX_HEIGHT, pagesOf, scrollTo, visibleWindow } from "./virtualRows";

describe("the window of a long list", () => {
  it("has the rows in view and the overscan", () => {
    expect(visibleWindow(10_000, 30, 3000, 600, 5)).toEqual({ first: 95, last: 125, top: 95 * 30, height: 300_000 });
  });

  it("ends at the end of the list", () => {
    expect(visibleWindow(10, 30, 0, 600, 5)).toEqual({ first: 0, last: 10, top: 0, height: 300 });
    expect(visibleWindow(0, 30, 0, 600)).toEqual({ first: 0, last: 0, top: 0, height: 0 });
    expect(visibleWindow(100, 30, 99_999, 600, 0).last).toBe(100);
  });

  it("reaches the first and last row of a list taller than a browser renders", () => {
    const count = 5_000_000;
    const { height } = visibleWindow(count, 30, 0, 600);
    expect(height).toBe(MAX_HEIGHT);
    expect(visibleWindow(count, 30, 0, 600, 0).first).toBe(0);
    const end = visibleWindow(count, 30, height - 600, 600, 0);
    expect(end.last).toBe(count);
    // The last row ends where the scroll area ends.
    expect(end.top + (end.last - end.first) * 30).toBeCloseTo(height, 0);
  });
});

describe("scrolling to a row", () => {
  it("does nothing if the row is in view", () => {
    expect(scrollTo(10, 1000, 30, 0, 600)).toBeNull();
  });

  it("scrolls to the nearer edge, below the sticky header", () => {
    expect(scrollTo(5, 1000, 30, 600, 600)).toBe(150);
    expect(scrollTo(30, 1000, 30, 0, 600)).toBe(330);
    expect(scrollTo(19, 1000, 30, 0, 600, 32)).toBe(32);
  });
});

describe("pages", () => {
  it("are those that contain the rows", () => {
    expect([pagesOf(0, 50, 100), pagesOf(90, 130, 100), pagesOf(100, 200, 100), pagesOf(7, 7, 100)]).toEqual([
      [0],
      [0, 1],
      [1],
      [0],
    ]);
  });
});
