"""Fields of `outputs` and `models`: which files of a run are kept, and which of them become models."""

from __future__ import annotations

from typing import Any, NamedTuple

from phalanx.path_patterns import pattern_steps
from phalanx.spec import quantities
from phalanx.spec.model import CollectOptions, ModelOptions
from phalanx.spec.shapes import INVALID, Field, ListOf, Number, Quantity, RecordShape, TextShape
from phalanx.spec.tree import Diagnostics, Node
from phalanx.spec.tuning_fields import METRIC

MOST_PATTERNS = 100
LONGEST_PATTERN = 400


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
