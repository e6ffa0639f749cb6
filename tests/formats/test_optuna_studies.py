"""Studies of Optuna: the same trials from its database and from its journal, and nothing breaks on a damaged one."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phalanx.errors import CallError
from phalanx.exchange import detection
from phalanx.exchange.importer import Importer
from phalanx.formats import optuna_studies
from phalanx.formats.foreign_run import FoundRuns
from tests.exchange.homes import Target, collected, ending, series

LR = json.dumps({"name": "FloatDistribution", "attributes": {"low": 0.0, "high": 1.0, "log": True, "step": None}})
DEPTH = json.dumps({"name": "IntDistribution", "attributes": {"low": 1, "high": 8, "log": False, "step": 1}})
ACT = json.dumps({"name": "CategoricalDistribution", "attributes": {"choices": ["relu", None, 3]}})
TABLES = """
CREATE TABLE studies (study_id INTEGER, study_name TEXT);
CREATE TABLE study_directions (direction TEXT, study_id INTEGER, objective INTEGER);
CREATE TABLE study_system_attributes (study_id INTEGER, key TEXT, value_json TEXT);
CREATE TABLE trials (
    trial_id INTEGER, number INTEGER, study_id INTEGER, state TEXT, datetime_start TEXT, datetime_complete TEXT);
CREATE TABLE trial_user_attributes (trial_id INTEGER, key TEXT, value_json TEXT);
CREATE TABLE trial_params (
    param_id INTEGER, trial_id INTEGER, param_name TEXT, param_value REAL, distribution_json TEXT);
CREATE TABLE trial_values (trial_id INTEGER, objective INTEGER, value REAL, value_type TEXT);
CREATE TABLE trial_intermediate_values (
    trial_id INTEGER, step INTEGER, intermediate_value REAL, intermediate_value_type TEXT);
"""
STARTED, ENDED = "2026-01-02T03:04:05.500000+00:00", "2026-01-02T03:05:00+00:00"


def database(path: Path) -> Path:
    """Four trials: complete, pruned, failed, and one that was never started."""
    connection = sqlite3.connect(path)
    with connection:
        connection.executescript(TABLES)
        put = connection.execute
        put("INSERT INTO studies VALUES (1, 'digits')")
        put("INSERT INTO study_directions VALUES ('MINIMIZE', 1, 0)")
        put("INSERT INTO study_system_attributes VALUES (1, 'study:metric_names', '[\"loss\"]')")
        for number, state in enumerate(("COMPLETE", "PRUNED", "FAIL", "WAITING")):
            started = None if state == "WAITING" else STARTED
            put("INSERT INTO trials VALUES (?, ?, 1, ?, ?, ?)", [number + 1, number, state, started, ENDED])
        put("INSERT INTO trial_user_attributes VALUES (1, 'note', '\"good\"')")
        for number, (name, value, distribution) in enumerate((("lr", 0.1, LR), ("n", 6, DEPTH), ("act", 1, ACT))):
            put("INSERT INTO trial_params VALUES (?, 1, ?, ?, ?)", [number, name, value, distribution])
        put("INSERT INTO trial_values VALUES (1, 0, NULL, 'INF_POS')")
        put("INSERT INTO trial_intermediate_values VALUES (1, 0, 0.5, 'FINITE'), (1, 1, NULL, 'NAN')")
        put("INSERT INTO trial_intermediate_values VALUES (2, 0, 0.75, 'FINITE')")
    connection.close()
    return path


def journal(path: Path) -> Path:
    """The same trials as records."""
    records: list[dict[str, Any]] = [
        {"op_code": 0, "study_name": "digits", "directions": [1]},
        {"op_code": 3, "study_id": 0, "system_attr": {"study:metric_names": ["loss"]}},
        {"op_code": 4, "study_id": 0, "datetime_start": STARTED},
        {"op_code": 5, "trial_id": 0, "param_name": "lr", "param_value_internal": 0.1, "distribution": LR},
        {"op_code": 5, "trial_id": 0, "param_name": "n", "param_value_internal": 6.0, "distribution": DEPTH},
        {"op_code": 5, "trial_id": 0, "param_name": "act", "param_value_internal": 1, "distribution": ACT},
        {"op_code": 7, "trial_id": 0, "step": 0, "intermediate_value": 0.5},
        {"op_code": 7, "trial_id": 0, "step": 1, "intermediate_value": math.nan},
        {"op_code": 8, "trial_id": 0, "user_attr": {"note": "good"}},
        {"op_code": 6, "trial_id": 0, "state": 1, "values": [math.inf], "datetime_complete": ENDED},
        {
            "op_code": 4, "study_id": 0, "datetime_start": STARTED, "state": 2, "value": None, "values": None,
            "datetime_complete": ENDED, "intermediate_values": {"0": 0.75},
        },
        {"op_code": 4, "study_id": 0, "datetime_start": STARTED},
        {"op_code": 6, "trial_id": 2, "state": 3, "values": None, "datetime_complete": ENDED},
        {"op_code": 4, "study_id": 0, "datetime_start": None, "state": 4, "distributions": {}, "params": {}},
    ]  # fmt: skip
    path.write_text("".join(json.dumps({"worker_id": "w", **record}) + "\n" for record in records), encoding="utf-8")
    return path


STORES = pytest.mark.parametrize("store", [database, journal])


@STORES
def test_trials_are_runs_with_params_values_and_ends(store: Callable[[Path], Path], tmp_path: Path) -> None:
    path = store(tmp_path / "study")
    assert detection.kind_of(path) == "optuna"
    found = detection.find(path, "optuna")
    complete, pruned, failed = list(found.runs)
    assert (complete.name, complete.project, complete.started) == ("digits-0", "digits", 1767323045.5)
    assert complete.params == {"lr": 0.1, "n": 6, "act": None}
    assert [type(value) for value in complete.params.values()] == [float, int, type(None)]
    assert complete.labels["note"] == "good"
    assert complete.labels["optuna.directions"] == "minimize"
    points = series(collected(complete))
    assert points["loss"] == [(None, math.inf)]
    assert points["intermediate_value"][0] == (0, 0.5)
    assert math.isnan(points["intermediate_value"][1][1])
    assert series(collected(pruned)) == {"intermediate_value": [(0, 0.75)]}
    assert [ending(collected(run)).status for run in (complete, pruned, failed)] == ["succeeded", "stopped", "failed"]
    assert found.losses.counts == {"trials that had not started": 1}


@STORES
def test_a_study_is_imported_once(store: Callable[[Path], Path], tmp_path: Path, target: Target) -> None:
    importer = Importer(target.home, target.store)
    for name, state in (("study", "imported"), ("moved", "known")):
        found = optuna_studies.find(store(tmp_path / name))
        assert [importer.bring_in(run, "digits", target.losses).state for run in found.runs] == [state] * 3


def test_a_journal_cut_anywhere_or_damaged_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = journal(tmp_path / "whole").read_bytes()
    path = tmp_path / "cut"
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        for run in optuna_studies.find(path).runs:
            collected(run)
    path.write_bytes(b'{"op_code": 4, "study_id": 9}\n[1]\n{"op_code": 5}\n\xff\n' + whole)
    found = optuna_studies.find(path)
    assert len(list(found.runs)) == 3
    assert found.losses.counts["records that could not be read"] == 4


def test_params_that_optuna_does_not_write_are_counted(tmp_path: Path) -> None:
    path = database(tmp_path / "study")
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE trial_params SET param_value = 99 WHERE param_name = 'act'")
        connection.execute("UPDATE trial_params SET distribution_json = '{' WHERE param_name = 'n'")
    connection.close()
    found: FoundRuns = optuna_studies.find(path)
    assert next(found.runs).params == {"lr": 0.1}
    assert found.losses.counts["records that could not be read"] == 2


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="pass the SQLite file or the journal file"):
        detection.find(tmp_path, "optuna")
