"""Runs of other tools in a neutral form: what every reader produces and the importer consumes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Points(NamedTuple):
    """Values of metrics at one step (None: it was not given) and time."""

    step: int | None
    time: float
    values: Mapping[str, float]


class ForeignEvent(NamedTuple):
    """Anything else that a run tracked, as a Phalanx event: text, histogram, table, params, dataset…"""

    kind: str
    time: float
    data: Mapping[str, Any]


class ForeignImage(NamedTuple):
    """An encoded image: its bytes, or a file below `root`."""

    name: str
    step: int | None
    time: float
    image: bytes | Path
    root: Path | None = None
    caption: str | None = None


class ForeignFile(NamedTuple):
    """A file below `root` to be kept as an artifact of that name, a relative path."""

    name: str
    path: Path
    root: Path
    type: str = "file"


class ForeignModel(NamedTuple):
    """A version of a model. `folder` is a folder or file below `root`, or a path below the run's own artifacts."""

    name: str
    version: str
    folder: Path | str
    root: Path | None
    time: float
    description: str = ""
    labels: Mapping[str, str] = {}


class ForeignLog(NamedTuple):
    """More output of the run: the text, or a file below `root`."""

    printed: bytes | Path
    root: Path | None = None


class Ending(NamedTuple):
    """How a run ended. The last one counts; without one it succeeded."""

    status: str
    reason: str
    at: float | None


Record = Points | ForeignEvent | ForeignImage | ForeignFile | ForeignModel | ForeignLog | Ending


class ImportLosses:
    """What cannot be imported: counts, with the first few examples."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def add(self, what: str, count: int = 1, example: str = "") -> None:
        if not count:
            return
        self.counts[what] += count
        examples = self.examples.setdefault(what, [])
        if example and len(examples) < 3 and example not in examples:
            examples.append(example[:200])

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"what": what, "count": count, "examples": self.examples.get(what, [])}
            for what, count in sorted(self.counts.items())
        ]


Reading = Callable[[ImportLosses], Iterator[Record]]


@dataclass(frozen=True, slots=True)
class ForeignRun:
    """A run of another tool. `read` yields everything that may be long, once and in order; it reports what it must
    skip, and may raise OSError. `source` identifies the run permanently, to recognise it in a later import."""

    source: str
    name: str
    read: Reading
    project: str | None = None
    started: float | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    user: str | None = None


class FoundRuns(NamedTuple):
    """The runs of a source, and losses that belong to none of them."""

    kind: str
    runs: Iterator[ForeignRun]
    losses: ImportLosses
