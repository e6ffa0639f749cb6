/** The colours of charts, from charts.css. The series colours suit people with colour vision deficiency. */

import { type EffectiveTheme, useEffectiveTheme } from "../theme";

export const SERIES = 8;

export type Palette = { series: string[]; text: string; grid: string; mark: string; ground: string };

let cached: { theme: EffectiveTheme; palette: Palette } | null = null;

/** The colours of a theme, whichever the page has. */
export const paletteOf = (theme: EffectiveTheme): Palette => read(theme);

function read(theme?: EffectiveTheme): Palette {
  // The value of a custom property is its text. As the colour of an element it is resolved for the current theme.
  const probe = document.createElement("span");
  if (theme) probe.style.colorScheme = theme;
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

/** The palette of the current theme. */
export function usePalette(): Palette {
  const theme = useEffectiveTheme();
  if (cached?.theme !== theme) cached = { theme, palette: read() };
  return cached.palette;
}

export function seriesColor(colors: Palette, index: number): string {
  return colors.series[((index % SERIES) + SERIES) % SERIES] as string;
}

/** After the eighth line, colours repeat with other dashes. */
const DASHES: readonly number[][] = [[], [6, 4], [2, 3], [10, 3, 2, 3]];
const INCOMPLETE = [3, 3];

/** Lengths of dashes and gaps; empty for a solid line. */
export function dashOf(line: { color: number; dash?: boolean; isPartial?: boolean }): number[] {
  if (line.isPartial || line.dash) return INCOMPLETE;
  return DASHES[Math.floor(line.color / SERIES) % DASHES.length] as number[];
}
