"""Studies of Optuna: its SQLite database and its journal file. Each trial is a run.

Optuna stores a param as a number, and beside it the distribution that turns the number into a value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from phalanx.formats.foreign_run import Ending, ForeignRun, FoundRuns, ImportLosses, Points, Record
from phalanx.formats.sqlite_tables import ReadOnlyDatabase, Row, has_tables

LONGEST_LINE = 16 << 20
_STATES = ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING")  # as the journal numbers them
_ENDS = {
    "COMPLETE": ("succeeded", "completed in Optuna"),
    "PRUNED": ("stopped", "pruned in Optuna"),
    "FAIL": ("failed", "failed in Optuna"),
}
_INFINITIES = {"INF_POS": math.inf, "INF_NEG": -math.inf, "NAN": math.nan}
_METRIC_NAMES = "study:metric_names"  # the attribute in which `set_metric_names` stores them
_UNREADABLE = "records that could not be read"


@dataclass(slots=True)
class OptunaTrial:
    """The facts about a trial from either store. `values` has one number per objective."""

    number: int
    state: str = "RUNNING"
    started: float | None = None
    ended: float | None = None
    params: dict[str, Any] = field(default_factory=dict)
    values: dict[int, float] = field(default_factory=dict)
    steps: dict[int, float] = field(default_factory=dict)  # intermediate values
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class OptunaStudy:
    name: str
    directions: list[str] = field(default_factory=list)
    metric_names: list[str] = field(default_factory=list)
    trials: list[OptunaTrial] = field(default_factory=list)


def is_database(path: Path) -> bool:
    return has_tables(path, {"studies", "trials", "trial_params"})


def is_journal(path: Path) -> bool:
    """Whether the first line of a file is a record of Optuna's journal."""
    try:
        with path.open("rb") as stream:
            found = json.loads(stream.readline(LONGEST_LINE))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("op_code"), int) and "worker_id" in found


def find(path: Path) -> FoundRuns:
    """The trials of every study in a database or journal. Raises CallError; so does the reading of its runs."""
    losses = ImportLosses()
    studies = _studies_of_database(path, losses) if is_database(path) else _studies_of_journal(path, losses)
    return FoundRuns("optuna", _runs(studies, losses), losses)


def _runs(studies: Iterator[OptunaStudy], losses: ImportLosses) -> Iterator[ForeignRun]:
    for study in studies:
        for trial in study.trials:
            if trial.state == "WAITING":
                losses.add("trials that had not started", example=f"{study.name}/{trial.number}")
                continue
            yield ForeignRun(
                source=f"optuna:{study.name}/{trial.number}@{trial.started or 0:.6f}",
                name=f"{study.name}-{trial.number}",
                project=study.name,
                started=trial.started,
                params=trial.params,
                labels={
                    "optuna.study": study.name,
                    "optuna.trial": str(trial.number),
                    "optuna.directions": ",".join(study.directions),
                    **{name: _text(value) for name, value in trial.attributes.items()},
                },
                read=partial(_read, study, trial),
            )


def _read(study: OptunaStudy, trial: OptunaTrial, _: ImportLosses) -> Iterator[Record]:
    """Intermediate values have a name of their own: the last of them need not be the value of the trial."""
    for step, value in sorted(trial.steps.items()):
        yield Points(step, trial.started or 0.0, {"intermediate_value": value})
    for objective, value in sorted(trial.values.items()):
        yield Points(None, trial.ended or trial.started or 0.0, {_metric(study, objective): value})
    status, reason = _ENDS.get(trial.state, ("stopped", "was not over in Optuna when it was imported"))
    yield Ending(status, reason, trial.ended)


def _metric(study: OptunaStudy, objective: int) -> str:
    if objective < len(study.metric_names):
        return study.metric_names[objective]
    return "value" if len(study.directions) < 2 else f"value_{objective}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _param(number: Any, distribution: Any) -> Any:
    """The value of a param. Raises ValueError, LookupError, TypeError for a record that Optuna does not write."""
    found = json.loads(distribution) if isinstance(distribution, str) else distribution
    name, about = found["name"], found["attributes"]
    if name == "CategoricalDistribution":
        return about["choices"][int(number)]
    return int(number) if name.startswith("Int") else float(number)


def _time(text: Any) -> float | None:
    """Times without a zone are local."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _names(value: Any) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else []


# SQLite


def _studies_of_database(path: Path, losses: ImportLosses) -> Iterator[OptunaStudy]:
    database = ReadOnlyDatabase(path)
    for row in list(database.rows("studies", ("study_id", "study_name"), "ORDER BY study_id")):
        directions = database.rows(
            "study_directions", ("direction",), "WHERE study_id = ? ORDER BY objective", row["study_id"]
        )
        attributes = _attributes(database, "study_system_attributes", "study_id", row["study_id"], losses)
        study = OptunaStudy(
            str(row["study_name"]),
            [str(found["direction"]).lower() for found in directions],
            _names(attributes.get(_METRIC_NAMES)),
        )
        columns = ("trial_id", "number", "state", "datetime_start", "datetime_complete")
        for number, found in enumerate(
            list(database.rows("trials", columns, "WHERE study_id = ? ORDER BY trial_id", row["study_id"]))
        ):
            study.trials.append(_trial_of_database(database, found, number, losses))
        yield study


def _trial_of_database(database: ReadOnlyDatabase, row: Row, number: int, losses: ImportLosses) -> OptunaTrial:
    trial_id = row["trial_id"]
    trial = OptunaTrial(
        number if row["number"] is None else int(row["number"]),
        str(row["state"]),
        _time(row["datetime_start"]),
        _time(row["datetime_complete"]),
        attributes=_attributes(database, "trial_user_attributes", "trial_id", trial_id, losses),
    )
    of_trial = "WHERE trial_id = ?"
    columns = ("param_name", "param_value", "distribution_json")
    for found in database.rows("trial_params", columns, f"{of_trial} ORDER BY param_id", trial_id):
        try:
            trial.params[str(found["param_name"])] = _param(found["param_value"], found["distribution_json"])
        except (ValueError, LookupError, TypeError, RecursionError):
            losses.add(_UNREADABLE, example=str(found["param_name"]))
    for found in database.rows("trial_values", ("objective", "value", "value_type"), of_trial, trial_id):
        trial.values[int(found["objective"] or 0)] = _number(found["value"], found["value_type"])
    columns = ("step", "intermediate_value", "intermediate_value_type")
    for found in database.rows("trial_intermediate_values", columns, of_trial, trial_id):
        value = _number(found["intermediate_value"], found["intermediate_value_type"])
        trial.steps[int(found["step"] or 0)] = value
    return trial


def _number(value: Any, kind: Any) -> float:
    """A value that is NULL is named by its type, since release 3."""
    if value is None:
        return _INFINITIES.get(str(kind), math.nan)
    return float(value)


def _attributes(
    database: ReadOnlyDatabase, table: str, column: str, owner: Any, losses: ImportLosses
) -> dict[str, Any]:
    found = {}
    for row in database.rows(table, ("key", "value_json"), f"WHERE {column} = ?", owner):
        try:
            found[str(row["key"])] = json.loads(str(row["value_json"]))
        except (ValueError, RecursionError):
            losses.add(_UNREADABLE, example=str(row["key"]))
    return found


# journal


def _studies_of_journal(path: Path, losses: ImportLosses) -> Iterator[OptunaStudy]:
    journal = _Journal()
    with path.open("rb") as stream:
        while line := stream.readline(LONGEST_LINE):
            try:
                journal.take(json.loads(line))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                losses.add(_UNREADABLE, example=line[:80].decode("utf-8", "replace").strip())
    yield from journal.studies.values()


class _Journal:
    """Applies the records of a journal, in order. Studies and trials are numbered as they are created."""

    def __init__(self) -> None:
        self.studies: dict[int, OptunaStudy] = {}
        self.trials: list[OptunaTrial] = []
        self.created = 0

    def take(self, record: Mapping[str, Any]) -> None:
        """Raises ValueError, LookupError, TypeError, AttributeError for a record that Optuna does not write."""
        match record["op_code"]:
            case 0:
                directions = ["unset", "minimize", "maximize"]
                names = [directions[number] for number in record["directions"]]
                self.studies[self.created] = OptunaStudy(str(record["study_name"]), names)
                self.created += 1
            case 1:
                del self.studies[record["study_id"]]
            case 3 if _METRIC_NAMES in record["system_attr"]:
                self.studies[record["study_id"]].metric_names = _names(record["system_attr"][_METRIC_NAMES])
            case 4:
                self._create(record)
            case 5:
                value = _param(record["param_value_internal"], record["distribution"])
                self.trials[record["trial_id"]].params[str(record["param_name"])] = value
            case 6:
                self._change(self.trials[record["trial_id"]], record)
            case 7:
                self.trials[record["trial_id"]].steps[int(record["step"])] = float(record["intermediate_value"])
            case 8:
                self.trials[record["trial_id"]].attributes.update(record["user_attr"])

    def _create(self, record: Mapping[str, Any]) -> None:
        study = self.studies[record["study_id"]]
        trial = OptunaTrial(len(study.trials))
        study.trials.append(trial)
        self.trials.append(trial)  # first: the numbers of later trials must stay right
        self._change(trial, record)
        trial.attributes.update(record.get("user_attrs") or {})
        distributions = record.get("distributions") or {}
        for name, number in (record.get("params") or {}).items():
            trial.params[str(name)] = _param(number, distributions[name])
        for step, value in (record.get("intermediate_values") or {}).items():
            trial.steps[int(step)] = float(value)

    def _change(self, trial: OptunaTrial, record: Mapping[str, Any]) -> None:
        trial.state = _STATES[record.get("state", 0)]
        trial.started = _time(record["datetime_start"]) if record.get("datetime_start") else trial.started
        trial.ended = _time(record["datetime_complete"]) if record.get("datetime_complete") else trial.ended
        values = record.get("values") or ([record["value"]] if record.get("value") is not None else [])
        trial.values.update(enumerate(map(float, values)))
