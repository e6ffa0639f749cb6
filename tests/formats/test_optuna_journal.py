"""A search as a study of Optuna: read back by our own reader, and by Optuna itself."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest

from phalanx.formats import optuna_studies
from phalanx.formats.optuna_journal import study_lines
from tests.exchange.homes import collected, ending

AT = "2026-01-02T03:04:0{}+00:00"
SETTINGS: dict[str, Any] = {
    "algorithm": "asha",
    "metric": {"name": "loss", "maximize": False},
    "options": {"max_iter": 9, "eta": 3},
    "dimensions": [
        {"name": "lr", "kind": "loguniform", "values": None, "arguments": {"low": -9, "high": 0}},
        {"name": "width", "kind": "range", "values": [16, 32], "arguments": {}},
        {"name": "act", "kind": "values", "values": ["relu", None, 1, True, [2]], "arguments": {}},
        {"name": "noise", "kind": "normal", "values": None, "arguments": {"loc": 0, "scale": 1}},
    ],
}
GROUP = {"id": "abcd", "created_at": AT.format(0)}


def trial(number: int, state: str, values: dict[int, float | None], act: Any = "relu", **fields: Any) -> dict[str, Any]:
    """`values`: by rung; the resource of rung n is 3 ** n."""
    rung = max(values, default=0)
    return {
        "trial": number,
        "run": f"run-{number}",
        "runs": [f"run-{number}"],
        "state": state,
        "bracket": 0,
        "rung": rung,
        "resource": 3**rung,
        "value": values.get(rung),
        "interval": None,
        "params": {"lr": 0.1, "width": 32, "act": act, "noise": -0.5, "epochs": 3**rung},
        "why": "",
        "values": [{"rung": one, "resource": 3**one, "value": value} for one, value in values.items()],
        "attempts": [{"started_at": AT.format(number + 1), "finished_at": AT.format(number + 2)}],
        **fields,
    }


TRIALS = [
    trial(0, "reported", {0: 3.0, 1: 2.0, 2: 1.0}),
    trial(1, "reported", {0: 4.0}, act=None),
    trial(2, "stopped", {0: 5.0, 1: math.inf}, act=True),
    trial(3, "reported", {0: math.nan}, act=1),
    trial(4, "failed", {}, act=[2], why="exit code 1", attempts=[]),
    trial(5, "running", {0: 2.5}, act="added", params={"lr": 2.0, "width": 64, "act": "added", "noise": 0.5}),
    trial(6, "reported", {2: 0.5}, interval=(0.25, 0.75), runs=["run-6", "run-7"]),
]


@pytest.fixture(name="journal")
def journal_fixture(tmp_path: Path) -> Path:
    path = tmp_path / "study.log"
    lines = [*study_lines("first", GROUP, SETTINGS, TRIALS), *study_lines("second", GROUP, SETTINGS, TRIALS[:1], 1)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_a_search_comes_back_as_runs(journal: Path) -> None:
    found = optuna_studies.find(journal)
    runs = list(found.runs)
    assert not found.losses.rows()
    assert [run.name for run in runs] == [*(f"first-{number}" for number in range(7)), "second-0"]
    acts = ["relu", None, True, 1, "[2]", "added", "relu"]
    assert [repr(run.params["act"]) for run in runs[:7]] == list(map(repr, acts))
    assert runs[0].params == {"lr": 0.1, "width": 32, "act": "relu", "noise": -0.5}
    assert runs[0].labels["run"] == "run-0"
    assert [ending(collected(run)).status for run in runs[:7]] == [
        "succeeded",
        "stopped",
        "stopped",
        "failed",
        "failed",
        "stopped",
        "succeeded",
    ]


@pytest.mark.slow
def test_optuna_opens_it(journal: Path) -> None:
    optuna = pytest.importorskip("optuna", reason="the extra `search` is not installed")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal)))
    assert set(optuna.get_all_study_names(storage)) == {"first", "second"}
    study = optuna.load_study(study_name="first", storage=storage)
    assert (study.direction.name, study.metric_names) == ("MINIMIZE", ["loss"])
    assert [one.state.name for one in study.trials] == [
        *("COMPLETE", "PRUNED", "PRUNED", "FAIL", "FAIL", "RUNNING", "COMPLETE"),
    ]
    assert [one.value for one in study.trials] == [1.0, 4.0, math.inf, None, None, None, 0.5]
    assert study.best_trial.user_attrs["interval"] == [0.25, 0.75]
    first = study.trials[0]
    assert first.intermediate_values == {1: 3.0, 3: 2.0, 9: 1.0}
    assert first.params == {"lr": 0.1, "width": 32, "act": "relu", "noise": -0.5}
    assert (first.duration.total_seconds(), first.user_attrs["epochs"]) == (1.0, 9)
    assert first.distributions["lr"] == optuna.distributions.FloatDistribution(math.exp(-9), 2.0, log=True)
    assert first.distributions["width"] == optuna.distributions.IntDistribution(16, 64)
    for one in study.trials:
        one._validate()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.importance.get_param_importances(study)
        study.tell(study.ask(first.distributions), 0.1)  # it goes on
    assert len(study.trials) == 8
