/** Round positions on an axis. */

/** About `count` multiples of 1, 2 or 5 times a power of ten. */
export function linearTicks(low: number, high: number, count: number): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough * 0.75) as number);
  const found: number[] = [];
  for (let number = Math.ceil(low / step - 1e-9); number * step <= high + step * 1e-9 && found.length < 100; number++) {
    found.push(Number((number * step).toPrecision(12)));
  }
  return found;
}

/** Powers of ten, or 1, 2 and 5 times them if there are few. */
export function logTicks(low: number, high: number, count: number): number[] {
  if (!(low > 0) || !(high > low)) return [low];
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const factors = to - from <= 3 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil((to - from) / Math.max(1, count)));
  const found: number[] = [];
  for (let power = from; power <= to; power += every) {
    for (const factor of factors) {
      const value = Number((factor * 10 ** power).toPrecision(12));
      if (value >= low && value <= high) found.push(value);
    }
  }
  return found.length ? found : [low];
}

/** Tick distances in seconds, minutes, hours and days. */
export const TIMES = [
  ...[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30],
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * 60),
  ...[1, 2, 3, 6, 12].map((hours) => hours * 3600),
  ...[1, 2, 5, 10, 20, 50, 100].map((days) => days * 86_400),
];

/** Round seconds, minutes, hours and days. */
export function timeTicks(low: number, high: number, count: number): number[] {
  const rough = (high - low) / Math.max(1, count);
  const step = TIMES.find((time) => time >= rough * 0.75);
  if (step === undefined || !(high > low)) return linearTicks(low, high, count);
  const found: number[] = [];
  for (let number = Math.ceil(low / step - 1e-9); number * step <= high && found.length < 100; number++) {
    found.push(Number((number * step).toPrecision(12)));
  }
  return found;
}
