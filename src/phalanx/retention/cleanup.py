"""Plans what to remove from the outputs of finished runs, and removes it.

<run>/removal.json    a removal that has been decided and is not complete; repeated until it is
<home>/removals/<run> marks such a run, so that not all runs are looked at

Each removal is an event of the run (`removed`), written before the first file goes. `phalanx events` shows it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.artifacts.objects import Objects
from phalanx.artifacts.outputs import index_outputs, locked, read_manifest, write_manifest
from phalanx.artifacts.remote import RemoteStorage
from phalanx.artifacts.trees import FILE, Tree, TreeEntry, run_tree
from phalanx.atomic_files import make_private, read_json, write_atomic
from phalanx.errors import CallError, disk_fault
from phalanx.home.home import Home
from phalanx.home.tracked_events import read_events
from phalanx.ingest.external_runs import append_event
from phalanx.ingest.run_changes import place_of
from phalanx.retention.checkpoints import choose, find_checkpoints, read_keep
from phalanx.retention.protection import RunReferences, protected_paths, protector
from phalanx.settings.home_settings import HomeSettings, RetentionPolicy
from phalanx.spec.model import KeepOptions
from phalanx.store import DONE, Run, Store
from phalanx.store.project_scope import enclosing_projects
from phalanx.store.series.run_series import RunSeries

KIND = "removed"  # of the event
_WRITER = "retention"
FILES_PER_EVENT = 2_000
REMOVABLE = (run_paths.OUTPUTS, run_paths.ARTIFACTS)  # the files of model versions are never removed
MOST_LISTED = 1_000  # files of one run, in JSON
_MIB = 1 << 20


class RemovableFile(NamedTuple):
    path: str
    size: int
    mtime_ns: int
    inode: int


class RunCleanup(NamedTuple):
    """What goes of one run, and why. `kept`: files that stay although the rule is about them, and why."""

    run_id: str
    name: str | None
    project: str
    why: str
    files: tuple[RemovableFile, ...]
    kept: Mapping[str, str]
    is_pushed: bool = False  # it is in remote storage: local copies go, and can be restored

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def as_json(self) -> dict[str, Any]:
        files = [{"path": file.path, "size": file.size} for file in self.files[:MOST_LISTED]]
        kept = dict(list(self.kept.items())[:MOST_LISTED])
        about = {"run": self.run_id, "name": self.name, "project": self.project, "why": self.why, "size": self.size}
        return {**about, "pushed": self.is_pushed, "count": len(self.files), "files": files, "kept": kept}


class CleanupPlan(NamedTuple):
    """`protected`: runs that a rule is about and that stay as a whole, and why."""

    cleanups: tuple[RunCleanup, ...]
    protected: Mapping[str, str]

    @property
    def size(self) -> int:
        return sum(one.size for one in self.cleanups)

    def as_json(self) -> dict[str, Any]:
        rows = [one.as_json() for one in self.cleanups]
        return {"size": self.size, "runs": rows, "protected": dict(self.protected)}


class Retention:
    def __init__(self, home: Home, store: Store, settings: HomeSettings) -> None:
        self.home = home
        self.store = store
        self.settings = settings
        self.marks = home.path / "removals"

    # planning ----------------------------------------------------------------------------------------------------

    def plan(self, project: str | None = None, now: float | None = None) -> CleanupPlan:
        """What the files of runs, and the policies of projects and the home, say to remove. Changes nothing."""
        at = time.time() if now is None else now
        references = RunReferences(self.home, self.store)
        runs = self.store.runs(sort="created_at", limit=None, project=project)
        cleanups: dict[str, RunCleanup] = {}
        protected: dict[str, str] = {}
        for run in runs:
            why = self._why_all(run, at)
            if why is not None:
                found = self._of_run(run, why)
            else:
                found = self.by_keep(run) if run.id in references.files.keeping else None
            if found is None or not found.files:
                continue
            reason = references.protects(run) or (_starred(run, references) if why is not None else None)
            if reason is None:
                cleanups[run.id] = found
            else:
                protected[run.id] = reason
        for found in self._over_size(runs, cleanups, references):
            cleanups[found.run_id] = found
        return CleanupPlan(tuple(cleanups.values()), protected)

    def policy_of(self, project: str) -> RetentionPolicy:
        """Of the project, of the nearest one that contains it, or of the home."""
        for name in enclosing_projects(project):
            own = self.settings.projects.get(name)
            if own is not None and own.retention is not None:
                return own.retention
        return self.settings.retention or RetentionPolicy()

    def _why_all(self, run: Run, now: float) -> str | None:
        """Why all outputs of a run may go by its age; None if they may not."""
        if not run.is_done:
            return None
        policy = self.policy_of(run.project)
        ended = run.finished_at or run.updated_at
        age_s = now - ended.timestamp()
        rules = [("it ended", policy.age_s, True), ("it is archived, and ended", policy.archived_s, run.archived)]
        rules.append((f"it {run.status}", policy.failed_s, run.status not in ("succeeded", "skipped")))
        for words, limit_s, applies in rules:
            if applies and limit_s is not None and age_s > limit_s:
                return f"{words} {_span(age_s)} ago; the policy keeps outputs for {_span(limit_s)}"
        return None

    def _over_size(
        self, runs: Sequence[Run], planned: Mapping[str, RunCleanup], references: RunReferences
    ) -> Iterable[RunCleanup]:
        """Runs whose outputs go because those of all runs of a policy are too large: the oldest first."""
        groups: dict[str, list[Run]] = {}
        for run in runs:
            if self.policy_of(run.project).size_mib is not None:
                groups.setdefault(self._policy_name(run.project), []).append(run)
        for members in groups.values():
            limit_mib = self.policy_of(members[0].project).size_mib
            assert limit_mib is not None
            gone = {run_id: one.size for run_id, one in planned.items()}
            sizes = {run.id: self._local_size(run) - gone.get(run.id, 0) for run in members}
            excess = sum(sizes.values()) - limit_mib * _MIB
            for run in members:
                if excess <= 0:
                    break
                if not sizes[run.id] or references.protects(run) or _starred(run, references):
                    continue
                found = self._of_run(run, f"the outputs are larger than {limit_mib:g} MiB; this run is the oldest")
                if found is not None and found.files:
                    excess -= found.size
                    yield found

    def _policy_name(self, project: str) -> str:
        for name in enclosing_projects(project):
            own = self.settings.projects.get(name)
            if own is not None and own.retention is not None:
                return name
        return ""

    def _local_size(self, run: Run) -> int:
        return sum(entry.size for entry in self._entries(run) if entry.kind == FILE)

    def _entries(self, run: Run) -> list[TreeEntry]:
        return list(Tree(self.home.run(run.id).path, REMOVABLE).walk())

    def _of_run(self, run: Run, why: str) -> RunCleanup | None:
        """All outputs of a run, except those that something refers to; None if there are none."""
        paths = [entry.path for entry in self._entries(run) if entry.kind == FILE]
        return self._cleanup(run, why, paths) if paths else None

    def by_keep(self, run: Run) -> RunCleanup | None:
        """The checkpoints that the run's file does not keep; None if it says nothing, or the run has not ended."""
        folder = self.home.run(run.id).path
        keep = read_keep(folder)
        if keep is None or not run.is_done:
            return None
        entries = self._entries(run)
        found = find_checkpoints(entries, keep.path)
        values = self._values(run, keep, [one.step for one in found])
        removed = choose(found, values, keep).removed
        if not removed:
            return None
        tops = {path for one, _ in removed for path in one.paths}
        kept = {path for one in choose(found, values, keep).kept for path in one.paths}
        inside = [entry.path for entry in entries if entry.kind == FILE and _is_below(entry.path, tops)]
        return self._cleanup(run, removed[0][1], [path for path in inside if not _is_below(path, kept)])

    def _values(self, run: Run, keep: KeepOptions, steps: Sequence[int]) -> dict[int, float]:
        if keep.metric is None:
            return {}
        series = RunSeries(self.home.run(run.id).path)
        if keep.metric not in series.names():
            return {}
        found = {}
        for step in steps:
            points = series.at(keep.metric, step)
            if points:
                found[step] = next(iter(points.values())).value
        return found

    def _cleanup(self, run: Run, why: str, paths: Iterable[str]) -> RunCleanup:
        tree = run_tree(self.home.run(run.id).path)
        entries = {entry.path: entry for entry in self._entries(run)}
        protected = protected_paths(self.store, run, tree, entries.values())
        kept = {path: by for path in paths if (by := protector(path, protected)) is not None}
        files = tuple(_removable(entries[path]) for path in paths if path not in kept)
        is_pushed = read_manifest(self.home.run(run.id).path).url is not None
        return RunCleanup(run.id, run.name, run.project, why, files, kept, is_pushed)

    # removing ----------------------------------------------------------------------------------------------------

    def apply(self, plan: CleanupPlan, by: str) -> tuple[int, list[str]]:
        """Carry out a plan. Returns the number of bytes that were removed, and what could not be. What has changed
        since it was made stays."""
        references = RunReferences(self.home, self.store)
        freed, troubles = 0, []
        for one in plan.cleanups:
            try:
                run = self.store.find(one.run_id)
                reason = references.protects(run)
                if reason is not None:
                    raise CallError(reason)
                freed += self.remove(run, one, by)
            except (CallError, OSError) as fault:
                troubles.append(f"run {one.run_id}: {fault}")
        Objects(self.home.path).garbage()
        return freed, troubles

    def remove(self, run: Run, found: RunCleanup, by: str) -> int:
        """Remove the files of one run. Raises CallError, OSError."""
        folder = self.home.run(run.id)
        paths = [file.path for file in found.files]
        key = hashlib.sha256(json.dumps([paths, time.time()]).encode()).hexdigest()[:16]
        data: dict[str, Any] = {"id": key, "at": time.time(), "why": found.why, "by": by}
        data |= {"files": [list(file) for file in found.files], "freed": self._in_storage(run, paths)}
        with locked(folder.path):
            self._require_over(run)
            make_private(self.marks, self.home.path)
            (self.marks / run.id).touch(mode=0o600)
            write_atomic(folder.path / run_paths.REMOVAL, json.dumps(data).encode())
            return self._complete(run, data)

    def _in_storage(self, run: Run, paths: Sequence[str]) -> list[str]:
        """Those of the files that remote storage has: they can be restored. Raises CallError if it does not answer."""
        manifest = read_manifest(self.home.run(run.id).path)
        if manifest.url is None:
            return []
        remote = RemoteStorage(manifest.url)
        stored = remote.manifest(run.id) or {}
        known = {path: kept for path in paths if (kept := manifest.files.get(path)) is not None and kept.digest}
        there = [path for path, kept in known.items() if stored.get(path) == (kept.size, kept.digest)]
        return [path for path in there if remote.size(str(known[path].digest)) == known[path].size]

    def recover(self) -> None:
        """Complete removals that were interrupted."""
        for run_id in sorted(os.listdir(self.marks)) if self.marks.is_dir() else ():
            folder = self.home.run(run_id)
            data = read_json(folder.path / run_paths.REMOVAL)
            run = folder.read() if isinstance(data, dict) else None
            if isinstance(data, dict) and run is not None:
                with suppress(CallError, OSError, KeyError, ValueError, TypeError), locked(folder.path):
                    if run.is_done:
                        self._complete(run, data)
                    else:  # it goes on: what is left stays
                        self._forget(run)
            if not (folder.path / run_paths.REMOVAL).exists():  # it was killed before it began, or the run is gone
                (self.marks / run_id).unlink(missing_ok=True)

    def _require_over(self, run: Run) -> None:
        history = self.home.run(run.id).history()
        if not history or history[-1].status not in DONE or run.id in self.home.asked_to_resume():
            raise CallError("it has not ended")

    def _complete(self, run: Run, data: Mapping[str, Any]) -> int:
        """Record the removal in the run's events, remove what is still there unchanged, and forget it. Repeatable."""
        folder = self.home.run(run.id)
        files = [RemovableFile(*row) for row in data["files"]]
        if not any(event.get("id") == data["id"] for event in read_events(folder.path, (KIND,))):
            self._record(run, data, files)
        tree, freed, gone = run_tree(folder.path), 0, []
        for file in files:
            found = tree.look(file.path)
            if found is None or found.kind != FILE:
                gone.append(file.path)
            elif _removable(found) == file and file.path.partition("/")[0] in REMOVABLE:
                tree.unlink(file.path)
                freed += file.size
                gone.append(file.path)
        manifest = read_manifest(folder.path)
        for path in gone:
            kept = manifest.files.pop(path, None)
            if kept is not None and (kept.freed or path in data.get("freed", ())):
                manifest.files[path] = kept._replace(freed=True)
        write_manifest(folder.path, manifest)
        with suppress(CallError):
            index_outputs(self.store, run.id, manifest)
        self._forget(run)
        return freed

    def _forget(self, run: Run) -> None:
        """A removal that is complete, or that is not to be."""
        (self.home.run(run.id).path / run_paths.REMOVAL).unlink(missing_ok=True)
        (self.marks / run.id).unlink(missing_ok=True)

    def _record(self, run: Run, data: Mapping[str, Any], files: Sequence[RemovableFile]) -> None:
        place = place_of(self.home, run)
        try:
            make_private(place, self.home.run(run.id).path)
            for start in range(0, len(files), FILES_PER_EVENT):
                part = files[start : start + FILES_PER_EVENT]
                about = {"at": data["at"], "kind": KIND, "id": data["id"], "why": data["why"], "by": data["by"]}
                rows = [{"path": file.path, "size": file.size} for file in part]
                append_event(place, _WRITER, {**about, "size": sum(file.size for file in part), "files": rows})
        except OSError as fault:
            raise disk_fault(f"the removal cannot be recorded in run {run.id}", fault) from None


def apply_keep(home: Home, store: Store, run_id: str) -> int:
    """Remove the checkpoints that the file of a run that has just ended does not keep. Raises CallError, OSError."""
    if read_keep(home.run(run_id).path) is None:
        return 0
    retention = Retention(home, store, HomeSettings())
    run = store.find(run_id)
    found = retention.by_keep(run)
    if found is None or not found.files or RunReferences(home, store).protects(run) is not None:
        return 0
    return retention.remove(run, found, "its file")


def _span(seconds: float) -> str:
    return f"{seconds / 86_400:.0f} days" if seconds >= 2 * 86_400 else f"{seconds / 3600:.1f} h"


def _starred(run: Run, references: RunReferences) -> str | None:
    return "it is starred" if run.id in references.starred else None


def _removable(entry: TreeEntry) -> RemovableFile:
    return RemovableFile(entry.path, entry.size, entry.mtime_ns, entry.inode)


def _is_below(path: str, tops: Iterable[str]) -> bool:
    """Whether a path is one of these, or below one."""
    steps, wanted = path.split("/"), set(tops)
    return any("/".join(steps[:count]) in wanted for count in range(1, len(steps) + 1))
