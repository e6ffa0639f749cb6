"""Fields of pipelines: the schedule, ops and their conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from phalanx.spec.pipelines.schedules import read_cron, read_time
from phalanx.spec.section_fields import ANY_VALUE, NAME, NAMES
from phalanx.spec.shapes import Boolean, Field, ListOf, MapOf, Number, RecordShape, TextShape, frozen_map
from phalanx.spec.tree import Diagnostics, Node


def _valid_schedule(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    needed = {"cron": "cron", "interval": "frequency"}.get(values.get("kind", ""))
    if needed is not None and needed not in values and node.get(needed) is None:
        findings.missing(node, needed, f"a schedule of kind `{values['kind']}` requires `{needed}`")
    check_texts(values, node, findings, {"cron": read_cron, "start_at": read_time, "end_at": read_time})


def check_texts(
    values: Mapping[str, Any], node: Node, findings: Diagnostics, readers: Mapping[str, Callable[[str], object]]
) -> None:
    """Report the texts that their readers cannot read."""
    for key, reader in readers.items():
        try:
            reader(values[key]) if key in values else None
        except ValueError as fault:
            why = str(fault) if key == "cron" else "write a time such as `2026-01-31T08:00:00+00:00`"
            findings.error(node.get(key) or node, f"`{key}` cannot be read: {why}")


SCHEDULE = RecordShape(
    "schedule",
    {
        "kind": Field(TextShape(choices=("interval", "cron")), "how the schedule is defined", required=True),
        "start_at": Field(TextShape(), "Time of the first tick; UTC if it names no zone."),
        "end_at": Field(TextShape(), "No ticks after this time."),
        "frequency": Field(Number(low=0, above_low=True), "Seconds between two runs (interval)."),
        "cron": Field(TextShape(), "A cron expression, in UTC (cron)."),
        "depends_on_past": Field(Boolean(), "Wait until the run of the previous tick has ended."),
    },
    frozen_map,
    _valid_schedule,
)
TRIGGERS = ("all_succeeded", "all_failed", "all_done", "one_succeeded", "one_failed", "one_done")
_TEMPLATE_KEYS = ("name", "url", "path", "action", "event")


def _one_template(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    if len(values) != 1:
        findings.error(node, f"a template requires exactly one of {', '.join(_TEMPLATE_KEYS)}")


def _whole_condition(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    of_status = values.get("kind") == "status"
    for key in ("exp", "params") if of_status else ("trigger",):
        if key in values:
            findings.error(node, f"a condition of kind `{values['kind']}` has no `{key}`")
    if not of_status and not values.get("params"):
        findings.error(node, "a condition of kind `outputs` requires `params`: the outputs to compare, with values")


CONDITION = RecordShape(
    "a condition",
    {
        "kind": Field(TextShape(choices=("status", "outputs")), "what it is about", required=True),
        "op": Field(NAME, "the op that it is about", required=True),
        "trigger": Field(TextShape(choices=TRIGGERS), "For `status`: how the op must have ended."),
        "exp": Field(TextShape(choices=("eq", "ne")), "For `outputs`: equal or not equal. Default: eq."),
        "params": Field(MapOf(ANY_VALUE), "For `outputs`: values to compare the outputs of the op with."),
    },
    frozen_map,
    _whole_condition,
)
OP = RecordShape(
    "an op",
    {
        "name": Field(NAME, "the op's name", required=True),
        "template": Field(
            RecordShape(
                "template",
                {key: Field(TextShape(), f"The template, by {key}.") for key in _TEMPLATE_KEYS},
                frozen_map,
                _one_template,
            ),
            "what the op runs",
            required=True,
        ),
        "params": Field(MapOf(ANY_VALUE), "Values for the template's inputs."),
        "dependencies": Field(NAMES, "Ops that must run before this one."),
        "trigger": Field(
            TextShape(choices=TRIGGERS), "The required state of its dependencies. Default: all_succeeded."
        ),
        "conditions": Field(ListOf(CONDITION), "If one of them does not hold, the op is skipped."),
        "when": Field(
            TextShape(), "An expression of its params, such as `loss > 0.1`. If it is false, the op is skipped."
        ),
        "max_retries": Field(Number(low=0, whole=True), "How many times it is retried."),
        "retry_delay": Field(Number(low=0), "Seconds before a retry."),
        "retry_exp_backoff": Field(Boolean(), "Double the delay after each retry."),
        "max_retry_delay": Field(Number(low=0), "The longest delay, in seconds."),
        "skip_on_upstream_skip": Field(Boolean(), "Skip it if a dependency was skipped."),
        "concurrency": Field(
            Number(low=1, whole=True), "How many runs of it there may be at a time, over all ticks of a schedule."
        ),
        "reuse": Field(Boolean(), "Use the result of an earlier op with the same file, params, code and inputs."),
        "environment": Field(MapOf(), "Merged over the `environment` of the template."),
        "build": Field(MapOf(), "Merged over the `build` of the template."),
        "logging": Field(MapOf(), "Merged over the `logging` of the template."),
        "tags": Field(ListOf(TextShape(numbers=True), lone=True), "Additional tags."),
    },
    frozen_map,
)
