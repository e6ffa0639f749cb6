"""A search as a study of Optuna: the records of its journal file, which Optuna and optuna-dashboard open.

Optuna stores a param as a number, and beside it the distribution that turns the number into a value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
RUNNING, COMPLETE, PRUNED, FAIL = range(4)
_CREATE_STUDY, _STUDY_ATTRIBUTE, _STUDY_SYSTEM_ATTRIBUTE, _CREATE_TRIAL = 0, 2, 3, 4
_MINIMIZE, _MAXIMIZE = 1, 2
_WORKER = "phalanx"
_LOGARITHMIC = ("logspace", "geomspace", "loguniform", "qloguniform", "lognormal", "qlognormal")
_EXPONENTS = ("loguniform", "qloguniform")  # their ends are powers of e


def study_lines(name: str, group: Row, settings: Row, trials: Sequence[Row], study: int = 0) -> Iterator[str]:
    """The lines of the journal. `group`: its row. `settings`: the search, with a metric. `study`: its number in the
    file."""
    metric = settings["metric"]
    direction = _MAXIMIZE if metric["maximize"] else _MINIMIZE
    yield _line(_CREATE_STUDY, study_name=name, directions=[direction])
    yield _line(_STUDY_SYSTEM_ATTRIBUTE, study_id=study, system_attr={"study:metric_names": [metric["name"]]})
    for key, value in (("group", group["id"]), ("algorithm", settings["algorithm"])):
        yield _line(_STUDY_ATTRIBUTE, study_id=study, user_attr={f"phalanx.{key}": value})  # one in each record
    params = [_Param(dimension, trials) for dimension in settings["dimensions"]]
    for trial in trials:
        yield _line(_CREATE_TRIAL, study_id=study, **_trial(trial, params, settings["options"], group["created_at"]))


def _line(code: int, **fields: Any) -> str:
    return json.dumps({"op_code": code, "worker_id": _WORKER, **fields}, separators=(",", ":")) + "\n"


def _trial(trial: Row, params: Sequence[_Param], options: Row, created_at: str) -> dict[str, Any]:
    """`created_at`: of the group, for a trial that was taken from another one."""
    state, attempts = _state(trial, options), trial["attempts"]
    started = min((one["started_at"] for one in attempts if one["started_at"]), default=created_at)
    ended = max((one["finished_at"] for one in attempts if one["finished_at"]), default=started)
    known = [param for param in params if param.name in trial["params"]]
    names = {param.name for param in params}
    more = {name: value for name, value in trial["params"].items() if name not in names}  # the resource
    about = {**more, "run": trial["run"], "rung": trial["rung"], "bracket": trial["bracket"], "why": trial["why"]}
    if trial["interval"]:
        about |= {"runs": trial["runs"], "interval": list(trial["interval"])}
    return {
        "datetime_start": started,
        **({"datetime_complete": ended} if state != RUNNING else {}),
        "state": state,
        "value": trial["value"] if state in (COMPLETE, PRUNED) else None,
        "values": None,
        "distributions": {param.name: param.distribution for param in known},
        "params": {param.name: param.number(trial["params"][param.name]) for param in known},
        "user_attrs": about,
        "system_attrs": {},
        "intermediate_values": _steps(trial["values"]),
    }


def _state(trial: Row, options: Row) -> int:
    """A trial that ended on a lower rung, or was stopped, counts as pruned. Optuna knows no result without a number."""
    if trial["state"] == "running":
        return RUNNING
    if trial["state"] not in ("reported", "stopped") or trial["value"] is None or math.isnan(trial["value"]):
        return FAIL
    most = options.get("max_iter") if trial["resource"] is not None else None
    is_whole = most is None or trial["resource"] >= (int(most) if isinstance(trial["resource"], int) else most * 0.999)
    return COMPLETE if is_whole and trial["state"] == "reported" else PRUNED


def _steps(values: Sequence[Row]) -> dict[str, float]:
    """The values of the rungs by their resource, or by their number if that is no whole number."""
    rungs = [one for one in values if one["value"] is not None and one["resource"] is not None]
    is_whole = all(float(one["resource"]).is_integer() for one in rungs)
    return {str(int(one["resource"] if is_whole else one["rung"])): one["value"] for one in rungs}


class _Param:
    """A dimension of the matrix. Points that users added may lie outside of it: the range includes all trials."""

    def __init__(self, dimension: Row, trials: Sequence[Row]) -> None:
        self.name = dimension["name"]
        self.kind = dimension["kind"]
        used = [trial["params"][self.name] for trial in trials if self.name in trial["params"]]
        values = [*(dimension["values"] or []), *used]
        self.choices: list[str] | None = None  # as JSON: 1, true and 1.0 are equal in Python
        if all(_is_number(value) for value in values):
            self.distribution = self._range(dimension, values)
        else:
            self.choices = [*dict.fromkeys(map(_choice, values))]
            self.distribution = _distribution("Categorical", choices=[json.loads(choice) for choice in self.choices])

    def _range(self, dimension: Row, values: list[Any]) -> str:
        ends = [dimension["arguments"][end] for end in ("low", "high") if end in dimension["arguments"]]
        values = [*values, *(map(math.exp, ends) if self.kind in _EXPONENTS else ends)] or [0]
        low, high = min(values), max(values)
        log = self.kind in _LOGARITHMIC and low > 0
        if all(isinstance(value, int) for value in values):
            return _distribution("Int", log=log, step=1, low=low, high=high)
        return _distribution("Float", step=None, low=float(low), high=float(high), log=log)

    def number(self, value: Any) -> float | int:
        """A param as Optuna stores it."""
        return float(value) if self.choices is None else self.choices.index(_choice(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _choice(value: Any) -> str:
    """A choice as JSON. Optuna accepts no lists and maps: they become texts."""
    text = json.dumps(value)
    return text if value is None or isinstance(value, bool | int | float | str) else json.dumps(text)


def _distribution(kind: str, **attributes: Any) -> str:
    return json.dumps({"name": f"{kind}Distribution", "attributes": attributes})
