"""Chaos test of tracking: repeated kill -9 of writers and readers; no record may be missing.

    python scripts/track_chaos.py --rounds 100 --seed 7

Training processes are killed at random moments; the data of every call that had returned must be found. Then
TensorBoard files grow while their readers are killed; every value must be found exactly once.
"""

# ruff: noqa: S311 - chaos must be repeatable, not secret

from __future__ import annotations

import argparse
import mmap
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from phalanx.formats.tfevents import masked_crc
from phalanx.home.home import Home
from phalanx.ingest import external_runs
from phalanx.ingest.indexer import RunIndexer
from phalanx.store import Run, Store
from phalanx.store.series.points import PointFile, point_files
from phalanx.store.series.run_series import RunSeries

TRAINING = """
import mmap, struct, sys
from phalanx import tracking
with open(sys.argv[1], "r+b") as stream:
    count = mmap.mmap(stream.fileno(), 8)
step = 0
while True:
    tracking.log(step=step, **{f"m{step % 60}": float(step)} if step % 3 else {"a": step, "b": float(step)})
    step += 1
    count[:8] = struct.pack("<Q", step)
"""
FOLLOWING = """
import sys
sys.path.insert(0, sys.argv[1])
from track_chaos import follow_for_ever
follow_for_ever(sys.argv[2], sys.argv[3])
"""


class Violation(Exception):
    """A guarantee was violated."""


def clean_environment(more: Mapping[str, str]) -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if not name.startswith("PHALANX_")}, **more}


# trainings ---------------------------------------------------------------------------------------------------------


def kill_a_training(folder: Path, chance: random.Random) -> int:
    """Returns how many calls had returned. The training reports it through shared memory, which survives it."""
    attempt = folder / "run" / "replicas" / "master-0" / "attempt-1"
    attempt.mkdir(parents=True)
    shared = folder / "count"
    shared.write_bytes(bytes(8))
    environment = clean_environment({"PHALANX_TRACK": str(attempt), "PHALANX_RUN_ID": "drill"})
    process = subprocess.Popen([sys.executable, "-c", TRAINING, str(shared)], env=environment)
    with shared.open("r+b") as stream, mmap.mmap(stream.fileno(), 8) as count:
        while count[:8] == bytes(8):
            time.sleep(0.001)
        time.sleep(chance.random() ** 3 * 0.3)
        process.send_signal(signal.SIGKILL)
        process.wait()
        (made,) = struct.unpack("<Q", count[:8])
    found: dict[int, float] = {}
    for name in point_files(attempt):
        file = PointFile(attempt / name)
        file.poll()
        found.update(
            pair for columns in file.metrics.values() for pair in zip(columns.steps, columns.values, strict=True)
        )
    missing = set(range(made)) - set(found)
    if missing or len(found) > made + 1 or any(step != value for step, value in found.items()):
        raise Violation(f"{made} calls returned; missing are {sorted(missing)[:10]} of {len(found)}")
    return int(made)


# boards ------------------------------------------------------------------------------------------------------------


def record(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc(length)) + content + struct.pack("<I", masked_crc(content))


def scalar(tag: str, step: int, value: float) -> bytes:
    """An event with one value, encoded as Protocol Buffers; all lengths are below 128."""
    name = tag.encode()
    inner = bytes([0x0A, len(name)]) + name + b"\x15" + struct.pack("<f", value)
    summary = bytes([0x0A, len(inner)]) + inner
    number, varint = step, bytearray()
    while number >= 0x80:
        varint.append(number & 0x7F | 0x80)
        number >>= 7
    varint.append(number)
    return record(b"\x09" + struct.pack("<d", 1.7e9 + step) + b"\x10" + varint + bytes([0x2A, len(summary)]) + summary)


def gatherer_of(home: Home, store: Store, run: Run) -> RunIndexer:
    return RunIndexer(home, store, run, ["master-0"])


def follow_for_ever(home_path: str, run_id: str) -> None:
    """Process a run's files like a scheduler, without pauses."""
    home = Home(Path(home_path))
    with Store.open(home.path) as store:
        gatherer = gatherer_of(home, store, store.find(run_id))
        while True:
            gatherer.next_at = gatherer.boards.look_at = 0.0
            gatherer.run_pass()


def kill_the_followers(folder: Path, chance: random.Random) -> int:
    """Returns the number of values."""
    home = Home(folder / "home")
    written: dict[str, int] = {}
    with Store.open(home.path) as store:
        run, _ = external_runs.create(home, project="drill", source="drill")
        run = external_runs.adopt(home, store, run.id)
        outputs = home.run(run.id).path / "outputs"
        command = [sys.executable, "-c", FOLLOWING, str(Path(__file__).parent), str(home.path), run.id]
        for _ in range(4):
            process = subprocess.Popen(command, env=clean_environment({}))
            until = time.monotonic() + 0.3 + chance.random() * 0.5
            while time.monotonic() < until:
                place = chance.choice(["zebra", "ant", "ant/train"])
                path = outputs / place / "events.out.tfevents.1.host"
                path.parent.mkdir(parents=True, exist_ok=True)
                step = written.get(place, 0)
                with path.open("ab") as stream:
                    stream.write(b"".join(scalar("loss", step + more, step + more) for more in range(20)))
                written[place] = step + 20
                time.sleep(0.004)
            process.send_signal(signal.SIGKILL)
            process.wait()
        gatherer = gatherer_of(home, store, run)
        gatherer.run_pass(is_over=True)
        gatherer.close()
        summaries = store.summaries(run.id)
    series = RunSeries(home.run(run.id).path)
    lines = {name: list(series.series(name)[0].steps) for name in series.names()}
    if sorted(map(len, lines.values())) != sorted(written.values()):
        raise Violation(f"{written} values were written, { ({name: len(line) for name, line in lines.items()}) } found")
    for name, steps in lines.items():
        if steps != list(range(len(steps))) or summaries[name].count != len(steps):
            raise Violation(f"{name} has other steps than were written, or another summary")
    return sum(written.values())


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill whoever writes and whoever reads what is tracked.")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=300.0, help="start no round after this time")
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    until = time.monotonic() + options.seconds
    rounds = calls = values = 0
    while rounds < options.rounds and time.monotonic() < until:
        folder = Path(tempfile.mkdtemp(prefix="phalanx-drill-"))
        try:
            if rounds % 4:
                calls += kill_a_training(folder, chance)
            else:
                values += kill_the_followers(folder, chance)
        except Violation as fault:
            print(f"round {rounds}: {fault}; see {folder}")
            return 1
        shutil.rmtree(folder)
        rounds += 1
    print(f"{rounds} rounds, {calls:,} calls and {values:,} values of TensorBoard: no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
