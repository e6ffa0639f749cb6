/** Smoothing of a line: a bias-corrected exponential moving average. */

export function smooth(values: readonly (number | null)[], weight: number): (number | null)[] {
  if (!(weight > 0)) return values.slice();
  const kept = Math.min(weight, 0.999);
  let mean = 0;
  let seen = 0; // the sum of the weights so far
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return null;
    mean = kept * mean + (1 - kept) * value;
    seen = kept * seen + (1 - kept);
    return mean / seen;
  });
}
