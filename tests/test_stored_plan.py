"""Replicas as plan.json names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phalanx import plan, spec
from phalanx.plan.document import document
from phalanx.stored_plan import PlanDamaged, PlannedReplica, decode_replicas, read_replicas

FILE = b"""
version: 1
kind: experiment
framework: pytorch
environment: {replicas: {n_workers: 1}}
run: {cmd: "true"}
"""


def test_replicas_are_those_of_the_plan_that_was_written(tmp_path: Path) -> None:
    made = plan.make(spec.load([("file", FILE)]), "run")
    (tmp_path / "plan.json").write_text(json.dumps(document(made)))
    found = read_replicas(tmp_path)
    assert [(one.name, one.rank, one.has_command) for one in found] == [
        (one.name, one.rank, bool(one.argv)) for one in made.replicas
    ]
    assert [one.name for one in found] == ["master-0", "worker-0"]


def test_a_replica_of_an_older_plan_has_one_process() -> None:
    rows = [{"role": "worker", "index": 2, "rank": 3, "argv": []}]
    assert decode_replicas({"replicas": rows}) == (PlannedReplica("worker", 2, 3, 0, has_command=False),)


@pytest.mark.parametrize(
    "content",
    [
        None, [], {}, {"replicas": 5}, {"replicas": [5]}, {"replicas": [{"role": "a", "index": 0}]},
        {"replicas": [{"role": "../a", "index": 0, "rank": 0}]}, {"replicas": [{"role": 1, "index": 0, "rank": 0}]},
    ],
)  # fmt: skip
def test_what_is_no_plan_is_damaged(content: Any, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(PlanDamaged):
        read_replicas(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_what_is_no_json_is_damaged(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(PlanDamaged):
        read_replicas(tmp_path)


def test_a_missing_plan_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_replicas(tmp_path)
