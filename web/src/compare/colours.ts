/** A colour gradient for values, which also changes in lightness. */

import type { EffectiveTheme } from "../theme";

// All colours have a contrast of at least 3:1 against the background.
const STOPS: Record<EffectiveTheme, [number, number, number][]> = {
  light: [
    [68, 1, 84],
    [62, 73, 137],
    [32, 116, 142],
    [20, 138, 112],
    [150, 120, 0],
    [190, 78, 0],
  ],
  dark: [
    [126, 120, 230],
    [80, 150, 230],
    [60, 180, 200],
    [80, 205, 140],
    [170, 220, 80],
    [253, 231, 37],
  ],
};

/** The colour at a position from 0 to 1. */
export function gradient(at: number, theme: EffectiveTheme): string {
  const stops = STOPS[theme];
  const place = Math.min(1, Math.max(0, at)) * (stops.length - 1);
  const left = Math.min(stops.length - 2, Math.floor(place));
  const share = place - left;
  const [from, to] = [stops[left], stops[left + 1]] as [[number, number, number], [number, number, number]];
  const mixed = from.map((part, index) => Math.round(part * (1 - share) + (to[index] as number) * share));
  return `rgb(${mixed.join(" ")})`;
}
