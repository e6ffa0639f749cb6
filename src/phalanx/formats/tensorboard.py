"""Runs of a TensorBoard folder: each folder with event files is one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from phalanx.formats import tfevents
from phalanx.formats.foreign_run import ForeignEvent, ForeignImage, ForeignRun, FoundRuns, ImportLosses, Points, Record
from phalanx.formats.safe_files import walk

_SESSION = re.compile(r"\d{9,11}\.\d+")  # the folder that `add_hparams` makes beside the events of its run
_WORDS = {
    "damage": "damaged bytes of event files",
    "malformed": "events that could not be read",
    "graph": "graphs",
    "audio": "sounds",
    "too large": "events that are too large",
    "hparams": "hyperparameters that are not numbers, strings or booleans",
}


def is_event_file(path: Path) -> bool:
    return "tfevents" in path.name and path.is_file()


def find(source: Path) -> FoundRuns:
    """`source` is a folder, or one event file."""
    losses = ImportLosses()
    files = [("", source)] if source.is_file() else list(walk(source))
    folders: dict[Path, list[Path]] = {}
    for _, path in files:
        if is_event_file(path) and not path.is_symlink():
            folders.setdefault(path.parent, []).append(path)
    _join_sessions(folders)
    base = source.parent if source.is_file() else source
    return FoundRuns("tensorboard", (_run(folder, paths, base) for folder, paths in folders.items()), losses)


def _join_sessions(folders: dict[Path, list[Path]]) -> None:
    """Assign a hyperparameter session to the run whose folder contains it."""
    for folder in list(folders):
        if _SESSION.fullmatch(folder.name) and folder.parent in folders:
            folders[folder.parent] += folders.pop(folder)


def _run(folder: Path, paths: list[Path], base: Path) -> ForeignRun:
    """The first file's name has the time, host and process of the writer: it distinguishes runs of the same name."""
    name = folder.relative_to(base).as_posix()
    name = name if name != "." else base.resolve().name or "tensorboard"
    paths = sorted(paths, key=lambda path: path.name)
    first = next((item.time for path in paths for item in tfevents.EventFileReader(path).poll(1 << 16)), None)
    return ForeignRun(
        source=f"tensorboard:{name}/{paths[0].name}",
        name=name,
        started=first or None,
        read=partial(_read, paths),
    )


def _read(paths: list[Path], losses: ImportLosses) -> Iterator[Record]:
    for path in paths:
        follower = tfevents.EventFileReader(path)
        before = -1
        while follower.offset != before:
            before = follower.offset
            for item in follower.poll():
                yield _record(item)
        for what, count in follower.skipped.items():
            losses.add(_WORDS.get(what, f"data of the plugin {what}"), count, example=path.name)
        rest = path.stat().st_size - follower.offset
        if rest:
            losses.add("bytes of unfinished events", rest, example=path.name)


def _record(item: tfevents.Item) -> Record:
    if isinstance(item, tfevents.ScalarSummary):
        return Points(item.step, item.time, {item.tag: item.value})
    if isinstance(item, tfevents.ImageSummary):
        name = f"{item.tag}/{item.place}" if item.place else item.tag
        return ForeignImage(name, item.step, item.time, item.data)
    if isinstance(item, tfevents.TextSummary):
        return ForeignEvent("text", item.time, {"name": item.tag, "step": item.step, "text": item.text})
    if isinstance(item, tfevents.HistogramSummary):
        spread = {"edges": item.edges, "counts": item.counts}
        return ForeignEvent("histogram", item.time, {"name": item.tag, "step": item.step, **spread})
    return ForeignEvent("params", item.time, {"values": item.values})
