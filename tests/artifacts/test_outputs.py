"""What a run left: read once, kept once, listed truly, and nothing leads out of it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from phalanx.artifacts.downloads import DigestMismatch, download, open_output
from phalanx.artifacts.objects import RACY_NS, Objects, TreeDigester, digest_of_files
from phalanx.artifacts.outputs import browse, index_outputs, read_manifest, update_manifest
from phalanx.artifacts.trees import Tree, TreeEntry, path_parts, run_tree
from phalanx.errors import CallError
from phalanx.store import Artifact, StatusChange
from tests.scheduler.leftovers import LONG_AGO, Left, left_fixture  # noqa: F401 - found by its name


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def paths(folder: Path, below: str = "") -> list[str]:
    return [entry.path for entry in browse(folder, below)]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every file that is read for its digest."""
    seen: list[str] = []
    before = TreeDigester._digest

    def counted(self: TreeDigester, tree: Tree, found: TreeEntry, done: int, total: int) -> str | None:
        seen.append(found.path)
        return before(self, tree, found, done, total)

    monkeypatch.setattr(TreeDigester, "_digest", counted)
    return seen


class TestSettling:
    def test_every_file_has_its_digest(self, left: Left) -> None:
        files = {"outputs/a": b"one", "artifacts/b/c": b"two", "models/net/1/w": b"three", "outputs/empty": b""}
        folder = left.run("r1", files)
        left.settle("r1")
        found = read_manifest(folder).files
        assert {path: kept.digest for path, kept in found.items()} == {p: sha256(data) for p, data in files.items()}
        assert {path: kept.size for path, kept in found.items()} == {p: len(data) for p, data in files.items()}

    def test_what_did_not_change_is_not_read_again(self, left: Left, reads: list[str]) -> None:
        left.run("r1", {"outputs/a": b"one", "artifacts/b": b"two", "models/net/1/w": b"three"})
        left.settle("r1")
        assert sorted(reads) == ["artifacts/b", "models/net/1/w", "outputs/a"]
        left.settle("r1")
        left.write("r1", "outputs/a", b"new")
        left.settle("r1")
        assert sorted(reads[3:]) == ["outputs/a"]
        assert read_manifest(left.folder("r1").path).files["outputs/a"].digest == sha256(b"new")

    def test_a_file_that_was_written_a_moment_ago_can_be_trusted_when_it_was_read(
        self, left: Left, reads: list[str]
    ) -> None:
        folder = left.run("r1", {"outputs/a": b"one"})
        (folder / "outputs/a").write_bytes(b"two")
        left.settle("r1")
        (folder / "outputs/a").write_bytes(b"six")  # of the same size, in the same inode
        left.settle("r1")
        assert read_manifest(folder).files["outputs/a"].digest == sha256(b"six")
        assert reads == ["outputs/a", "outputs/a"]

    def test_and_is_not_read_before_its_time_would_show_another_write(
        self, left: Left, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ages: list[int] = []

        def noted(self: TreeDigester, tree: Tree, found: TreeEntry, done: int, total: int) -> str | None:
            ages.append(time.time_ns() - found.mtime_ns)
            return None

        monkeypatch.setattr(TreeDigester, "_digest", noted)
        folder = left.run("r1", {"outputs/a": b"one"})
        (folder / "outputs/a").write_bytes(b"two")
        left.settle("r1")
        assert ages[0] >= RACY_NS

    def test_a_file_of_the_future_is_read_each_time(self, left: Left, reads: list[str]) -> None:
        folder = left.run("r1", {"outputs/a": b"one"})
        os.utime(folder / "outputs/a", (time.time() + 1000, time.time() + 1000))
        left.settle("r1")
        left.settle("r1")
        assert len(reads) == 2

    def test_files_that_went_are_forgotten(self, left: Left) -> None:
        folder = left.run("r1", {"outputs/a": b"one", "outputs/b": b"two"})
        left.settle("r1")
        (folder / "outputs/a").unlink()
        left.settle("r1")
        assert list(read_manifest(folder).files) == ["outputs/b"]

    def test_a_damaged_manifest_costs_reading_only(self, left: Left) -> None:
        folder = left.run("r1", {"outputs/a": b"one"})
        left.settle("r1")
        for text in ("", "[]", '{"files": {"outputs/a": 3}}', '{"files": {}, "links": 7, "url": 1, "pushed_at": 2}'):
            (folder / "outputs.json").write_text(text)
            assert read_manifest(folder).files == {}
            left.settle("r1")
            assert read_manifest(folder).files["outputs/a"].digest == sha256(b"one")

    def test_a_manifest_from_elsewhere_cannot_name_what_is_outside(self, left: Left) -> None:
        folder = left.run("r1", {"outputs/a": b"one"})
        left.settle("r1")
        data = json.loads((folder / "outputs.json").read_bytes())
        kept = {**data["files"]["outputs/a"], "freed": True}
        bad = ("../x", "/etc/passwd", "outputs/../../x", "outputs", "run.json", "outputs//a", "", "outputs/\ud800")
        data["files"] |= dict.fromkeys(bad, kept)
        data["links"] = {"outputs/l": "../../x", "outputs/m": "outputs/a", "../l": "outputs/a"}
        (folder / "outputs.json").write_text(json.dumps(data))
        assert list(read_manifest(folder).files) == ["outputs/a"]
        assert read_manifest(folder).links == {"outputs/m": "outputs/a"}
        data["files"] = {"outputs/a": {**kept, "digest": "../../../etc/passwd"}}
        (folder / "outputs.json").write_text(json.dumps(data))
        assert read_manifest(folder).files == {}

    def test_a_run_without_anything_is_fine(self, left: Left) -> None:
        left.run("r1")
        assert left.settle("r1") == []
        assert browse(left.folder("r1").path) == []

    def test_names_that_are_not_utf8_are_kept(self, left: Left, tmp_path: Path) -> None:
        folder = left.run("r1", {"artifacts/a": b"one"})
        name = os.fsdecode(b"caf\xe9\n\x1b[31m")
        (folder / "artifacts" / name).write_bytes(b"two")
        rows = left.settle("r1")
        left.settle("r1")
        assert {row.digest for row in rows} == {sha256(b"one"), sha256(b"two")}
        taken = download(left.home, "r1", "artifacts", tmp_path / "got")
        assert (tmp_path / "got" / name).read_bytes() == b"two"
        assert taken.unchecked == 0

    @pytest.mark.slow
    def test_killed_at_any_moment_it_goes_on(self, left: Left, tmp_path: Path) -> None:
        contents = [os.urandom(200_000) for _ in range(10)]
        files = {
            f"{top}/{n}": data for n, data in enumerate(contents) for top in ("artifacts", "models/m/1", "outputs")
        }
        folder = left.run("r1", files)
        left.run("r2", {f"artifacts/{n}": data for n, data in enumerate(contents)})
        code = """
import sys
from pathlib import Path
from phalanx.home.home import Home
from phalanx.registry.registry import finalize_outputs
from phalanx.store import Store
objects.SAVE_S = 0.0
home = Home(Path(sys.argv[1]))
with Store.open(home.path) as store:
    print("ready", flush=True)
    finalize_outputs(home, store, "r1")
    finalize_outputs(home, store, "r2")
"""
        for number in range(8):
            command = [sys.executable, "-c", code, str(left.home.path)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.004 * number)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            assert {path: (folder / path).read_bytes() for path in files} == files
        left.settle("r1")
        left.settle("r2")
        assert {path: (folder / path).read_bytes() for path in files} == files
        found = read_manifest(folder).files
        assert {path: kept.digest for path, kept in found.items()} == {p: sha256(data) for p, data in files.items()}
        assert left.objects() == sorted(sha256(data) for data in contents)
        inode = (folder / "artifacts/3").stat().st_ino
        assert (left.folder("r2").path / "artifacts/3").stat().st_ino == inode


class TestSharing:
    def test_equal_files_of_all_runs_are_kept_once(self, left: Left) -> None:
        one = left.run("r1", {"artifacts/a": b"same", "models/m/1/w": b"same", "artifacts/b": b"other"})
        two = left.run("r2", {"artifacts/c/d": b"same"})
        left.settle("r1")
        left.settle("r2")
        same = {path.stat().st_ino for path in (one / "artifacts/a", one / "models/m/1/w", two / "artifacts/c/d")}
        assert len(same) == 1
        assert left.objects() == sorted([sha256(b"same"), sha256(b"other")])
        state = (one / "artifacts/a").stat()
        assert (state.st_nlink, state.st_mode & 0o777) == (4, 0o400)

    def test_the_time_when_a_file_was_written_stays(self, left: Left) -> None:
        left.run("r1", {"artifacts/a": b"same"})
        folder = left.run("r2", {"artifacts/b": b"same"})
        os.utime(folder / "artifacts/b", (LONG_AGO - 86_400, LONG_AGO - 86_400))
        left.settle("r1")
        left.settle("r2")
        left.settle("r2")
        entry = browse(folder, "artifacts/b")[0]
        assert entry.at is not None
        assert abs(entry.at.timestamp() - (LONG_AGO - 86_400)) < 0.001
        assert entry.digest == sha256(b"same")

    def test_outputs_are_never_shared_since_training_may_write_them_again(self, left: Left) -> None:
        folder = left.run("r1", {"outputs/a": b"same", "artifacts/a": b"same"})
        left.settle("r1")
        assert (folder / "outputs/a").stat().st_nlink == 1
        (folder / "outputs/a").write_bytes(b"new!")
        assert (folder / "artifacts/a").read_bytes() == b"same"

    def test_where_links_do_not_work_copies_stay(self, left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(*_: object, **__: object) -> None:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", refused)
        folder = left.run("r1", {"artifacts/a": b"same", "artifacts/b": b"same"})
        left.settle("r1")
        assert (folder / "artifacts/a").read_bytes() == b"same"
        assert read_manifest(folder).files["artifacts/b"].digest == sha256(b"same")
        assert left.objects() == []

    def test_a_damaged_object_never_takes_the_place_of_a_good_file(self, left: Left) -> None:
        one = left.run("r1", {"artifacts/a": b"good"})
        left.settle("r1")
        place = Objects(left.home.path).place(sha256(b"good"))
        place.chmod(0o600)
        place.write_bytes(b"evil")
        two = left.run("r2", {"artifacts/a": b"good"})
        left.settle("r2")
        assert (two / "artifacts/a").read_bytes() == b"good"
        assert place.read_bytes() == b"good"
        assert (one / "artifacts/a").read_bytes() == b"evil"  # and that it is, is said when somebody wants it

    def test_files_of_a_run_that_goes_on_are_not_replaced(self, left: Left) -> None:
        left.run("r1", {"artifacts/a": b"same"})
        left.settle("r1")
        folder = left.run("r2", {"artifacts/a": b"same"}, status="running")
        inode = (folder / "artifacts/a").stat().st_ino
        left.settle("r2")
        assert (folder / "artifacts/a").stat().st_ino == inode
        left.folder("r2").append(StatusChange("r2", 2, 1, "succeeded", "", datetime.now(UTC)))
        left.settle("r2")
        assert (folder / "artifacts/a").stat().st_ino != inode

    def test_a_draft_of_the_client_is_left_alone(self, left: Left) -> None:
        folder = left.run("r1", {"artifacts/a": b"same"})
        (folder / "artifacts/.123.draft").write_bytes(b"half")
        left.settle("r1")
        assert (folder / "artifacts/.123.draft").stat().st_nlink == 1
        assert paths(folder) == ["artifacts", "artifacts/a"]

    def test_garbage_is_what_nothing_shares(self, left: Left) -> None:
        one = left.run("r1", {"artifacts/a": b"same", "artifacts/b": b"only here"})
        left.run("r2", {"artifacts/a": b"same"})
        left.settle("r1")
        left.settle("r2")
        assert Objects(left.home.path).garbage() == 0
        (one / "artifacts/a").unlink()
        (one / "artifacts/b").unlink()
        assert Objects(left.home.path).garbage() == len(b"only here")
        assert left.objects() == [sha256(b"same")]
        assert Objects(left.home.path).garbage() == 0

    def test_garbage_takes_drafts_of_the_dead_and_not_of_the_living(self, left: Left) -> None:
        left.run("r1", {"artifacts/a": b"same"})
        left.settle("r1")
        folder = left.home.path / "objects"
        for name, age_s in (("old", 90_000.0), ("new", 60.0)):
            (folder / f".phalanx-{name}").write_bytes(b"x")
            os.utime(folder / f".phalanx-{name}", (time.time() - age_s, time.time() - age_s))
        Objects(left.home.path).garbage()
        assert sorted(path.name for path in folder.glob(".*")) == [".phalanx-new"]

    def test_a_home_without_objects_has_no_garbage(self, tmp_path: Path) -> None:
        assert Objects(tmp_path).garbage() == 0


class TestArtifacts:
    def test_what_was_logged_gets_its_digest(self, left: Left) -> None:
        left.run("r1", {"artifacts/a": b"one", "artifacts/data/x": b"two", "artifacts/data/y": b"three"})
        at = datetime(2026, 1, 1, tzinfo=UTC)
        logged = [
            Artifact("r1", "artifacts/a", "dataset", "the a", 3, None, at),
            Artifact("r1", "artifacts/data", "file", "data", 0, None, at),
        ]
        left.store.put_artifacts("r1", logged)
        rows = left.settle("r1")
        whole = sha256(f"{sha256(b'two')}  x\n{sha256(b'three')}  y\n".encode())
        assert (
            rows
            == left.store.artifacts("r1")
            == [
                logged[0]._replace(digest=sha256(b"one")),
                logged[1]._replace(digest=whole, size=8),
            ]
        )

    def test_what_no_one_informed_of_is_listed_too(self, left: Left) -> None:
        left.run("r1", {"artifacts/a/b": b"one", "models/net/17-1/w": b"two", "models/net/17-1/c": b"three"})
        rows = [(row.path, row.type, row.name, row.size) for row in left.settle("r1")]
        assert rows == [("artifacts/a/b", "file", "a/b", 3), ("models/net/17-1", "model", "net", 8)]

    def test_the_store_is_filled_again_without_reading_a_file(self, left: Left, reads: list[str]) -> None:
        folder = left.run("r1", {"artifacts/a": b"one"})
        rows = left.settle("r1")
        left.store.put_artifacts("r1", [rows[0]._replace(digest=None)])
        (folder / "artifacts/a").unlink()
        index_outputs(left.store, "r1", read_manifest(folder))
        assert left.store.artifacts("r1") == rows
        assert reads == ["artifacts/a"]

    def test_a_digest_can_be_checked_by_hand(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"one")
        (tmp_path / "b").write_bytes(b"two")
        listed = subprocess.run(["sha256sum", "a", "b"], cwd=tmp_path, capture_output=True, check=True).stdout
        files = [("b", sha256(b"two")), ("a", sha256(b"one"))]
        assert digest_of_files(files) == sha256(listed)
        assert digest_of_files([("a", sha256(b"one"))]) == sha256(b"one")
        assert digest_of_files([("a", "x"), ("b", None)]) is None
        assert digest_of_files([]) is None


class TestBrowsing:
    def test_one_tree_with_sizes(self, left: Left) -> None:
        folder = left.run("r1", {"outputs/a/b": b"12", "outputs/a/c": b"345", "models/m/1/w": b"6"})
        left.settle("r1")
        found = [(entry.path, entry.kind, entry.size) for entry in browse(folder, "outputs")]
        assert found == [
            ("outputs", "folder", 5),
            ("outputs/a", "folder", 5),
            ("outputs/a/b", "file", 2),
            ("outputs/a/c", "file", 3),
        ]
        assert paths(folder, "outputs/a/b") == ["outputs/a/b"]
        assert paths(folder) == ["models", "models/m", "models/m/1", "models/m/1/w", *paths(folder, "outputs")]

    def test_folders_precede_their_content_for_any_names(self, left: Left) -> None:
        folder = left.run("r1", {"outputs/a/z": b"", "outputs/a.b": b"", "outputs/a-b": b""})
        assert paths(folder) == ["outputs", "outputs/a", "outputs/a/z", "outputs/a-b", "outputs/a.b"]

    def test_a_digest_is_not_shown_for_a_file_that_changed_since(self, left: Left) -> None:
        folder = left.run("r1", {"outputs/a": b"one"})
        left.settle("r1")
        assert browse(folder, "outputs/a")[0].digest == sha256(b"one")
        (folder / "outputs/a").write_bytes(b"two")
        assert browse(folder, "outputs/a")[0].digest is None

    @pytest.mark.parametrize("path", ["..", "outputs/../..", "/etc", "outputs/\0", "run.json", "nothing", "outputs/no"])
    def test_other_paths_are_refused(self, left: Left, path: str) -> None:
        folder = left.run("r1", {"outputs/a": b"one"})
        with pytest.raises(CallError):
            browse(folder, path)

    def test_the_rest_of_the_run_is_not_reached(self, left: Left) -> None:
        folder = left.run("r1", {"outputs/a": b"one"})
        assert (folder / "run.json").exists()
        assert run_tree(folder).look("run.json") is not None  # a tree is asked by those who have checked the path
        with pytest.raises(CallError):
            open_output(left.home, "r1", "run.json")


class TestNothingLeadsOut:
    @pytest.fixture
    def folder(self, left: Left, tmp_path: Path) -> Path:
        folder = left.run("r1", {"outputs/ckpt/5": b"five", "outputs/plain": b"one"})
        (tmp_path / "secret").write_bytes(b"secret")
        (tmp_path / "secrets").mkdir()
        (tmp_path / "secrets" / "key").write_bytes(b"key")
        (folder / "outputs/file-out").symlink_to(tmp_path / "secret")
        (folder / "outputs/folder-out").symlink_to(tmp_path / "secrets")
        (folder / "outputs/run-out").symlink_to("../run.json")
        (folder / "outputs/round").symlink_to("round")
        (folder / "outputs/nowhere").symlink_to("gone")
        (folder / "outputs/latest").symlink_to("ckpt/5")
        (folder / "outputs/absolute").symlink_to(folder / "outputs" / "ckpt")
        os.mkfifo(folder / "outputs/pipe")
        return folder

    def test_links_are_listed_as_what_they_are(self, folder: Path) -> None:
        found = {entry.path: entry for entry in browse(folder)}
        outside = ("file-out", "folder-out", "run-out", "round", "nowhere")
        assert [found[f"outputs/{name}"].leads_to for name in outside] == [None] * 5
        assert found["outputs/latest"].leads_to == "outputs/ckpt/5"
        assert found["outputs/absolute"].leads_to == "outputs/ckpt"
        assert found["outputs/pipe"].kind == "other"
        assert not any(path.startswith("outputs/folder-out/") for path in found)

    def test_they_are_not_read_for_the_manifest(self, left: Left, folder: Path) -> None:
        left.settle("r1")
        manifest = read_manifest(folder)
        assert sorted(manifest.files) == ["outputs/ckpt/5", "outputs/plain"]
        assert manifest.links == {"outputs/latest": "outputs/ckpt/5", "outputs/absolute": "outputs/ckpt"}

    def test_they_are_not_copied_and_that_is_said(self, left: Left, folder: Path, tmp_path: Path) -> None:
        taken = download(left.home, "r1", "outputs", tmp_path / "got")
        names = sorted(path.name for path in (tmp_path / "got").iterdir())
        assert names == ["absolute", "ckpt", "latest", "plain"]
        assert (tmp_path / "got/latest").readlink() == Path("ckpt/5")
        assert (tmp_path / "got/absolute").readlink() == Path("ckpt")
        left_out = ("file-out", "folder-out", "nowhere", "pipe", "round", "run-out")
        assert taken.left_out == [f"outputs/{name}" for name in left_out]

    @pytest.mark.parametrize("name", ["file-out", "folder-out", "run-out", "folder-out/key", "pipe", "round"])
    def test_nor_when_they_are_asked_for_by_name(self, left: Left, folder: Path, tmp_path: Path, name: str) -> None:
        with pytest.raises(CallError):
            open_output(left.home, "r1", f"outputs/{name}")
        if name != "pipe":
            with pytest.raises(CallError):
                download(left.home, "r1", f"outputs/{name}", tmp_path / "got")
        else:
            assert download(left.home, "r1", f"outputs/{name}", tmp_path / "got").files == 0

    def test_a_link_within_is_followed_when_it_is_asked_for(self, left: Left, folder: Path, tmp_path: Path) -> None:
        download(left.home, "r1", "outputs/latest", tmp_path / "five")
        assert (tmp_path / "five").read_bytes() == b"five"
        assert not (tmp_path / "five").is_symlink()
        download(left.home, "r1", "outputs/absolute", tmp_path / "ckpt")
        assert (tmp_path / "ckpt/5").read_bytes() == b"five"

    def test_a_folder_that_became_a_link_meanwhile_is_not_followed(
        self, left: Left, folder: Path, tmp_path: Path
    ) -> None:
        tree = run_tree(folder)
        assert tree.look("outputs/ckpt/5") is not None
        (folder / "outputs/ckpt").rename(folder / "outputs/moved")
        (folder / "outputs/ckpt").symlink_to(tmp_path / "secrets")
        (tmp_path / "secrets" / "5").write_bytes(b"secret")
        assert tree.look("outputs/ckpt/5") is None
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            tree.open("outputs/ckpt/5")
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            tree.unlink("outputs/ckpt/5")
        assert list(tree.walk("outputs/ckpt")) == []

    def test_a_file_that_became_a_link_meanwhile_is_not_followed(self, folder: Path, tmp_path: Path) -> None:
        tree = run_tree(folder)
        for name in ("file-out", "latest", "pipe", "ckpt"):
            with pytest.raises(OSError, match=r"Too many levels|not a file|Is a directory"):
                tree.open(f"outputs/{name}")

    def test_outputs_that_are_a_link_altogether_are_not_followed(self, left: Left, tmp_path: Path) -> None:
        folder = left.run("r2")
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "x").write_bytes(b"x")
        (folder / "outputs").symlink_to(tmp_path / "elsewhere")
        left.settle("r2")
        assert [(entry.path, entry.kind, entry.leads_to) for entry in browse(folder)] == [("outputs", "link", None)]
        assert read_manifest(folder).files == {}

    @pytest.mark.slow
    def test_deep_trees_are_walked(self, left: Left) -> None:
        folder = left.run("r1x", {"outputs/a": b"one"})
        deep = folder / "outputs"
        for _ in range(600):
            deep /= "d"
        os.makedirs(deep)
        assert sum(1 for _ in run_tree(folder).walk()) == 602

    @pytest.mark.parametrize("path", ["/x", "a/../b", "..", "a\0b"])
    def test_steps_that_leave_are_refused(self, path: str) -> None:
        with pytest.raises(CallError):
            path_parts(path)

    def test_harmless_steps_are_not(self) -> None:
        assert path_parts("./outputs//a/") == ("outputs", "a")
        assert path_parts("outputs/..a") == ("outputs", "..a")


class TestTaking:
    def test_a_file_to_a_name_and_into_a_folder(self, left: Left, tmp_path: Path) -> None:
        left.run("r1", {"outputs/a": b"one"})
        left.settle("r1")
        taken = download(left.home, "r1", "outputs/a", tmp_path / "new" / "name")
        assert (tmp_path / "new" / "name").read_bytes() == b"one"
        assert (taken.files, taken.size, taken.unchecked) == (1, 3, 0)
        download(left.home, "r1", "outputs/a", tmp_path)
        assert (tmp_path / "a").read_bytes() == b"one"
        assert abs((tmp_path / "a").stat().st_mtime - LONG_AGO) < 0.001

    def test_nothing_is_overwritten_unless_forced(self, left: Left, tmp_path: Path) -> None:
        left.run("r1", {"outputs/a": b"one", "outputs/b": b"two"})
        target = tmp_path / "got"
        target.mkdir()
        (target / "outputs").mkdir()
        (target / "outputs" / "b").write_bytes(b"mine")
        with pytest.raises(CallError, match="--force"):
            download(left.home, "r1", "outputs", target)
        assert sorted(path.name for path in (target / "outputs").iterdir()) == ["b"]
        download(left.home, "r1", "outputs", target, force=True)
        assert (target / "outputs" / "b").read_bytes() == b"two"

    def test_forced_it_replaces_a_link_and_not_what_it_leads_to(self, left: Left, tmp_path: Path) -> None:
        left.run("r1", {"outputs/a": b"one", "outputs/sub/b": b"two"})
        (tmp_path / "precious").write_bytes(b"mine")
        (tmp_path / "a").symlink_to(tmp_path / "precious")
        download(left.home, "r1", "outputs/a", tmp_path / "a", force=True)
        assert (tmp_path / "precious").read_bytes() == b"mine"
        (tmp_path / "got").mkdir()
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "got" / "outputs").mkdir()
        (tmp_path / "got" / "outputs" / "sub").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(CallError, match="is a link"):
            download(left.home, "r1", "outputs", tmp_path / "got", force=True)
        assert list((tmp_path / "elsewhere").iterdir()) == []

    def test_a_folder_where_a_file_would_go_is_refused(self, left: Left, tmp_path: Path) -> None:
        left.run("r1", {"outputs/a": b"one"})
        (tmp_path / "outputs" / "a").mkdir(parents=True)
        with pytest.raises(CallError, match="folder is where a file"):
            download(left.home, "r1", "outputs", tmp_path, force=True)

    @pytest.mark.parametrize("path", ["artifacts/a", "outputs/a"])
    def test_a_damaged_file_is_said_to_be(self, left: Left, tmp_path: Path, path: str) -> None:
        folder = left.run("r1", {path: b"good"})
        left.settle("r1")
        state = (folder / path).stat()
        (folder / path).chmod(0o600)
        (folder / path).write_bytes(b"evil")
        os.utime(folder / path, ns=(state.st_mtime_ns, state.st_mtime_ns))  # as a disk does it
        with pytest.raises(DigestMismatch, match=f"{path} is damaged"):
            download(left.home, "r1", path, tmp_path / "got")
        assert not (tmp_path / "got").exists()
        assert list(tmp_path.glob(".got*")) == []

    def test_an_artifact_that_was_written_in_place_is_damaged_and_an_output_is_not(
        self, left: Left, tmp_path: Path
    ) -> None:
        folder = left.run("r1", {"artifacts/a": b"good", "outputs/a": b"good"})
        left.settle("r1")
        for path in ("artifacts/a", "outputs/a"):
            (folder / path).chmod(0o600)
            (folder / path).write_bytes(b"longer")
        with pytest.raises(DigestMismatch):
            download(left.home, "r1", "artifacts/a", tmp_path / "got")
        assert download(left.home, "r1", "outputs/a", tmp_path / "got").unchecked == 1
        assert (tmp_path / "got").read_bytes() == b"longer"

    def test_a_target_that_cannot_be_written_is_said(self, left: Left, tmp_path: Path) -> None:
        left.run("r1", {"outputs/a": b"one"})
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(CallError, match="cannot write"):
            download(left.home, "r1", "outputs/a", tmp_path / "file" / "below")

    def test_empty_folders_come_along(self, left: Left, tmp_path: Path) -> None:
        folder = left.run("r1", {"outputs/a": b"one"})
        (folder / "outputs/none/at all").mkdir(parents=True)
        download(left.home, "r1", "outputs", tmp_path / "got")
        assert (tmp_path / "got/none/at all").is_dir()


def test_two_at_once_do_not_disturb_each_other(left: Left) -> None:
    folder = left.run("r1", {f"artifacts/{n}": os.urandom(100_000) for n in range(10)})
    code = """
import sys
from pathlib import Path
from phalanx.home.home import Home
from phalanx.artifacts.outputs import update_manifest
update_manifest(Home(Path(sys.argv[1])), "r1")
"""
    started = [subprocess.Popen([sys.executable, "-c", code, str(left.home.path)]) for _ in range(2)]
    assert [process.wait() for process in started] == [0, 0]
    manifest = update_manifest(left.home, "r1")
    assert all(kept.digest == sha256((folder / path).read_bytes()) for path, kept in manifest.files.items())
    assert len(manifest.files) == len(left.objects()) == 10
