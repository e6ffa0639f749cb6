"""Series: decoding points, compacting them, drawing ten long ones, cold and warm; and reading 10,000 metrics of a run.
Beside floors of the same run."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from math import exp
from pathlib import Path

from measuring import PHALANX, PYTHON, interleaved
from phalanx import run_paths
from phalanx.home.home import Home
from phalanx.ingest import external_runs
from phalanx.spool import MOMENT, NAMES, POINTS, VALUE, PointWriter, frame, name_payload
from phalanx.store import Store
from phalanx.store.series.compaction import compact
from phalanx.store.series.points import PointFile
from phalanx.store.series.run_series import RunSeries
from table import Beside, Of, Row, at_least, at_most

SERIES = 10
POINTS_EACH = 1_000_000
BUCKETS = 1000
ROUNDS = 5
LEAST_DECODED = 300_000  # points a second
MOST_BYTES = 12.0  # a point, compacted
MOST_COLD_S = 0.3
MOST_WARM_S = 0.03
MANY, MANY_POINTS = 10_000, 20  # metrics of one run, and points of each
MOST_JSON_RATIO, MOST_FRAME_RATIO = 25.0, 6.0
START = 1_700_000_000.0
JSON_FLOOR = "import json, sys; print(json.dumps(json.load(open(sys.argv[1]))))"
FRAME_FLOOR = f"""
import numpy as np, pandas as pd
names = np.array([f"layer{{number}}/norm" for number in range({MANY})], object)
values = np.arange({MANY * MANY_POINTS}, dtype=float)
times = pd.to_datetime(values, unit="s", utc=True)
print(pd.DataFrame({{"metric": np.repeat(names, {MANY_POINTS}), "time": times, "value": values}}))
"""
FRAME = f"""
import phalanx
with phalanx.open() as home:
    assert len(home.runs()[0].pandas()) == {MANY * MANY_POINTS}
"""
DRAW = f"""
import sys
from pathlib import Path
from phalanx.store.series.run_series import RunSeries
run = RunSeries(Path(sys.argv[1]))
for metric in run.names():
    (buckets,) = run.buckets(metric, {BUCKETS}).values()
    assert 400 < len(buckets) <= {BUCKETS}, len(buckets)
assert len(run.names()) == {SERIES}
"""


def write(path: Path, steps: int, metrics: int) -> None:
    """What a training logs: some losses that fall, with noise, every 50 ms or so."""
    path.parent.mkdir(parents=True)
    chance = random.Random(7)
    at = START
    with open(path, "wb") as stream:
        for number in range(metrics):
            stream.write(frame(NAMES, name_payload(number, f"train/loss-{number}")))
        for step in range(steps):
            at += 0.05 + chance.gauss(0, 0.005)
            level = 2.5 * exp(-3 * step / steps) + 0.1
            values = (VALUE.pack(number, level + chance.gauss(0, 0.05)) for number in range(metrics))
            stream.write(frame(POINTS, MOMENT.pack(step, at) + b"".join(values)))


def seconds_of(do: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Of a core, in the least disturbed round: nothing here waits for a disk, and what else runs is not ours."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        do()
        times.append(time.process_time() - began)
    return min(times)


def decoding() -> Iterator[Row]:
    """One value to a record is the worst there is."""
    for metrics in (1, SERIES):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "decoded" / "client-1.points"
            write(path, POINTS_EACH // metrics, metrics)
            floor = Beside("plain read", POINTS_EACH / max(seconds_of(path.read_bytes, 3), 1e-6))
            rate = POINTS_EACH / seconds_of(lambda path=path: PointFile(path).poll(), 3)  # type: ignore[misc]
        yield Row(f"points decoded, {metrics} to a record", rate, "/s", floor, aim=at_least(LEAST_DECODED))


def long_series() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        write(run / "replicas" / "master-0" / "attempt-1" / "client-1.points", POINTS_EACH, SERIES)
        yield compacting(run, POINTS_EACH * SERIES)
        yield from drawing(run)


def compacting(run: Path, points: int) -> Row:
    spool = sum(path.stat().st_size for path in run.glob("replicas/*/*/*.points"))
    made = compact(run, 1)
    if made is None or made.points != points:
        raise RuntimeError("nothing was compacted: is pyarrow installed?")
    floor = Beside("in the spool", spool / points)
    return Row("disk of a compacted point", made.size_bytes / points, "B", floor, aim=at_most(MOST_BYTES))


def drawing(run: Path) -> Iterator[Row]:
    commands = {"floor": [*PYTHON, "-c", "pass"], "cold": [*PYTHON, "-c", DRAW, str(run)]}
    found = interleaved(commands, ROUNDS)
    what, floor = f"{SERIES} series as {BUCKETS} buckets", Beside("python -c pass", found["floor"].cpu_s)
    yield Row(f"{what}, cold, CPU", found["cold"].cpu_s, "s", floor, aim=at_most(MOST_COLD_S))
    series = RunSeries(run)

    def draw(count: int) -> None:
        for metric in series.names():
            series.buckets(metric, count)

    draw(BUCKETS)
    again = seconds_of(lambda: draw(BUCKETS))
    counts = iter(range(BUCKETS - 1, 0, -1))
    anew = seconds_of(lambda: draw(next(counts)))  # the leaves are warm, the answers are not
    yield Row(f"{what}, again, CPU", again, "s", aim=at_most(MOST_WARM_S))
    yield Row(f"{what}, another number of buckets, CPU", anew, "s", aim=at_most(MOST_WARM_S))


def home_of_many(folder: Path) -> tuple[Path, str]:
    """The home and the id of a run with very many metrics."""
    home = Home(folder / "home")
    with Store.open(home.path) as store:
        run, _ = external_runs.create(home, project="default", source="benchmark")
        external_runs.adopt(home, store, run.id)
    writer = PointWriter(home.run(run.id).path / run_paths.attempt_folder("master-0", 1) / "client-1.points")
    for step in range(MANY_POINTS):
        writer.add(step, START + step, {f"layer{number}/norm": float(step) for number in range(MANY)})
    writer.close()
    return home.path, run.id


def many_metrics() -> Iterator[Row]:
    """`metrics --json` and `pandas()` of a run with very many metrics, before and after compaction."""
    with tempfile.TemporaryDirectory() as name:
        home, run_id = home_of_many(Path(name))
        os.environ["PHALANX_HOME"] = str(home)
        command = [*PHALANX, "metrics", run_id, "--json"]
        answer = Path(name) / "answer.json"
        answer.write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)
        floors = {"metrics --json": [JSON_FLOOR, str(answer)], "pandas()": [FRAME_FLOOR]}
        commands = {"metrics --json": command, "pandas()": [*PYTHON, "-c", FRAME]}
        ratios = {"metrics --json": MOST_JSON_RATIO, "pandas()": MOST_FRAME_RATIO}
        for how in ("as written", "compacted"):
            if how == "compacted":
                compact(Home(home).run(run_id).path, 1)
            for what, floor in floors.items():
                found = interleaved({"floor": [*PYTHON, "-c", *floor], "ours": commands[what]}, 3)
                beside = Beside("the same output", found["floor"].cpu_s)
                aim = at_most(ratios[what], Of.FLOOR)
                yield Row(f"{what} of {MANY:,} metrics, {how}, CPU", found["ours"].cpu_s, "s", beside, aim=aim)


PARTS = {"decoding": decoding, "long": long_series, "many": many_metrics}
