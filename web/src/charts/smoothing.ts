/** Smoothing of a line: an exponential mean that is not drawn towards zero at its start. */

export function smooth(values: readonly (number | null)[], weight: number): (number | null)[] {
  if (!(weight > 0)) return values.slice();
  const kept = Math.min(weight, 0.999);
  let mean = 0;
  let seen = 0; // how much of the weights was handed out so far
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return null;
    mean = kept * mean + (1 - kept) * value;
    seen = kept * seen + (1 - kept);
    return mean / seen;
  });
}
