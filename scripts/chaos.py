"""Chaos test: starts, stops and kills at random; after each round, the next scheduler must settle all runs.

    python scripts/chaos.py --rounds 100 --seed 7

The real command line submits runs in a separate home. Processes of that home are killed at random moments: background
schedulers, fork servers, agents, replicas, whole process groups, and submitters between any two of their steps. After
every round, every run must have finished with a true and recorded status, and none of its processes may be alive.
"""

# ruff: noqa: S311 - chaos must be repeatable, not secret

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from phalanx.home.home import Home
from phalanx.scheduler.runner import TURN_S, SchedulerRunner
from phalanx.scheduler.unfinished import UNFINISHED
from phalanx.store import Run, Store, quoted
from phalanx.store.statuses import may_follow
from phalanx.stored_plan import read_plan

SETTLE_S = 45.0
PHALANX = str(Path(sys.executable).with_name("phalanx"))
BEHAVIOURS = {
    "succeeds": "exit 0",
    "says something": "echo hello; sleep 0.2; echo bye",
    "fails": "echo sorry; exit 3",
    "fails on one rank": "sleep 0.2; exit $((RANK == 1 ? 4 : 0))",
    "takes its time": "sleep 1.5",
    "takes longer": "echo up; sleep 1; sleep 1.5",
    "has children": "(sleep 1.2; sleep 0.1) & sleep 1.3 & wait",
    "ignores TERM": "trap '' TERM; sleep 0.7; sleep 0.7",
    "forks daemons": "setsid sleep 61 & (setsid setsid sleep 62 &) ; sleep 0.2",
    "prints a lot": "head -c 3000000 /dev/zero | tr '\\0' 'x'",
    "kills itself": "kill -9 $$",
    "is not there": "exec /no/such/program",
}


class Violation(Exception):
    """A guarantee was violated."""


class Process:
    """A process of the home, from /proc."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        self.command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        self.is_alive = stat[0] not in ("Z", "X")

    def value(self, name: str) -> str | None:
        start = f"{name}=".encode()
        return next((item[len(start) :].decode() for item in self.environment if item.startswith(start)), None)

    @property
    def kind(self) -> str:
        if "phalanx.scheduler" in self.command:
            return "scheduler"
        if ".pyz" in self.command:
            return "agent" if (self.value("PHALANX_AGENT_OF") or "").strip() else "fork server"
        return "replica" if self.value("PHALANX_RUN_ID") else "command"


def processes() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                found = Process(int(name))
            except (OSError, IndexError):
                continue
            if found.is_alive:
                yield found


def kill(pid: int, *, group: bool = False) -> None:
    with suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(pid, signal.SIGKILL)


class Drill:
    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.home = Home(folder / "home")
        self.environment = {**os.environ, "PHALANX_HOME": str(self.home.path)}
        self.deeds: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.ends: dict[Path, bytes] = {}  # every end.json seen so far
        self.checked: set[str] = set()
        self.submitters: list[tuple[subprocess.Popen[bytes], float]] = []

    def living(self) -> list[Process]:
        mark = f"PHALANX_HOME={self.home.path}".encode()
        return [process for process in processes() if mark in process.environment]

    # actions ------------------------------------------------------------------------------------------------------

    def submit(self) -> None:
        name = self.random.choice(list(BEHAVIOURS))
        content: dict[str, Any] = {
            "version": 1,
            "kind": "experiment",
            "name": name.replace(" ", "-"),
            "framework": "pytorch",
            "environment": {
                "resources": {"cpu": {"requests": self.random.choice([0.1, 0.5, 1])}},
                "replicas": {"n_workers": self.random.randrange(4)},
                "max_restarts": self.random.choice([0, 0, 1]),
            },
            "run": {"cmd": BEHAVIOURS[name]},
        }
        file = self.folder / f"{self.deeds['submitted']}.json"
        file.write_text(json.dumps(content))
        command = [PHALANX, "run", "-d", "-f", str(file)]
        if self.random.random() < 0.2:
            command.remove("-d")
        process = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd=self.folder, start_new_session=True,
        )  # fmt: skip
        patience_s = self.random.uniform(0.0, 1.0) if self.random.random() < 0.25 else 600.0
        self.submitters.append((process, time.monotonic() + patience_s))
        self.deeds["submitted"] += 1

    def kill_late_submitters(self) -> None:
        for number, (process, until) in enumerate(self.submitters):
            if time.monotonic() > until and process.poll() is None:
                process.kill()
                self.submitters[number] = (process, float("inf"))
                self.deeds["killed submitter"] += 1

    def kill_one(self, kinds: tuple[str, ...]) -> None:
        living = self.living()
        present = sorted({process.kind for process in living} & set(kinds))
        if present:
            kind, group = self.random.choice(present), self.random.random() < 0.4
            victim = self.random.choice([process for process in living if process.kind == kind])
            kill(victim.pid, group=group)
            self.deeds[f"killed {kind}" + ("'s group" if group else "")] += 1

    def stop_one(self) -> None:
        fresh = sorted(set(self.home.run_ids()) - self.checked)
        chosen = self.random.choice(fresh) if fresh else "nothing"
        command = [PHALANX, "stop", "--no-wait", chosen]
        process = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        patience_s = self.random.uniform(0.0, 0.6) if self.random.random() < 0.3 else 600.0
        self.submitters.append((process, time.monotonic() + patience_s))
        self.deeds["stopped"] += 1

    def misdeed(self) -> None:
        if self.random.random() < 0.15:
            self.stop_one()
        else:
            self.kill_one(("scheduler", "fork server", "agent", "replica"))

    def wait(self, until: float) -> None:
        while time.monotonic() < until:
            self.kill_late_submitters()
            self.remember_ends()
            time.sleep(0.005)

    def round(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.submit()
        patience = time.monotonic() + 3.0
        while self.random.random() < 0.9 and time.monotonic() < patience and not self.living():
            self.wait(time.monotonic() + 0.02)
        for _ in range(self.random.randint(0, 12)):
            self.wait(time.monotonic() + self.random.uniform(0.0, 0.3))
            self.misdeed()
        if self.random.random() < 0.1:
            for process, _ in self.submitters:
                process.kill()
        if self.random.random() < 0.5:
            self.kill_one(("scheduler",))
        self.settle()
        self.check()

    def settle(self) -> None:
        """Run the scheduler, unless another process does."""
        deadline = time.monotonic() + SETTLE_S
        with Store.open(self.home.path) as store:
            runner = SchedulerRunner(self.home, store)
            while True:
                self.kill_late_submitters()
                self.remember_ends()
                busy = any(process.poll() is None for process, _ in self.submitters)
                left = runner.run_pass()
                over = not left and not store.count(UNFINISHED)
                if over and not busy and set(self.home.run_ids()) <= store.ids():
                    break
                if time.monotonic() > deadline:
                    raise Violation(f"not settled after {SETTLE_S:.0f} s: {store.runs(UNFINISHED)}")
                time.sleep(TURN_S)
            held = runner.lease.held
            runner.release()
            if not held:  # the holder of the lease may still be cleaning up after the last run
                time.sleep(0.2)
        self.submitters.clear()

    # invariants ---------------------------------------------------------------------------------------------------

    def remember_ends(self) -> None:
        """A recorded end must never change."""
        for run_id in set(self.home.run_ids()) - self.checked:
            for path in self.home.run(run_id).path.glob("replicas/*/attempt-*/end.json"):
                if path not in self.ends:
                    self.ends[path] = path.read_bytes()

    def check(self) -> None:
        self.remember_ends()
        with Store.open(self.home.path) as store:
            on_disk = set(self.home.run_ids())
            if on_disk != store.ids():
                raise Violation(f"folders and rows differ: {on_disk ^ store.ids()}")
            faults = store.check()
            if faults:
                raise Violation(f"the store finds: {faults}")
            for run_id in on_disk - self.checked:
                run = store.find(run_id)
                self.check_run(store, run)
                self.statuses[run.status] += 1
                self.checked.add(run_id)
        left = [
            (process.pid, process.command)
            for process in processes()
            if {process.value("PHALANX_RUN_ID"), process.value("PHALANX_AGENT_OF")} & on_disk
        ]
        if left:
            raise Violation(f"still alive: {left}")

    def check_run(self, store: Store, run: Run) -> None:
        folder = self.home.run(run.id)
        history, stored = folder.history(), store.statuses(run.id)
        said = [(c.number, c.attempt, c.status, c.reason, c.at) for c in history]
        if said != [(c.number, c.attempt, c.status, c.reason, c.at) for c in stored]:
            raise Violation(f"{run.id}: history and store differ:\n{history}\n{stored}")
        steps = [None, *(change.status for change in history)]
        for old, new in pairwise(steps):
            if new is None or not may_follow(old, new):
                raise Violation(f"{run.id}: {new} followed {old}: {steps}")
        if not run.is_done or (run.status, run.reason) != (history[-1].status, history[-1].reason):
            raise Violation(f"{run.id} is {run.status}: {run.reason}; its history ends with {history[-1]}")
        if sorted(change.at for change in history) != [change.at for change in history]:
            raise Violation(f"{run.id}: its statuses are not in order of time")
        if (self.home.environments / f"{run.id}.json").exists():
            raise Violation(f"{run.id}: its environment is still there")
        self.check_ends(store, run)

    def check_ends(self, store: Store, run: Run) -> None:
        folder = self.home.run(run.id)
        causes: dict[str, str] = {}
        for attempt in range(1, run.attempt + 1):
            for name, place in folder.replica_folders(attempt):
                try:
                    end = json.loads((place / "end.json").read_bytes())
                except FileNotFoundError:
                    if (place / "agent.json").exists() or (place / "log").exists():
                        raise Violation(f"{run.id}: {name} of attempt {attempt} began and has no end") from None
                    continue
                if attempt == run.attempt:
                    causes[name] = end["cause"]
        plan = read_plan(folder.path)
        deciding = {causes.get(name) for name in plan.deciding}
        if run.status == "succeeded" and (deciding != {"finished"} or len(causes) != len(plan.with_command)):
            raise Violation(f"{run.id} succeeded, but {causes}")
        if run.status == "failed" and set(causes.values()) == {"finished"}:
            raise Violation(f"{run.id} failed ({run.reason}), but {causes}")
        if run.status == "stopped" and folder.stop_reason() is None:
            raise Violation(f"{run.id} was stopped by nobody")
        rows = {f"{row.role}-{row.number}": row for row in store.replicas(run.id, run.attempt)}
        if run.attempt and {name: row.cause for name, row in rows.items()} != causes:
            raise Violation(f"{run.id}: the rows of its replicas say {rows}, their ends {causes}")

    def check_all_again(self) -> None:
        """No record may be lost or changed."""
        for path, content in self.ends.items():
            if path.read_bytes() != content:
                raise Violation(f"{path} was {content.decode()} and is {path.read_text()}")
        with Store.open(self.home.path) as store:
            for run_id in self.checked:
                if store.count(f"id:{quoted(run_id)}") != 1:
                    raise Violation(f"{run_id} is lost")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=600.0, help="start no round after this time")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**6)
    folder = Path(tempfile.mkdtemp(prefix="phalanx-chaos-"))
    drill = Drill(folder, seed)
    began = time.monotonic()
    done = 0
    try:
        while done < asked.rounds and time.monotonic() - began < asked.seconds:
            drill.round()
            done += 1
            if done % 10 == 0:
                print(f"round {done}: {len(drill.checked)} runs, {sum(drill.deeds.values())} actions", flush=True)
        drill.check_all_again()
    except Violation as violation:
        print(f"VIOLATION in round {done + 1} of seed {seed}: {violation}\nsee {folder}", flush=True)
        return 1
    finally:
        for process, _ in drill.submitters:
            process.kill()
            process.wait()
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{done} rounds of seed {seed} in {time.monotonic() - began:.0f} s, no violation")
    for title, counter in (("deeds", drill.deeds), ("runs", drill.statuses)):
        print(f"{title}: {', '.join(f'{count} {name}' for name, count in counter.most_common())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
