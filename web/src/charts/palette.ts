/** Colours of lines, as charts.css has them for the theme that is on: told apart also by people who see fewer of them. */

import { useSyncExternalStore } from "react";

export const SERIES = 8;

export type Palette = { series: string[]; text: string; grid: string; mark: string; ground: string };

let palette: Palette | null = null;
const listeners = new Set<() => void>();

function read(): Palette {
  // The value of a custom property is its text. As the colour of an element it is resolved for the current theme.
  const probe = document.createElement("span");
  document.body.append(probe);
  const color = (name: string) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const found = {
    series: Array.from({ length: SERIES }, (_, index) => color(`--chart-${index}`)),
    text: color("--chart-text"),
    grid: color("--chart-grid"),
    mark: color("--chart-mark"),
    ground: color("--chart-ground"),
  };
  probe.remove();
  return found;
}

function changed(): void {
  palette = null;
  for (const listener of listeners) listener();
}

let isWatching = false;

function watch(listener: () => void): () => void {
  listeners.add(listener);
  if (!isWatching) {
    isWatching = true;
    new MutationObserver(changed).observe(document.documentElement, { attributes: true });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  }
  return () => listeners.delete(listener);
}

function current(): Palette {
  palette ??= read();
  return palette;
}

/** The colours of now; whoever uses it is drawn anew when the theme changes. */
export function usePalette(): Palette {
  return useSyncExternalStore(watch, current);
}

export function seriesColor(colors: Palette, index: number): string {
  return colors.series[((index % SERIES) + SERIES) % SERIES] as string;
}

/** The ninth line and those after it have the colours again, but dashed. */
export function isDashed(index: number): boolean {
  return Math.floor(index / SERIES) % 2 === 1;
}
