"""Series: decoding points, compacting them, drawing ten long ones, cold and warm; and reading 10,000 metrics of a run.
Beside floors of the same run."""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from math import exp
from pathlib import Path

from measuring import PHALANX, PYTHON, report, run_s
from phalanx import run_paths
from phalanx.home.home import Home
from phalanx.ingest import external_runs
from phalanx.spool import MOMENT, NAMES, POINTS, VALUE, PointWriter, frame, name_payload
from phalanx.store import Store
from phalanx.store.series.compaction import compact
from phalanx.store.series.points import PointFile
from phalanx.store.series.run_series import RunSeries

SERIES = 10
POINTS_EACH, POINTS_EACH_SMALL = 1_000_000, 300_000
BUCKETS = 1000
ROUNDS = 5
LEAST_DECODED = 300_000  # points a second
MOST_BYTES = 12.0  # a point, compacted
MOST_COLD_S = 0.3
MOST_WARM_S = 0.03
MANY, MANY_POINTS = 10_000, 20  # metrics of one run, and points of each
MOST_JSON_S, MOST_JSON_RATIO = 2.0, 25.0
MOST_FRAME_S, MOST_FRAME_RATIO = 3.0, 6.0
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


def command_s(command: Sequence[str]) -> float:
    """The same of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run_s(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def decoding(folder: Path, points: int) -> list[bool]:
    """One value to a record is the worst there is."""
    met = []
    for metrics in (1, SERIES):
        path = folder / f"decoded-{metrics}" / "client-1.points"
        write(path, points // metrics, metrics)
        floor = max(seconds_of(path.read_bytes, 3), 1e-6)
        rate = points / seconds_of(lambda path=path: PointFile(path).poll(), 3)  # type: ignore[misc]
        met.append(rate >= LEAST_DECODED)
        what = f"points decoded, {metrics} to a record (a plain read: {points / floor / 1e6:.0f} M/s)"
        report(what, f"{rate / 1e3:.0f} k/s", f"{LEAST_DECODED / 1e3:.0f} k/s", met=met[-1])
    return met


def compacting(run: Path, points: int) -> list[bool]:
    spool = sum(path.stat().st_size for path in run.glob("replicas/*/*/*.points"))
    began = time.process_time()
    made = compact(run, 1)
    seconds = time.process_time() - began
    if made is None or made.points != points:
        sys.exit("nothing was compacted: is pyarrow installed?")
    each = made.size_bytes / points
    print(f"{points} points compacted in {seconds:.1f} s: {points / seconds / 1e3:.0f} k/s")
    what = f"bytes a point, compacted (as numbers: 24, in the spool: {spool / points:.1f})"
    report(what, f"{each:.2f}", f"{MOST_BYTES:.0f}", met=each <= MOST_BYTES)
    return [each <= MOST_BYTES]


def drawing(run: Path) -> list[bool]:
    commands = {"floor": [*PYTHON, "-c", "pass"], "cold": [*PYTHON, "-c", DRAW, str(run)]}
    times = [{name: command_s(command) for name, command in commands.items()} for _ in range(ROUNDS)]
    cold, floor = (statistics.median(one[name] for one in times) for name in ("cold", "floor"))
    what = f"{SERIES} series as {BUCKETS} buckets, cold (python -c pass: {floor * 1e3:.0f} ms)"
    report(what, f"{cold * 1e3:.0f} ms", f"{MOST_COLD_S * 1e3:.0f} ms", met=cold < MOST_COLD_S)
    series = RunSeries(run)

    def draw(count: int) -> None:
        for metric in series.names():
            series.buckets(metric, count)

    draw(BUCKETS)
    again = seconds_of(lambda: draw(BUCKETS))
    counts = iter(range(BUCKETS - 1, 0, -1))
    anew = seconds_of(lambda: draw(next(counts)))  # the leaves are warm, the answers are not
    met = [cold < MOST_COLD_S]
    for how, seconds in (("warm, the same again", again), ("warm, another number of buckets", anew)):
        met.append(seconds < MOST_WARM_S)
        report(f"the same, {how}", f"{seconds * 1e3:.1f} ms", f"{MOST_WARM_S * 1e3:.0f} ms", met=met[-1])
    return met


def reading_many(folder: Path) -> list[bool]:
    """`metrics --json` and `pandas()` of a run with very many metrics, before and after compaction."""
    home = Home(folder / "home")
    with Store.open(home.path) as store:
        run, _ = external_runs.create(home, project="default", source="benchmark")
        external_runs.adopt(home, store, run.id)
    place = home.run(run.id).path
    writer = PointWriter(place / run_paths.attempt_folder("master-0", 1) / "client-1.points")
    for step in range(MANY_POINTS):
        writer.add(step, START + step, {f"layer{number}/norm": float(step) for number in range(MANY)})
    writer.close()
    env = ["env", f"PHALANX_HOME={home.path}"]
    answer = folder / "answer.json"
    answer.write_bytes(
        subprocess.run([*env, *PHALANX, "metrics", run.id, "--json"], check=True, capture_output=True).stdout
    )
    met = []
    for how in ("as written", "compacted"):
        if how == "compacted":
            compact(place, 1)
        for what, floor, command, most_s, most_ratio in (
            (
                "metrics --json",
                [JSON_FLOOR, str(answer)],
                [*PHALANX, "metrics", run.id, "--json"],
                MOST_JSON_S,
                MOST_JSON_RATIO,
            ),
            ("pandas()", [FRAME_FLOOR], [*PYTHON, "-c", FRAME], MOST_FRAME_S, MOST_FRAME_RATIO),
        ):
            times = [(command_s([*PYTHON, "-c", *floor]), command_s([*env, *command])) for _ in range(3)]
            least, own = (min(column) for column in zip(*times, strict=True))
            met.append(own < most_s and own / least < most_ratio)
            target = f"{most_s:.0f} s, {most_ratio:.0f}x"
            report(f"{what} of {MANY:,} metrics, {how}", f"{own:.2f} s, {own / least:.1f}x", target, met=met[-1])
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="less than a third of the points")
    steps = POINTS_EACH_SMALL if parser.parse_args().small else POINTS_EACH
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        met = decoding(folder, steps)
        run = folder / "run"
        write(run / "replicas" / "master-0" / "attempt-1" / "client-1.points", steps, SERIES)
        met += compacting(run, steps * SERIES)
        met += drawing(run)
        met += reading_many(folder)
    sys.exit(0 if all(met) else "a limit was missed")


if __name__ == "__main__":
    main()
