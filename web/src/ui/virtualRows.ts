// Which rows of a long list are in view: pure arithmetic.

export type Window = {
  first: number;
  last: number /** Pixels from the top of the list to the first row drawn. */;
  top: number;
  height: number;
};

/** Browsers draw nothing beyond some 30 million pixels; a list that is longer scrolls in proportion. */
export const TALLEST = 10_000_000;

/** Rows [first, last) to draw, for a list of `count` rows scrolled by `scroll` pixels, with some beyond what is seen. */
export function windowOf(count: number, row: number, scroll: number, view: number, beyond = 8): Window {
  const whole = count * row;
  const height = Math.min(whole, TALLEST);
  const range = Math.max(0, height - view);
  const at = Math.min(Math.max(0, scroll), range);
  const real = whole > height && range > 0 ? (at / range) * (whole - view) : at;
  const first = Math.max(0, Math.min(count, Math.floor(real / row) - beyond));
  const last = Math.max(first, Math.min(count, Math.ceil((real + view) / row) + beyond));
  return { first, last, top: at - real + first * row, height };
}

/** How far to scroll that a row is in view, or null if it is already. `head`: what covers the top of the list. */
export function scrollTo(
  place: number,
  count: number,
  row: number,
  scroll: number,
  view: number,
  head = 0,
): number | null {
  const whole = count * row;
  const height = Math.min(whole, TALLEST);
  const scale = whole > height ? (height - view) / Math.max(1, whole - view) : 1;
  const real = scroll / scale;
  if (place * row < real) return place * row * scale;
  if ((place + 1) * row > real + view - head) return ((place + 1) * row - view + head) * scale;
  return null;
}

/** The pages of `size` rows that [first, last) lie in. */
export function pagesOf(first: number, last: number, size: number): number[] {
  const pages: number[] = [];
  for (let page = Math.floor(first / size); page * size < last; page += 1) pages.push(page);
  return pages;
}
