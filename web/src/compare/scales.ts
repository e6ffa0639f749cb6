/** Scales map values to positions from 0 to 1, for parallel coordinates and scatter plots. */

import { type Value, valueText } from "./fields";

export type Kind = "linear" | "log" | "category";

export interface Tick {
  at: number;
  label: string;
}

export interface Scale {
  kind: Kind;
  /** Null if the value is not on this scale. */
  place(value: Value): number | null;
  /** The number at a position; the index of the category on a category scale. */
  valueAt(at: number): number;
  ticks: Tick[];
  categories: string[];
  lowest: number;
  highest: number;
}

const MAX_CATEGORIES = 24;

function numbersOf(values: Value[]): number[] {
  return values.filter((value): value is number => typeof value === "number" && Number.isFinite(value));
}

/** The default kind of scale for these values. */
export function defaultKind(values: Value[]): Kind {
  const present = values.filter((value) => value !== undefined && value !== null);
  const numbers = numbersOf(present);
  const areNumbers = present.length > 0 && present.every((value) => typeof value === "number");
  if (!areNumbers || numbers.length === 0) return "category";
  const [lowest, highest] = [Math.min(...numbers), Math.max(...numbers)];
  const isSpread = highest / lowest >= 50 || (highest < 1 && highest / lowest >= 9.9); // learning rates: 0.001 to 0.01
  return lowest > 0 && isSpread ? "log" : "linear";
}

/** The possible kinds for these values; the default first. */
export function possibleKinds(values: Value[]): Kind[] {
  const suitable = defaultKind(values);
  if (suitable === "category") return ["category"];
  const canLog = numbersOf(values).every((value) => value > 0);
  const all: Kind[] = canLog ? ["linear", "log", "category"] : ["linear", "category"];
  return [suitable, ...all.filter((kind) => kind !== suitable)];
}

export function makeScale(values: Value[], requested?: Kind): Scale {
  const kind = requested !== undefined && possibleKinds(values).includes(requested) ? requested : defaultKind(values);
  if (kind === "category") return categories(values);
  const numbers = numbersOf(values);
  return kind === "log" ? logarithmic(numbers) : linear(numbers);
}

function categories(values: Value[]): Scale {
  const present = values.filter((value) => value !== undefined && value !== null);
  const names = [...new Set(present.map(valueText))].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  const at = (place: number) => (place + 0.5) / Math.max(1, names.length);
  const every = Math.ceil(names.length / MAX_CATEGORIES);
  return {
    kind: "category",
    place: (value) => {
      if (value === undefined || value === null) return null;
      const place = names.indexOf(valueText(value));
      return place < 0 ? null : at(place);
    },
    valueAt: (share) => Math.min(names.length - 1, Math.max(0, Math.floor(share * names.length))),
    ticks: names.map((label, place) => ({ at: at(place), label })).filter((_, place) => place % every === 0),
    categories: names,
    lowest: 0,
    highest: names.length - 1,
  };
}

function linear(numbers: number[]): Scale {
  let lowest = Math.min(...numbers);
  let highest = Math.max(...numbers);
  const isWhole = numbers.every(Number.isInteger);
  if (lowest === highest) {
    const room = isWhole ? 1 : Math.abs(lowest) / 10 || 1;
    lowest -= room;
    highest += room;
  }
  const span = highest - lowest;
  const steps = niceSteps(lowest, highest, 5, isWhole ? 1 : 0);
  const ticks = steps.map((value) => ({ at: (value - lowest) / span, label: shortNumber(value) }));
  return {
    kind: "linear",
    place: (value) => (typeof value === "number" && Number.isFinite(value) ? (value - lowest) / span : null),
    valueAt: (at) => lowest + at * span,
    ticks,
    categories: [],
    lowest,
    highest,
  };
}

function logarithmic(numbers: number[]): Scale {
  let low = Math.log10(Math.min(...numbers));
  let high = Math.log10(Math.max(...numbers));
  if (low === high) {
    low -= 0.5;
    high += 0.5;
  }
  const ticks: Tick[] = [];
  const every = Math.max(1, Math.ceil((high - low) / 6));
  for (let power = Math.ceil(low - 1e-9); power <= high + 1e-9; power += every) {
    ticks.push({ at: (power - low) / (high - low), label: shortNumber(10 ** power) });
  }
  const whole = [...new Set(numbers)].sort((a, b) => a - b);
  if (ticks.length < 2 && whole.length <= 6 && whole.every(Number.isInteger)) {
    ticks.length = 0;
    for (const value of whole) ticks.push({ at: (Math.log10(value) - low) / (high - low), label: shortNumber(value) });
  } else if (ticks.length < 2) {
    ticks.length = 0;
    for (const at of [0, 0.5, 1]) ticks.push({ at, label: shortNumber(10 ** (low + at * (high - low))) });
  }
  return {
    kind: "log",
    place: (value) =>
      typeof value === "number" && value > 0 && Number.isFinite(value)
        ? (Math.log10(value) - low) / (high - low)
        : null,
    valueAt: (at) => 10 ** (low + at * (high - low)),
    ticks,
    categories: [],
    lowest: 10 ** low,
    highest: 10 ** high,
  };
}

/** About five round numbers inside a range; `least` is the smallest distance, 1 for whole numbers. */
export function niceSteps(lowest: number, highest: number, about = 5, least = 0): number[] {
  const rough = (highest - lowest) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(least, ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power);
  const found: number[] = [];
  for (let count = Math.ceil(lowest / step - 1e-9); count * step <= highest + step * 1e-9; count++) {
    found.push(Number((count * step).toPrecision(12)));
  }
  return found;
}

export function shortNumber(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3)
    return value
      .toExponential(2)
      .replace(/\.?0+e/, "e")
      .replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}
