"""Watching a working folder of 100,000 files: CPU of the agent beside one in an empty folder, and beside one walk."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from measuring import PHALANX
from phalanx.agent.processes import read_stat
from phalanx.agent.working_folder import FolderPlace, scan
from table import Beside, Of, Row, at_most

FILES = 100_000
FOLDERS = 1_000
SECONDS = 60
MOST_PERCENT = 1.0
MOST_WALKS = 3.0
ROUNDS = 5
# Makes an event file in a new folder every five seconds, and a file in an old one
BUSY = f"""for n in $(seq {SECONDS // 5 + 6}); do
mkdir -p runs/$n; echo x > runs/$n/events.out.tfevents.$n.host.1.0; echo x > data/7/new-$n; sleep 5; done"""


def fill(folder: Path) -> None:
    for number in range(FOLDERS):
        inside = folder / "data" / str(number)
        inside.mkdir(parents=True)
        for file in range(FILES // FOLDERS):
            (inside / f"{file}.jpg").touch()


def start(folder: Path, home: Path) -> int:
    """The pid of the agent of a run in the folder."""
    (folder / "data" / "7").mkdir(parents=True, exist_ok=True)
    (folder / "file.yml").write_text(json.dumps({"version": 1, "kind": "experiment", "run": {"cmd": BUSY}}))
    environment = {**os.environ, "PHALANX_HOME": str(home)}
    command = [*PHALANX, "run", "-d", "-f", "file.yml"]
    run_id = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout
    agent = home / "runs" / run_id.strip() / "replicas/master-0/attempt-1/agent.json"
    while not agent.exists():
        time.sleep(0.05)
    return int(json.loads(agent.read_text())["pid"])


def cpu_s(pid: int) -> float:
    found = read_stat(pid)
    assert found is not None, "the agent has ended"
    return found.ticks / os.sysconf("SC_CLK_TCK")


def walk_s(folder: Path) -> float:
    """CPU seconds of the floor: every entry of the folder, with its state."""
    begin = time.process_time()
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return time.process_time() - begin


def scan_s(folder: Path) -> float:
    place = FolderPlace.of(str(folder), [])
    assert place is not None
    begin = time.process_time()
    found = scan(place, time.time_ns())
    assert found.is_complete
    return time.process_time() - begin


def watching() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as base:
        full, empty, home = (Path(base, name) for name in ("full", "empty", "home"))
        empty.mkdir()
        fill(full)
        pids = {folder.name: start(folder, home) for folder in (full, empty)}
        time.sleep(SECONDS)
        used = {name: 100 * cpu_s(pid) / SECONDS for name, pid in pids.items()}
        more = used["full"] - used["empty"]
        yield Row(f"agent watching {FILES:,} files, beyond an empty folder", more, "%", aim=at_most(MOST_PERCENT))
        pairs = [(walk_s(full), scan_s(full)) for _ in range(ROUNDS)]
        walk, look = (min(values) for values in zip(*pairs, strict=True))
        floor = Beside("os.scandir walk", walk)
        yield Row(f"look at {FILES:,} files at the end, CPU", look, "s", floor, aim=at_most(MOST_WALKS, Of.FLOOR))
        for pid in pids.values():
            while read_stat(pid) is not None:
                time.sleep(0.5)
        time.sleep(2)


PARTS = {"watching": watching}
