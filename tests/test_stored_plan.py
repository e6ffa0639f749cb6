"""`plan.json`, decoded."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from phalanx import plan, spec
from phalanx.placeholders import decode
from phalanx.plan.document import document
from phalanx.stored_plan import (
    CheckpointSettings,
    PlanDamaged,
    PlannedReplica,
    ResourceAmount,
    StoredPlan,
    decode_plan,
    read_plan,
)

FILE = b"""
version: 1
kind: experiment
framework: pytorch
environment:
  timeout: 1h
  max_restarts: 2
  env_vars: {MODE: fast}
  resources: {memory: {requests: 512, limits: 1024}}
  replicas: {n_workers: 1}
run: {cmd: "true"}
"""
ROW = {"role": "worker", "index": 2, "rank": 3}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    made = plan.make(spec.load([("file", FILE)]), "run")
    (tmp_path / "plan.json").write_text(json.dumps(document(made)))
    found = read_plan(tmp_path)
    assert [(one.name, one.rank, one.argv, one.environment, one.defaults) for one in found.replicas] == [
        (one.name, one.rank, one.argv, one.environment, one.defaults) for one in made.replicas
    ]
    assert found.replicas[0].amount("memory") == ResourceAmount(512, 1024)
    assert found.replicas[0].amount("gpu") == ResourceAmount()
    assert (found.run_id, found.launch, found.roles, found.members) == ("run", "each", made.roles, made.members)
    assert (found.timeout_s, found.max_restarts, found.meets) == (3600.0, 2, made.meets)
    assert (found.wiring, found.environment) == (made.wiring, made.shared)


def test_the_plan_of_a_slurm_job_has_an_order(tmp_path: Path) -> None:
    from phalanx.backends import find

    made = replace(plan.make(spec.load([("file", FILE)]), "run"), backend="slurm")
    (tmp_path / "plan.json").write_text(find("slurm").render(made).files["plan.json"])
    assert read_plan(tmp_path).order == ("master-0", "worker-0")


def test_a_plan_of_an_older_version_or_of_a_tracked_run_has_fewer_fields() -> None:
    assert decode_plan({"replicas": [ROW]}) == StoredPlan((PlannedReplica("worker", 2, 3),))
    tracked = {**ROW, "argv": ["train.py"], "resources": {"cpu": {"limits": 0}}, "environment": {}, "defaults": {}}
    (replica,) = decode_plan({"roles": {"worker": 1}, "environment": {}, "replicas": [tracked]}).replicas
    assert (replica.name, replica.argv, replica.amount("cpu").reserved) == ("worker-2", ("train.py",), 0)


def test_absent_values_are_as_null() -> None:
    names = ("launch", "timeout_s", "service", "wiring", "checkpoint", "python", "order", "interface", "scratch")
    assert decode_plan({**dict.fromkeys(names), "replicas": []}) == StoredPlan()
    assert decode_plan({"checkpoint": {"signal": "USR2"}, "replicas": []}).checkpoint == CheckpointSettings(
        None, "USR2"
    )


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert decode_plan({"version": 1, "colour": "red", "replicas": []}) == StoredPlan()


DAMAGED: list[tuple[Any, str]] = [
    (None, "is not an object"),
    ([], "is not an object"),
    ({}, "has no valid `replicas`"),
    ({"replicas": 5}, "has no valid `replicas`"),
    ({"replicas": [5]}, "replica 0 of the plan is not an object"),
    ({"replicas": [ROW, {"role": "a", "index": 0}]}, "replica 1 of the plan has no valid `rank`"),
    ({"replicas": [{"role": "../a", "index": 0, "rank": 0}]}, "has no valid `role`"),
    ({"replicas": [{"role": 1, "index": 0, "rank": 0}]}, "has no valid `role`"),
    ({"replicas": [{**ROW, "index": True}]}, "has no valid `index`"),
    ({"replicas": [{**ROW, "argv": "true"}]}, "has no valid `argv`"),
    ({"replicas": [{**ROW, "argv": [{"parts": 5}]}]}, "has no valid `argv`"),
    ({"replicas": [{**ROW, "environment": {"A": None}}]}, "has no valid `environment`"),
    ({"replicas": [{**ROW, "resources": {"cpu": 5}}]}, "`resources` of replica 0 of the plan has no valid `cpu`"),
    ({"replicas": [{**ROW, "resources": {"cpu": {"limits": "1"}}}]}, "has no valid `limits`"),
    ({"replicas": [], "roles": {"worker": "2"}}, "has no valid `roles`"),
    ({"replicas": [], "timeout_s": "1h"}, "has no valid `timeout_s`"),
    ({"replicas": [], "order": [1]}, "has no valid `order`"),
]


@pytest.mark.parametrize(("content", "message"), DAMAGED)
def test_a_damaged_plan_is_an_error_that_names_the_file_and_the_field(
    content: Any, message: str, tmp_path: Path
) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(PlanDamaged) as caught:
        read_plan(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'plan.json'}: the plan is damaged: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_what_is_no_json_is_damaged(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(PlanDamaged, match="it is not JSON"):
        read_plan(tmp_path)


@pytest.mark.slow
def test_a_value_that_is_nested_too_deeply_is_damaged() -> None:
    nested: Any = "x"
    for _ in range(50_000):
        nested = {"each": "worker", "parts": [nested], "separator": ","}
    with pytest.raises(PlanDamaged, match="nested too deeply"):
        decode_plan({"replicas": [{**ROW, "argv": [{"parts": [nested]}]}]})
    while isinstance(nested, dict):  # not by recursion, which would crash old interpreters
        (nested,) = nested.pop("parts")


def test_a_missing_plan_differs_from_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_plan(tmp_path)


@pytest.mark.parametrize("mode", [[], ["--here"]])
def test_the_agent_reports_a_damaged_plan_in_one_line(mode: list[str], tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"replicas": [{}]}')
    (tmp_path / "facts.json").write_text("{}")
    files = [str(tmp_path / "plan.json"), str(tmp_path / "facts.json")]
    ended = subprocess.run(
        [sys.executable, "-m", "phalanx.agent", *files, *mode], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 78
    assert ended.stderr == f"phalanx: {files[0]}: the plan is damaged: replica 0 of the plan has no valid `role`\n"


def test_values_with_holes_are_decoded() -> None:
    value = {"parts": ["tcp://", {"host": "master-0"}]}
    (replica,) = decode_plan({"replicas": [{**ROW, "environment": {"A": value}}]}).replicas
    assert replica.environment == {"A": decode(value)}
