"""Runs that wait for other runs, under a real scheduler with real agents."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import Any

import pytest

from phalanx.home.dependencies import Dependency, RequiredEnd, read_dependencies
from phalanx.ingest.adoption import adopt_all
from phalanx.insight.wait_reasons import waits_for
from phalanx.submission.dependencies import resolve
from phalanx.submission.resume import request_resume
from phalanx.submission.submit import submit
from tests.scheduler.working import Works
from tests.submission.samples import submission_of


def follow(works: Works, *after: str, command: str = "echo started", **fields: Any) -> str:
    """Submit a run that waits for others."""
    content = {"version": 1, "kind": "job", "run": {"cmd": command}, **fields}
    asked = submission_of(content, folder=works.folder, environment=os.environ)
    asked = replace(asked, waits_for=resolve((*asked.spec.after, *after), works.store.find))
    return submit(works.home, works.store, asked).id


def gated(works: Works, name: str, end: str = "exit 0") -> tuple[str, Any]:
    """A run that ends when a file exists, and that file."""
    gate = works.folder / name
    return works.submit(f"until [ -e {gate} ]; do sleep 0.05; done; {end}"), gate


def why(works: Works, run_id: str) -> str | None:
    return waits_for(works.store, [works.run(run_id)]).get(run_id)


def test_a_run_starts_when_all_runs_that_it_waits_for_have_succeeded(works: Works) -> None:
    first, first_gate = gated(works, "first")
    second, second_gate = gated(works, "second")
    last = follow(works, first, f"{second}:done")
    beside = works.submit("exit 0")
    works.settle(beside)  # a run that waits for others does not hold up the queue
    assert works.run(last).status == "created"
    assert why(works, last) == f"waits for run {first} to succeed, run {second} to end"
    second_gate.touch()
    works.settle(second)
    works.turn_until(lambda: why(works, last) == f"waits for run {first} to succeed")
    assert works.statuses(last) == ["created"]
    first_gate.touch()
    assert works.settle(last).status == "succeeded"
    assert works.statuses(last)[0] == "created"
    assert why(works, last) is None
    started, ended = works.run(last).started_at, works.run(first).finished_at
    assert started is not None
    assert ended is not None
    assert started >= ended


def test_a_run_whose_dependency_fails_ends_and_says_why_and_so_does_what_waits_for_it(works: Works) -> None:
    failing, gate = gated(works, "gate", "exit 3")
    second = follow(works, failing)
    third = follow(works, second)
    on_failure, whatever = follow(works, f"{third}:failed"), follow(works, f"{third}:done")
    gate.touch()
    works.settle(failing, second, third, on_failure, whatever)
    assert works.run(second).status == works.run(third).status == "upstream_failed"
    assert works.run(second).attempt == 0
    assert f"run {failing} ended as failed: master-0: exit code 3" in works.run(second).reason
    assert "waited for it to succeed" in works.run(second).reason
    assert f"run {second} ended as upstream_failed" in works.run(third).reason
    assert works.run(on_failure).status == works.run(whatever).status == "succeeded"
    assert works.store.blocked() == set()


def test_a_run_that_succeeds_ends_those_that_wait_for_its_failure(works: Works) -> None:
    first, gate = gated(works, "gate")
    rescue = follow(works, f"{first}:failed")
    gate.touch()
    assert works.settle(rescue).status == "upstream_failed"
    assert "ended as succeeded" in works.run(rescue).reason


def test_retries_of_the_other_run_are_waited_for(works: Works) -> None:
    flaky = works.submit('[ "$PHALANX_ATTEMPT" = 2 ]', max_restarts=1)
    last = follow(works, flaky)
    assert works.settle(last).status == "succeeded"
    assert works.run(flaky).attempt == 2


def test_a_waiting_run_is_stopped_at_once(works: Works) -> None:
    first, _ = gated(works, "gate")
    last = follow(works, first)
    works.scheduler.run_pass()
    works.run_folder(last).ask_to_stop("not needed")
    assert works.settle(last).status == "stopped"
    assert not works.run(first).is_done


def test_a_run_that_waits_for_a_removed_run_ends(works: Works) -> None:
    asked = submission_of(folder=works.folder, environment=os.environ)
    gone = [Dependency("gone", condition) for condition in RequiredEnd]
    ids = [submit(works.home, works.store, replace(asked, waits_for=[one])).id for one in gone]
    works.settle(*ids)
    assert [works.run(run_id).status for run_id in ids] == ["upstream_failed", "upstream_failed", "succeeded"]
    assert works.run(ids[0]).reason == "run gone was removed; this run waited for it to succeed"


@pytest.mark.slow
def test_a_resumed_run_waits_again_if_it_never_started(works: Works) -> None:
    failing, gate = gated(works, "gate", 'test "$PHALANX_ATTEMPT" = 2')
    last = follow(works, failing)
    gate.touch()
    assert works.settle(last).status == "upstream_failed"
    gate.unlink()
    for run_id in (failing, last):
        request_resume(works.home, works.run(run_id), os.environ)
    works.until(failing, "running")
    assert works.run(last).status == "resuming"
    assert why(works, last) == f"waits for run {failing} to succeed"
    gate.touch()
    assert works.settle(last).status == "succeeded"


def test_what_a_run_waits_for_outlives_the_scheduler_and_the_database(works: Works) -> None:
    first, gate = gated(works, "gate")
    last = follow(works, first)
    works.until(first, "running")
    works.new_scheduler()
    works.store.clear()
    adopt_all(works.home, works.store, works.home.run_ids())
    works.scheduler.run_pass()
    assert works.store.blocked() == {last}
    gate.touch()
    assert works.settle(last).status == "succeeded"


@pytest.mark.slow
def test_a_group_waits_too_and_its_trials_do_not_wait_again(works: Works) -> None:
    first, gate = gated(works, "gate")
    content = {
        "version": 1,
        "kind": "group",
        "after": first,
        "hptuning": {"matrix": {"x": {"values": [1, 2]}}},
        "run": {"cmd": "echo {{ x }}"},
    }
    asked = submission_of(content, folder=works.folder, environment=os.environ)
    asked = replace(asked, waits_for=resolve(asked.spec.after, works.store.find))
    group = submit(works.home, works.store, asked).id
    stopped = submit(works.home, works.store, asked).id
    works.until(first, "running")
    works.run_folder(stopped).ask_to_stop("not needed")
    assert works.settle(stopped).status == "stopped"
    assert works.run(group).status == "created"
    assert works.store.count(f"group:{group}") == 0
    gate.touch()
    assert works.settle(group).status == "succeeded"
    assert works.store.count(f"group:{group}, status:succeeded") == 2


def test_a_damaged_file_of_dependencies_does_not_block_a_home(works: Works) -> None:
    first, gate = gated(works, "gate")
    last = follow(works, first)
    (works.run_folder(last).path / "after.json").write_text('[{"run_id": 3}]')
    assert read_dependencies(works.run_folder(last)) == []
    gate.touch()
    assert works.settle(last).status == "succeeded"  # the store still knew


def test_a_run_whose_folder_is_gone_does_not_stop_the_others(works: Works) -> None:
    first, gate = gated(works, "gate")
    lost, last = follow(works, first), follow(works, first)
    shutil.rmtree(works.run_folder(lost).path)
    gate.touch()
    assert works.settle(lost, last).status == "succeeded"


@pytest.mark.parametrize(
    ("condition", "status", "holds"),
    [
        ("succeeded", "running", None),
        ("succeeded", "succeeded", True),
        ("succeeded", "stopped", False),
        ("succeeded", "skipped", False),
        ("succeeded", None, False),
        ("failed", "failed", True),
        ("failed", "upstream_failed", True),
        ("failed", "stopped", False),
        ("failed", None, False),
        ("done", "warning", None),
        ("done", "stopped", True),
        ("done", None, True),
    ],
)
def test_which_ends_fulfil_a_condition(condition: str, status: str | None, holds: bool | None) -> None:
    assert RequiredEnd(condition).holds(status) is holds
