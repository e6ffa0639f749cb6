"""Fields of `hptuning`, `outputs` and `models`: searches, which files are kept, and which of them become models."""

from __future__ import annotations

from typing import Any, NamedTuple

from phalanx.path_patterns import pattern_steps
from phalanx.spec import quantities
from phalanx.spec.matrix import Matrix
from phalanx.spec.model import CollectOptions, ModelOptions
from phalanx.spec.shapes import (
    INVALID,
    Boolean,
    Field,
    ListOf,
    Number,
    Quantity,
    RecordShape,
    TextShape,
    frozen_map,
)
from phalanx.spec.tree import Diagnostics, Node

MOST_PATTERNS = 100
LONGEST_PATTERN = 400
METRIC = RecordShape(
    "metric",
    {
        "name": Field(TextShape(), "the metric's name", required=True),
        "optimization": Field(
            TextShape(choices=("maximize", "minimize")), "Whether higher or lower is better. Default: maximize."
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
        "early_stopping": Field(ListOf(EARLY_STOPPING), "Conditions that stop the search."),
    },
    dict,
    elsewhere={"n_experiments": "write it below `random_search` or `grid_search`"},
)


class PathPattern(NamedTuple):
    """A pattern of paths below a folder."""

    what: str = "a pattern of paths, such as `*.pt` or `logs/**`"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        text = TextShape(what=self.what).read(node, findings)
        if text is INVALID:
            return INVALID
        try:
            pattern_steps(text)
        except ValueError:
            found = f"`{text[:60]}` is not a pattern of paths below the working folder"
            findings.error(node, found, "write a relative path without `..`, such as `checkpoints/**`")
            return INVALID
        if len(text) > LONGEST_PATTERN:
            findings.error(node, f"a pattern may have at most {LONGEST_PATTERN} characters")
            return INVALID
        return text

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "maxLength": LONGEST_PATTERN}

    def words(self) -> str:
        return self.what


def _few_patterns(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    if len(values.get("collect", ())) > MOST_PATTERNS:
        where = node.get("collect") or node
        findings.error(where, f"at most {MOST_PATTERNS} patterns are allowed", "name folders: `logs/**`")


def _collect_options(**values: Any) -> CollectOptions:
    return CollectOptions(**{"max_mib" if key == "max_size" else key: value for key, value in values.items()})


COLLECT = RecordShape(
    "outputs",
    {
        "collect": Field(
            ListOf(PathPattern(), lone=True),
            "Files of the working folder to copy into the outputs when an attempt ends: patterns with `*`, `?` and "
            "`**`. Default: models, TensorBoard's event files, and what is beside them. `[]` copies nothing.",
        ),
        "max_size": Field(
            Quantity(quantities.memory_mib, 'a size (a bare number is MiB; "10Gi", "512Mi")'),
            "How much to copy at most. Default: 2Gi.",
        ),
        "max_files": Field(Number(low=0, high=100_000, whole=True), "How many files to copy at most. Default: 1000."),
    },
    _collect_options,
    _few_patterns,
    hint='write `outputs: {collect: ["*.pt"]}`',
)


def _model_options(metric: Any = None, **values: Any) -> ModelOptions:
    if metric is None:
        return ModelOptions(**values)
    is_largest_best = metric.get("optimization", "maximize") == "maximize"
    return ModelOptions(**values, metric=metric["name"], is_largest_best=is_largest_best)


MODEL = RecordShape(
    "a model",
    {
        "name": Field(
            TextShape(pattern=r"[^/:@\\.\s-][^/:@\\\n\t]{0,98}[^/:@\\\s]\Z|[^/:@\\.\s-]\Z", what="the name of a model"),
            "the name of the model; it is created if it is new",
            required=True,
        ),
        "path": Field(PathPattern(), "the file or folder in the outputs: a pattern such as `*.pt`", required=True),
        "metric": Field(
            METRIC, "If several files match: take the one saved when this metric was best. Default: the newest."
        ),
    },
    _model_options,
    hint='write `models: [{name: mnist, path: "*.pt"}]`',
)
