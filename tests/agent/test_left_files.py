"""What a replica leaves in its working folder, below the commands: disks, links, clocks, other runs."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

import pytest

from phalanx.agent import collection, processes, working_folder
from phalanx.agent.collection import collect, wanted
from phalanx.agent.left_files import LeftFiles
from phalanx.agent.working_folder import Attribution, FolderPlace, FolderWatch, Neighbour, scan, writer_of
from phalanx.stored_plan import CollectSettings
from phalanx.working_files import (
    CHANGING,
    COLLECTED,
    EXISTS,
    FULL,
    LATE,
    LEFT,
    MANY,
    UNREADABLE,
    WorkingFile,
    WorkingFiles,
    merged,
    read_working_files,
)

ALL = CollectSettings(("**",), 1 << 30, 1000)


def place_of(folder: Path) -> FolderPlace:
    found = FolderPlace.of(str(folder), [])
    assert found is not None
    return found


def scanned(folder: Path) -> list[WorkingFile]:
    return scan(place_of(folder), 0).files


@pytest.fixture(name="folders")
def folders_fixture(tmp_path: Path) -> tuple[Path, Path]:
    working, outputs = tmp_path / "working", tmp_path / "outputs"
    working.mkdir()
    outputs.mkdir()
    return working, outputs


def collected(folders: tuple[Path, Path], **options: object) -> dict[str, str]:
    working, outputs = folders
    settings = options.get("settings", ALL)
    is_late = options.get("is_late", lambda: False)
    found = collect((str(working), str(outputs)), scanned(working), settings, {}, is_late)  # type: ignore[arg-type]
    return {file.path: file.state for file in found}


def test_a_full_disk_costs_files_and_leaves_no_halves(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    working, outputs = folders
    (working / "a.pt").write_bytes(b"1" * 1000)

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "copy_file_range", fail)
    assert collected(folders) == {"a.pt": FULL}
    assert os.listdir(outputs) == []
    monkeypatch.setattr(collection, "SPARE_BYTES", 1 << 60)
    assert collected(folders) == {"a.pt": FULL}


def test_a_file_system_without_kernel_copies_is_read(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    working, outputs = folders
    (working / "a.pt").write_bytes(os.urandom(100_000))

    def fail(*_: object) -> int:
        raise OSError(errno.EXDEV, "other file systems")

    monkeypatch.setattr(os, "copy_file_range", fail)
    assert collected(folders) == {"a.pt": COLLECTED}
    assert (outputs / "a.pt").read_bytes() == (working / "a.pt").read_bytes()
    assert (outputs / "a.pt").stat().st_mtime_ns == (working / "a.pt").stat().st_mtime_ns


def test_what_the_training_wrote_to_the_outputs_stays(folders: tuple[Path, Path]) -> None:
    working, outputs = folders
    (working / "a.pt").write_text("in the folder")
    (outputs / "a.pt").write_text("by the training")
    (working / "deep").mkdir()
    (working / "deep" / "b.pt").write_text("1")
    (outputs / "deep").write_text("a file where a folder would be")
    assert collected(folders) == {"a.pt": EXISTS, "deep/b.pt": EXISTS}
    assert (outputs / "a.pt").read_text() == "by the training"


def test_a_file_of_an_earlier_attempt_is_replaced(folders: tuple[Path, Path]) -> None:
    working, outputs = folders
    (working / "a.pt").write_text("one")
    assert collected(folders) == {"a.pt": COLLECTED}
    before = scanned(working)
    (working / "a.pt").write_text("second")
    files = collect((str(working), str(outputs)), scanned(working), ALL, {"a.pt": before}, lambda: False)
    assert [file.state for file in files] == [COLLECTED]
    assert (outputs / "a.pt").read_text() == "second"


def test_limits_take_the_newest_and_time_is_limited(folders: tuple[Path, Path]) -> None:
    working, _ = folders
    for number in range(3):
        (working / f"{number}.pt").write_text("1")
        os.utime(working / f"{number}.pt", (1e9 + number, 1e9 + number))
    settings = CollectSettings(("**",), 1 << 30, 2)
    assert collected(folders, settings=settings) == {"0.pt": MANY, "1.pt": COLLECTED, "2.pt": COLLECTED}
    (working / "new.pt").write_text("1")
    assert collected(folders, is_late=lambda: True)["new.pt"] == LATE


def test_a_file_that_changes_under_the_copy_is_not_kept(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    working, outputs = folders
    (working / "a.pt").write_text("1")
    real = os.copy_file_range

    def copy(source: int, target: int, size: int) -> int:
        (working / "a.pt").write_text("it grew meanwhile")
        return real(source, target, size)

    monkeypatch.setattr(os, "copy_file_range", copy)
    assert collected(folders) == {"a.pt": CHANGING}
    assert os.listdir(outputs) == []


def test_links_that_appear_after_the_look_are_not_followed(folders: tuple[Path, Path], tmp_path: Path) -> None:
    working, outputs = folders
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "a.pt").write_text("secret")
    (working / "deep").symlink_to(tmp_path / "secret")
    (working / "b.pt").symlink_to(tmp_path / "secret" / "a.pt")
    files = [WorkingFile("deep/a.pt", 6, 1.0), WorkingFile("b.pt", 6, 1.0)]
    found = collect((str(working), str(outputs)), files, ALL, {}, lambda: False)
    assert {file.state for file in found} == {UNREADABLE}
    assert os.listdir(outputs) == []


def test_by_default_results_and_what_is_beside_them_are_wanted() -> None:
    paths = [
        *("train.log", "model.pt", "net/saved_model.pb", "net/variables/a.data", "data/a.csv"),
        *("lightning_logs/v0/events.out.tfevents.1.h", "lightning_logs/v0/hparams.yaml"),
        *("out/config.json", "out/model.safetensors"),
    ]
    found = wanted([WorkingFile(path, 1, 1.0) for path in paths], None)
    assert set(paths) - found == {"train.log", "data/a.csv"}


def test_a_scan_is_bounded(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    working, _ = folders
    for number in range(20):
        (working / f"{number}").write_text("1")
    monkeypatch.setattr(working_folder, "MOST_FILES", 5)
    found = scan(place_of(working), 0)
    assert (len(found.files), found.more, found.more_bytes, found.is_complete) == (5, 15, 15, True)
    monkeypatch.setattr(working_folder, "MOST_ENTRIES", 0)
    assert not scan(place_of(working), 0).is_complete


def test_unchanged_folders_are_not_listed_again(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    working, _ = folders
    (working / "old").mkdir()
    for folder in (working / "old", working):
        os.utime(folder, (1e9, 1e9))
    watch = FolderWatch(place_of(working))
    watch.look([])
    listed: list[str] = []
    real = FolderPlace.entries

    def entries(place: FolderPlace, inside: str) -> list[os.DirEntry[str]]:
        listed.append(inside)
        return real(place, inside)

    monkeypatch.setattr(FolderPlace, "entries", entries)
    watch.look([])
    assert listed == []
    (working / "old" / "events.out.tfevents.1.host.7.0").touch()
    watch.look([])
    assert listed == ["old/"]
    assert watch.event_files == {"old/events.out.tfevents.1.host.7.0"}


def test_open_files_count_but_not_those_of_runs_and_hidden_ones(tmp_path: Path) -> None:
    for name in ("home/runs/r/replicas", ".cache", "runs"):
        (tmp_path / name).mkdir(parents=True)
    place = FolderPlace.of(str(tmp_path), [str(tmp_path / "home")])
    assert place is not None
    watch = FolderWatch(place)
    own = processes.read_stat(os.getpid())
    assert own is not None
    names = ("home/runs/r/replicas/log", ".cache/x", "runs/model.pt")
    streams = [(tmp_path / name).open("w") for name in names]
    (tmp_path / "read.pt").touch()
    with (tmp_path / "read.pt").open():
        watch.look([own])
    for stream in streams:
        stream.close()
    assert watch.written == {"runs/model.pt"}


def test_the_writer_of_an_event_file_is_in_its_name() -> None:
    assert writer_of("a/events.out.tfevents.1700000000.node-1.site.org.4711.0") == ("node-1.site.org", 4711)
    assert writer_of("events.out.tfevents.1700000000.host.4711.0.v2") == ("host", 4711)
    assert writer_of("events.out.tfevents.1700000000.host") is None


def test_files_of_runs_at_the_same_time_are_told_apart() -> None:
    others = [Neighbour("other", 100.0, 200.0)]
    own, foreign = {"runs/a/events", "lightning_logs/v1/events"}, {"runs/b/events", "logs/theirs"}

    def is_ours(path: str, at: float = 150.0) -> bool:
        return Attribution(own, foreign, others).is_ours(WorkingFile(path, 1, at))

    assert is_ours("runs/a/events")
    assert is_ours("runs/a/hparams.yaml")
    assert is_ours("lightning_logs/v1/checkpoints/a.ckpt")
    assert is_ours("model.pt", at=300.0)
    assert not is_ours("model.pt")
    assert not is_ours("runs/b/hparams.yaml")
    assert not is_ours("runs/c/hparams.yaml")
    assert not is_ours("runs/b/events", at=300.0)


def test_other_runs_are_known_by_their_marks_and_ends(tmp_path: Path) -> None:
    working = str(tmp_path)
    attempts = [tmp_path / "home" / "runs" / run / "replicas" / "master-0" / "attempt-1" for run in ("a", "b", "c")]
    for attempt in attempts:
        attempt.mkdir(parents=True)
        working_folder.announce(str(attempt), working, 100.0)
    own, other, third = attempts

    def marked() -> list[Neighbour]:
        return working_folder.neighbours(str(own), working)

    assert [(one.run_id, one.ended) for one in marked()] == [("b", float("inf")), ("c", float("inf"))]
    now = time.time()
    (other / "end.json").write_text(json.dumps({"ended_at": now - 50}))
    (third / "end.json").write_text("damaged")
    assert [(one.run_id, one.ended) for one in marked()] == [("b", now - 50), ("c", float("inf"))]
    assert working_folder.neighbours(str(own), "/elsewhere") == []
    (marks,) = (tmp_path / "home" / "working").iterdir()
    working_folder.leave(str(own), working, now)
    assert sorted(os.listdir(marks)) == [f"a@100.0@{now}", "b", "c"], "one that was there with both lives"
    assert working_folder.neighbours(str(third), working)[0] == ("a", 100.0, now)
    (third / "end.json").write_text(json.dumps({"ended_at": now}))
    working_folder.leave(str(own), working, now)
    assert os.listdir(marks) == []


def test_marks_of_runs_that_ended_before_all_others_began_are_removed_while_others_live(tmp_path: Path) -> None:
    """Thousands of short runs in one folder, always some at a time, do not leave thousands of marks."""
    working, now = str(tmp_path), time.time()

    def attempt(run: str) -> str:
        folder = tmp_path / "home" / "runs" / run / "replicas" / "master-0" / "attempt-1"
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    began = [now - 100_000 + 10 * number for number in range(200)]
    for number, at in enumerate(began):  # four live at any time
        working_folder.announce(attempt(f"r{number}"), working, at)
        if number >= 4:
            working_folder.leave(attempt(f"r{number - 4}"), working, at)
    (marks,) = (tmp_path / "home" / "working").iterdir()
    found = os.listdir(marks)
    assert {f"r{number}" for number in range(196, 200)} <= set(found)
    assert len(found) <= 4 + working_folder.CLEAN_EVERY + 4


def test_a_pod_has_no_neighbours(tmp_path: Path) -> None:
    assert working_folder.neighbours(str(tmp_path / "pod" / "run" / "r" / "m" / "attempt-1"), str(tmp_path)) == []


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"files": 1}', b'{"files": [[1], {}, ["../x", 1, 1, true, ""]]}']
)
def test_a_list_from_elsewhere_is_not_trusted(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "working-files.json").write_bytes(content)
    found = read_working_files(tmp_path)
    assert found is None or found.files == ()


def test_lists_of_replicas_are_one(tmp_path: Path) -> None:
    one = WorkingFiles((WorkingFile("a", 1, 1.0), WorkingFile("b", 1, 5.0)))
    other = WorkingFiles((WorkingFile("a", 2, 2.0, state=COLLECTED), WorkingFile("b", 1, 1.0)), more=3)
    for lists in ([one, other], [other, one]):
        whole = merged(lists)
        assert [(file.path, file.state, file.at) for file in whole.files] == [("a", COLLECTED, 2.0), ("b", LEFT, 5.0)]
        assert whole.more == 3
    (tmp_path / "working-files.json").write_text(json.dumps(other.to_json()))
    assert read_working_files(tmp_path) == other


def test_nothing_is_watched_where_everything_is_an_output(tmp_path: Path) -> None:
    attempt = str(tmp_path / "replicas" / "master-0" / "attempt-1")
    assert LeftFiles.of(attempt, str(tmp_path / "out"), str(tmp_path), ALL, ()) is None
    assert LeftFiles.of(attempt, str(tmp_path / "missing"), str(tmp_path / "out"), ALL, ()) is None
    assert LeftFiles.of(attempt, "/", str(tmp_path / "out"), ALL, ()) is None
    assert LeftFiles.of(attempt, str(tmp_path), str(tmp_path / "out"), None, ()) is None
