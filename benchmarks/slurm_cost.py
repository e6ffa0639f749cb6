"""What runs on Slurm cost: submitting many, waiting for many, starting four ranks, and packing trials into one job.

It brings up a cluster on this machine (root, Debian), whose daemons share the cores with what is measured.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from measuring import PHALANX, PYTHON, ROOT

sys.path.insert(0, str(ROOT))

from tests.slurm.cluster import Cluster
from tests.slurm.configuration import Settings

from phalanx import run_paths
from phalanx.atomic_files import read_json
from phalanx.home.group_folder import GroupFolder
from phalanx.home.home import Home
from phalanx.plan.framework_checks import load
from phalanx.scheduler.runner import SchedulerRunner
from phalanx.scheduler.submissions import AT_ONCE
from phalanx.store import Store
from phalanx.submission.model import CodeSource, Submission
from phalanx.submission.submit import submit
from table import Beside, Of, Row, at_least, at_most

SUBMITTED, ROUNDS = 300, 3
GOAL_TIMES = 2.0  # as fast as a loop of sbatch
ONE_BY_ONE = "sbatch, one by one"
WAITING, SETTLE_S, WATCH_S = 1_000, 45.0, 60.0
RANKS, STARTS = 4, 5
MOST_MORE_S = 0.5  # than bare commands of Slurm
SLOTS = 8
TRIALS = {"single": 40, "packed": 400}  # in each way: about a minute
HELD = b"version: 1\nkind: job\nenvironment: {slurm: {directives: {hold: ''}}}\nrun: {cmd: 'true'}\n"
STAMP = """
import os, time
now, name = time.time(), f"{os.uname().nodename}-{os.getpid()}"
open(os.path.join(os.environ["STAMPS"], name), "w").write(repr(now))
"""
COUNTED = ("squeue", "sacct", "scontrol", "sbatch", "scancel")
TICKS = os.sysconf("SC_CLK_TCK")


# submitting ----------------------------------------------------------------------------------------------------------


def queue(folder: Path, count: int) -> Home:
    """A home with so many runs that shall go to Slurm, where they will be held."""
    home = Home(folder)
    loaded, tree = load([("held.yml", HELD)], {})
    held = Submission(spec=loaded, tree=tree, environment=dict(os.environ), code=CodeSource(folder), on="slurm")
    with Store.open(home.path, None) as store:
        for _ in range(count):
            submit(home, store, held)
    return home


def submit_all(home: Home) -> None:
    with Store.open(home.path, None) as store:
        runner = SchedulerRunner(home, store)
        left = home.run_ids()
        try:
            while left := [run_id for run_id in left if not is_submitted(home, run_id)]:
                runner.run_pass()
                time.sleep(runner.pause_s)
        finally:
            runner.close()
            runner.lease.release()


def is_submitted(home: Home, run_id: str) -> bool:
    """Whether the handle of a run is on disk."""
    record = read_json(home.run(run_id).path / run_paths.handle_file(1))
    return record is not None and bool(record["handle"])


def sbatch(script: str) -> None:
    folder = Path(script).parent
    subprocess.run(["sbatch", "--parsable", "--hold", script], check=True, stdout=subprocess.DEVNULL, cwd=folder)


def submission(folder: Path, cluster: Cluster) -> Iterator[Row]:
    rates: dict[str, list[float]] = {}

    def measure(name: str, act: Callable[[], None]) -> None:
        began = time.perf_counter()
        act()
        rates.setdefault(name, []).append(SUBMITTED / (time.perf_counter() - began))
        cluster.cancel_all(patience_s=60)

    for turn in range(ROUNDS):
        home = queue(folder / f"submit{turn}", SUBMITTED)
        script = str(home.run(home.run_ids()[0]).path / "run.sh")

        def at_once(script: str = script) -> None:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(sbatch, [script] * SUBMITTED))

        def one_by_one(script: str = script) -> None:
            for _ in range(SUBMITTED):
                sbatch(script)

        acts: list[tuple[str, Callable[[], None]]] = [
            ("phalanx", lambda home=home: submit_all(home)),  # type: ignore[misc]
            (ONE_BY_ONE, one_by_one),
            (f"sbatch, {AT_ONCE} at once", at_once),
        ]
        for name, act in acts[turn % 3 :] + acts[: turn % 3]:
            measure(name, act)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    ours = medians.pop("phalanx")
    for name, rate in medians.items():
        aim = at_least(GOAL_TIMES, Of.FLOOR) if name == ONE_BY_ONE else None
        yield Row(f"submission of {SUBMITTED} runs, beside {name}", ours, "/s", Beside(name, rate), aim=aim)


# waiting -------------------------------------------------------------------------------------------------------------


@contextmanager
def counted(folder: Path) -> Iterator[Callable[[], Counter[str]]]:
    """PATH with commands of Slurm that are counted. They are small, but a shell more each: that time counts too."""
    shims, log = folder / "shims", folder / "calls"
    shims.mkdir(exist_ok=True)
    log.write_text("")
    for name in COUNTED:
        real = subprocess.run(["which", name], check=True, capture_output=True, text=True).stdout.strip()
        (shims / name).write_text(f'#!/bin/sh\necho {name} >>{log}\nexec {real} "$@"\n')
        (shims / name).chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{shims}:{before}"
    try:
        yield lambda: Counter(log.read_text().split())
    finally:
        os.environ["PATH"] = before


def cpu_s(pid: int) -> tuple[float, float]:
    """Of a process, and of its children that are over."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    own, children = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    return own / TICKS, children / TICKS


def waiting(folder: Path, cluster: Cluster) -> Iterator[Row]:
    found: dict[int, tuple[float, float]] = {}
    for count in (1, WAITING):
        home = queue(folder / f"wait{count}", count)
        submit_all(home)
        with counted(folder) as calls:
            server = subprocess.Popen([*PYTHON, "-m", "phalanx.scheduler", str(home.path)])
            try:
                time.sleep(SETTLE_S)
                calls_before, cpu_before = calls(), cpu_s(server.pid)
                time.sleep(WATCH_S)
                asked, after = calls() - calls_before, cpu_s(server.pid)
            finally:
                server.terminate()
                server.wait()
        own, children = ((now - then) * 60 / WATCH_S for now, then in zip(after, cpu_before, strict=True))
        per_minute = sum(asked.values()) * 60 / WATCH_S
        found[count] = (per_minute, own + children)
        cluster.cancel_all(patience_s=120)
    calls_per_minute, cpu = found[WAITING]
    calls_of_one, cpu_of_one = found[1]
    beside = Beside("1 waiting", max(calls_of_one, 1))
    yield Row(f"processes of Slurm a minute, {WAITING:,} waiting", calls_per_minute, "", beside, aim=at_most(30))
    yield Row(f"CPU a minute, {WAITING:,} waiting", cpu, "s", Beside("1 waiting", cpu_of_one), aim=at_most(3))


# starting ------------------------------------------------------------------------------------------------------------


def starting(folder: Path, cluster: Cluster) -> Iterator[Row]:
    stamps = folder / "stamps"
    stamps.mkdir()
    program = folder / "stamp.py"
    program.write_text(STAMP)
    command = f"{sys.executable} {program}"
    file, script = folder / "polyaxonfile.yml", folder / "bare.sh"
    environment = {"slurm": {"replicas_per_node": 1}, "replicas": {"n_workers": RANKS - 1}}
    content = {"version": 1, "kind": "experiment", "framework": "pytorch", "environment": environment}
    file.write_text(json.dumps({**content, "run": {"cmd": f"exec {command}"}}))
    script.write_text(f"#!/bin/sh\n#SBATCH -N{RANKS} --output=/dev/null\nsrun -n{RANKS} {command}\n")
    commands = {
        f"srun -N{RANKS}": ["srun", f"-N{RANKS}", *command.split()],
        "sbatch, srun in it": ["sbatch", "--wait", str(script)],
        "phalanx run --on slurm": [*PHALANX, "run", "--json", "--on", "slurm", "-f", str(file)],
    }
    variables = {**os.environ, "STAMPS": str(stamps), "PHALANX_HOME": str(folder / "home")}
    found: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(STARTS + 1):
        for name, words in commands.items():
            for old in stamps.iterdir():
                old.unlink()
            began = time.time()
            subprocess.run(
                words, check=True, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
            )
            times = [float(path.read_text()) for path in stamps.iterdir()]
            assert len(times) == RANKS, f"{len(times)} ranks of {RANKS} started"
            if turn:  # the first one warms the page cache
                found[name].append(max(times) - began)
            cluster.cancel_all()
            time.sleep(0.5)
    medians = {name: statistics.median(values) for name, values in found.items()}
    ours = medians.pop("phalanx run --on slurm")
    for name, seconds in medians.items():
        what = f"start of {RANKS} ranks on {RANKS} nodes, beside {name}"
        yield Row(what, ours, "s", Beside(name, seconds), aim=at_most(seconds + MOST_MORE_S))


# packing -------------------------------------------------------------------------------------------------------------


def packing(folder: Path, cluster: Cluster) -> Iterator[Row]:
    """Trials of a group that do nothing: each a job, and packed into one job of two nodes."""
    rates = {}
    for trials, count in TRIALS.items():
        matrix = {"x": {"values": list(range(count))}}
        tuning: dict[str, Any] = {"matrix": matrix, "concurrency": SLOTS, "slurm": {"trials": trials}}
        if trials == "packed":
            tuning["slurm"] |= {"nodes": 2, "time": "1h"}
        file = folder / f"{trials}.yml"
        file.write_text(json.dumps({"version": 1, "kind": "group", "hptuning": tuning, "run": {"cmd": "true"}}))
        variables = {**os.environ, "PHALANX_HOME": str(folder / trials)}
        command = [*PHALANX, "run", "--json", "--on", "slurm", "-f", str(file)]
        done = subprocess.run(command, check=True, env=variables, stdout=subprocess.PIPE, cwd=folder)
        group = json.loads(done.stdout)["id"]
        records = GroupFolder(Home(folder / trials).run(group).path).records()
        ends = [record["at"] for record in records if record["what"] == "reported"]
        assert len(ends) == count, f"{len(ends)} of {count} trials ended"
        rates[trials] = count / (max(ends) - records[0]["at"])
        cluster.cancel_all(patience_s=60)
    beside = Beside("one job a trial", rates["single"])
    yield Row(f"packed trials, {SLOTS} at a time", rates["packed"], "/s", beside, aim=at_least(10, Of.FLOOR))


def on_cluster(part: Callable[[Path, Cluster], Iterator[Row]]) -> Iterator[Row]:
    cluster = Cluster.new(Settings(isolation="node"))
    try:
        cluster.up()
        os.environ.update(cluster.environment)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:  # a scheduler may still write there
            yield from part(Path(name), cluster)
    finally:
        cluster.down()


PARTS = {part.__name__: partial(on_cluster, part) for part in (starting, submission, waiting, packing)}
