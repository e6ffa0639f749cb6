// Which rows of a long list are in view.

export type Window = {
  first: number;
  last: number;
  /** Pixels from the top of the list to the first rendered row. */
  top: number;
  height: number;
};

/** Browsers render nothing beyond about 30 million pixels. A longer list scrolls in proportion. */
export const MAX_HEIGHT = 10_000_000;

/** Rows [first, last) to render for a list of `count` rows scrolled by `scroll` pixels, with `overscan` rows around them. */
export function visibleWindow(count: number, row: number, scroll: number, view: number, overscan = 8): Window {
  const whole = count * row;
  const height = Math.min(whole, MAX_HEIGHT);
  const range = Math.max(0, height - view);
  const at = Math.min(Math.max(0, scroll), range);
  const real = whole > height && range > 0 ? (at / range) * (whole - view) : at;
  const first = Math.max(0, Math.min(count, Math.floor(real / row) - overscan));
  const last = Math.max(first, Math.min(count, Math.ceil((real + view) / row) + overscan));
  return { first, last, top: at - real + first * row, height };
}

/** The scroll position that brings a row into view, or null if it is. `head` is the height of a sticky header. */
export function scrollTo(
  index: number,
  count: number,
  row: number,
  scroll: number,
  view: number,
  head = 0,
): number | null {
  const whole = count * row;
  const height = Math.min(whole, MAX_HEIGHT);
  const scale = whole > height ? (height - view) / Math.max(1, whole - view) : 1;
  const real = scroll / scale;
  if (index * row < real) return index * row * scale;
  if ((index + 1) * row > real + view - head) return ((index + 1) * row - view + head) * scale;
  return null;
}

/** The pages of `size` rows that contain rows [first, last). */
export function pagesOf(first: number, last: number, size: number): number[] {
  const pages: number[] = [];
  for (let page = Math.floor(first / size); page * size < last; page += 1) pages.push(page);
  return pages;
}
