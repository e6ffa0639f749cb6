"""The speed of a trial. Only its second half counts: the first is startup and warm-up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.ends import read_end
from phalanx.insight.samples import attempt_folders, read_notes
from phalanx.store.series.run_series import RunSeries

CHUNK = 1 << 20


class Measure(StrEnum):
    """Measures by which trials are compared, the best first."""

    METRIC = "metric"  # a throughput that the program tracks itself
    STEPS = "steps"
    DURATION = "duration"
    LINES = "lines"


class Pace(NamedTuple):
    """One metric line in the second half of a trial."""

    points: int
    steps_per_s: float | None
    mean: float | None


class Speeds(NamedTuple):
    """All measurements of one trial. `duration_s` is set only if it finished by itself."""

    paces: Mapping[str, Pace]  # by metric
    duration_s: float | None
    lines_per_s: float | None


class SpeedComparison(NamedTuple):
    """The measure that suits all trials, and the speed of each; None: unknown."""

    measure: Measure
    metric: str | None
    speeds: tuple[float | None, ...]


def choose(trials: Sequence[Speeds | None], metric: str | None = None) -> SpeedComparison | None:
    """Trials that did not get far are None. Returns None when there is no common measure."""
    known = [speeds for speeds in trials if speeds is not None]
    if metric is not None:
        means = [speeds.paces[metric].mean if speeds and metric in speeds.paces else None for speeds in trials]
        return (
            SpeedComparison(Measure.METRIC, metric, tuple(means)) if any(value is not None for value in means) else None
        )
    name = _steadiest(known)
    if name is not None:
        steps = (speeds.paces[name].steps_per_s if speeds and name in speeds.paces else None for speeds in trials)
        return SpeedComparison(Measure.STEPS, name, tuple(steps))
    if any(speeds.duration_s for speeds in known):
        times = (1 / speeds.duration_s if speeds and speeds.duration_s else None for speeds in trials)
        return SpeedComparison(Measure.DURATION, None, tuple(times))
    if any(speeds.lines_per_s for speeds in known):
        return SpeedComparison(Measure.LINES, None, tuple(speeds.lines_per_s if speeds else None for speeds in trials))
    return None


def _steadiest(known: Sequence[Speeds]) -> str | None:
    """The metric whose steps are known in most trials and, among those, the one with most points: it is logged
    continuously, not occasionally."""
    names = {name for speeds in known for name, pace in speeds.paces.items() if pace.steps_per_s is not None}

    def worth(name: str) -> tuple[int, int]:
        paces = [speeds.paces[name] for speeds in known if name in speeds.paces]
        stepped = [pace for pace in paces if pace.steps_per_s is not None]
        return len(stepped), sum(pace.points for pace in stepped)

    return max(sorted(names), key=worth, default=None)


def pace_of(steps: Sequence[int], times: Sequence[float], values: Sequence[float], since: float) -> Pace:
    """One replica's line from a time on."""
    chosen = [row for row in zip(times, steps, values, strict=True) if row[0] >= since]
    finite = [value for _, _, value in chosen if math.isfinite(value)]
    average = math.fsum(finite) / len(finite) if finite else None
    if len(chosen) < 2:
        return Pace(len(chosen), None, average)
    chosen.sort()
    seconds, walked = chosen[-1][0] - chosen[0][0], chosen[-1][1] - chosen[0][1]
    return Pace(len(chosen), walked / seconds if seconds > 0 and walked > 0 else None, average)


def measure(run_folder: Path, names: Iterable[str], attempt: int, *, finished: bool) -> Speeds | None:
    """The measurements of one attempt of a run. None when it never started."""
    spans = [span for name in names if (span := _span(run_folder, name, attempt)) is not None]
    if not spans:
        return None
    began, ended = min(since for since, _ in spans), max(until for _, until in spans)
    middle = began + (ended - began) / 2
    series = RunSeries(run_folder)
    paces = {}
    for metric in series.names():
        line = series.series(metric, series.replicas(metric)[0])[0]
        paces[metric] = pace_of(line.steps, line.times, line.values, middle)
    lines = sum(_lines_since(run_folder, name, attempt, middle) for name in names)
    return Speeds(
        paces=paces,
        duration_s=ended - began if finished and ended > began else None,
        lines_per_s=lines / (ended - middle) if lines and ended > middle else None,
    )


def _span(run_folder: Path, name: str, attempt: int) -> tuple[float, float] | None:
    """The start of a replica's command, and its last sign of life."""
    folder = dict(attempt_folders(run_folder / run_paths.REPLICAS / name)).get(attempt)
    notes = read_notes(folder / run_paths.SPOOL, (b'"at"',)) if folder is not None else []
    times = [float(note["at"]) for note in notes if isinstance(note.get("at"), int | float)]
    begun = next((float(note["at"]) for note in notes if "start" in note), None)
    if folder is None or begun is None:
        return None
    end = read_end(folder)
    return begun, float(end.ended_at) if end is not None and end.ended_at >= begun else max(times)


def _lines_since(run_folder: Path, name: str, attempt: int, moment: float) -> int:
    """The number of lines that a replica wrote after a time, from its agent's notes on the log size."""
    folder = run_folder / run_paths.attempt_folder(name, attempt)
    offset = log_size_at(read_notes(folder / run_paths.SPOOL, (b'"log"',)), moment)
    count = 0
    try:
        with (folder / run_paths.LOG).open("rb") as stream:
            stream.seek(offset)
            while piece := stream.read(CHUNK):
                count += piece.count(b"\n")
    except OSError:
        pass
    return count


def log_size_at(notes: Iterable[Mapping[str, Any]], moment: float) -> int:
    sizes = [int(note["log"]) for note in notes if "log" in note and note.get("at", math.inf) <= moment]
    return max(sizes, default=0)
