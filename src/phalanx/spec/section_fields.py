"""Fields of `hptuning`, `outputs`, `models` and `notify`: searches, which files are kept, which of them become models,
and who is told of the end of a run; and shapes that several sections use."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, NamedTuple

from phalanx.path_patterns import pattern_steps
from phalanx.spec import quantities
from phalanx.spec.matrix import Matrix
from phalanx.spec.model import ENDS_TOLD, CollectOptions, KeepOptions, ModelOptions, NotifyEvent, NotifyRule
from phalanx.spec.shapes import (
    INVALID,
    Anything,
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

NAME = TextShape(pattern=r"[-a-zA-Z0-9_]+\Z", what="a name of letters, digits, `-` and `_`")
NAMES = ListOf(TextShape(numbers=True, what="a name"))
ANY_VALUE = Anything(written=True)
MOST_PATTERNS = 100
LONGEST_PATTERN = 400
SHORTEST_ALLOCATION_S = 300.0
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


_RESOURCE = Field(
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
)
_MAX_ITER = Field(Number(low=1, high=10**15, whole=True), "the maximum resource of one run", required=True)
_ETA = Field(Number(low=1.1, high=10**6), "the reduction factor", required=True)
_MOST_INTERVALS = 10_000
_N_TRIALS = Field(Number(low=1, whole=True), "number of experiments to run", required=True)
_COMPARED = Field(METRIC, "the metric to compare", required=True)
_OPTIMISED = Field(METRIC, "the metric to optimise", required=True)


def _min_iter(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    if values.get("min_iter", 1) > values.get("max_iter", math.inf):
        findings.error(node.get("min_iter") or node, "`min_iter` is above `max_iter`", "write a smaller one")


def _interval(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    if values.get("max_iter", 1) / values.get("interval", 1) > _MOST_INTERVALS:
        message = f"`max_iter` has more than {_MOST_INTERVALS} intervals"
        findings.error(node.get("interval") or node, message, "write a larger `interval`")


ALGORITHMS: dict[str, RecordShape] = {
    "grid_search": RecordShape("grid_search", {"n_experiments": N_EXPERIMENTS}, frozen_map),
    "random_search": RecordShape("random_search", {"n_experiments": N_EXPERIMENTS}, frozen_map),
    "hyperband": RecordShape(
        "hyperband",
        {
            "max_iter": _MAX_ITER,
            "eta": _ETA,
            "resource": _RESOURCE,
            "metric": _COMPARED,
            "resume": Field(Boolean(), "Runs that are kept resume instead of starting over."),
        },
        frozen_map,
    ),
    "bo": RecordShape(
        "bo",
        {
            "n_initial_trials": Field(Number(low=1, whole=True), "number of random runs at the start", required=True),
            "n_iterations": Field(Number(low=1, whole=True), "number of suggestions after them", required=True),
            "metric": _OPTIMISED,
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
    "asha": RecordShape(
        "asha",
        {
            "n_experiments": _N_TRIALS,
            "max_iter": _MAX_ITER,
            "min_iter": Field(Number(low=1e-6), "The resource of the first rung, at least. Default: 1."),
            "eta": _ETA,
            "resource": _RESOURCE,
            "metric": _COMPARED,
            "resume": Field(Boolean(), "Runs that go on resume instead of starting over. Default: true."),
        },
        frozen_map,
        _min_iter,
    ),
    "tpe": RecordShape(
        "tpe",
        {
            "n_experiments": _N_TRIALS,
            "n_initial_trials": Field(Number(low=1, whole=True), "Number of random runs at the start. Default: 10."),
            "metric": _OPTIMISED,
        },
        frozen_map,
    ),
    "cmaes": RecordShape(
        "cmaes",
        {
            "n_experiments": _N_TRIALS,
            "population": Field(Number(low=2, whole=True), "Runs of one generation. Default: by the matrix."),
            "sigma": Field(Number(low=0, above_low=True), "Initial step, as a share of each range. Default: 0.25."),
            "metric": _OPTIMISED,
        },
        frozen_map,
    ),
    "pbt": RecordShape(
        "pbt",
        {
            "n_experiments": Field(Number(low=2, whole=True), "number of runs in the population", required=True),
            "max_iter": _MAX_ITER,
            "interval": Field(Number(low=1e-6), "the resource between two comparisons", required=True),
            "resource": _RESOURCE,
            "metric": _COMPARED,
            "quantile": Field(
                Number(low=0, high=0.5, above_low=True), "The share that is replaced by the best. Default: 0.25."
            ),
            "resample_probability": Field(Number(low=0, high=1), "Drawn anew instead of changed. Default: 0.25."),
        },
        frozen_map,
        _interval,
    ),
}


def _stops_something(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    if node.get("value") is None and "policy" not in values:
        findings.missing(
            node, "value", "early_stopping needs `value`, which stops the search, or `policy`, which stops runs"
        )


EARLY_STOPPING = RecordShape(
    "early_stopping",
    {
        "metric": Field(TextShape(), "the metric to watch", required=True),
        "value": Field(Number(), "The value that stops the search."),
        "optimization": Field(TextShape(choices=("maximize", "minimize")), "Default: maximize."),
        "policy": Field(
            RecordShape(
                "policy",
                {
                    "kind": Field(TextShape(choices=("median", "average", "truncation")), "the rule", required=True),
                    "evaluation_interval": Field(
                        Number(low=1, whole=True), "Evaluated at every n-th value of the metric. Default: 1."
                    ),
                    "percent": Field(Number(low=0, high=100), "For truncation: the share that stops. Default: 50."),
                },
                frozen_map,
            ),
            "A rule that stops individual runs early.",
        ),
    },
    frozen_map,
    _stops_something,
)


def _end_of_budget(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    until = values.get("until")
    try:
        if until is not None and quantities.seconds(until) is None:
            datetime.fromisoformat(until)
    except ValueError:
        hint = 'write a time such as "2027-01-31 08:00", or a duration such as "8h"'
        findings.error(node.get("until") or node, f"`{str(until)[:60]}` is no time", hint)


BUDGET = RecordShape(
    "budget",
    {
        "core_hours": Field(Number(low=0, above_low=True), "Core-hours of all runs: requested cores times run time."),
        "gpu_hours": Field(Number(low=0, above_low=True), "GPU-hours of all runs."),
        "until": Field(TextShape(), 'A time such as `"2027-01-31 08:00"`, or a duration from the start such as `8h`.'),
    },
    frozen_map,
    _end_of_budget,
)


def _fits_packed(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    for name in ("nodes", "time"):
        if name in values and values.get("trials") in ("single", "array"):
            findings.error(node.get(name) or node, f"`{name}` is that of the job of packed runs", f"remove `{name}`")
    if values.get("time", SHORTEST_ALLOCATION_S) < SHORTEST_ALLOCATION_S:
        hint = f"at least {SHORTEST_ALLOCATION_S:g} s"
        findings.error(node.get("time") or node, f"a job of {values['time']:g} s is too short", hint)


TRIALS_ON_SLURM = RecordShape(
    "slurm",
    {
        "trials": Field(
            TextShape(choices=("single", "array", "packed")),
            "`single`: each run is a job. `array`: the runs are tasks of job arrays. `packed`: one job whose nodes run "
            "one after another, with the search in it. Default: chosen by the length of a run and the limits of the "
            "site.",
        ),
        "nodes": Field(Number(low=1, high=4096, whole=True), "Nodes of the job of packed runs."),
        "time": Field(
            Quantity(quantities.seconds, 'a time (seconds, or "24h", "5m")'),
            "Time limit of the job of packed runs; the search continues in the next one. Default: 24 hours, or what "
            "the site allows.",
        ),
    },
    frozen_map,
    _fits_packed,
)
HPTUNING = RecordShape(
    "hptuning",
    {
        "matrix": Field(Matrix(), "the parameters to try", required=True),
        "concurrency": Field(Number(low=0, whole=True), "Number of concurrent runs. Default: 1."),
        "seed": Field(Number(whole=True), "The random seed."),
        **{name: Field(record, f"Search by {name}.") for name, record in ALGORITHMS.items()},
        "metric": Field(METRIC, "The metric to rank runs by, for searches that do not compare runs themselves."),
        "repeat": Field(
            Number(low=1, whole=True), "Runs of each point, with the param `seed` from 0 up; ranked by their mean."
        ),
        "early_stopping": Field(ListOf(EARLY_STOPPING), "Conditions that stop the search."),
        "budget": Field(BUDGET, "Start no more runs when this is used."),
        "warm_start": Field(
            ListOf(TextShape(numbers=True)), "Earlier groups, by id or name, whose results the search starts with."
        ),
        "reuse": Field(Boolean(), "Don't run points again that a group of `warm_start` ran at the same commit."),
        "max_failed": Field(Number(low=0, whole=True), "End the group when more runs than this have failed."),
        "slurm": Field(TRIALS_ON_SLURM, "How the runs become jobs on Slurm."),
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


STEP = "{step}"


class StepPattern(NamedTuple):
    """A pattern of paths with one `{step}`, where the number of a step is."""

    what: str = "a pattern of paths with `{step}`, such as `checkpoints/step-{step}.pt`"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        text = PathPattern(self.what).read(node, findings)
        if text is INVALID:
            return INVALID
        named = [step for step in text.split("/") if STEP in step]
        after = text.partition(STEP)[2]
        if text.count(STEP) != 1 or named[0].count("*") > 1 or "**" in after:
            hint = f"write `{STEP}` once, with at most one `*` beside it, as in `checkpoints/step-{STEP}.pt`"
            findings.error(node, f"`{text[:60]}` does not say where the step is", hint)
            return INVALID
        return text

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": len(STEP), "maxLength": LONGEST_PATTERN}

    def words(self) -> str:
        return self.what


def _best_of_what(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    if ("best" in values) != ("of" in values):
        findings.error(node, "`best` needs `of`, and `of` needs `best`", "write `{best: 3, of: val_loss}`")
    if "optimization" in values and "of" not in values:
        findings.error(node.get("optimization") or node, "`optimization` is about the metric of `of`")


def _keep_options(of: str | None = None, optimization: str | None = None, **values: Any) -> KeepOptions:
    is_largest_best = None if optimization is None else optimization == "maximize"
    return KeepOptions(**values, metric=of, is_largest_best=is_largest_best)


KEEP = RecordShape(
    "keep",
    {
        "path": Field(StepPattern(), "the checkpoints in the outputs: `checkpoints/step-{step}.pt`", required=True),
        "last": Field(Number(low=1, high=100_000, whole=True), "How many of the newest to keep. Default: 1."),
        "best": Field(Number(low=1, high=100_000, whole=True), "How many of the best to keep."),
        "of": Field(TextShape(), "The metric that says which are the best: its value at the step of a checkpoint."),
        "optimization": Field(
            TextShape(choices=("maximize", "minimize")), "Whether large values are good. Default: by the metric's name."
        ),
    },
    _keep_options,
    _best_of_what,
    hint="write `keep: {path: checkpoints/step-{step}.pt, best: 3, of: val_loss}`",
)


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
        "keep": Field(KEEP, "Which checkpoints stay when the run has ended. The others are removed. Default: all."),
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


# notify --------------------------------------------------------------------------------------------------------------

CHANNELS = ("command", "mail", "webhook")
MOST_TARGETS = 20
TIME = Quantity(quantities.seconds, 'a time (seconds, or "90m", "1d12h")')
ADDRESS = TextShape(
    pattern=r"[^\s@<>,;:\"()\[\]\\\x00-\x1f\x7f-\x9f]{1,64}@[A-Za-z0-9.-]{1,253}\Z", what="a mail address"
)
HOOK = TextShape(
    pattern=r"https?://[A-Za-z0-9.:\[\]-]{1,253}(/[!-\"$-~]{0,2000})?\Z|[A-Za-z][A-Za-z0-9._-]{0,99}\Z",
    what="a URL such as https://host/path, or the name of a webhook of the home",
)
_WORD = TextShape(pattern=r"[^\x00]{1,4000}\Z", what="a word of a command", numbers=True)


def _one_channel(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    given = [name for name in CHANNELS if node.get(name) is not None]
    if len(given) != 1:
        findings.error(node, "an item of `notify` needs one of `command`, `mail` and `webhook`")
    if len(values.get("command", ())) == 1 and " " in values["command"][0].strip():
        where = node.get("command") or node
        findings.error(where, "no shell reads `command`", "write a list of words: `command: [notify-send, done]`")
    if node.get("by") is not None and "mail" not in given:
        findings.error(node.get("by") or node, "`by` is for `mail`")
    for name in ("mail", "command"):
        if len(values.get(name, ())) > MOST_TARGETS:
            findings.error(node.get(name) or node, f"at most {MOST_TARGETS} are allowed")
    if not values.get("on", True) and "waiting" not in values:
        findings.error(node.get("on") or node, "without events and without `waiting`, it would never be sent")


def _notify_rule(**values: Any) -> NotifyRule:
    channel = next(name for name in CHANNELS if name in values)
    target = values[channel]
    waiting_s = values.get("waiting")
    usual = () if waiting_s is not None else ENDS_TOLD
    return NotifyRule(
        channel,
        (target,) if isinstance(target, str) else tuple(target),
        tuple(map(NotifyEvent, values.get("on", usual))),
        waiting_s,
        bool(values.get("trials", False)),
        values.get("by"),
    )


NOTIFY_RULE = RecordShape(
    "an item of `notify`",
    {
        "command": Field(ListOf(_WORD, lone=True), "A program and its arguments. It gets JSON on standard input."),
        "mail": Field(ListOf(ADDRESS, lone=True), "Mail addresses."),
        "webhook": Field(HOOK, "A URL that gets a signed POST, or the name of a webhook in the home's config.yml."),
        "on": Field(
            ListOf(TextShape(choices=tuple(event for event in NotifyEvent if event != NotifyEvent.WAITING)), lone=True),
            "What to tell of: failed, succeeded, stopped, stalled. Default: failed, succeeded, stopped.",
        ),
        "waiting": Field(TIME, 'Also tell when the run has waited in a queue for so long: "2h".'),
        "trials": Field(Boolean(), "For a group: tell of each trial, too. Default: false."),
        "by": Field(TextShape(choices=("slurm",)), "`slurm`: Slurm sends the mail, for runs that are Slurm jobs."),
    },
    _notify_rule,
    _one_channel,
    hint="write `notify: [{mail: me@example.org}]`",
)
NOTIFY = ListOf(NOTIFY_RULE)
