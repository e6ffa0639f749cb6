// Whether lower values of a metric are better. `store/metric_direction.py` has the same rule.

const LOWER =
  /(^|[^a-z])(loss|error|err|perplexity|ppl|mse|mae|rmse|wer|cer|fid|nll|bpc|bpb|cost|regret|seconds|latency|time|took)([^a-z]|$)/i;

/** Whether lower is better, judging by the name of the metric. */
export function isLowerBetter(name: string): boolean {
  return LOWER.test(name.replace(/([a-z])([A-Z])/g, "$1_$2").replace(/_/g, " "));
}
