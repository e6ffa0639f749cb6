"""What the agent costs a training beside the bare command, in CPU time; and agents of 64 ranks, CPU and memory."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from measuring import PHALANX
from phalanx.agent.processes import read_stat
from table import Beside, Of, Row, at_most

ROUNDS = 3
RANKS = 64
SETTLE_S, WATCH_S = 10.0, 20.0
START_S = 300.0
TICKS = os.sysconf("SC_CLK_TCK")
# Each says what it used, and waits until the agent has been looked at.
TRAINING = """
import os, sys, time
total = 0
for step in range(STEPS):
    for value in range(20_000):
        total += value * step % 7
    LOG
with open("used.part", "w") as file:
    file.write(str(time.process_time()))
os.rename("used.part", "used")
while not os.path.exists("go"):
    time.sleep(0.01)
"""
TRAININGS = {  # and the most that it may cost, with its agent, of what it costs alone
    "CPU-bound training": (TRAINING.replace("STEPS", "3_000").replace("LOG", "pass"), 1.01),
    "training that logs a line every 2 ms": (
        TRAINING.replace("STEPS", "3_000").replace("LOG", "print(f'step {step} loss {total}', flush=True)"),
        1.02,
    ),
}


def waited_for(path: Path) -> Path:
    deadline = time.monotonic() + START_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} does not come")
        time.sleep(0.02)
    return path


def used_s(folder: Path) -> float:
    return float(waited_for(folder / "used").read_text())


def bare_s(folder: Path, program: Path) -> float:
    """CPU of the command alone, its output in a file as well."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen([sys.executable, str(program)], cwd=folder, stdout=output)
    try:
        return used_s(folder)
    finally:
        (folder / "go").touch()
        process.wait()


def agents(home: Path, run_id: str, count: int) -> list[int]:
    """The pids of all agents of a run."""
    pattern = "replicas/*/attempt-1/agent.json"
    deadline = time.monotonic() + START_S
    while len(found := list((home / "runs" / run_id).glob(pattern))) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {count} agents came")
        time.sleep(0.1)
    return [int(json.loads(path.read_text())["pid"]) for path in found]


def started(folder: Path, home: Path, content: Mapping[str, object]) -> str:
    (folder / "file.yml").write_text(json.dumps({"version": 1, "kind": "experiment", **content}))
    command = [*PHALANX, "run", "-d", "-f", "file.yml"]
    environment = {**os.environ, "PHALANX_HOME": str(home)}
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def cpu_s(pid: int) -> float:
    found = read_stat(pid)
    assert found is not None, "the agent has ended"
    return found.ticks / TICKS


def with_agent_s(folder: Path, home: Path, program: Path) -> float:
    """CPU of the command and of its agent."""
    run_id = started(folder, home, {"run": {"cmd": f"exec {sys.executable} {program}"}})
    try:
        (agent,) = agents(home, run_id, 1)
        return used_s(folder) + cpu_s(agent)
    finally:
        (folder / "go").touch()


def trainings() -> Iterator[Row]:
    for what, (text, most) in TRAININGS.items():
        bare: list[float] = []
        ours: list[float] = []
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            base, program = Path(name), Path(name) / "train.py"
            program.write_text(text)
            for turn in range(ROUNDS):
                for who, found in (("bare", bare), ("ours", ours)):
                    folder = base / f"{who}-{turn}"
                    folder.mkdir()
                    is_bare = who == "bare"
                    found.append(bare_s(folder, program) if is_bare else with_agent_s(folder, base / "home", program))
        floor = Beside("bare command", statistics.median(bare))
        yield Row(f"{what} and its agent, CPU", statistics.median(ours), "s", floor, aim=at_most(most, Of.FLOOR))


def memory_mib(pid: int) -> float:
    """What a process shares with others counts in parts."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no size of process {pid}")


def ranks() -> Iterator[Row]:
    small = {"resources": {"cpu": {"requests": 0.01}}}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder, home = Path(name), Path(name) / "home"
        content = {
            "framework": "pytorch",
            "environment": {**small, "replicas": {"n_workers": RANKS - 1, "default_worker": small}},
            "run": {"cmd": "while [ ! -e go ]; do sleep 1; done"},
        }
        run_id = started(folder, home, content)
        try:
            pids = agents(home, run_id, RANKS)
            time.sleep(SETTLE_S)
            before = [cpu_s(pid) for pid in pids]
            time.sleep(WATCH_S)
            used = sum(cpu_s(pid) for pid in pids) - sum(before)
            memory = sum(map(memory_mib, pids)) / RANKS
        finally:
            (folder / "go").touch()
        yield Row(f"agent of one of {RANKS} ranks: CPU of a core", 100 * used / WATCH_S / RANKS, "%")
        yield Row(f"agent of one of {RANKS} ranks: memory, shared pages in parts", memory, "MiB")


PARTS = {"trainings": trainings, "ranks": ranks}
