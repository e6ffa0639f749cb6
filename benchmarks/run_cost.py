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
from pathlib import Path

from measuring import PHALANX, report

RANKS = 8
ROUNDS = 5
RUNS = 40
STAMP = "import os, time; open(os.path.join(os.environ['STAMPS'], str(os.getpid())), 'w').write(repr(time.time()))"


def latency_s(command: list[str], stamps: Path, environment: dict[str, str]) -> float:
    """From starting a command to the last of its ranks' first instruction."""
    for old in stamps.iterdir():
        old.unlink()
    began = time.time()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    times = [float(path.read_text()) for path in stamps.iterdir()]
    assert len(times) == RANKS, f"{len(times)} ranks of {RANKS} started"
    return max(times) - began


def latencies(folder: Path) -> None:
    stamps = folder / "stamps"
    stamps.mkdir()
    program = folder / "stamp.py"
    program.write_text(STAMP)
    file = folder / "polyaxonfile.yml"
    content = {
        "version": 1,
        "kind": "experiment",
        "framework": "pytorch",
        "environment": {"replicas": {"n_workers": RANKS - 1}},
        "run": {"cmd": f"exec {sys.executable} {program}"},
    }
    file.write_text(json.dumps(content))
    environment = {**os.environ, "STAMPS": str(stamps), "PHALANX_HOME": str(folder / "home")}
    bare = f"for _ in $(seq {RANKS}); do {sys.executable} {program} & done; wait"
    commands = {
        "bare processes": ["bash", "-c", bare],
        "phalanx run": [*PHALANX, "run", "--json", "-f", str(file)],
    }
    torchrun = shutil.which("torchrun")
    if torchrun:
        commands["torchrun --standalone"] = [torchrun, "--standalone", f"--nproc-per-node={RANKS}", str(program)]
    if shutil.which("mpirun"):
        flags = ["--allow-run-as-root", "--oversubscribe", "-np", str(RANKS)]
        commands["mpirun"] = ["mpirun", *flags, sys.executable, str(program)]
    found: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(ROUNDS + 1):
        for name, command in commands.items():
            seconds = latency_s(command, stamps, environment)
            if turn:  # the first one warms the page cache
                found[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in found.items()}
    floor = medians["bare processes"]
    print(f"start of {RANKS} ranks, to the last one's first instruction (median of {ROUNDS})")
    for name, seconds in medians.items():
        print(f"  {name:<24} {seconds * 1000:6.0f} ms  {seconds / floor:5.1f}x bare")
    ratio = medians["phalanx run"] / floor
    report("start latency against bare processes", f"{ratio:.1f}x", "3x", met=ratio <= 3)
    if "torchrun --standalone" in medians:
        ratio = medians["phalanx run"] / medians["torchrun --standalone"]
        report("start latency against torchrun", f"{ratio:.2f}x", "0.5x", met=ratio <= 0.5)


def throughput(folder: Path) -> None:
    """Runs that do nothing, queued at once and worked off by the background scheduler."""
    file = folder / "noop.yml"
    file.write_text("version: 1\nkind: job\nrun: {cmd: 'true'}\n")
    environment = {**os.environ, "PHALANX_HOME": str(folder / "queue")}
    began = time.perf_counter()
    for _ in range(RUNS):
        subprocess.run([*PHALANX, "run", "-d", "-f", str(file)], check=True, env=environment, stdout=subprocess.DEVNULL)
    submitted = time.perf_counter() - began
    while True:
        answer = subprocess.run([*PHALANX, "ps", "--json", "-q", "status:succeeded", "-n", "1"], check=True,
                                env=environment, stdout=subprocess.PIPE)  # fmt: skip
        if json.loads(answer.stdout)["count"] == RUNS:
            break
        time.sleep(0.05)
    ours = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(RUNS):
        subprocess.run(["bash", "-c", "true"], check=True)
    bare = time.perf_counter() - began
    print(f"{RUNS} runs that do nothing: submitted in {submitted:.1f} s, all over after {ours:.1f} s "
          f"({RUNS / ours:.0f} a second); a bare fork and exec loop {RUNS / bare:.0f} a second")  # fmt: skip
    parallel = shutil.which("parallel")
    if parallel:
        began = time.perf_counter()
        subprocess.run([parallel, "-j2", "true", ":::", *map(str, range(RUNS))], check=True, stdout=subprocess.DEVNULL)
        print(f"GNU parallel: {RUNS / (time.perf_counter() - began):.0f} a second")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        latencies(Path(name))
        throughput(Path(name))


if __name__ == "__main__":
    main()
