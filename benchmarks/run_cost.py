"""What it costs to start runs: latency to the last rank's first instruction, and throughput of runs that do nothing.

Beside the floor (bare processes started by a loop), and beside torchrun, mpirun and GNU parallel where they are
installed.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest import mock

import phalanx
from measuring import PHALANX
from table import Beside, Of, Row, at_least, at_most

RANKS = 8
ROUNDS = 5
RUNS = 40
STAMP = "import os, time; open(os.path.join({stamps!r}, str(os.getpid())), 'w').write(repr(time.time()))"
WARM = "phalanx.run"


def latency_s(launch: Callable[[], object], stamps: Path) -> float:
    """From starting the ranks to the last one's first instruction."""
    for old in stamps.iterdir():
        old.unlink()
    began = time.time()
    launch()
    times = [float(path.read_text()) for path in stamps.iterdir()]
    assert len(times) == RANKS, f"{len(times)} ranks of {RANKS} started"
    return max(times) - began


def launchers(folder: Path, program: Path) -> dict[str, Callable[[], object]]:
    """What starts the ranks: the floor, us, and the peers that are installed."""
    file = folder / "working" / "polyaxonfile.yml"
    file.parent.mkdir()
    content = {
        "version": 1,
        "kind": "experiment",
        "framework": "pytorch",
        "environment": {"replicas": {"n_workers": RANKS - 1}},
        "run": {"cmd": f"exec {sys.executable} {program}"},
    }
    file.write_text(json.dumps(content))
    bare = f"for _ in $(seq {RANKS}); do {sys.executable} {program} & done; wait"
    commands = {"bare processes": ["bash", "-c", bare], "phalanx run": [*PHALANX, "run", "--json", "-f", str(file)]}
    torchrun, mpirun = shutil.which("torchrun"), shutil.which("mpirun")
    if torchrun:
        commands["torchrun"] = [torchrun, "--standalone", f"--nproc-per-node={RANKS}", str(program)]
    if mpirun:
        flags = ["--allow-run-as-root", "--oversubscribe", "-np", str(RANKS)]
        commands["mpirun"] = [mpirun, *flags, sys.executable, str(program)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    found = {name: partial(subprocess.run, command, check=True, **quiet) for name, command in commands.items()}
    return {**found, WARM: lambda: phalanx.run(str(file)).result()}


def latencies() -> Iterator[Row]:
    """Cold is a command, while no scheduler runs or one that has nothing to do; warm is a call from Python right after
    another run, while its scheduler is there."""
    with ExitStack() as held:
        place = held.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        held.enter_context(mock.patch.dict(os.environ, PHALANX_HOME=str(Path(place, "home"))))
        held.enter_context(warnings.catch_warnings(action="ignore"))  # more CPUs than here are
        folder, stamps, program = Path(place), Path(place) / "stamps", Path(place) / "stamp.py"
        stamps.mkdir()
        program.write_text(STAMP.format(stamps=str(stamps)))
        launches = launchers(folder, program)
        found: dict[str, list[float]] = {name: [] for name in launches}
        for turn in range(int(os.environ.get("ROUNDS", ROUNDS)) + 1):
            for name, launch in launches.items():
                if name == WARM:
                    launch()
                seconds = latency_s(launch, stamps)
                if turn:  # the first one warms the page cache
                    found[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in found.items()}
    floor, ours, warm = (Beside(name, medians.pop(name)) for name in ("bare processes", "phalanx run", WARM))
    what = f"start of {RANKS} ranks, to the last one's first instruction"
    yield Row(f"{what}, cold", ours.value, "s", floor, aim=at_most(2.5, Of.FLOOR))
    yield Row(f"{what}, warm", warm.value, "s", floor, aim=at_most(1.5, Of.FLOOR))
    for name, seconds in medians.items():
        yield Row(f"{what}, beside {name}", ours.value, "s", floor, Beside(name, seconds), at_most(0.5, Of.PEER))


def throughput() -> Iterator[Row]:
    """Runs that do nothing, each submitted by its own command and worked off by the background scheduler."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        file = Path(name) / "noop.yml"
        file.write_text("version: 1\nkind: job\nrun: {cmd: 'true'}\n")
        environment = {**os.environ, "PHALANX_HOME": str(Path(name) / "queue")}
        began = time.perf_counter()
        for _ in range(RUNS):
            subprocess.run(
                [*PHALANX, "run", "-d", "-f", str(file)], check=True, env=environment, stdout=subprocess.DEVNULL
            )
        wait_for_success(environment, RUNS)
        ours = RUNS / (time.perf_counter() - began)
    floor, peer = bare_rate(), parallel_rate()
    yield Row(f"{RUNS} runs that do nothing, a command each", ours, "/s", floor, peer)


def bulk() -> Iterator[Row]:
    """Runs that do nothing, submitted by one command, 16 at a time; in turn with GNU parallel and the same command."""
    parallel = shutil.which("parallel")
    count, rounds = 300, int(os.environ.get("ROUNDS", "3"))
    ours_s = theirs_s = queueing_s = 0.0
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            working = Path(name) / "work"
            working.mkdir()
            file = working / "noop.yml"
            file.write_text(
                "version: 1\nkind: job\nenvironment: {resources: {cpu: {requests: 0.125}}}\nrun: {cmd: 'true'}\n"
            )
            environment = {**os.environ, "PHALANX_HOME": str(Path(name) / "queue")}
            began = time.perf_counter()
            subprocess.run(
                [*PHALANX, "run", "--times", str(count), "-f", str(file)],
                check=True,
                cwd=working,
                env=environment,
                stdout=subprocess.DEVNULL,
            )
            queueing_s += time.perf_counter() - began
            wait_for_success(environment, count)
            ours_s += time.perf_counter() - began
        if parallel is not None:
            began = time.perf_counter()
            numbers = map(str, range(count))
            subprocess.run([parallel, "-j16", "true", "{}", ":::", *numbers], check=True, stdout=subprocess.DEVNULL)
            theirs_s += time.perf_counter() - began
    done = rounds * count
    peer = Beside("GNU parallel", done / theirs_s) if parallel is not None else None
    what = f"{done} runs that do nothing, {count} a command"
    yield Row(what, done / ours_s, "/s", peer=peer, aim=at_least(0.5, Of.PEER) if peer is not None else None)
    yield Row(f"{what}: queueing alone", done / queueing_s, "/s", peer=peer)


def wait_for_success(environment: dict[str, str], count: int) -> None:
    command = [*PHALANX, "ps", "--json", "-q", "status:succeeded", "-n", "1"]
    while True:
        answer = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE)
        if json.loads(answer.stdout)["count"] == count:
            return
        time.sleep(0.05)


def bare_rate() -> Beside:
    began = time.perf_counter()
    for _ in range(RUNS):
        subprocess.run(["bash", "-c", "true"], check=True)
    return Beside("fork and exec", RUNS / (time.perf_counter() - began))


def parallel_rate() -> Beside | None:
    parallel = shutil.which("parallel")
    if parallel is None:
        return None
    began = time.perf_counter()
    subprocess.run([parallel, "-j2", "true", ":::", *map(str, range(RUNS))], check=True, stdout=subprocess.DEVNULL)
    return Beside("GNU parallel", RUNS / (time.perf_counter() - began))


PARTS = {"start": latencies, "throughput": throughput, "bulk": bulk}
