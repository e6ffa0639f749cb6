"""Scripts that track, in processes of their own, and what is found afterwards in the folders of their runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.spool import JSON, NO_STEP, read
from phalanx.store.series.points import PointFile, point_files
from phalanx.store.series.run_series import RunSeries

SOURCES = Path(__file__).resolve().parents[2] / "src"
FOREIGN = ("PHALANX_", "POLYAXON_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_", "PYTHONPATH", "COVERAGE")
PATIENCE_S = 90.0


class Answer(NamedTuple):
    code: int
    out: str
    err: str


class Replica:
    """One replica's attempt of a run that looks like a real one's."""

    def __init__(self, run: Path, name: str = "master-0") -> None:
        self.run = run
        self.folder = run / "replicas" / name / "attempt-1"

    def make(self) -> Replica:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.run / "outputs").mkdir(exist_ok=True)
        return self

    def environment(self) -> dict[str, str]:
        return {
            "PHALANX_TRACK": str(self.folder),
            "PHALANX_RUN_ID": self.run.name,
            "PHALANX_PROJECT": "vision",
            "PHALANX_OUTPUTS": str(self.run / "outputs"),
            "PHALANX_RANK": "0",
            "PHALANX_ATTEMPT": "1",
            "PHALANX_REPLICA": "master-0",
        }

    def files(self) -> list[PointFile]:
        found = [PointFile(self.folder / name) for name in point_files(self.folder)]
        for file in found:
            file.poll()
        return found

    def points(self) -> dict[str, list[tuple[int | None, float]]]:
        """Steps, None where none was given, and values, file by file as they were written."""
        kept: dict[str, list[tuple[int | None, float]]] = {}
        for file in self.files():
            for name, columns in file.metrics.items():
                steps = [None if step == NO_STEP else step for step in columns.steps]
                kept.setdefault(name, []).extend(zip(steps, columns.values, strict=True))
        return kept

    def values(self, name: str) -> list[float]:
        return [value for _, value in self.points().get(name, [])]

    def count(self) -> int:
        return sum(len(columns) for file in self.files() for columns in file.metrics.values())

    def damage(self) -> int:
        return sum(file.skipped_bytes for file in self.files())

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """As people see it."""
        (line,) = RunSeries(self.run).series(name)
        return list(line.steps), list(line.values)

    def all_events(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self.folder.glob("*.events")):
            yield from (record.data() for record in read(path) if record.kind == JSON)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.all_events() if event["kind"] == kind]

    def event(self, kind: str) -> dict[str, Any]:
        (found,) = self.events(kind)
        return found

    def params(self) -> dict[str, Any]:
        return {name: value for event in self.events("params") for name, value in event["values"].items()}

    def dropped(self) -> dict[str, int]:
        return {why: count for event in self.events("dropped") for why, count in event["why"].items()}

    def end(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "end.json").read_bytes())
        return found


def clean_environment(**more: str) -> dict[str, str]:
    """Ours, without anything that says that it is a run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**kept, "PYTHONPATH": str(SOURCES), **more}


def script(text: str, *options: str, python: str = sys.executable, **environment: str) -> Answer:
    """A script from its start to its end."""
    done = subprocess.run(
        [python, "-W", "error", *options, "-c", text],
        env=clean_environment(**environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def runs_of(home: Path) -> list[Replica]:
    """Those that were made in a home, the oldest first."""
    found = [path for path in (home / "runs").iterdir() if not path.name.startswith(".")]
    return [Replica(path) for path in sorted(found, key=_created)]


def _created(path: Path) -> float:
    return float(json.loads((path / "run.json").read_bytes())["created_at"])


def only_run(home: Path) -> Replica:
    (found,) = runs_of(home)
    return found
