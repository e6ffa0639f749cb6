"""Outputs in remote storage: sent once, checked when they come back, given up here only when they are safe there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from phalanx.artifacts.downloads import DigestMismatch, download, free_local, open_output, restore
from phalanx.artifacts.objects import FileRecord
from phalanx.artifacts.outputs import browse, read_manifest
from phalanx.artifacts.remote import PushTally, RemoteStorage, check_url, in_turn, push
from phalanx.artifacts.trees import no_progress
from phalanx.errors import CallError, SystemFault
from tests.artifacts.test_outputs import sha256
from tests.scheduler.leftovers import Left, left_fixture  # noqa: F401 - found by its name

FILES = {"outputs/a": b"one", "artifacts/b/c": b"two", "models/m/1/w": b"two", "outputs/empty": b""}


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path}/remote store"
        return
    name = uuid4().hex
    yield f"memory://{name}/folder"
    storage = import_module("fsspec").filesystem("memory")
    if storage.exists(name):
        storage.rm(name, recursive=True)


def stored(url: str) -> dict[str, bytes]:
    """Everything at an address."""
    remote = RemoteStorage(url)
    storage, base = remote._storage, remote._base
    return {path[len(base) :].lstrip("/"): storage.cat_file(path) for path in storage.find(base)}


def spoil(url: str, digest: str, data: bytes) -> None:
    remote = RemoteStorage(url)
    remote._storage.pipe_file(remote._object(digest), data)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The digest of every object that is sent."""
    seen: list[str] = []
    before = RemoteStorage.send

    def counted(self: RemoteStorage, digest: str, *rest: Any) -> None:
        seen.append(digest)
        before(self, digest, *rest)

    monkeypatch.setattr(RemoteStorage, "send", counted)
    return seen


class TestPushing:
    def test_every_content_is_there_once_and_the_manifest_names_it(self, left: Left, url: str) -> None:
        left.run("r1", FILES)
        pushed = push(left.home, "r1", url)
        assert (pushed.sent, pushed.known, pushed.sent_bytes, pushed.left_out) == (3, 0, 6, [])
        found = stored(url)
        manifest = json.loads(found.pop("runs/r1.json"))
        assert found == {f"objects/{sha256(data)}": data for data in (b"one", b"two", b"")}
        assert {path: kept["digest"] for path, kept in manifest["files"].items()} == {
            path: sha256(data) for path, data in FILES.items()
        }

    def test_twice_or_by_two_runs_it_is_sent_once(self, left: Left, url: str, sent: list[str]) -> None:
        left.run("r1", FILES)
        left.run("r2", {"outputs/x": b"two", "outputs/y": b"new"})
        push(left.home, "r1", url)
        assert push(left.home, "r1", url)[1:3] == (0, 3)
        assert push(left.home, "r2", url)[1:3] == (1, 1)
        assert sorted(sent) == sorted(sha256(data) for data in (b"one", b"two", b"", b"new"))

    def test_the_address_is_remembered(self, left: Left, url: str) -> None:
        folder = left.run("r1", FILES)
        push(left.home, "r1", url + "/")
        assert read_manifest(folder).url == url
        left.settle("r1")
        assert read_manifest(folder).url == url

    def test_an_interrupted_push_goes_on(self, left: Left, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        left.run("r1", {f"outputs/{n}": bytes([n]) * 10 for n in range(20)})
        before = RemoteStorage.send
        done: list[str] = []

        def failing(self: RemoteStorage, digest: str, *rest: Any) -> None:
            if len(done) >= 7:
                raise CallError("the network is away")
            done.append(digest)
            before(self, digest, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(RemoteStorage, "send", failing)
            with pytest.raises(CallError, match="the network is away"):
                push(left.home, "r1", url)
        assert "runs/r1.json" not in stored(url)
        assert read_manifest(left.folder("r1").path).url is None
        pushed = push(left.home, "r1", url)
        assert pushed.known >= 7
        assert pushed.sent + pushed.known == 20
        assert len(stored(url)) == 21

    def test_an_object_that_did_not_arrive_whole_is_sent_again(self, left: Left, url: str) -> None:
        left.run("r1", FILES)
        push(left.home, "r1", url)
        spoil(url, sha256(b"one"), b"on")
        assert push(left.home, "r1", url).sent == 1
        assert stored(url)[f"objects/{sha256(b'one')}"] == b"one"

    def test_links_that_lead_out_are_not_sent(self, left: Left, url: str, tmp_path: Path) -> None:
        (tmp_path / "secret").write_bytes(b"secret")
        folder = left.run("r1", FILES)
        (folder / "outputs/out").symlink_to(tmp_path / "secret")
        (folder / "outputs/in").symlink_to("a")
        push(left.home, "r1", url)
        found = stored(url)
        assert b"secret" not in found.values()
        assert json.loads(found["runs/r1.json"])["links"] == {"outputs/in": "outputs/a"}

    def test_a_file_that_changes_while_it_is_sent_is_left_out(
        self, left: Left, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = left.run("r1", {"outputs/log": b"before", "outputs/a": b"one"})
        before = RemoteStorage.send

        def changing(self: RemoteStorage, digest: str, *rest: Any) -> None:
            if digest == sha256(b"before"):
                (folder / "outputs/log").write_bytes(b"after!")
            before(self, digest, *rest)

        monkeypatch.setattr(RemoteStorage, "send", changing)
        pushed = push(left.home, "r1", url)
        assert pushed.left_out == ["outputs/log"]
        found = stored(url)
        assert sorted(found) == sorted([f"objects/{sha256(b'one')}", "runs/r1.json"])
        assert list(json.loads(found["runs/r1.json"])["files"]) == ["outputs/a"]

    def test_how_far_it_is_is_reported(self, left: Left, url: str) -> None:
        left.run("r1", {"outputs/a": bytes(3 << 20), "outputs/b": b"x"})
        calls: list[tuple[str, int, int]] = []
        push(left.home, "r1", url, lambda *what: calls.append(what))
        reading = [(done, total) for what, done, total in calls if what.startswith("reading")]
        sending = [(done, total) for what, done, total in calls if what.startswith("sending")]
        assert reading[-1] == sending[-1] == ((3 << 20) + 1, (3 << 20) + 1)
        assert len(reading) > 3

    def test_nothing_left_is_fine(self, left: Left, url: str) -> None:
        left.run("r1")
        assert push(left.home, "r1", url).sent == 0
        assert list(stored(url)) == ["runs/r1.json"]


class TestComingBack:
    def test_files_that_are_only_there_are_listed_shown_and_taken(self, left: Left, url: str, tmp_path: Path) -> None:
        folder = left.run("r1", FILES)
        (folder / "outputs/latest").symlink_to("a")
        push(left.home, "r1", url)
        assert free_local(left.home, "r1") == sum(map(len, FILES.values()))
        assert not any(
            path.is_file() for top in ("outputs", "artifacts", "models") for path in (folder / top).rglob("*")
        )
        entries = {entry.path: entry for entry in browse(folder)}
        assert {path: entries[path].digest for path in FILES} == {path: sha256(data) for path, data in FILES.items()}
        assert {entries[path].place for path in FILES} == {"remote"}
        assert entries["outputs/latest"].leads_to == "outputs/a"
        with open_output(left.home, "r1", "outputs/latest")[0] as stream:
            assert stream.read() == b"one"
        assert download(left.home, "r1", "outputs", tmp_path / "got").unchecked == 0
        assert (tmp_path / "got/a").read_bytes() == (tmp_path / "got/latest").read_bytes() == b"one"
        assert download(left.home, "r1", "models/m/1/w", tmp_path / "w").files == 1
        assert (tmp_path / "w").read_bytes() == b"two"

    def test_folders_that_are_gone_altogether_are_listed_too(self, left: Left, url: str) -> None:
        folder = left.run("r1", {"outputs/a/b/c": b"one"})
        push(left.home, "r1", url)
        free_local(left.home, "r1")
        for name in ("outputs/a/b", "outputs/a", "outputs"):
            (folder / name).rmdir()
        paths = ["outputs", "outputs/a", "outputs/a/b", "outputs/a/b/c"]
        assert [(entry.path, entry.size, entry.place) for entry in browse(folder)] == [(p, 3, "remote") for p in paths]
        assert [entry.path for entry in browse(folder, "outputs/a/b")] == paths[2:]

    def test_a_damaged_object_is_said_to_be(self, left: Left, url: str, tmp_path: Path) -> None:
        left.run("r1", FILES)
        push(left.home, "r1", url)
        free_local(left.home, "r1")
        spoil(url, sha256(b"one"), b"eno")
        with pytest.raises(DigestMismatch, match="is damaged"):
            download(left.home, "r1", "outputs/a", tmp_path / "got")
        assert not (tmp_path / "got").exists()
        with pytest.raises(SystemFault, match="is damaged"):
            restore(left.home, "r1")

    def test_a_file_that_is_damaged_here_comes_from_there(self, left: Left, url: str, tmp_path: Path) -> None:
        folder = left.run("r1", FILES)
        push(left.home, "r1", url)
        (folder / "artifacts/b/c").chmod(0o600)
        (folder / "artifacts/b/c").write_bytes(b"evil")
        assert download(left.home, "r1", "artifacts/b/c", tmp_path / "got").unchecked == 0
        assert (tmp_path / "got").read_bytes() == b"two"

    def test_restoring_brings_everything_back(self, left: Left, url: str) -> None:
        folder = left.run("r1", FILES)
        (folder / "outputs/latest").symlink_to("a")
        push(left.home, "r1", url)
        times = {path: (folder / path).stat().st_mtime for path in FILES}
        free_local(left.home, "r1")
        (folder / "outputs/latest").unlink()
        assert restore(left.home, "r1") == 4
        assert {path: (folder / path).read_bytes() for path in FILES} == FILES
        assert (folder / "outputs/latest").read_bytes() == b"one"
        assert {path: round((folder / path).stat().st_mtime, 3) for path in FILES} == {
            path: round(time, 3) for path, time in times.items()
        }
        assert not any(kept.freed for kept in read_manifest(folder).files.values())
        assert restore(left.home, "r1") == 0
        assert (folder / "artifacts/b/c").stat().st_ino == (folder / "models/m/1/w").stat().st_ino

    def test_restoring_writes_through_no_link(self, left: Left, url: str, tmp_path: Path) -> None:
        folder = left.run("r1", {"outputs/sub/a": b"one"})
        push(left.home, "r1", url)
        free_local(left.home, "r1")
        (folder / "outputs/sub").rmdir()
        (tmp_path / "elsewhere").mkdir()
        (folder / "outputs/sub").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(CallError, match="is a link"):
            restore(left.home, "r1")
        assert list((tmp_path / "elsewhere").iterdir()) == []

    def test_what_training_wrote_anew_is_not_overwritten(self, left: Left, url: str) -> None:
        folder = left.run("r1", FILES)
        push(left.home, "r1", url)
        free_local(left.home, "r1")
        (folder / "outputs/a").write_bytes(b"resumed")
        restore(left.home, "r1")
        assert (folder / "outputs/a").read_bytes() == b"resumed"
        assert read_manifest(folder).files["outputs/a"].digest == sha256(b"resumed")

    def test_what_was_freed_can_be_pushed_again_only_to_the_same_place(
        self, left: Left, url: str, tmp_path: Path
    ) -> None:
        left.run("r1", FILES)
        push(left.home, "r1", url)
        free_local(left.home, "r1")
        assert push(left.home, "r1", url).sent == 0
        assert len(json.loads(stored(url)["runs/r1.json"])["files"]) == 4
        with pytest.raises(CallError, match="--restore"):
            push(left.home, "r1", f"file://{tmp_path}/another")


class TestFreeing:
    def kept(self, left: Left) -> bool:
        return {path: (left.folder("r1").path / path).read_bytes() for path in FILES} == FILES

    def test_not_before_it_was_pushed(self, left: Left) -> None:
        left.run("r1", FILES)
        with pytest.raises(CallError, match="never pushed"):
            free_local(left.home, "r1")
        assert self.kept(left)

    def test_not_while_the_run_goes_on(self, left: Left, url: str) -> None:
        left.run("r1", FILES, status="running")
        push(left.home, "r1", url)
        with pytest.raises(CallError, match="has not ended"):
            free_local(left.home, "r1")
        assert self.kept(left)

    def test_not_when_something_changed_since(self, left: Left, url: str) -> None:
        folder = left.run("r1", FILES)
        push(left.home, "r1", url)
        (folder / "outputs/a").write_bytes(b"new")
        with pytest.raises(CallError, match=r"1 files .* outputs/a"):
            free_local(left.home, "r1")
        assert (folder / "outputs/a").read_bytes() == b"new"
        assert (folder / "artifacts/b/c").read_bytes() == b"two"

    @pytest.mark.parametrize("harm", ["gone", "cut", "other", "manifest"])
    def test_not_when_an_object_is_not_what_it_must_be(self, left: Left, url: str, harm: str) -> None:
        left.run("r1", FILES)
        push(left.home, "r1", url)
        remote, digest = RemoteStorage(url), sha256(b"two")
        if harm == "gone":
            remote.remove(digest)
        elif harm == "manifest":
            remote._storage.rm_file(f"{remote._base}/runs/r1.json")
        else:
            spoil(url, digest, b"tw" if harm == "cut" else b"owt")
        with pytest.raises((CallError, SystemFault)):
            free_local(left.home, "r1")
        assert self.kept(left)
        assert browse(left.folder("r1").path, "outputs/a")[0].place == "here"

    def test_objects_of_others_stay(self, left: Left, url: str) -> None:
        left.run("r1", FILES)
        left.run("r2", {"artifacts/x": b"two"})
        left.settle("r2")
        push(left.home, "r1", url)
        free_local(left.home, "r1")
        assert (left.folder("r2").path / "artifacts/x").read_bytes() == b"two"
        assert left.objects() == [sha256(b"two")]

    @pytest.mark.slow
    def test_killed_at_any_moment_nothing_is_lost(self, left: Left, tmp_path: Path) -> None:
        files = {f"outputs/{n}": os.urandom(2000) for n in range(40)}
        folder = left.run("r1", files)
        address = f"file://{tmp_path}/remote"
        code = """
import sys
from pathlib import Path
from phalanx.home.home import Home
from phalanx.artifacts.remote import push
from phalanx.artifacts.downloads import free_local, restore
home = Home(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    push(home, "r1", sys.argv[2])
    free_local(home, "r1")
    restore(home, "r1")
"""
        for number in range(6):
            command = [sys.executable, "-c", code, str(left.home.path), address]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.15 + 0.05 * number)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        restore(left.home, "r1")
        push(left.home, "r1", address)
        assert {path: (folder / path).read_bytes() for path in files} == files


class TestAddresses:
    @pytest.mark.parametrize("url", ["", "bucket/folder", "/mnt/disk", "s3:bucket", "://x"])
    def test_what_is_not_one_is_refused(self, url: str) -> None:
        with pytest.raises(CallError):
            check_url(url) and RemoteStorage(url)

    @pytest.mark.parametrize("url", ["s3://AKIA123:hunter2@bucket/x", "s3://bucket/x?secret=hunter2", "a::s3://b"])
    def test_keys_and_chains_are_refused_and_leave_no_trace(
        self, left: Left, url: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        folder = left.run("r1", FILES)
        with pytest.raises(CallError) as raised:
            push(left.home, "r1", url)
        assert "hunter2" not in str(raised.value)
        assert "AKIA" not in str(raised.value)
        for path in left.home.path.rglob("*"):
            assert not path.is_file() or b"hunter2" not in path.read_bytes()
        assert not (folder / "outputs.json").exists()
        assert "hunter2" not in "".join(capfd.readouterr())

    def test_an_unknown_storage_is_named(self) -> None:
        with pytest.raises(CallError, match="nope"):
            RemoteStorage("nope://bucket")

    @pytest.mark.parametrize(("scheme", "extra"), [("s3", "s3"), ("gs", "gcs"), ("az", "azure"), ("abfss", "azure")])
    def test_a_missing_package_is_named_by_its_extra(
        self, monkeypatch: pytest.MonkeyPatch, scheme: str, extra: str
    ) -> None:
        registered = import_module("fsspec.registry")._registry
        for name in ("s3fs", "gcsfs", "adlfs"):
            monkeypatch.setitem(sys.modules, name, None)
            monkeypatch.delitem(registered, scheme, raising=False)
        with pytest.raises(CallError, match=rf"phalanx\[{extra}\]"):
            RemoteStorage(f"{scheme}://bucket/folder")

    def test_a_secret_in_a_storages_own_message_is_not_shown(
        self, left: Left, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2-hunter2")
        remote = RemoteStorage(url)

        def failing(*_: Any, **__: Any) -> None:
            raise RuntimeError("could not log in with\nhunter2-hunter2")

        monkeypatch.setattr(remote._storage, "info", failing)
        with pytest.raises(SystemFault, match="could not log in with …") as raised:
            remote.size(sha256(b"x"))
        assert "hunter2" not in str(raised.value)

    def test_a_place_that_cannot_be_written_is_said(self, left: Left, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        left.run("r1", FILES)
        with pytest.raises(SystemFault, match="cannot be"):
            push(left.home, "r1", f"file://{tmp_path}/file/below")

    def test_a_manifest_from_there_cannot_name_what_is_outside(self, left: Left, url: str) -> None:
        left.run("r1", FILES)
        push(left.home, "r1", url)
        remote = RemoteStorage(url)
        bad = {"files": {"../x": {"size": 1, "digest": sha256(b"x")}, "outputs/a": {"size": 1, "digest": "../../x"}}}
        remote._storage.pipe_file(f"{remote._base}/runs/r1.json", json.dumps(bad).encode())
        assert remote.manifest("r1") == {}
        remote._storage.pipe_file(f"{remote._base}/runs/r1.json", b"[]")
        with pytest.raises(SystemFault):
            remote.manifest("r1")


def test_verifying_reads_every_object(left: Left, url: str) -> None:
    left.run("r1", FILES)
    push(left.home, "r1", url)
    kept = [FileRecord(len(data), 0, 0, sha256(data), 0.0) for data in FILES.values()]
    RemoteStorage(url).verify(kept)
    with pytest.raises(SystemFault, match="has no object"):
        RemoteStorage(url).verify([*kept, FileRecord(1, 0, 0, sha256(b"?"), 0.0)])


def test_what_is_done_a_few_at_once_is_done_once_each_and_the_first_fault_is_raised() -> None:
    done: list[int] = []
    in_turn(done.append, range(50))
    assert sorted(done) == list(range(50))
    barrier = threading.Event()

    def failing(number: int) -> None:
        if number == 3:
            barrier.set()
            raise CallError("three")
        barrier.wait(5)
        done.append(number)

    done.clear()
    with pytest.raises(CallError, match="three"):
        in_turn(failing, range(1000))
    assert len(done) < 20


def test_a_tally_sums_up_parts() -> None:
    calls: list[tuple[str, int, int]] = []
    tally = PushTally("x", 10, lambda *what: calls.append(what))
    one, two = tally.part(), tally.part()
    one(2)
    two(3)
    one(4)
    assert [done for _, done, _ in calls] == [2, 5, 7]
    no_progress("x", 1, 2)
