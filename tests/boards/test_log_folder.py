"""The folder that TensorBoard reads, and the names of runs in it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.boards.log_folder import HomeRunData, LogFolder
from phalanx.boards.run_labels import LONGEST, labels
from phalanx.formats.tfevents import EventFileReader, ScalarSummary
from phalanx.store import Run
from phalanx.store.series.run_series import Series
from tests.examples import examples

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def run_of(run_id: str, status: str = "running", **fields: Any) -> Run:
    values = {"params": {}, "kind": "experiment", "project": "default", **fields}
    return Run(*[None] * len(Run._fields))._replace(id=run_id, status=status, created_at=NOW, **values)  # type: ignore[arg-type]


class Lines:
    """Series that a test extends."""

    def __init__(self) -> None:
        self.points: dict[tuple[str, str], list[tuple[int, float, int]]] = {}

    def poll(self) -> bool:
        return True

    def names(self) -> list[str]:
        return sorted({metric for metric, _ in self.points})

    def replicas(self, metric: str) -> list[str]:
        return [replica for name, replica in self.points if name == metric]

    def series(self, metric: str, replica: str | None = None) -> list[Series]:
        rows = self.points[metric, replica or ""]
        times = array("d", [1e9 + place for place in range(len(rows))])
        steps, values, attempts = (list(column) for column in zip(*rows, strict=True))
        return [
            Series(metric, replica or "", 0, array("q", steps), times, array("d", values), array("q", attempts))
        ]  # fmt: skip


def seen(folder: Path) -> list[tuple[str, int, float]]:
    files = sorted(folder.glob("*tfevents*"))
    items = [item for file in files for item in EventFileReader(file).poll()]
    return [(item.tag, item.step, item.value) for item in items if isinstance(item, ScalarSummary)]


@pytest.fixture(name="lines")
def lines_fixture() -> Lines:
    return Lines()


@pytest.fixture(name="board")
def board_fixture(tmp_path: Path, lines: Lines) -> Iterator[LogFolder]:
    (tmp_path / "board").mkdir()
    board = LogFolder(tmp_path / "board", lambda run: HomeRunData(tmp_path / run.id / "outputs", lambda: lines))
    yield board
    board.close()


def test_series_become_an_event_file_that_grows(board: LogFolder, lines: Lines) -> None:
    lines.points["loss", "master-0"] = [(0, 1.0, 1)]
    lines.points["loss", "worker-0"] = [(0, 9.0, 1)]
    board.update([run_of("a")])
    lines.points["loss", "master-0"].append((1, 0.5, 1))
    board.update([run_of("a", "succeeded")])
    assert seen(board.path / "a") == [("loss", 0, 1.0), ("loss", 1, 0.5)]


def test_points_of_a_new_attempt_replace_those_that_it_overwrote(board: LogFolder, lines: Lines) -> None:
    lines.points["loss", "master-0"] = [(0, 1.0, 1), (1, 2.0, 1), (2, 3.0, 1)]
    board.update([run_of("a")])
    lines.points["loss", "master-0"] = [(0, 1.0, 1), (1, 7.0, 2)]
    board.update([run_of("a")])
    assert seen(board.path / "a")[3:] == [("loss", 1, 7.0)]


def test_other_replicas_are_below_the_run(tmp_path: Path, lines: Lines) -> None:
    lines.points["loss", "master-0"], lines.points["loss", "worker-0"] = [(0, 1.0, 1)], [(0, 2.0, 1)]
    board = LogFolder(tmp_path, lambda _: HomeRunData(tmp_path / "none", lambda: lines), all_replicas=True)
    board.update([run_of("a")])
    board.close()
    assert seen(tmp_path / "a") == [("loss", 0, 1.0)]
    assert seen(tmp_path / "a" / "worker-0") == [("loss", 0, 2.0)]


def test_own_event_files_are_linked(board: LogFolder, tmp_path: Path, lines: Lines) -> None:
    board.update([run_of("a")])  # it has written nothing yet
    inside = tmp_path / "a" / "outputs" / "logs"
    inside.mkdir(parents=True)
    (inside / "events.out.tfevents.1.host").write_bytes(b"")
    lines.points["loss", "master-0"] = [(0, 1.0, 1)]
    board.update([run_of("a")])
    assert (board.path / "a").is_symlink()
    assert (board.path / "a" / "logs" / "events.out.tfevents.1.host").exists()


def test_a_resumed_run_goes_on(board: LogFolder, lines: Lines) -> None:
    lines.points["loss", "master-0"] = [(0, 1.0, 1)]
    board.update([run_of("a", "failed")])
    lines.points["loss", "master-0"].append((1, 2.0, 2))
    board.update([run_of("a", "running")])
    assert seen(board.path / "a") == [("loss", 0, 1.0), ("loss", 1, 2.0)]


def test_runs_are_named_by_what_differs() -> None:
    runs = [
        run_of("a1", name="x", params={"optimizer.lr": 0.1, "depth": 3}),
        run_of("b2", name="x", params={"optimizer.lr": 0.001, "depth": 3}),
    ]
    assert labels(runs, {}) == {"a1": "lr=0.1", "b2": "lr=0.001"}
    assert labels([run_of("a1", name="nightly"), run_of("b2")], {}) == {"a1": "nightly", "b2": "b2"}
    assert labels([run_of("a1", name="x"), run_of("b2", name="x")], {}) == {"a1": "x-a1", "b2": "x-b2"}
    assert labels([*runs, run_of("c3", name="LR=0.1")], {"a1": "lr=0.1"})["c3"] == "LR=0.1-c3"


@examples(50)
@given(st.lists(st.text(), min_size=1, max_size=5), st.dictionaries(st.text(), st.text(), max_size=3))
def test_names_are_different_and_stay_in_the_folder(written: list[str], params: dict[str, str]) -> None:
    runs = [run_of(f"id{place}", name=name, params=params) for place, name in enumerate(written)]
    found = labels(runs, {})
    assert len({name.lower() for name in found.values()}) == len(runs)
    assert all(Path("/b", name).parent == Path("/b") and len(name) <= LONGEST for name in found.values())
