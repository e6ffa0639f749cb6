"""What is never removed: runs that are not over or that others need, and files that something refers to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from phalanx import run_paths
from phalanx.artifacts.trees import LINK, Tree, TreeEntry
from phalanx.atomic_files import read_json
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.store import Run, Store
from phalanx.store.model_index import ModelIndex

FACT = "retention"  # what a run's files say: `refers_to` and `keeps`
RUNS_PER_TRANSACTION = 500
LARGEST_SPEC = 1 << 20
LARGEST_JOURNAL = 64 << 20
SHORTEST_PREFIX = 4
_KEYS = ("warm_start", "after", "jobs", "experiments", "dependencies")  # of a file, that name other runs
_WORD = re.compile(rb"[a-z0-9][a-z0-9-]{3,63}")
_MARKS = tuple(f"{key}:".encode() for key in _KEYS)


class RunFiles:
    """What the files of runs say about retention. They do not change after the submission, so they are read once, and
    the store keeps what they say."""

    def __init__(self, home: Home, store: Store) -> None:
        self.refers_to: dict[str, list[str]] = {}  # by run: the words that may name other runs
        self.keeping: set[str] = set()  # runs whose file says which checkpoints stay
        ids = sorted(home.run_ids())
        known = store.facts_of(ids, FACT)
        unknown = [run_id for run_id in ids if run_id not in known]
        for start in range(0, len(unknown), RUNS_PER_TRANSACTION):
            with store.transaction():
                for run_id in unknown[start : start + RUNS_PER_TRANSACTION]:
                    folder = home.run(run_id).path
                    known[run_id] = {
                        "refers_to": sorted(set(_references(folder))),
                        "keeps": (folder / run_paths.KEEP).exists(),
                    }
                    with suppress(CallError):  # it has no row yet
                        store.put_fact(run_id, FACT, known[run_id])
        for run_id, said in known.items():
            if said["refers_to"]:
                self.refers_to[run_id] = said["refers_to"]
            if said["keeps"]:
                self.keeping.add(run_id)


class RunReferences:
    """Which runs other runs of the home refer to: in `after`, `warm_start`, `environment.outputs`, and as originals."""

    def __init__(self, home: Home, store: Store) -> None:
        self.home = home
        self.store = store
        self.starred = set(store.all_starred())
        self.active = {run.id: run for run in store.active()}
        self.asked_to_resume = set(home.asked_to_resume())

    @cached_property
    def files(self) -> RunFiles:
        return RunFiles(self.home, self.store)

    @cached_property
    def words(self) -> dict[str, str]:
        """Each id, beginning of one, or name that a run refers to, and that run."""
        found: dict[str, str] = {}
        for run_id, words in self.files.refers_to.items():
            for word in words:
                found.setdefault(word, run_id)
        for run in self.active.values():
            if run.original is not None:
                found.setdefault(run.original, run.id)
            for word in _in_journal(self.home.run(run.id).path):
                found.setdefault(word, run.id)
        return found

    def protects(self, run: Run) -> str | None:
        """Why nothing of a run may be removed; None if something may."""
        if not run.is_done or run.id in self.active:
            return "it has not ended"
        if run.id in self.asked_to_resume:
            return "it is to be resumed"
        if run.group is not None and run.group in self.active:
            return f"its group {run.group} has not ended"
        by = self._referrer(run)
        return f"run {by} refers to it" if by is not None else None

    def _referrer(self, run: Run) -> str | None:
        starts = (run.id[:length] for length in range(SHORTEST_PREFIX, len(run.id) + 1))
        for word in (*starts, *([run.name] if run.name else [])):
            by = self.words.get(word)
            if by not in (None, run.id):
                return by
        return None


def _references(folder: Path) -> Iterator[str]:
    """The runs that a run's file and its dependencies name."""
    yield from _texts(read_json(folder / run_paths.AFTER))
    try:
        with (folder / run_paths.SPEC).open("rb") as stream:
            text = stream.read(LARGEST_SPEC)
        if not any(mark in text for mark in _MARKS):
            return
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe loader
    except (OSError, yaml.YAMLError, RecursionError, ValueError):
        return
    yield from _named(data)


def _in_journal(folder: Path) -> set[str]:
    """All words in the journal of a group or pipeline: some are ids of runs whose results it uses."""
    try:
        with (folder / run_paths.JOURNAL).open("rb") as stream:
            return {word.decode() for word in _WORD.findall(stream.read(LARGEST_JOURNAL))}
    except OSError:
        return set()


def _named(data: Any) -> Iterator[str]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _texts(value) if key in _KEYS else _named(value)
    elif isinstance(data, list):
        for value in data:
            yield from _named(value)


def _texts(data: Any) -> Iterator[str]:
    """All texts, without `:failed` and the like."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield str(key)
            yield from _texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value)
    elif data is not None and str(data):
        yield str(data)
        yield str(data).partition(":")[0].rpartition("/")[2]


def protected_paths(store: Store, run: Run, tree: Tree, entries: Iterable[TreeEntry]) -> dict[str, str]:
    """The files and folders of a run that something refers to, and what: versions of models, and links."""
    found = {}
    for version in ModelIndex(store).versions(run_id=run.id):
        found[version.source.strip("/")] = f"model {version.title}"
    for entry in entries:
        if entry.kind == LINK and (target := tree.leads_to(entry.path)) is not None:
            found[target] = f"the link {entry.path}"
    return found


def protector(path: str, protected: Mapping[str, str]) -> str | None:
    """What refers to a file: to itself, or to a folder above it."""
    steps = path.split("/")
    above = ("/".join(steps[:count]) for count in range(1, len(steps) + 1))
    return next((protected[one] for one in above if one in protected), None)
