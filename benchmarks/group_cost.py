"""The rate of trials that do nothing: a group at concurrency 16, beside GNU parallel with the same commands.

Both are also compared by CPU time, which other work on the machine changes less. The orphans of a command count, too:
agents outlive what started them. Both work in a small folder: what agents look for in a large one is `folder_cost.py`.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from measuring import PHALANX
from phalanx.agent.processes import reap_children
from table import Beside, Of, Row, at_least

CONCURRENCY = 16
TRIALS = 500  # a round
ROUNDS = 4  # both sides in turn, so that noise meets them alike
SUBREAPER = 36  # prctl: orphans become children of this process, and their CPU time is counted with them
END_S = 30.0  # for processes that a command left


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float

    def __add__(self, other: object) -> Cost:
        assert isinstance(other, Cost)
        return Cost(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s)


def cost_of(command: list[str], folder: Path) -> Cost:
    environment = {**os.environ, "PHALANX_HOME": str(folder / "home")}
    before, began = _children_s(), time.perf_counter()
    subprocess.run(
        command, check=True, env=environment, cwd=folder / "work", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    wall_s = time.perf_counter() - began
    deadline = time.monotonic() + END_S
    while reap_children() and time.monotonic() < deadline:
        time.sleep(0.05)
    return Cost(wall_s, _children_s() - before)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def group_file(folder: Path, trials: int) -> Path:
    file = folder / "work" / "group.yml"
    file.parent.mkdir()
    content = {
        "version": 1,
        "kind": "group",
        "environment": {"resources": {"cpu": {"requests": 0.01}}},  # 16 at a time also on a small machine
        "hptuning": {"concurrency": CONCURRENCY, "matrix": {"x": {"range": f"0:{trials}:1"}}},
        "run": {"cmd": "true {{ x }}"},
    }
    file.write_text(json.dumps(content))
    return file


def trials() -> Iterator[Row]:
    parallel = shutil.which("parallel")
    if parallel is None:
        raise FileNotFoundError("GNU parallel is not installed: `apt-get install parallel`")
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    theirs = ours = Cost(0.0, 0.0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = group_file(folder, TRIALS)
        numbers = list(map(str, range(TRIALS)))
        for _ in range(ROUNDS):
            theirs += cost_of([parallel, f"-j{CONCURRENCY}", "true", "{}", ":::", *numbers], folder)
            ours += cost_of([*PHALANX, "run", "--json", "-f", str(file)], folder)
    done = ROUNDS * TRIALS
    what = f"{done:,} trials that do nothing, {CONCURRENCY} at a time"
    peer = Beside("GNU parallel", done / theirs.wall_s)
    yield Row(what, done / ours.wall_s, "/s", peer=peer, aim=at_least(0.5, Of.PEER))
    yield Row(f"{what}, CPU of each", ours.cpu_s / done, "s", peer=Beside("GNU parallel", theirs.cpu_s / done))


PARTS = {"trials": trials}
