from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.backends import code_archive
from phalanx.backends.code_archive import Unpacked, unpack
from phalanx.errors import CallError
from phalanx.server.routes import snapshots
from phalanx.server.routes.snapshots import Uploads
from phalanx.submission.snapshots import files_of, pack
from tests.server.site import Site

ROUTE = "/api/v1/snapshots"


def entry(name: str, kind: bytes = tarfile.REGTYPE, **more: object) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type = kind
    for field, value in more.items():
        setattr(found, field, value)
    return found


def tar_of(*entries: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=form) as archive:
        for one in entries:
            about, content = one if isinstance(one, tuple) else (one, b"")
            about.size = len(content) or about.size
            archive.addfile(about, io.BytesIO(content) if content else None)
    return target.getvalue()


def packed(*entries: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    return gzip.compress(tar_of(*entries, form=form))


def file_entry(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    return entry(name), content


def undone(data: bytes, folder: Path, **more: int) -> Unpacked:
    return unpack(io.BytesIO(data), folder / "code", **more)


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_packed_is_unpacked_the_same(tmp_path: Path) -> None:
    source = tmp_path / "source"
    long = "a" * 120 + "/" + "b" * 120 + "/" + "ü" * 60
    for name in ("train.py", "package/inner/deep.py", long, "empty"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(b"" if name == "empty" else os.urandom(3000))
    (source / "train.py").chmod(0o755)
    (source / "link.py").symlink_to("train.py")
    target = io.BytesIO()
    assert pack(source, target) == len(files_of(source)) == 5
    found = undone(target.getvalue(), tmp_path)
    assert found == Unpacked(5, 3000 * 4)
    assert files_below(tmp_path / "code") == files_below(source)
    assert not any(path.is_symlink() for path in (tmp_path / "code").rglob("*"))
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "code").rglob("*")}
    assert modes == {0o600, 0o700}
    assert (tmp_path / "code" / "train.py").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "code" / "empty").stat().st_mode & 0o777 == 0o600


def test_too_much_code_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(2 << 20))
    with pytest.raises(CallError, match="polyaxonignore"):
        pack(tmp_path, io.BytesIO(), most=1 << 20)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_all_usual_forms_of_tar_are_read(tmp_path: Path, form: int) -> None:
    deep = "d" * 60 + "/" + "e" * 60 + "/f"
    data = packed(entry("d", tarfile.DIRTYPE), file_entry("./d/a", b"1"), file_entry(deep, b"2" * 600), form=form)
    assert undone(data, tmp_path) == Unpacked(2, 601)
    assert files_below(tmp_path / "code") == {"d/a": b"1", deep: b"2" * 600}


@pytest.mark.skipif(shutil.which("tar") is None, reason="there is no tar")
def test_what_the_systems_tar_makes_is_read(tmp_path: Path) -> None:
    (tmp_path / "from" / ("n" * 150)).mkdir(parents=True)
    (tmp_path / "from" / ("n" * 150) / "file").write_text("content")
    data = subprocess.run(["tar", "-C", tmp_path / "from", "-czf", "-", "."], check=True, stdout=subprocess.PIPE).stdout
    assert undone(data, tmp_path).files == 1


HOSTILE: dict[str, bytes] = {
    "an absolute path": packed(file_entry("/etc/cron.d/x")),
    "a path that leads up": packed(file_entry("../outside")),
    "one that leads up later": packed(file_entry("a/../../outside")),
    "a folder that leads up": packed(entry("a/..", tarfile.DIRTYPE)),
    "a symbolic link": packed(entry("link", tarfile.SYMTYPE, linkname="/etc/passwd")),
    "a link, then through it": packed(entry("l", tarfile.SYMTYPE, linkname="/tmp"), file_entry("l/x")),
    "a hard link": packed(entry("link", tarfile.LNKTYPE, linkname="/etc/passwd")),
    "a device": packed(entry("null", tarfile.CHRTYPE, devmajor=1, devminor=3)),
    "a block device": packed(entry("disk", tarfile.BLKTYPE, devmajor=8)),
    "a pipe": packed(entry("pipe", tarfile.FIFOTYPE)),
    "a sparse file": packed(entry("sparse", tarfile.GNUTYPE_SPARSE), form=tarfile.GNU_FORMAT),
    "an unknown kind": packed(entry("odd", b"Z")),
    "a backslash": packed(file_entry("a\\b")),
    "a line break": packed(file_entry("a\nb")),
    "a zero in a name": packed(entry("ok", pax_headers={"path": "a\0b"})),
    "a pax name that leads up": packed(entry("ok", pax_headers={"path": "../outside"})),
    "a pax size that is negative": packed(entry("ok", pax_headers={"size": "-5"})),
    "a pax sparse file": packed(entry("ok", pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"})),
    "a path that is too long": packed(file_entry("a/" * 500 + "x")),
    "a name that is too long": packed(file_entry("n" * 300)),
    "too many steps": packed(file_entry("/".join("abcdefghij" * 7))),
    "the same file twice": packed(file_entry("a"), file_entry("a")),
    "the same file by another name": packed(file_entry("a"), file_entry("./a")),
    "a file, then a folder of its name": packed(file_entry("a"), file_entry("a/b")),
    "a folder, then a file of its name": packed(file_entry("a/b"), file_entry("a")),
    "a name that is not UTF-8": gzip.compress(
        tar_of(file_entry("abc"), form=tarfile.USTAR_FORMAT).replace(b"abc", b"\xff\xfe\xfd", 1)
    ),
    "not gzip": tar_of(file_entry("a")),
    "gzip of something else": gzip.compress(os.urandom(5000)),
    "nothing": b"",
    "an empty gzip": gzip.compress(b""),
    "cut short in gzip": packed(file_entry("a", os.urandom(5000)))[:-2000],
    "cut short in tar": gzip.compress(tar_of(file_entry("a", os.urandom(5000)))[:3000]),
    "without an end": gzip.compress(tar_of(file_entry("a"))[:1024]),
    "a wrong checksum": packed(file_entry("a", os.urandom(5000)))[:-8] + b"\1\2\3\4\5\6\7\x08",
    "something behind it": packed(file_entry("a")) + b"more",
    "a second archive behind it": packed(file_entry("a")) + packed(file_entry("b")),
    "another archive within": gzip.compress(tar_of(file_entry("a")) + tar_of(file_entry("../b"))),
    "endless headers": packed(*(entry(f"{n}", pax_headers={"comment": "x" * 70_000}) for n in range(1))),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_archive_is_refused_whole(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CallError) as raised:
        undone(data, tmp_path)
    assert str(raised.value)
    assert not list(tmp_path.iterdir())


def test_a_bomb_is_refused_before_it_has_grown(tmp_path: Path) -> None:
    bomb = packed((entry("zeros"), bytes(64 << 20)))
    assert len(bomb) < 1 << 17
    with pytest.raises(CallError, match="far more than was sent"):
        undone(bomb, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_bomb_of_headers_takes_no_memory(tmp_path: Path) -> None:
    head = entry("ok", tarfile.XHDTYPE, size=400 << 20).tobuf(tarfile.USTAR_FORMAT)
    with pytest.raises(CallError, match="too many or too large headers"):
        undone(gzip.compress(head + bytes(1 << 20)), tmp_path)


@pytest.mark.parametrize("size", [b"\x80" + b"\xff" * 11, b"\xff" * 12, b"-0000000001\0", b"99999999999\0"])
def test_sizes_that_are_no_sizes_are_refused(tmp_path: Path, size: bytes) -> None:
    block = bytearray(entry("a", size=1).tobuf(tarfile.USTAR_FORMAT))
    block[124:136] = size
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    with pytest.raises(CallError):
        undone(gzip.compress(bytes(block) + bytes(2048)), tmp_path)
    assert not list(tmp_path.iterdir())


def test_too_much_and_too_many_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CallError, match="polyaxonignore"):
        undone(packed(file_entry("a", os.urandom(2 << 20))), tmp_path, most=1 << 20)
    with pytest.raises(CallError, match="cut short"):  # it says more than it holds
        undone(packed(entry("a", size=1 << 19)), tmp_path, most=1 << 20)
    monkeypatch.setattr(code_archive, "MOST_FILES", 20)
    with pytest.raises(CallError, match="20 files"):
        undone(packed(*(entry(f"{number}") for number in range(21))), tmp_path)
    written: list[object] = []
    with monkeypatch.context() as watched:
        watched.setattr(os, "open", lambda *given: written.append(given))
        with pytest.raises(CallError, match="20 files"):
            undone(packed(*(file_entry(f"{number}") for number in range(21))), tmp_path)
    assert not written, "it is counted before anything is written"
    monkeypatch.setattr(code_archive, "MOST_FOLDERS", 20)
    with pytest.raises(CallError, match="20 folders"):
        undone(packed(*(entry(f"{number}", tarfile.DIRTYPE) for number in range(21))), tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_archive_is_sent_and_reported_of(site: Site) -> None:
    answer = site.ask("POST", ROUTE, content=packed(file_entry("a", b"12345"), file_entry("b/c", b"1")))
    assert answer.status_code == 201
    body = answer.json()
    assert (body["files"], body["size"]) == (2, 6)
    assert files_below(site.home.path / "uploads" / body["id"] / "code") == {"a": b"12345", "b/c": b"1"}


def test_a_hostile_archive_is_answered_and_nothing_is_left(own_site: Site) -> None:
    for name in ("a path that leads up", "a symbolic link", "not gzip", "cut short in gzip", "nothing"):
        answer = own_site.ask("POST", ROUTE, content=HOSTILE[name])
        assert answer.status_code == 400, name
        assert answer.json()["error"]["message"]
    assert not list((own_site.home.path / "uploads").iterdir())


def test_it_is_never_there_in_part(own_site: Site) -> None:
    """While its bytes still come, nothing can be claimed; and when they stop coming, nothing is left."""
    data = packed(file_entry("a", os.urandom(1 << 20)))
    seen: list[str] = []

    def pieces() -> Iterator[bytes]:
        yield data[: len(data) // 2]
        time.sleep(0.3)
        seen.extend(path.name for path in (own_site.home.path / "uploads").iterdir())
        raise OSError("the line is cut")

    with pytest.raises(OSError, match="the line is cut"):
        own_site.ask("POST", ROUTE, content=pieces())
    assert seen
    assert all(name.startswith(".") for name in seen)
    deadline = time.monotonic() + 10
    while list((own_site.home.path / "uploads").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list((own_site.home.path / "uploads").iterdir())


def test_what_no_one_uses_is_swept_after_a_day(own_site: Site) -> None:
    first = own_site.ask("POST", ROUTE, content=packed(file_entry("a"))).json()["id"]
    uploads = own_site.home.path / "uploads"
    (uploads / ".draft").mkdir()
    for name in (first, ".draft"):
        os.utime(uploads / name, (time.time() - 90_000,) * 2)
    second = own_site.ask("POST", ROUTE, content=packed(file_entry("a"))).json()["id"]
    assert [path.name for path in uploads.iterdir()] == [second]


def test_no_one_fills_the_disk_with_snapshots_that_are_not_used(
    own_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MOST_WAITING", 2)
    codes = [own_site.ask("POST", ROUTE, content=packed(file_entry("a"))).status_code for _ in range(3)]
    assert codes == [201, 201, 429]


def test_of_many_who_claim_a_snapshot_one_gets_it(own_site: Site) -> None:
    snapshot = own_site.ask("POST", ROUTE, content=packed(file_entry("a"))).json()["id"]
    won: list[object] = []

    def claim() -> None:
        try:
            won.append(Uploads(own_site.home).claim(snapshot, "tester"))
        except Exception:  # noqa: BLE001 - all but one are refused
            return

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
