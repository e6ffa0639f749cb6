from __future__ import annotations

import stat
import zipfile
from pathlib import Path

import pytest

from phalanx.errors import CallError, SystemFault
from phalanx.formats import zip_archives
from phalanx.formats.foreign_run import ImportLosses


def unpacked(path: Path, folder: Path) -> ImportLosses:
    folder.mkdir()
    losses = ImportLosses()
    zip_archives.unpack(path, folder, losses)
    return losses


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_files_come_out_with_their_folders(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run/run.json", "{}")
        archive.writestr("run/deep/er/x", "hello" * 1000)
        archive.writestr("run/empty/", "")
    losses = unpacked(tmp_path / "a.zip", tmp_path / "out")
    assert files_in(tmp_path / "out") == ["run/deep/er/x", "run/run.json"]
    assert (tmp_path / "out" / "run" / "deep" / "er" / "x").read_text() == "hello" * 1000
    assert losses.rows() == []


@pytest.mark.parametrize("name", ["../up", "a/../../up", "/abs", "a//b", "a\\..\\up", "C:\\up", "./x", "..", "a/./b"])
def test_names_that_lead_elsewhere_are_left_in_the_archive(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo("good"), "x")
        entry = zipfile.ZipInfo("other")
        entry.filename = name
        archive.writestr(entry, "evil")
    losses = unpacked(tmp_path / "a.zip", tmp_path / "out")
    assert files_in(tmp_path / "out") == ["good"]
    assert files_in(tmp_path) == ["a.zip", "out/good"]
    assert losses.counts == {"names in the archive that are not relative paths": 1}


def test_links_and_devices_are_not_made(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for kind in (stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR):
            entry = zipfile.ZipInfo(f"odd-{kind}")
            entry.external_attr = (kind | 0o777) << 16
            archive.writestr(entry, "/etc/passwd")
        archive.writestr("odd-behind/file", "x")
    losses = unpacked(tmp_path / "a.zip", tmp_path / "out")
    assert files_in(tmp_path / "out") == ["odd-behind/file"]
    assert losses.counts == {"links and devices in the archive": 3}


def test_a_name_that_is_there_twice_is_taken_once(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", "first")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a", "second")
        archive.writestr("a/b", "third")
    losses = unpacked(tmp_path / "a.zip", tmp_path / "out")
    assert (tmp_path / "out" / "a").read_text() == "first"
    assert losses.counts == {"duplicate names in the archive": 2}


def test_bombs_are_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_archives, "SMALL_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(30 << 20))
    with pytest.raises(CallError, match="implausible uncompressed size"):
        unpacked(tmp_path / "bomb.zip", tmp_path / "out")
    assert files_in(tmp_path / "out") == []


def test_an_archive_without_room_for_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x", "y")
    monkeypatch.setattr(zip_archives, "SPARE_BYTES", 1 << 60)
    with pytest.raises(SystemFault, match="not enough space"):
        unpacked(tmp_path / "a.zip", tmp_path / "out")


def test_damaged_archives_are_reported(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", "hello " * 1000)
    content = bytearray((tmp_path / "a.zip").read_bytes())
    content[45] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(CallError, match="cannot be unpacked"):
        unpacked(tmp_path / "a.zip", tmp_path / "out")
    (tmp_path / "b.zip").write_bytes(content[:40])
    with pytest.raises(CallError, match="cannot be unpacked"):
        unpacked(tmp_path / "b.zip", tmp_path / "out2")
