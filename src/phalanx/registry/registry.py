"""The model registry: names, versions, aliases and lineage. The journal is its source of truth.

<home>/models/<name>/<number>/files/…     a version's own files: links to the run's, or copies where links do not work
<home>/models/<name>/<number>/files.json  their records

So a version does not need the run that made it, which may be removed.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.artifacts.objects import LEFTOVERS_S, FileRecord, Objects, TreeDigester, digest_of_files, read_kept
from phalanx.artifacts.outputs import index_outputs, update_manifest
from phalanx.artifacts.remote import refuse_credentials
from phalanx.artifacts.trees import (
    CHUNK,
    FILE,
    FOLDER,
    LINK,
    OWNED,
    ROOTS,
    Progress,
    Tree,
    TreeEntry,
    no_progress,
    path_parts,
    run_tree,
)
from phalanx.atomic_files import write_atomic
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.registry.journal import Journal
from phalanx.registry.names import check_alias, check_name, fitting_name, split_reference
from phalanx.store import Artifact, Run, Store
from phalanx.store.model_index import Model, ModelIndex, ModelVersion

MAX_LINEAGE = 1 << 20
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:/")


class ResolvedVersion(NamedTuple):
    """A version, and the location of its files: a local folder, or the registered URL."""

    version: ModelVersion
    path: Path | None
    url: str | None


class DraftVersion(NamedTuple):
    """The files of a version that has no number yet."""

    path: Path
    size: int
    files: int


class Registry:
    """All operations on models. Each is atomic, even if the process is killed; any number of processes may call at
    once. All may raise CallError, StoreError and OSError."""

    def __init__(self, home: Home, store: Store) -> None:
        self.home = home
        self.store = store
        self.folder = home.path / "models"
        self.index = ModelIndex(store)
        self.journal = Journal(home.path, self.index)
        self.journal.sync()

    def rebuild(self) -> None:
        """Rebuild the index from the journal."""
        self.journal.rebuild()

    # registering ---------------------------------------------------------------------------------------------------

    def create(
        self, name: str, description: str = "", labels: Mapping[str, str] | None = None, user: str | None = None
    ) -> Model:
        """Create a model without versions. Raises CallError when the name exists."""
        name = check_name(name)
        with self.journal.changing():
            if self.index.model(name) is not None:
                raise CallError(f"a model named `{name}` already exists")
            data = {"description": description, "labels": dict(labels or {})}
            self.journal.write("create", name, data=data, user=user)
        return self.model(name)

    def register(  # noqa: PLR0913 - the fields of a version
        self,
        name: str,
        run_id: str | None = None,
        source: str = "",
        *,
        metrics: Mapping[str, float] | None = None,
        description: str = "",
        labels: Mapping[str, str] | None = None,
        reason: str = "",
        user: str | None = None,
        at: float | None = None,
        once: bool = False,
    ) -> ModelVersion:
        """Register the next version of a model; the first also creates the model. `source` is a path in the run's
        folder, whose files the version keeps from then on; or a URL, of which only the address is stored. Without
        metrics, the run's last ones are used. `once`: CallError when this source of the run was registered before."""
        name = check_name(name)
        run = self.store.find(run_id) if run_id else None
        if run is not None and not _SCHEME.match(source):
            source = self._with_root(run, source)
        draft = self._draft(run, source)
        data = {
            "run": run.id if run else None,
            "source": source,
            "size": draft.size if draft else None,
            "files": draft.files if draft else None,
            "metrics": dict(metrics or (run.summary if run else {})),
            "lineage": lineage_of(self.home, self.store, run) if run else {},
            "labels": dict(labels or {}),
            "description": description,
        }
        try:
            with self.journal.changing():
                if once and run and (known := self.index.registered(name, run.id, source)) is not None:
                    raise CallError(f"`{source}` of run {run.id} is already registered as {name}/{known}")
                number = self.index.next_number(name)
                if draft is not None:
                    self._place(draft, name, number)
                self.journal.write("register", name, number, data, reason=reason, user=user, at=at)
        finally:
            if draft is not None:
                shutil.rmtree(draft.path, ignore_errors=True)
        return self.version(name, number)

    def ingest(self, run_id: str, event: Mapping[str, Any]) -> ModelVersion | None:
        """Register a `model` event of a run, once, however often it is read. Fast: files are linked, not read. None
        when it was known. Raises CallError for an event that cannot be registered, such as one whose files are gone."""
        name, source = fitting_name(str(event.get("name") or "model")), str(event.get("path") or "")
        if self.index.registered(name, run_id, source) is not None:
            return None
        metrics, labels = event.get("metrics"), event.get("labels")
        return self.register(
            name,
            run_id,
            source,
            metrics={str(key): float(value) for key, value in metrics.items() if isinstance(value, int | float)}
            if isinstance(metrics, dict)
            else None,
            labels={str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else None,
            description=str(event.get("description") or ""),
            reason="logged by its run",
            user=self.store.find(run_id).user,
            at=event.get("at"),
            once=True,
        )

    def _with_root(self, run: Run, source: str) -> str:
        """A path in the run's folder, also for one below its outputs. Raises CallError."""
        steps = path_parts(source)
        below = "/".join((run_paths.OUTPUTS, *steps))
        is_output = bool(steps) and steps[0] not in ROOTS and run_tree(self.home.run(run.id).path).look(below)
        return below if is_output else source

    def _draft(self, run: Run | None, source: str) -> DraftVersion | None:
        """None for a URL: its files are not stored here."""
        if _SCHEME.match(source):
            refuse_credentials(source)
            return None
        if run is None:
            raise CallError("name the run that made the model, or give its URL")
        tree = run_tree(self.home.run(run.id).path)
        found = tree.look(source)
        if found is not None and found.kind == LINK:
            found = tree.look(tree.leads_to(source) or "")
        if found is None or found.kind not in (FILE, FOLDER) or found.path.partition("/")[0] not in tree.tops:
            raise CallError(f"run {run.id} has no `{source}` here: `phalanx outputs {run.id}` lists all files")
        draft = self.folder / f".draft-{secrets.token_hex(8)}"
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, draft, ignore_errors=True)
            (draft / "files").mkdir(mode=0o700, parents=True)
            sizes = keep_files(tree, found, draft / "files")
            if not sizes:
                raise CallError(f"`{source}` of run {run.id} contains no files")
            undo.pop_all()
        return DraftVersion(draft, sum(sizes), len(sizes))

    def _place(self, draft: DraftVersion, name: str, number: int) -> None:
        """An existing folder was left by a process that was killed before it wrote its record."""
        place = self._place_of(name, number)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.exists():
            shutil.rmtree(place)
        draft.path.rename(place)

    def _place_of(self, name: str, number: int) -> Path:
        return self.folder / name / str(number)

    # settling ------------------------------------------------------------------------------------------------------

    def finalize(self, run_id: str, settling: TreeDigester) -> None:
        """Read the unread files of a run's versions, for their digests and to share objects. After the end of the run,
        its lineage is complete."""
        unread = [found for found in self.index.versions(run_id=run_id) if found.digest is None and found.files]
        if not unread:
            return
        now = {**lineage_of(self.home, self.store, self.store.find(run_id)), "code": self._code(run_id, settling)}
        for version in unread:
            known = version.lineage
            news = {name: now[name] for name in ("datasets", "commit", "dirty", "code") if now[name] != known.get(name)}
            self.finalize_version(version, settling, news)

    def finalize_version(
        self, version: ModelVersion, settling: TreeDigester, lineage: Mapping[str, Any] | None = None
    ) -> ModelVersion:
        tree = Tree(self._place_of(version.model, version.number) / "files")
        files = settling.digest(tree, list(tree.walk()), self.files(version))
        digest = digest_of_files((path, kept.digest) for path, kept in files.items())
        if digest is None:
            return version
        with self.journal.changing():
            known = self.index.version(version.model, version.number)
            if known is None or known.digest == digest:  # deleted meanwhile, or read by another process
                return known or version
            listing = json.dumps({path: kept._asdict() for path, kept in files.items()})
            write_atomic(tree.root.with_name("files.json"), listing.encode())
            size = sum(kept.size for kept in files.values())
            data = {"digest": digest, "size": size, "files": len(files), "lineage": dict(lineage or {})}
            self.journal.write("settle", version.model, version.number, data)
        return self.version(version.model, version.number)

    def files(self, version: ModelVersion) -> dict[str, FileRecord]:
        """The records of a version's files, by path below its folder."""
        try:
            data = json.loads((self._place_of(version.model, version.number) / "files.json").read_bytes())
            return {path: read_kept(kept) for path, kept in data.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _code(self, run_id: str, settling: TreeDigester) -> str | None:
        """The digest of a run's code snapshot."""
        tree = Tree(self.home.run(run_id).path / run_paths.CODE)
        files = TreeDigester(None, settling.progress).digest(tree, list(tree.walk()), {})
        return digest_of_files((path, kept.digest) for path, kept in files.items())

    # changing ------------------------------------------------------------------------------------------------------

    def alias(self, name: str, alias: str, number: int, reason: str = "", user: str | None = None) -> ModelVersion:
        """Point an alias at a version. The record contains its previous target."""
        alias = check_alias(alias)
        with self.journal.changing():
            self.version(name, number)
            was = self.index.aliases(name).get(alias)
            if was != number:
                self.journal.write("alias", name, number, {"alias": alias, "was": was}, reason=reason, user=user)
        return self.version(name, number)

    def unalias(self, name: str, alias: str, reason: str = "", user: str | None = None) -> None:
        with self.journal.changing():
            was = self.model(name).aliases.get(alias)
            if was is None:
                raise CallError(f"`{name}` has no alias `{alias}`")
            self.journal.write("unalias", name, was, {"alias": alias}, reason=reason, user=user)

    def describe(self, name: str, description: str, number: int | None = None, user: str | None = None) -> None:
        with self.journal.changing():
            self._check_there(name, number)
            self.journal.write("describe", name, number, {"description": description}, user=user)

    def label(
        self, name: str, labels: Mapping[str, str | None], number: int | None = None, user: str | None = None
    ) -> None:
        """Set labels of a model or version; None removes one."""
        with self.journal.changing():
            self._check_there(name, number)
            self.journal.write("label", name, number, {"labels": dict(labels)}, user=user)

    def delete(
        self, name: str, number: int | None = None, reason: str = "", user: str | None = None, *, force: bool = False
    ) -> None:
        """Delete a version with its files, or a model with all its versions; not while an alias points there, unless
        forced. Numbers are never reused, and the history stays."""
        with self.journal.changing():
            self._check_there(name, number)
            aliases = [alias for alias, at in self.index.aliases(name).items() if number in (None, at)]
            if aliases and not force:
                what = f"{name}/{number}" if number is not None else f"a version of {name}"
                raise CallError(f"`{', '.join(aliases)}` points at {what}: point it elsewhere first, or use --force")
            self.journal.write("delete", name, number, {"aliases": aliases}, reason=reason, user=user)
            self._sweep(name)

    def tidy(self) -> None:
        """Remove files that belong to no version: left by killed processes."""
        with suppress(FileNotFoundError), self.journal.changing():
            for entry in list(os.scandir(self.folder)):
                if not entry.name.startswith("."):
                    self._sweep(entry.name)
                elif time.time() - entry.stat(follow_symlinks=False).st_mtime > LEFTOVERS_S:
                    shutil.rmtree(entry.path, ignore_errors=True)

    def _sweep(self, name: str) -> None:
        there = {str(version.number) for version in self.index.versions(name)}
        with suppress(OSError):
            for entry in list(os.scandir(self.folder / name)):
                if entry.name not in there:
                    shutil.rmtree(entry.path, ignore_errors=True)
            if not there:
                (self.folder / name).rmdir()

    def _check_there(self, name: str, number: int | None) -> None:
        if number is None:
            self.model(name)
        else:
            self.version(name, number)

    # lookup --------------------------------------------------------------------------------------------------------

    def model(self, name: str) -> Model:
        found = self.index.model(name)
        if found is None:
            raise CallError(f"there is no model `{name}`: `phalanx models` lists all models")
        return found

    def version(self, name: str, number: int) -> ModelVersion:
        found = self.index.version(name, number)
        if found is None:
            latest = self.model(name).latest
            raise CallError(f"`{name}` has no version {number}" + (f"; its latest is {latest}" if latest else ""))
        return found

    def find(self, reference: str) -> ModelVersion:
        """The version that `name`, `name/3` or `name@alias` refers to."""
        name, which = split_reference(reference)
        model = self.model(name)
        number = model.latest if which is None else model.aliases.get(which) if isinstance(which, str) else which
        if number is not None:
            return self.version(name, number)
        if which is None:
            raise CallError(f"`{name}` has no version")
        known = ", ".join(model.aliases)
        raise CallError(f"`{name}` has no alias `{which}`" + (f"; it has {known}" if known else ""))

    def resolve(self, reference: str) -> ResolvedVersion:
        """The version, and the location of its files. Raises CallError when files are missing."""
        version = self.find(reference)
        if version.files is None:
            return ResolvedVersion(version, None, version.source)
        if not self.has_files(version):
            raise CallError(f"files of {version.title} are missing in {self._place_of(version.model, version.number)}")
        return ResolvedVersion(version, self._place_of(version.model, version.number) / "files", None)

    def has_files(self, version: ModelVersion) -> bool:
        """Whether all registered files exist; a URL needs none."""
        tree = Tree(self._place_of(version.model, version.number) / "files")
        return sum(found.kind == FILE for found in tree.walk()) >= (version.files or 0)

    def check(self) -> list[str]:
        """Problems of the registry, for `doctor`."""
        gone = [version.title for version in self.index.versions() if not self.has_files(version)]
        return [f"files of the model {title} are missing in {self.folder}" for title in gone]


def keep_files(tree: Tree, found: TreeEntry, target: Path) -> list[int]:
    """Copy a file, or the content of a folder, into a version's folder. Links within the folder are recreated, others
    skipped. Returns the files' sizes."""
    start, sizes = f"{found.path}/", []
    for entry in [found] if found.kind == FILE else tree.walk(found.path):
        place = target / (entry.path.removeprefix(start) if found.kind == FOLDER else found.path.rpartition("/")[2])
        if entry.kind == FOLDER:
            place.mkdir(mode=0o700)
        elif entry.kind == FILE:
            keep_file(tree, entry, place)
            sizes.append(entry.size)
        elif entry.kind == LINK:
            to = tree.leads_to(entry.path)
            if to is not None and to.startswith(start):
                place.symlink_to(os.path.relpath(to, os.path.dirname(entry.path)))
    return sizes


def keep_file(tree: Tree, found: TreeEntry, place: Path) -> None:
    """Linked if the file never changes in place; outputs are copied, since training may rewrite them."""
    *above, name = found.path.split("/")
    if above[0] in OWNED:
        with suppress(OSError), tree.folder(tuple(above)) as folder:  # where links do not work, it is copied
            os.link(name, place, src_dir_fd=folder, follow_symlinks=False)
            return
    with tree.open(found.path) as stream, place.open("xb") as out:
        shutil.copyfileobj(stream, out, CHUNK)
    if tree.look(found.path) != found:
        raise CallError(f"`{found.path}` changed while it was copied: retry when it is complete")
    os.utime(place, ns=(found.mtime_ns, found.mtime_ns))


def lineage_of(home: Home, store: Store, run: Run) -> dict[str, Any]:
    """The lineage of a version, as far as it is known at registration."""
    try:
        git = json.loads((home.run(run.id).path / run_paths.RECORDS).read_bytes()).get("git") or {}
    except (OSError, ValueError, AttributeError):
        git = {}
    found = {
        "run": {"id": run.id, "name": run.name, "project": run.project, "user": run.user, "attempt": run.attempt},
        "framework": run.framework,
        "params": dict(run.params),
        "datasets": [dataset for name, dataset in store.facts(run.id).items() if name.startswith("dataset ")],
        "commit": run.commit or git.get("commit"),
        "dirty": git.get("dirty"),
    }
    if len(json.dumps(found)) > MAX_LINEAGE:
        found |= {"params": {}, "datasets": [], "note": "params and datasets are too large to store here"}
    return found


def finalize_outputs(home: Home, store: Store, run_id: str, progress: Progress = no_progress) -> list[Artifact]:
    """Read a finished run's files: its manifest, its artifacts with digests, its model versions. Safe to repeat at any
    time, concurrently, and after a kill; only changes are read again. Raises CallError, StoreError, OSError."""
    settling = TreeDigester(Objects(home.path), progress)
    manifest = update_manifest(home, run_id, settling)
    Registry(home, store).finalize(run_id, settling)
    return index_outputs(store, run_id, manifest)
