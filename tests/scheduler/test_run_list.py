"""The list of started runs, and which of them a pass looks at."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from phalanx.scheduler.active_runs import StartedRuns, due
from phalanx.store import Run, Store
from tests.store.samples import run, status


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store.open(tmp_path / "home") as found:
        yield found


def test_only_runs_whose_row_has_changed_are_read_again(store: Store) -> None:
    for number in range(3):
        store.add(run(f"r{number}", -number, status="running"))
    found = StartedRuns(store, "status:running")
    first = found.read()
    assert [one.id for one in first] == ["r2", "r1", "r0"]
    assert all(again is before for again, before in zip(found.read(), first, strict=True))
    store.update("r1", name="changed", at=datetime(2000, 1, 1, tzinfo=UTC))  # a time before that of its last change
    store.record(status(9, "failed", run_id="r0"))
    store.add(run("r3", 5, status="running"))
    again = found.read()
    assert [one.id for one in again] == ["r2", "r1", "r3"]
    assert again[0] is first[0]
    assert again[1].name == "changed"


def test_a_run_with_the_key_of_a_removed_one_is_another_run(store: Store) -> None:
    store.add(run("a", status="running"))
    found = StartedRuns(store, "status:running")
    assert [one.id for one in found.read()] == ["a"]
    store.delete("a")
    store.add(run("b", status="running"))
    assert [one.id for one in found.read()] == ["b"]


def test_a_late_pass_leaves_remote_runs_to_the_next_one_and_those_that_waited_longest_are_first() -> None:
    runs: list[Run] = [run(name) for name in ("here", "new", "a", "b", "c", "later")]
    watched: dict[str, Any] = {
        "here": SimpleNamespace(look_at=1e12),
        "a": SimpleNamespace(look_at=2.0),
        "b": SimpleNamespace(look_at=0.0),
        "c": SimpleNamespace(look_at=1.0),
        "later": SimpleNamespace(look_at=float("inf")),
    }
    late: list[Any] = []
    looked = []
    for one in due(runs, watched, {"a", "b", "c", "later", "new"}, 0.02, late):
        looked.append(one.id)
        began = time.thread_time()
        while len(looked) == 4 and time.thread_time() < began + 0.03:
            pass  # uses up the time of the pass
    assert looked == ["here", "new", "b", "c"]
    assert late == [watched["a"]]
