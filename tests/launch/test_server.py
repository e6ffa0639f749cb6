"""Functions that run on a server: it stores bytes, and only the submitter reads results."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx import RunFailed
from phalanx.client import ServerUnreachable
from phalanx.errors import CallError
from phalanx.launch.server_place import ServerPlace
from tests.server.site import Site

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def site(working: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")) as found, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PHALANX_SERVER", found.url)
        patch.setenv("PHALANX_TOKEN", found.token)
        yield found


def test_results_and_exceptions_come_back_from_a_server(site: Site, training: Any) -> None:
    run, bad = phalanx.submit(training.add, 40, b=2, name="far"), phalanx.submit(training.fail_in, 0)
    assert run.result(PATIENCE_S) == 42
    assert (run.stdout(), run.results()) == ("adding 40 2 in rank 0\n", [42])
    with pytest.raises(training.Unlucky, match="no luck") as raised:
        bad.result(PATIENCE_S)
    cause = raised.value.__cause__
    assert isinstance(cause, RunFailed)
    assert (cause.replica, cause.rank) == ("master-0", 0)
    assert "in fail_in\n" in str(cause)
    assert site.home.run(run.id).is_remote


def test_the_server_unpickles_nothing(site: Site, training: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in this process: whatever it unpickled would be counted."""
    loaded: list[bytes] = []
    original = pickle.loads

    def noted(data: bytes, **more: Any) -> Any:
        loaded.append(data)
        return original(data, **more)

    monkeypatch.setattr(pickle, "loads", noted)
    run = phalanx.submit(training.add, 1)
    assert run.wait(PATIENCE_S)
    assert site.get(f"/api/v1/runs/{run.id}/outputs")["count"] > 0
    assert loaded == []
    assert run.result() == 2
    assert len(loaded) == 1


def test_a_result_is_read_only_where_the_run_was_submitted(
    site: Site, training: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = phalanx.submit(training.add, 1)
    run.wait(PATIENCE_S)
    assert phalanx.attach(run.id).result() == 2
    path = site.home.run(run.id).path / "outputs" / "function" / "rank-0.attempt-1"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"!")
    with pytest.raises(RunFailed, match="is refused: its seal does not match"):
        phalanx.attach(run.id).result()
    path.write_bytes(data)
    failed = phalanx.submit(training.fail_in, 0)
    failed.wait(PATIENCE_S)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(RunFailed, match=r"master-0 \(rank 0\) on .* failed first: .*no luck"):
        phalanx.attach(failed.id).result()
    other = phalanx.attach(run.id)
    assert (other.state, other.stdout()) == ("succeeded", "adding 1 1 in rank 0\n")
    with pytest.raises(CallError, match=r"read only where the run was submitted, and its key is not on this machine"):
        other.result()


def test_a_server_that_is_away_for_a_moment_does_not_end_the_waiting(
    site: Site, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = phalanx.submit(training.add, 3)
    look, tries = ServerPlace.look, iter(range(3))

    def away(self: ServerPlace, run_id: str) -> Any:
        if next(tries, None) is not None:
            raise ServerUnreachable(f"cannot connect to {site.url}")
        return look(self, run_id)

    monkeypatch.setattr(ServerPlace, "look", away)
    with pytest.warns(UserWarning, match="cannot connect to .*; trying again") as warned:
        assert run.result(PATIENCE_S) == 4
    assert len(warned) == 1


@pytest.mark.slow
def test_a_batch_runs_on_a_server(site: Site, training: Any) -> None:
    batch = phalanx.map(training.add, [{"a": number} for number in range(3)], concurrency=3)
    assert batch.results(PATIENCE_S) == [1, 2, 3]
    assert phalanx.attach(batch.id)[2].result() == 3
    with phalanx.Executor() as pool:
        assert pool.submit(training.add, 5).result(PATIENCE_S) == 6


@pytest.mark.slow
def test_a_file_runs_on_a_server_and_can_be_canceled(site: Site, working: Path) -> None:
    (working / "sleep.yml").write_text("version: 1\nkind: experiment\nrun: {cmd: 'sleep {{ time }}'}\n")
    assert phalanx.run("sleep.yml", time=0).result(PATIENCE_S).status == "succeeded"
    run = phalanx.run("sleep.yml", time=600)
    assert run.cancel()
    with pytest.raises(RunFailed, match="stopped"):
        run.result(PATIENCE_S)
