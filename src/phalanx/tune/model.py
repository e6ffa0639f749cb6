"""The values of a search: its settings, what happened (events) and what is decided (actions).

A search is a pure function of what is recorded: `decide(settings, history, free_slots)` in `decision.py` returns the
next actions, and the caller records each action before carrying it out. Everything here goes to JSON and back, so a
journal, a child process and a test all speak the same. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Union

from phalanx.tune.space import EMPTY, Dimension

OUTSIDE = -1  # the bracket of a point that a user added: it runs with the full resource and is ranked with no other


class Metric(NamedTuple):
    name: str
    maximize: bool = True


class StoppingRule(NamedTuple):
    """One entry of `early_stopping`. `value`: ends the search when a trial reaches it. `policy` (median, average,
    truncation): stops single trials, looked at every `interval` steps; `percent` of the trials go on truncation."""

    metric: Metric
    value: float | None = None
    policy: str | None = None
    interval: int = 1
    percent: float = 50.0


class SearchSettings(NamedTuple):
    """What does not change while a search runs. `options`: the section of the algorithm, as the file has it. `seed`:
    of the file (0 is a seed), or else what the caller derives from the id of the group. `n`: trials in total; the
    event `Changed` replaces it. `max_failed`: so many failed trials are allowed; one more ends the search."""

    algorithm: str
    dimensions: tuple[Dimension, ...]
    options: Mapping[str, Any] = EMPTY
    seed: int | str = 0
    n: int | None = None
    metric: Metric | None = None
    early_stopping: tuple[StoppingRule, ...] = ()
    max_failed: int | None = None

    @property
    def watched(self) -> tuple[str, ...]:
        """Names of metrics whose values the search wants as they arrive, as `Measured`."""
        return tuple(dict.fromkeys(rule.metric.name for rule in self.early_stopping))

    def as_json(self) -> dict[str, Any]:
        return {
            **{name: plain(getattr(self, name)) for name in ("algorithm", "options", "seed", "n", "max_failed")},
            "dimensions": [plain(dimension._asdict()) for dimension in self.dimensions],
            "metric": None if self.metric is None else self.metric._asdict(),
            "early_stopping": [{**rule._asdict(), "metric": rule.metric._asdict()} for rule in self.early_stopping],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> SearchSettings:
        dimensions = (_dimension(entry) for entry in found["dimensions"])
        early = ({**entry, "metric": Metric(**entry["metric"])} for entry in found.get("early_stopping", ()))
        metric = found.get("metric")
        return cls(
            algorithm=found["algorithm"],
            dimensions=tuple(dimensions),
            options=found.get("options", EMPTY),
            seed=found.get("seed", 0),
            n=found.get("n"),
            metric=None if metric is None else Metric(**metric),
            early_stopping=tuple(StoppingRule(**entry) for entry in early),
            max_failed=found.get("max_failed"),
        )


def _dimension(found: Mapping[str, Any]) -> Dimension:
    values, weights = found.get("values"), found.get("weights")
    return Dimension(
        found["name"],
        found["kind"],
        None if values is None else tuple(values),
        None if weights is None else tuple(weights),
        found.get("arguments", EMPTY),
    )


def plain(value: Any) -> Any:
    """Frozen data as plain dicts and lists, for JSON."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


# Events: what happened, in the order of the journal


class Reported(NamedTuple):
    """A trial reached the end of its rung, or its whole end, well. `value` None: the metric is missing; NaN: worst."""

    trial: int
    rung: int = 0
    value: float | None = None


class Failed(NamedTuple):
    """The program failed. It counts as a failure and is replaced. (A lost node is retried, and no event.)"""

    trial: int
    rung: int = 0
    cause: str = ""


class Invalid(NamedTuple):
    """The params cannot work together (`tracking.invalid`): not counted, and replaced."""

    trial: int
    why: str = ""


class Stopped(NamedTuple):
    """A trial was stopped, by a `Stop` or by a user. `value`: the last one of the metric, if any."""

    trial: int
    rung: int = 0
    value: float | None = None


class Measured(NamedTuple):
    """A value of a metric that arrived while a trial runs. `metric` empty: the metric of the search."""

    trial: int
    step: int
    value: float
    metric: str = ""


class Added(NamedTuple):
    """A user's own point. It runs in addition to `n`. Dimensions that it leaves out are drawn at random."""

    params: Mapping[str, Any]


class Changed(NamedTuple):
    """The search is extended, or cut: `n` trials in total."""

    n: int


class Rerun(NamedTuple):
    """A trial that failed or was stopped runs its rung again, because a user resumed the search."""

    trial: int
    why: str = ""


Event = Union[Reported, Failed, Invalid, Stopped, Measured, Added, Changed, Rerun]


# Actions: decisions, recorded in the same journal before they are carried out


class Create(NamedTuple):
    """Start a new trial. Numbers count from 0 without gaps. `resource`: the value of the resource's param, or None if
    the algorithm has no resource (it is also in `params`). `added`: it answers an `Added`, the oldest open one.
    `source`: start from the checkpoint of this trial."""

    trial: int
    params: Mapping[str, Any]
    rung: int = 0
    resource: float | None = None
    why: str = ""
    bracket: int = 0
    added: bool = False
    source: int | None = None


class Promote(NamedTuple):
    """Run the next attempt of a trial that reported, with `params` laid over its own (the raised resource among them).
    `resume` False: from the beginning, without its checkpoint. `source`: from the checkpoint of another trial."""

    trial: int
    rung: int
    resource: float | None
    params: Mapping[str, Any] = EMPTY
    why: str = ""
    resume: bool = True
    source: int | None = None


class Stop(NamedTuple):
    """Stop a running trial. `Stopped` follows when it has ended."""

    trial: int
    why: str = ""


class Finish(NamedTuple):
    """The search is over. `outcome`: `done`; `stopped` (a condition of `early_stopping` is met) and `failed` (too many
    failures, or no point is left to try without any result): running trials are then to be stopped."""

    why: str = ""
    outcome: str = "done"


SearchAction = Union[Create, Promote, Stop, Finish]
Entry = Union[Event, SearchAction]
_KINDS: dict[str, Any] = {
    kind.__name__.lower(): kind
    for kind in (Reported, Failed, Invalid, Stopped, Measured, Added, Changed, Rerun, Create, Promote, Stop, Finish)
}
_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def entry_as_json(entry: Entry) -> dict[str, Any]:
    """`{"what": "create", "trial": 3, …}`; NaN and infinities are the texts `nan`, `inf` and `-inf`."""
    found = plain(entry._asdict())
    value = found.get("value")
    if isinstance(value, float) and not math.isfinite(value):
        found["value"] = str(value)
    return {"what": type(entry).__name__.lower(), **found}


def entry_from_json(found: Mapping[str, Any]) -> Entry:
    """The entry of a record; keys that it does not know (a time, a sequence number) are left out."""
    kind = _KINDS[found["what"]]
    fields = {name: found[name] for name in kind._fields if name in found}
    if isinstance(fields.get("value"), str):
        fields["value"] = _NUMBERS[fields["value"]]
    entry: Entry = kind(**fields)
    return entry


def entries_from_json(found: list[Mapping[str, Any]]) -> list[Entry]:
    return [entry_from_json(record) for record in found]
