"""Artifacts, models and images: copied whole, under names that stay where they belong."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from phalanx.tracking import TrackedRun
from tests.tracking.reading import Replica


@pytest.fixture(name="files")
def files_fixture(tmp_path: Path) -> Path:
    """What a training left somewhere."""
    folder = tmp_path / "work"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.txt").write_text("alpha")
    (folder / "deep" / "b.bin").write_bytes(bytes(range(256)))
    (folder / "deep" / "er" / "c").write_text("gamma")
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def recorded_files(replica: Replica, kind: str = "artifact") -> list[tuple[str, str, str, int]]:
    return [(e["path"], e["name"], e.get("type", ""), e["size"]) for e in replica.events(kind)]


def outside(replica: Replica, files: Path) -> set[str]:
    """Everything beside the run's own folders."""
    base = replica.run.parent.parent
    found = {str(path.relative_to(base)) for path in base.rglob("*")}
    return {path for path in found if not path.startswith((f"runs/{replica.run.name}/", "work"))}


# artifacts ---------------------------------------------------------------------------------------------------------


def test_a_file_is_copied_under_its_name(run: TrackedRun, replica: Replica, files: Path) -> None:
    run.artifact(files / "a.txt")
    run.artifact(str(files / "a.txt"), name="notes/alpha.txt", type="notes")
    run.artifact(os.fsencode(files / "a.txt"), name="bytes")
    assert tree(replica.run / "artifacts") == {"a.txt": b"alpha", "notes/alpha.txt": b"alpha", "bytes": b"alpha"}
    assert recorded_files(replica) == [
        ("artifacts/a.txt", "a.txt", "file", 5),
        ("artifacts/notes/alpha.txt", "notes/alpha.txt", "notes", 5),
        ("artifacts/bytes", "bytes", "file", 5),
    ]
    assert run.dropped == {}


def test_copies_are_private(run: TrackedRun, replica: Replica, files: Path) -> None:
    (files / "a.txt").chmod(0o666)
    run.artifact(files / "a.txt", "x/a.txt")
    copy = replica.run / "artifacts" / "x" / "a.txt"
    assert (copy.stat().st_mode & 0o777, copy.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_copy_does_not_change_with_its_original(run: TrackedRun, replica: Replica, files: Path) -> None:
    run.artifact(files / "a.txt")
    with (files / "a.txt").open("a") as stream:
        stream.write(" and more")
    assert tree(replica.run / "artifacts") == {"a.txt": b"alpha"}


def test_a_folder_is_copied_with_everything_in_it(run: TrackedRun, replica: Replica, files: Path) -> None:
    run.artifact(files, "all")
    assert tree(replica.run / "artifacts" / "all") == tree(files)
    assert recorded_files(replica) == [("artifacts/all", "all", "file", 5 + 256 + 5)]


def test_every_entry_of_a_folder_is_an_artifact(run: TrackedRun, replica: Replica, files: Path) -> None:
    run.artifacts(files)
    run.artifacts(str(files), name="again")
    assert [path for path, *_ in recorded_files(replica)] == [
        "artifacts/a.txt", "artifacts/deep", "artifacts/again/a.txt", "artifacts/again/deep",
    ]  # fmt: skip
    assert tree(replica.run / "artifacts" / "again") == tree(files)


def test_the_same_name_again_takes_its_place(run: TrackedRun, replica: Replica, files: Path) -> None:
    """And whoever reads the old one still has it whole."""
    run.artifact(files / "a.txt")
    with (replica.run / "artifacts" / "a.txt").open("rb") as old:
        (files / "a.txt").write_text("beta")
        run.artifact(files / "a.txt")
        assert old.read() == b"alpha"
    assert tree(replica.run / "artifacts") == {"a.txt": b"beta"}


def test_no_one_ever_sees_half_a_file(run: TrackedRun, replica: Replica, files: Path) -> None:
    large = files / "large"
    target = replica.run / "artifacts" / "large"
    seen: set[bytes] = set()
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            if target.exists():
                data = target.read_bytes()
                seen.add(data[:1] + str(len(data)).encode() + data[-1:])

    watcher = threading.Thread(target=look)
    watcher.start()
    for number in range(30):
        large.write_bytes(str(number % 10).encode() * 3_000_000)
        run.artifact(large)
    is_over.set()
    watcher.join()
    assert len(seen) > 1
    assert all(mark[:1] == mark[-1:] and mark[1:-1] == b"3000000" for mark in seen)
    assert not list(target.parent.glob(".*"))


def test_threads_may_copy_at_the_same_time(run: TrackedRun, replica: Replica, files: Path) -> None:
    for number in range(8):
        (files / f"f{number}").write_bytes(bytes([number]) * 2_000_000)
    threads = [
        threading.Thread(target=run.artifact, args=(files / f"f{number}", f"copies/f{number}")) for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run.dropped == {}
    for number in range(8):
        assert (replica.run / "artifacts" / "copies" / f"f{number}").read_bytes() == bytes([number]) * 2_000_000


@pytest.mark.parametrize("name", ["../x", "a/../../x", "..", "/..", "", "/", ".", "./.", "a/.."])
def test_no_name_leads_out_of_its_folder(run: TrackedRun, replica: Replica, files: Path, name: str) -> None:
    before = outside(replica, files)
    run.artifact(files / "a.txt", name)
    run.model(files / "a.txt", name)
    assert outside(replica, files) == before
    assert {path for path in tree(replica.run) if path.startswith("x")} == set()
    for path, *_ in recorded_files(replica):
        assert (replica.run / path).resolve().is_relative_to(replica.run / "artifacts")


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("/etc/passwd", "etc/passwd"),
        ("//a//b/", "a/b"),
        ("a\0b", "a_b"),
        ("a\nb\\c", "a_b_c"),
        (".hidden/.x", "_hidden/_x"),
        ("x" * 300, "x" * 200),
        ("é" * 150, "é" * 100),
        ("half\ud800", "half_"),
        ("🔥 $(rm -rf /)", "🔥 $(rm -rf /)".strip("/")),
        ("~/x", "~/x"),
    ],
)
def test_strange_names_are_made_fit(run: TrackedRun, replica: Replica, files: Path, name: str, kept: str) -> None:
    run.artifact(files / "a.txt", name)
    assert list(tree(replica.run / "artifacts")) == [kept]
    assert recorded_files(replica)[0][0] == f"artifacts/{kept}"


def test_links_are_followed_to_files_and_not_to_folders(
    run: TrackedRun, replica: Replica, files: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "s").write_text("secret")
    (files / "deep" / "to-file").symlink_to(files / "a.txt")
    (files / "deep" / "to-folder").symlink_to(tmp_path / "secret")
    (files / "deep" / "to-nothing").symlink_to(tmp_path / "nothing")
    (files / "deep" / "to-itself").symlink_to(files / "deep" / "to-itself")
    run.artifact(files / "deep")
    run.artifact(files / "deep" / "to-file", "linked")
    kept = tree(replica.run / "artifacts")
    assert kept["deep/to-file"] == kept["linked"] == b"alpha"
    assert set(kept) == {"deep/b.bin", "deep/er/c", "deep/to-file", "linked"}
    assert run.dropped == {}


def test_a_link_in_the_place_of_a_copy_is_replaced(run: TrackedRun, replica: Replica, files: Path) -> None:
    victim = files / "victim"
    victim.write_text("untouched")
    (replica.run / "artifacts").mkdir()
    (replica.run / "artifacts" / "a.txt").symlink_to(victim)
    run.artifact(files / "a.txt")
    assert victim.read_text() == "untouched"
    assert not (replica.run / "artifacts" / "a.txt").is_symlink()


def test_a_folder_may_be_copied_into_itself(run: TrackedRun, replica: Replica, files: Path) -> None:
    artifacts = replica.run / "artifacts"
    for turn in range(3):
        for folder in range(20):
            run.artifact(files / "a.txt", f"d{folder}/f{turn}")
        before = tree(artifacts)
        run.artifact(artifacts, "x")
        assert tree(artifacts / "x") == before


@pytest.mark.parametrize("path", ["missing", "", ".", "/dev/zero", "/dev/tty", "/proc/self/mem", "a\0b", "a.txt/below"])
def test_what_cannot_be_copied_is_said_and_costs_nothing(
    run: TrackedRun, replica: Replica, files: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files / "deep" / "er")
    (files / "deep" / "er" / "c").unlink()
    run.artifact(path)
    run.model(path)
    run.image("i", path)
    run.log(loss=1.0)
    assert recorded_files(replica) + recorded_files(replica, "model") + replica.events("image") == []
    assert sum(run.dropped.values()) == 3
    assert replica.count() == 1
    assert {name for name in tree(replica.run) if "draft" in name} == set()


def test_a_pipe_is_not_waited_for(run: TrackedRun, files: Path) -> None:
    os.mkfifo(files / "pipe")
    run.artifact(files / "pipe")
    run.artifact(files, "all")
    assert run.dropped == {f"artifact: {files / 'pipe'} is not a file": 1}


def test_what_is_missing_is_named(run: TrackedRun, files: Path) -> None:
    run.artifact(files / "missing")
    run.artifacts(files / "a.txt")
    run.artifacts(files / "gone")
    assert list(run.dropped) == [
        f"artifact: {files / 'missing'} does not exist",
        "artifacts: Not a directory",
        "artifacts: No such file or directory",
    ]


def test_a_file_in_the_place_of_a_folder_is_said(run: TrackedRun, replica: Replica, files: Path) -> None:
    run.artifact(files / "a.txt", "a")
    run.artifact(files / "a.txt", "a/b")
    run.artifact(files, "c")
    run.artifact(files / "a.txt", "c")
    assert [path for path, *_ in recorded_files(replica)] == ["artifacts/a", "artifacts/c"]
    assert sum(run.dropped.values()) == 2


# models ------------------------------------------------------------------------------------------------------------


def test_every_call_is_another_version(run: TrackedRun, replica: Replica, files: Path) -> None:
    run.model(files / "a.txt", "net", metrics={"loss": 0.5, "steps": 3}, description="first", labels={"a": 1})
    run.model(files, "net")
    first, second = replica.events("model")
    assert (replica.run / first["path"]).read_text() == "alpha"
    assert tree(replica.run / second["path"]) == tree(files)
    assert (first["name"], first["metrics"], first["size"], first["files"]) == (
        "net",
        {"loss": 0.5, "steps": 3.0},
        5,
        1,
    )
    assert (first["description"], first["labels"]) == ("first", {"a": "1"})
    assert (second["size"], second["files"], second["metrics"]) == (266, 3, {})
    assert Path(first["path"]).name == "a.txt"


def test_a_metric_that_is_none_does_not_cost_the_model(run: TrackedRun, replica: Replica, files: Path) -> None:
    run.model(files / "a.txt", metrics={"loss": 0.5, "bad": "x", "none": None})
    assert replica.event("model")["metrics"] == {"loss": 0.5}
    assert len(run.dropped) == 2


def test_a_model_by_any_name(run: TrackedRun, replica: Replica, files: Path) -> None:
    for name in ("a/b", "../x", "net\n", "", 5):
        run.model(files / "a.txt", name)  # type: ignore[arg-type]
    folders = {Path(event["path"]).parts[1] for event in replica.events("model")}
    assert folders == {"a_b", "_._x", "net_", "5"}
    assert run.dropped == {"model: a name must not be empty": 1}


# images ------------------------------------------------------------------------------------------------------------


class Picture:
    """PIL's, as far as we know it."""

    def __init__(self, data: bytes = b"\x89PNG picture") -> None:
        self.data = data

    def save(self, path: str) -> None:
        assert path.endswith(".png")  # PIL goes by it
        Path(path).write_bytes(self.data)


class Broken(Picture):
    def save(self, path: str) -> None:
        Path(path).write_bytes(b"half")
        raise ValueError("cannot write mode F as PNG")


def test_images_of_files_and_of_what_saves_itself(run: TrackedRun, replica: Replica, files: Path) -> None:
    (files / "i.JPG").write_bytes(b"\xff\xd8 picture")
    run.image("sample", files / "i.JPG", step=3, caption="a cat")
    run.image("sample", Picture(), step=4)
    run.image("sample", str(files / "a.txt"))
    first, second, third = replica.events("image")
    assert (replica.folder / first["path"]).read_bytes() == b"\xff\xd8 picture"
    assert (replica.folder / second["path"]).read_bytes() == b"\x89PNG picture"
    assert [Path(event["path"]).suffix for event in (first, second, third)] == [".jpg", ".png", ".txt"]
    assert [event["step"] for event in (first, second, third)] == [3, 4, None]
    assert (first["caption"], second["caption"]) == ("a cat", None)
    assert len({event["path"] for event in (first, second, third)}) == 3
    assert all(event["path"].startswith("media/") for event in (first, second, third))


@pytest.mark.parametrize("image", [None, 5, b"data", object(), [[0, 1]], Broken(), Picture])
def test_what_is_no_image_is_said(run: TrackedRun, replica: Replica, image: Any) -> None:
    run.image("sample", image)
    assert replica.events("image") == []
    assert len(run.dropped) == 1
    assert [path for path in replica.folder.rglob("*") if path.is_file() and path.parent.name == "media"] == []


def test_an_image_with_a_strange_ending(run: TrackedRun, replica: Replica, files: Path) -> None:
    for name in ("a.p\ng", "b." + "x" * 100, "c.", "d"):
        (files / name).write_bytes(b"picture")
        run.image("sample", files / name)
    assert [Path(event["path"]).suffix for event in replica.events("image")] == ["", "." + "x" * 9, "", ""]
