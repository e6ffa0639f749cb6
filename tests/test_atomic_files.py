from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest

from phalanx.atomic_files import draft_of, make_private, read_json, write_atomic, write_new

WRITERS = (write_atomic, write_new)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.mark.parametrize("write", WRITERS)
def test_a_file_is_private_unless_a_mode_is_given(write: Callable[..., None], tmp_path: Path, umask: None) -> None:
    write(tmp_path / "private", b"a")
    write(str(tmp_path / "open"), b"b", sync=False, mode=0o666)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {"private": 0o600, "open": 0o640}
    assert (tmp_path / "private").read_bytes() == b"a"


def test_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    write_atomic(tmp_path / "file", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"new"}


def test_a_file_that_must_be_new_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "file", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}


def test_of_many_who_write_a_new_file_one_succeeds(tmp_path: Path) -> None:
    def wrote(number: int) -> bool:
        try:
            write_new(tmp_path / "file", str(number).encode(), sync=False)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(wrote, range(32)))
    assert results.count(True) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == str(results.index(True))


def test_a_new_file_is_written_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> NoReturn:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    write_new(tmp_path / "file", b"first")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "file", b"second")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"first"}


@pytest.mark.parametrize("write", WRITERS)
def test_a_missing_folder_is_an_error(write: Callable[..., None], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "missing" / "file", b"data")


def test_threads_may_write_one_file_at_once(tmp_path: Path) -> None:
    contents = [bytes([65 + number]) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda data: write_atomic(tmp_path / "file", data, sync=False), contents * 8))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() in contents


def test_a_draft_becomes_the_file(tmp_path: Path) -> None:
    with draft_of(tmp_path / "model.bin", ".bin") as draft:
        assert Path(draft).parent == tmp_path
        assert Path(draft).name.startswith(".")
        assert draft.endswith(".draft.bin")
        Path(draft).write_bytes(b"data")
        assert not (tmp_path / "model.bin").exists()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"model.bin": b"data"}


@pytest.mark.parametrize("fault", [ValueError, KeyboardInterrupt])
def test_a_draft_that_fails_is_removed(fault: type[BaseException], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def write_half() -> NoReturn:
        with draft_of(tmp_path / "file") as draft:
            Path(draft).write_bytes(b"half")
            raise fault

    with pytest.raises(fault):
        write_half()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"file": b"old"}


def test_a_draft_of_a_name_without_folder_is_in_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomic("file", b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_longest_name_has_room_for_its_draft(tmp_path: Path) -> None:
    name = "ä" * 127
    write_atomic(tmp_path / name, b"data")
    assert (tmp_path / name).read_bytes() == b"data"


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff"])
def test_json_that_is_missing_or_damaged_is_none(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "file.json").write_bytes(content)
    assert read_json(tmp_path / "file.json") is None


def test_folders_are_private_and_only_made_below_one_that_is_there(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "b", tmp_path)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]
    with pytest.raises(FileNotFoundError):
        make_private(tmp_path / "gone" / "a", tmp_path / "gone")
