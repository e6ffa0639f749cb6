"""Fields of `hptuning`: the matrix, the searches and early stopping."""

from __future__ import annotations

from typing import Any

from phalanx.spec.matrix import Matrix
from phalanx.spec.shapes import Boolean, Field, ListOf, Number, RecordShape, TextShape, frozen_map
from phalanx.spec.tree import Diagnostics, Node

METRIC = RecordShape(
    "metric",
    {
        "name": Field(TextShape(), "the metric's name", required=True),
        "optimization": Field(
            TextShape(choices=("maximize", "minimize")), "Whether higher or lower is better. Default: maximize."
        ),
        "value": Field(TextShape(choices=("last", "best")), "Which value of a run counts. Default: last."),
        "step": Field(Number(low=0, whole=True), "Take the value at this step, or the last one before it."),
        "ranks": Field(
            TextShape(choices=("first", "mean", "max", "min")),
            "The value of several ranks: that of the first rank that logs it (the default), or their mean, max or min.",
        ),
    },
    frozen_map,
    hint="write `metric: {name: loss, optimization: minimize}`",
)
N_EXPERIMENTS = Field(Number(low=1, whole=True), "Number of experiments to run.")
_GAUSSIAN = RecordShape(
    "gaussian_process",
    {
        "kernel": Field(TextShape(choices=("matern", "rbf")), "The kernel. Default: matern."),
        "length_scale": Field(Number(), "The length scale of the kernel. Default: 1.0."),
        "nu": Field(Number(), "Smoothness of the matern kernel. Default: 1.5."),
        "n_restarts_optimizer": Field(Number(low=0, whole=True), "Restarts of the kernel optimiser."),
    },
    frozen_map,
)


def _acquisition(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    if node.get("acquisition_function") is not None and "acquisition_function" not in values:
        return  # already reported
    function = values.get("acquisition_function", "ucb")
    wanted = "kappa" if function == "ucb" else "eps"
    if node.get(wanted) is None:
        findings.missing(node, wanted, f"the acquisition function `{function}` needs `{wanted}`")


ALGORITHMS: dict[str, RecordShape] = {
    "grid_search": RecordShape("grid_search", {"n_experiments": N_EXPERIMENTS}, frozen_map),
    "random_search": RecordShape("random_search", {"n_experiments": N_EXPERIMENTS}, frozen_map),
    "hyperband": RecordShape(
        "hyperband",
        {
            "max_iter": Field(Number(low=1, whole=True), "the maximum resource of one run", required=True),
            "eta": Field(Number(low=1, above_low=True), "the reduction factor", required=True),
            "resource": Field(
                RecordShape(
                    "resource",
                    {
                        "name": Field(TextShape(), "the param that holds the resource", required=True),
                        "type": Field(TextShape(choices=("int", "float")), "Its type. Default: float."),
                    },
                    frozen_map,
                    hint="write `resource: {name: epochs, type: int}`",
                ),
                "what increases from round to round",
                required=True,
            ),
            "metric": Field(METRIC, "the metric to compare", required=True),
            "resume": Field(Boolean(), "Runs that are kept resume instead of starting over."),
        },
        frozen_map,
    ),
    "bo": RecordShape(
        "bo",
        {
            "n_initial_trials": Field(Number(low=1, whole=True), "number of random runs at the start", required=True),
            "n_iterations": Field(Number(low=1, whole=True), "number of suggestions after them", required=True),
            "metric": Field(METRIC, "the metric to optimise", required=True),
            "utility_function": Field(
                RecordShape(
                    "utility_function",
                    {
                        "acquisition_function": Field(TextShape(choices=("ucb", "ei", "poi")), "Default: ucb."),
                        "kappa": Field(Number(), "For ucb."),
                        "eps": Field(Number(), "For ei and poi."),
                        "gaussian_process": Field(_GAUSSIAN, "The model of the metric."),
                        "n_warmup": Field(Number(low=0, whole=True), "Number of random points to try first."),
                        "n_iter": Field(Number(low=0, whole=True), "Number of restarts of the optimiser."),
                    },
                    frozen_map,
                    _acquisition,
                ),
                "How to choose the next suggestion.",
            ),
        },
        frozen_map,
    ),
}
EARLY_STOPPING = RecordShape(
    "early_stopping",
    {
        "metric": Field(TextShape(), "the metric to watch", required=True),
        "value": Field(Number(), "the value that stops the search", required=True),
        "optimization": Field(TextShape(choices=("maximize", "minimize")), "Default: maximize."),
        "policy": Field(
            RecordShape(
                "policy",
                {
                    "kind": Field(TextShape(choices=("median", "average", "truncation")), "the rule", required=True),
                    "evaluation_interval": Field(Number(low=1, whole=True), "How often the rule is evaluated."),
                    "percent": Field(Number(low=0, high=100), "For truncation."),
                },
                frozen_map,
            ),
            "A rule that stops individual runs early.",
        ),
    },
    frozen_map,
)
HPTUNING = RecordShape(
    "hptuning",
    {
        "matrix": Field(Matrix(), "the parameters to try", required=True),
        "concurrency": Field(Number(low=0, whole=True), "Number of concurrent runs. Default: 1."),
        "seed": Field(Number(whole=True), "The random seed."),
        **{name: Field(record, f"Search by {name}.") for name, record in ALGORITHMS.items()},
        "metric": Field(METRIC, "The metric to rank runs by, for searches that do not compare runs themselves."),
        "early_stopping": Field(ListOf(EARLY_STOPPING), "Conditions that stop the search."),
        "max_failed": Field(Number(low=0, whole=True), "End the group when more runs than this have failed."),
    },
    dict,
    elsewhere={"n_experiments": "write it below `random_search` or `grid_search`"},
)
