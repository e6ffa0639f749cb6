/** Smoothing of a line: a bias-corrected exponential moving average. */

export function smooth(values: readonly (number | null)[], weight: number): (number | null)[] {
  if (!(weight > 0)) return values.slice();
  const decay = Math.min(weight, 0.999);
  let mean = 0;
  let weights = 0; // the sum of the weights so far
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return null;
    mean = decay * mean + (1 - decay) * value;
    weights = decay * weights + (1 - decay);
    return mean / weights;
  });
}
