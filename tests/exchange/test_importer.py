from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from phalanx import run_paths
from phalanx.errors import SystemFault
from phalanx.exchange.importer import Importer
from phalanx.formats import safe_files
from phalanx.formats.foreign_run import (
    Ending,
    ForeignEvent,
    ForeignFile,
    ForeignImage,
    ForeignLog,
    ForeignModel,
    ForeignRun,
    ImportLosses,
    Points,
    Record,
)
from tests.exchange.homes import Target
from tests.formats.encoding import png


def run_of(*records: Record, source: str = "test:1", **about: Any) -> ForeignRun:
    return ForeignRun(source=source, name=about.pop("name", "a run"), read=partial(_given, records), **about)


def _given(records: tuple[Record, ...], losses: ImportLosses) -> Iterator[Record]:
    yield from records


def test_a_run_is_there_with_what_it_was(target: Target) -> None:
    about: dict[str, Any] = {
        "project": "cifar",
        "started": 1.6e9,
        "params": {"lr": 0.1, "layers": [1, 2]},
        "tags": ["a", "b"],
        "labels": {"team": "x"},
        "description": "why",
        "user": "ann",
    }
    outcome = target.bring_in(run_of(Points(3, 1.6e9 + 5, {"loss": 0.5}), Ending("failed", "it fell", None), **about))
    run = target.store.find(str(outcome.run_id))
    assert (run.project, run.name, run.user, run.description) == ("cifar", "a run", "ann", "why")
    assert (run.params, run.tags) == ({"lr": 0.1, "layers": [1, 2]}, ("a", "b"))
    assert run.created_at.timestamp() == 1.6e9
    end = target.end(outcome.run_id)
    assert (end["cause"], end["message"], end["ended_at"]) == ("error", "it fell", 1.6e9 + 5)
    assert target.points(outcome.run_id, "loss") == [(3, 0.5)]
    assert not list(target.run_folder(outcome.run_id).rglob(run_paths.IMPORT_MARK))


def settled(target: Target) -> None:
    """As whoever schedules does: labels come into the store."""
    from phalanx.ingest import external_runs

    for run_id in target.store.ids():
        external_runs.index_now(target.home, target.store, target.store.find(run_id))


def test_a_run_that_came_before_is_left_alone(target: Target) -> None:
    first = target.bring_in(run_of(source="mlflow:1"))
    settled(target)
    again = target.bring_in(run_of(source="mlflow:1"))
    assert (again.state, again.run_id) == ("known", first.run_id)
    assert target.bring_in(run_of(source="mlflow:2")).state == "imported"
    assert len(target.home.run_ids()) == 2


def test_a_source_that_names_a_run_twice_brings_it_once(target: Target) -> None:
    importer = Importer(target.home, target.store)
    states = [importer.bring_in(run_of(), "p", target.losses).state for _ in range(2)]
    assert states == ["imported", "known"]


def test_an_import_that_was_killed_halfway_is_done_again(target: Target) -> None:
    first = target.bring_in(run_of(source="mlflow:1"))
    (target.attempt(first.run_id) / run_paths.IMPORT_MARK).touch()  # as a kill leaves it
    settled(target)
    again = target.bring_in(run_of(source="mlflow:1"))
    assert (again.state, target.home.run_ids()) == ("imported", [again.run_id])
    assert target.store.ids() == {again.run_id}


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError("a bug")])
def test_nothing_is_left_of_an_import_that_fails(target: Target, fault: BaseException) -> None:
    def read(_: ImportLosses) -> Iterator[Record]:
        yield Points(0, 1.0, {"x": 1.0})
        raise fault

    with pytest.raises(SystemFault if isinstance(fault, OSError) else type(fault)) as raised:
        target.bring_in(ForeignRun("test:1", "a run", read))
    if isinstance(fault, OSError):
        assert "no space left on device" in str(raised.value)
    assert list(target.home.runs.iterdir()) == []
    assert target.store.ids() == set()


def test_looking_writes_nothing(target: Target) -> None:
    importer = Importer(target.home, target.store)
    records = (Points(0, 1.0, {"a": 1.0, "b": 2.0}), ForeignEvent("text", 1.0, {}), Ending("failed", "", None))
    outcome = importer.look(run_of(*records), "p", target.losses)
    assert (outcome.state, outcome.status, outcome.counts) == ("found", "failed", {"points": 2, "texts": 1})
    assert target.home.run_ids() == []


@pytest.mark.slow
def test_what_does_not_fit_is_counted_and_the_rest_comes(target: Target) -> None:
    endless: list[Any] = []
    endless += [endless] * 9
    outcome = target.bring_in(
        run_of(
            Points(1 << 70, 1.0, {"a": 1.0}),
            Points(1, float("nan"), {"a": 1.0, "": 2.0, "n" * 1000: 3.0}),
            ForeignEvent("text", 1.0, {"name": "t", "text": "x" * 2_000_000}),
            ForeignEvent("table", 1.0, {"rows": ["x" * (1 << 20)] * 17}),
            ForeignEvent("table", 1.0, {"rows": endless}),
            params={"deep": endless, "long": "x" * 2_000_000, "odd": {1, 2}},
            labels={"l" * 1000: "t" * 2_000_000},
        )
    )
    assert target.lost == {"points whose step is too large": 1, "tables that are too large": 1}
    assert target.points(outcome.run_id, "a") == [(1, 1.0)]
    assert target.points(outcome.run_id, "n" * 499 + "…") == [(1, 3.0)]
    (text,) = target.events(outcome.run_id, "text")
    assert len(text["text"]) == 1 << 20
    run = target.store.find(str(outcome.run_id))
    assert len(run.params["long"]) == 1 << 20


def test_many_points_come_in_order(target: Target) -> None:
    outcome = target.bring_in(run_of(*(Points(step, 1.7e9 + step, {"loss": step / 7}) for step in range(40_000))))
    assert target.points(outcome.run_id, "loss") == [(step, step / 7) for step in range(40_000)]
    assert outcome.counts == {"points": 40_000}


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b", "", ".", "a\\b", "a\0b", "x/.."])
def test_names_of_artifacts_cannot_leave_the_run(target: Target, tmp_path: Path, name: str) -> None:
    (tmp_path / "f").write_text("x")
    outcome = target.bring_in(run_of(ForeignFile(name, tmp_path / "f", tmp_path)))
    assert target.lost == {"names that are not relative paths": 1}
    assert not (target.run_folder(outcome.run_id) / "artifacts").exists()
    assert outcome.counts.get("artifacts", 0) == 0


def test_hostile_names_are_made_harmless(target: Target, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    names = [".hidden/.a", "line\nbreak", "é" * 200, "-rf", "a" * 300 + ".txt", os.fsdecode(b"\xff.bin")]
    outcome = target.bring_in(run_of(*(ForeignFile(name, tmp_path / "f", tmp_path) for name in names)))
    kept = target.run_folder(outcome.run_id) / "artifacts"
    assert len([path for path in kept.rglob("*") if path.is_file()]) == len(names)
    assert (kept / "_hidden" / "_a").is_file()
    assert target.lost == {}
    json.dumps(target.events(outcome.run_id, "artifact")).encode()


def test_two_files_of_one_name_are_reported(target: Target, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("first")
    (tmp_path / "g").write_text("second")
    first, second = ForeignFile("a", tmp_path / "f", tmp_path), ForeignFile("a", tmp_path / "g", tmp_path)
    outcome = target.bring_in(run_of(first, second, ForeignFile("a/b", tmp_path / "g", tmp_path)))
    assert (target.run_folder(outcome.run_id) / "artifacts" / "a").read_text() == "first"
    assert target.lost == {"files of the same name": 1, "files of the same name as a folder": 1}


def test_a_file_larger_than_the_disk_is_not_copied(target: Target, tmp_path: Path) -> None:
    with (tmp_path / "giant").open("wb") as stream:
        stream.truncate(1 << 43)  # it takes no disk
    outcome = target.bring_in(run_of(ForeignFile("giant", tmp_path / "giant", tmp_path)))
    assert target.lost == {"files that do not fit on the disk": 1}
    assert not list((target.run_folder(outcome.run_id)).rglob("giant"))


def test_files_are_private(target: Target, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    (tmp_path / "f").chmod(0o777)
    outcome = target.bring_in(run_of(ForeignFile("a/f", tmp_path / "f", tmp_path), ForeignImage("p", 0, 1.0, png())))
    kept = target.run_folder(outcome.run_id) / "artifacts"
    for path in (kept, *kept.rglob("*"), *(target.attempt(outcome.run_id) / "media").rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_models_are_files_of_the_run(target: Target, tmp_path: Path) -> None:
    (tmp_path / "m" / "deep").mkdir(parents=True)
    (tmp_path / "m" / "deep" / "w.bin").write_bytes(b"1234")
    (tmp_path / "m" / "out").symlink_to("/etc/hostname")
    (tmp_path / "empty").mkdir()
    outcome = target.bring_in(
        run_of(
            ForeignModel("team/net", "3", tmp_path / "m", tmp_path / "m", 1.7e9, "good", {"k": "v"}),
            ForeignModel("none", "1", tmp_path / "empty", tmp_path / "empty", 1.7e9),
        )
    )
    (model,) = target.events(outcome.run_id, "model")
    assert (model["name"], model["path"], model["size"], model["files"]) == ("team/net", "models/team_net/3", 4, 1)
    assert (target.run_folder(outcome.run_id) / "models/team_net/3/deep/w.bin").read_bytes() == b"1234"
    assert target.lost == {"links that leave the source": 1, "models without files": 1}


def test_pictures_and_logs_are_kept_with_the_attempt(target: Target, tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(png())
    (tmp_path / "log").write_bytes(b"two\n")
    outcome = target.bring_in(
        run_of(
            ForeignImage("a", 1, 1.7e9, png(3, 3), caption="c"),
            ForeignImage("b", None, 1.7e9, tmp_path / "p.png", tmp_path),
            ForeignImage("c", None, 1.7e9, tmp_path / "gone.png", tmp_path),
            ForeignLog(b"one\n"),
            ForeignLog(tmp_path / "log", tmp_path),
        )
    )
    first, second = target.events(outcome.run_id, "image")
    assert (first["name"], first["step"], first["caption"]) == ("a", 1, "c")
    assert first["path"].endswith(".png")
    assert (target.attempt(outcome.run_id) / second["path"]).read_bytes() == png()
    assert (target.attempt(outcome.run_id) / "log").read_text() == "one\ntwo\n"
    assert target.lost == {"files that are not there": 1}


def test_names_for_files_are_never_alike() -> None:
    names = safe_files.Names()
    given = ["a/b", "a:b", "A/B", "a_b~2", "", "..", ".", "é", "x" * 500, "x" * 501, "CON", "a b"]
    made = [names.name(text) for text in given]
    assert len({name.lower() for name in made}) == len(given)
    assert made[0] == "a_b"
    assert all(name and "/" not in name and name not in (".", "..") and len(name) < 100 for name in made)


def test_many_names_alike_take_little_time() -> None:
    names = safe_files.Names()
    assert len({names.name("§" * (1 + number % 70)) for number in range(20_000)}) == 20_000


def test_texts_that_no_database_takes_are_made_harmless(target: Target) -> None:
    half, zero = "a\ud800b", "a\0b"
    about: dict[str, Any] = {
        "name": half,
        "project": zero,
        "params": {half: zero, "n": {zero: [half, 10**5000]}},
        "tags": [half, zero],
        "labels": {half: zero},
        "description": half,
        "user": zero,
    }
    events = [
        ForeignEvent("labels", 1.0, {"values": {zero: half}}),
        ForeignEvent("params", 1.0, {"values": {half: [zero]}}),
    ]
    outcome = target.bring_in(run_of(Points(0, 1.7e9, {half: 1.0}), *events, source=f"test:{half}", **about))
    settled(target)
    run = target.store.find(str(outcome.run_id))
    assert (run.name, run.project, run.tags) == ("a_b", "a_b", ("a_b",))
    assert run.params["n"] == {"a\ufffdb": ["a?b", float("inf")]}
    assert target.store.labels(run.id)["a_b"] in ("a?b", "a\ufffdb")
    assert target.bring_in(run_of(source=f"test:{half}")).state == "known"
