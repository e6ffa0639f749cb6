from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.errors import CallError, SystemFault
from phalanx.home.home import Home
from phalanx.ingest import external_runs
from phalanx.store import Store
from tests.scheduler.working import Works


@pytest.fixture(name="home")
def home_fixture(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture(name="store")
def store_fixture(home: Home) -> Iterator[Store]:
    with Store.open(home.path) as store:
        yield store


ABOUT: dict[str, Any] = {
    "project": "vision", "source": "test", "name": "named", "description": "hello", "tags": ["a"],
    "params": {"lr": 0.1}, "labels": {"team": "nlp"}, "created_at": 1.6e9, "user": "ada",
}  # fmt: skip


def test_a_run_is_there_with_all_that_is_known(home: Home, store: Store) -> None:
    made, attempt = external_runs.create(home, **ABOUT)
    assert attempt == home.run(made.id).path / "replicas" / "master-0" / "attempt-1"
    run = external_runs.adopt(home, store, made.id)
    assert external_runs.adopt(home, store, made.id) == run
    assert (run.project, run.name, run.description, run.user, run.backend) == (
        "vision", "named", "hello", "ada", "outside",
    )  # fmt: skip
    assert (run.tags, run.params, run.status, run.attempt) == (("a",), {"lr": 0.1}, "running", 1)
    assert run.created_at.timestamp() == 1.6e9
    assert [change.status for change in store.statuses(run.id)] == ["created", "running"]
    assert home.arrived() == []
    external_runs.index_now(home, store, run)
    assert store.labels(run.id) == {"team": "nlp"}


def test_a_run_that_is_only_a_folder_is_adopted(works: Works) -> None:
    made, attempt = external_runs.create(works.home, **ABOUT)
    works.scheduler.run_pass()
    assert works.run(made.id).status == "running"
    external_runs.append_event(attempt, "server", {"at": 1.0, "kind": "tags", "add": ["late"]})
    external_runs.finish(works.home, made.id, "succeeded", "done elsewhere", at=1.6e9 + 60)
    run = works.settle(made.id)
    assert (run.status, run.tags) == ("succeeded", ("a", "late"))
    assert run.finished_at is not None
    assert run.finished_at.timestamp() == 1.6e9 + 60


@pytest.mark.parametrize(
    ("status", "kept"),
    [("succeeded", "succeeded"), ("failed", "failed"), ("stopped", "stopped"), ("nonsense", "failed")],
)
def test_how_it_ended_is_reported(works: Works, status: str, kept: str) -> None:
    made, _ = external_runs.create(works.home, project="p", source="s")
    works.scheduler.run_pass()
    external_runs.finish(works.home, made.id, status, "because")
    run = works.settle(made.id)
    assert run.status == kept
    assert "because" in run.reason or kept == "succeeded"


def test_the_first_word_of_an_end_counts(home: Home) -> None:
    made, attempt = external_runs.create(home, project="p", source="s")
    external_runs.finish(home, made.id, "failed", "first")
    external_runs.finish(home, made.id, "succeeded", "second")
    assert json.loads((attempt / "end.json").read_bytes())["message"] == "first"


def test_it_is_under_way_as_long_as_it_gives_signs_of_life(works: Works) -> None:
    made, attempt = external_runs.create(works.home, project="p", source="s", patience_s=1.0)
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        external_runs.append_event(attempt, "server", {"at": 1.0, "kind": "tags", "add": []})
        works.scheduler.run_pass()
        assert works.run(made.id).status == "running"
        time.sleep(0.05)
    run = works.settle(made.id)
    assert (run.status, run.reason) == ("failed", "master-0: it gave no sign of life any more")


def test_an_id_may_be_given_once(home: Home) -> None:
    made, _ = external_runs.create(home, project="p", source="s", run_id="given-id")
    assert made.id == "given-id"
    before = {path: path.stat().st_mtime_ns for path in home.path.rglob("*") if path.is_file()}
    with pytest.raises(CallError, match="run given-id already exists"):
        external_runs.create(home, project="p", source="s", run_id="given-id")
    assert {path: path.stat().st_mtime_ns for path in home.path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("run_id", ["../x", "a/b", "", ".hidden", "..", "a\0b", "a\nb", "x" * 300])
def test_what_cannot_be_an_id_is_refused(home: Home, run_id: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CallError, match="is not a valid run id"):
        external_runs.create(home, project="p", source="s", run_id=run_id)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_is_not_there(home: Home, store: Store) -> None:
    with pytest.raises(CallError, match="there is no run `nobody`"):
        external_runs.adopt(home, store, "nobody")
    with pytest.raises(SystemFault, match="the end of run nobody cannot be kept"):
        external_runs.finish(home, "nobody", "succeeded", "")


def test_a_disk_that_refuses_is_reported(home: Home) -> None:
    home.runs.rmdir()
    home.runs.write_text("in the way")
    with pytest.raises(SystemFault, match="cannot be kept in"):
        external_runs.create(home, project="p", source="s")


def test_gathering_may_be_done_again(home: Home, store: Store) -> None:
    made, attempt = external_runs.create(home, **ABOUT)
    run = external_runs.adopt(home, store, made.id)
    external_runs.append_event(attempt, "server", {"at": 5.0, "kind": "params", "values": {"depth": 3}})
    for _ in range(3):
        external_runs.index_now(home, store, run)
        assert store.find(made.id).params == {"lr": 0.1, "depth": 3}
        assert store.labels(made.id) == {"team": "nlp"}
