"""What goes, what never goes, and what a kill in between leaves."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from phalanx.artifacts.outputs import browse, read_manifest, update_manifest
from phalanx.artifacts.remote import push
from phalanx.home.home import Home
from phalanx.home.stars import OWNER, change_stars
from phalanx.home.tracked_events import read_events
from phalanx.registry.registry import Registry
from phalanx.retention.cleanup import CleanupPlan, Retention, apply_keep
from phalanx.retention.sweep import is_due, sweep
from phalanx.settings.home_settings import HomeSettings, ProjectSettings, RetentionPolicy
from phalanx.store import Run, StatusChange, Store
from tests.notifications.test_channels import a_run

DAY_S = 86_400.0
OLD = RetentionPolicy(age_s=30 * DAY_S)
KEEP = json.dumps({"path": "step-{step}.pt", "last": 1}).encode()


class Archive:
    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.store = Store.open(path)

    def add(self, run_id: str, days: float = 100, files: dict[str, str] | None = None, **fields: Any) -> Run:
        """A run that ended so many days ago."""
        at = datetime.now(UTC) - timedelta(days=days)
        more = fields.pop("more", {})
        usual = {"status": "succeeded", "created_at": at, "updated_at": at, "finished_at": at}
        run = a_run(**{"id": run_id, **usual, **fields})
        self.home.add(run._replace(status="created", reason="submitted"), more, {})
        folder = self.home.run(run_id)
        folder.append(StatusChange(run_id, 2, 1, run.status, "", at))
        for name, content in (files or {"outputs/a.bin": "x" * 1000}).items():
            (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
            (folder.path / name).write_text(content)
        self.store.add(run)
        return run

    def retention(self, policy: RetentionPolicy | None = None, **settings: Any) -> Retention:
        return Retention(self.home, self.store, HomeSettings(retention=policy, **settings))

    def plan(self, policy: RetentionPolicy | None = None, **settings: Any) -> CleanupPlan:
        return self.retention(policy, **settings).plan()

    def planned(self, policy: RetentionPolicy | None = None, **settings: Any) -> list[str]:
        return sorted(one.run_id for one in self.plan(policy, **settings).cleanups)

    def files(self, run_id: str) -> list[str]:
        top = self.home.run(run_id).path
        found = (path for path in (top / "outputs").rglob("*") if path.is_symlink() or not path.is_dir())
        return sorted(str(path.relative_to(top)) for path in found)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    made = Archive(tmp_path / "home")
    yield made
    made.store.close()


def test_old_outputs_go_and_everything_else_of_the_run_stays(archive: Archive) -> None:
    run = archive.add("aaaa1", files={"outputs/a/b.bin": "x" * 1000, "replicas/master-0/attempt-1/log": "hello"})
    archive.add("aaaa2", days=10)
    update_manifest(archive.home, run.id)
    plan = archive.plan(OLD)
    assert [(one.run_id, one.size) for one in plan.cleanups] == [("aaaa1", 1000)]
    assert archive.files("aaaa1") == ["outputs/a/b.bin"], "a plan changes nothing"
    assert archive.retention(OLD).apply(plan, "me") == (1000, [])
    assert (archive.files("aaaa1"), archive.files("aaaa2")) == ([], ["outputs/a.bin"])
    folder = archive.home.run("aaaa1").path
    assert (folder / "replicas/master-0/attempt-1/log").read_text() == "hello"
    assert read_manifest(folder).files == {}
    (event,) = read_events(folder, ("removed",))
    assert (event["files"], event["by"]) == ([{"path": "outputs/a/b.bin", "size": 1000}], "me")
    assert "30 days" in event["why"]
    assert archive.planned(OLD) == []


def test_policies_are_of_projects_and_ends(archive: Archive) -> None:
    archive.add("aaaa1", days=20, project="team/vision")
    archive.add("aaaa2", days=20, project="team")
    archive.add("aaaa3", days=20, status="failed")
    archive.add("aaaa4", days=20, archived=True)
    archive.add("aaaa5", days=20)
    assert archive.planned() == []
    assert archive.planned(RetentionPolicy(failed_s=DAY_S)) == ["aaaa3"]
    assert archive.planned(RetentionPolicy(archived_s=DAY_S)) == ["aaaa4"]
    projects = {"team": ProjectSettings(retention=RetentionPolicy(age_s=DAY_S))}
    assert archive.planned(projects=projects) == ["aaaa1", "aaaa2"]
    assert archive.planned(OLD, projects={"team": ProjectSettings(retention=RetentionPolicy())}) == []
    assert [one.run_id for one in archive.retention(projects=projects).plan("team/vision").cleanups] == ["aaaa1"]


def test_what_is_too_large_goes_oldest_first(archive: Archive) -> None:
    for number in range(4):
        archive.add(f"aaaa{number}", days=10 - number, files={"outputs/a": "x" * (1 << 18)})
    assert archive.planned(RetentionPolicy(size_mib=0.6)) == ["aaaa0", "aaaa1"]
    assert archive.planned(RetentionPolicy(size_mib=2)) == []
    change_stars(archive.home, archive.store, OWNER, ["aaaa0"], is_starred=True)
    assert archive.planned(RetentionPolicy(size_mib=0.6)) == ["aaaa1", "aaaa2"]


def test_runs_that_are_needed_stay(archive: Archive) -> None:
    for run_id in ("active1", "starred1", "upstream1", "warmstart1", "original1", "reader1", "trial1", "resumed1"):
        group = "group1" if run_id == "trial1" else None
        status = "running" if run_id == "active1" else "succeeded"
        archive.add(run_id, status=status, group=group, name="pretrained" if run_id == "reader1" else None)
    change_stars(archive.home, archive.store, "somebody", ["starred1"], is_starred=True)
    archive.add("group1", kind="group", status="running", more={"spec.yml": b"hptuning: {warm_start: [warmstart1]}"})
    archive.add("waiting1", status="created", more={"after.json": json.dumps({"upstream1": "succeeded"}).encode()})
    archive.add("clone1", status="created", original="original1")
    archive.add("second1", days=1, more={"spec.yml": b"environment: {outputs: {experiments: [pretrained]}}"})
    (archive.home.resumes / "resumed1").touch()
    plan = archive.plan(OLD)
    assert [one.run_id for one in plan.cleanups] == []
    assert set(plan.protected) == {"starred1", "upstream1", "warmstart1", "original1", "reader1", "trial1", "resumed1"}
    assert plan.protected["reader1"] == "run second1 refers to it"


@contextmanager
def opened(home: Path) -> Iterator[list[str]]:
    """The files below the folders of runs that this process opens meanwhile: run and name."""
    found, runs = [], f"{home}/runs/"
    is_watching = True

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if is_watching and event == "open" and isinstance(arguments[0], str | Path):
            path = str(arguments[0])
            if path.startswith(runs):
                found.append(path[len(runs) :])

    sys.addaudithook(watch)  # it cannot be removed
    try:
        yield found
    finally:
        is_watching = False


def test_what_is_read_does_not_grow_with_runs_that_nothing_is_removed_of(archive: Archive) -> None:
    for number in range(40):
        archive.add(f"other{number}", days=1, more={"spec.yml": b"after: [upstream1]\n" if number == 7 else b"x: 1\n"})
    archive.add("upstream1")
    archive.add("aaaa1")
    with opened(archive.home.path) as first:
        plan = archive.plan(OLD)
    assert ([one.run_id for one in plan.cleanups], list(plan.protected)) == (["aaaa1"], ["upstream1"])
    assert len([path for path in first if path.endswith("spec.yml")]) == 42  # read once, and remembered
    archive.add("aaaa2", more={"spec.yml": b"after: [aaaa1]\n"})
    files = {f"outputs/step-{step}.pt": str(step) for step in range(3)}
    archive.add("keeps1", days=0, files=files, more={"keep.json": KEEP})
    with opened(archive.home.path) as second:
        retention = archive.retention(OLD)
        retention.recover()
        plan = retention.plan()
        assert apply_keep(archive.home, archive.store, "keeps1") == 2
    assert ([one.run_id for one in plan.cleanups], sorted(plan.protected)) == (
        ["aaaa2", "keeps1"],
        ["aaaa1", "upstream1"],
    )
    assert {path.partition("/")[0] for path in second} <= {"aaaa1", "aaaa2", "keeps1", "upstream1"}
    assert [path for path in second if path.endswith("spec.yml")] == ["aaaa2/spec.yml", "keeps1/spec.yml"]


def test_files_of_model_versions_and_targets_of_links_stay(archive: Archive) -> None:
    files = {f"outputs/{name}": name * 100 for name in ("model/a", "model/b", "linked", "loose")}
    archive.add("aaaa1", files=files)
    folder = archive.home.run("aaaa1").path
    (folder / "outputs/latest").symlink_to("linked")
    Registry(archive.home, archive.store).register("net", "aaaa1", "outputs/model")
    (found,) = archive.plan(OLD).cleanups
    assert [file.path for file in found.files] == ["outputs/loose"]
    assert found.kept["outputs/model/a"] == "model net/1"
    archive.retention(OLD).apply(archive.plan(OLD), "me")
    assert archive.files("aaaa1") == ["outputs/latest", "outputs/linked", "outputs/model/a", "outputs/model/b"]


def test_links_lead_nowhere(archive: Archive, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "step-1.pt").write_text("precious")
    archive.add("aaaa1", files={"outputs/step-2.pt": "2", "outputs/step-3.pt": "3"}, more={"keep.json": KEEP})
    folder = archive.home.run("aaaa1").path
    (folder / "outputs/folder").symlink_to(outside)
    (folder / "outputs/step-1.pt").symlink_to(outside / "step-1.pt")
    archive.retention(OLD).apply(archive.plan(OLD), "me")
    assert (outside / "step-1.pt").read_text() == "precious"
    assert archive.files("aaaa1") == ["outputs/folder", "outputs/step-1.pt"]


def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(archive: Archive, tmp_path: Path) -> None:
    archive.add("aaaa1", files={"outputs/d/a.bin": "mine"})
    plan = archive.plan(OLD)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.bin").write_text("precious")
    folder = archive.home.run("aaaa1").path
    (folder / "outputs/d/a.bin").unlink()
    (folder / "outputs/d").rmdir()
    (folder / "outputs/d").symlink_to(outside)
    archive.retention(OLD).apply(plan, "me")
    assert (outside / "a.bin").read_text() == "precious"


def test_a_file_that_has_changed_since_the_plan_stays(archive: Archive) -> None:
    archive.add("aaaa1")
    plan = archive.plan(OLD)
    path = archive.home.run("aaaa1").path / "outputs/a.bin"
    path.write_text("new")
    assert archive.retention(OLD).apply(plan, "me")[0] == 0
    assert path.read_text() == "new"


def test_a_run_that_was_resumed_since_the_plan_stays(archive: Archive) -> None:
    run = archive.add("aaaa1")
    plan = archive.plan(OLD)
    archive.home.run("aaaa1").append(StatusChange(run.id, 3, 1, "resuming", "", run.updated_at))
    freed, (trouble,) = archive.retention(OLD).apply(plan, "me")
    assert (freed, "has not ended" in trouble, archive.files("aaaa1")) == (0, True, ["outputs/a.bin"])


def test_a_removal_that_was_killed_is_completed_once(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.add("aaaa1", files={"outputs/a": "x", "outputs/b": "y"})
    unlinked: list[str] = []
    from phalanx.artifacts.trees import Tree

    unlink = Tree.unlink

    def killed(tree: Tree, path: str) -> None:
        if unlinked:
            raise KeyboardInterrupt
        unlinked.append(path)
        unlink(tree, path)

    monkeypatch.setattr(Tree, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        archive.retention(OLD).apply(archive.plan(OLD), "me")
    monkeypatch.undo()
    folder = archive.home.run("aaaa1").path
    assert (archive.files("aaaa1"), (folder / "removal.json").exists()) == (["outputs/b"], True)
    archive.retention(OLD).recover()
    assert (archive.files("aaaa1"), (folder / "removal.json").exists()) == ([], False)
    assert len(list(read_events(folder, ("removed",)))) == 1


def test_a_forged_removal_stays_inside_of_the_outputs(archive: Archive, tmp_path: Path) -> None:
    run = archive.add("aaaa1")
    folder = archive.home.run("aaaa1").path
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for path in ("outputs/../../../../victim", str(victim), "run.json", "replicas/master-0/attempt-1/log"):
        state = victim.stat()
        row = [path, state.st_size, state.st_mtime_ns, state.st_ino]
        data = {"id": path, "at": 0, "why": "", "by": "", "files": [row]}
        (folder / "removal.json").write_text(json.dumps(data))
        (archive.home.path / "removals").mkdir(exist_ok=True)
        (archive.home.path / "removals" / "aaaa1").touch()
        archive.retention().recover()
    assert victim.read_text() == "precious"
    assert archive.home.run(run.id).read() is not None


def test_outputs_in_remote_storage_can_be_restored(archive: Archive, tmp_path: Path) -> None:
    archive.add("aaaa1")
    push(archive.home, "aaaa1", f"file://{tmp_path}/store")
    assert archive.plan(OLD).cleanups[0].is_pushed
    assert archive.retention(OLD).apply(archive.plan(OLD), "me") == (1000, [])
    entries = browse(archive.home.run("aaaa1").path)
    assert [(entry.path, entry.place) for entry in entries if entry.kind == "file"] == [("outputs/a.bin", "remote")]
    from phalanx.artifacts.downloads import restore

    assert restore(archive.home, "aaaa1") == 1
    assert archive.files("aaaa1") == ["outputs/a.bin"]


def test_storage_that_is_gone_is_said_and_does_not_keep_local_files(archive: Archive, tmp_path: Path) -> None:
    archive.add("aaaa1")
    push(archive.home, "aaaa1", f"file://{tmp_path}/store")
    os.rename(tmp_path / "store", tmp_path / "gone")
    archive.retention(OLD).apply(archive.plan(OLD), "me")
    assert archive.files("aaaa1") == [], "without a copy there, it goes as if it had not been pushed"


def test_checkpoints_that_a_file_does_not_keep_go_when_the_run_ends(archive: Archive) -> None:
    files = {f"outputs/step-{step}.pt": str(step) for step in range(5)} | {"outputs/notes.txt": "kept"}
    archive.add("aaaa1", days=0, files=files, more={"keep.json": KEEP})
    archive.add("aaaa2", days=0, status="running", files=files, more={"keep.json": KEEP})
    assert apply_keep(archive.home, archive.store, "aaaa1") == 4
    assert apply_keep(archive.home, archive.store, "aaaa2") == 0
    assert archive.files("aaaa1") == ["outputs/notes.txt", "outputs/step-4.pt"]
    assert len(archive.files("aaaa2")) == 6
    assert archive.planned() == []


def test_folders_of_checkpoints_go_whole(archive: Archive) -> None:
    files = {f"outputs/checkpoint-{step}/{name}": "x" for step in (1, 2) for name in ("a", "b/c")}
    keep = json.dumps({"path": "checkpoint-{step}"}).encode()
    archive.add("aaaa1", files=files, more={"keep.json": keep})
    apply_keep(archive.home, archive.store, "aaaa1")
    assert archive.files("aaaa1") == ["outputs/checkpoint-2/a", "outputs/checkpoint-2/b/c"]


def test_a_server_applies_the_policy_when_its_time_has_come(archive: Archive) -> None:
    archive.add("aaaa1")
    (archive.home.path / "config.yml").write_text("retention: {age: 30d}\ngc_every: 1d\n")
    assert is_due(archive.home.path, DAY_S, 1e9)
    assert sweep(archive.home, archive.store) == 1000
    at = json.loads((archive.home.path / "gc.json").read_text())["at"]
    assert (is_due(archive.home.path, DAY_S, at + 10), is_due(archive.home.path, DAY_S, at + DAY_S)) == (False, True)
