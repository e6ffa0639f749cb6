"""Chaos test of groups: the scheduler is killed at random moments; every group must end as if it had not been.

    python scripts/group_chaos.py --kills 300 --seed 7

Each round runs a group of real commands in a new home, while its scheduler is killed with SIGKILL over and over. The
group must end with the same trials, params, rungs and statuses as in a round without kills: none lost, none twice.
"""

# ruff: noqa: S311 - chaos must be repeatable, not secret

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import phalanx.scheduler.groups  # noqa: F401 - imported here, so that a child need not
from phalanx.home.group_folder import GroupFolder, trial_id
from phalanx.home.home import Home
from phalanx.plan.framework_checks import load
from phalanx.scheduler.runner import run_until_idle
from phalanx.store import Run, Store
from phalanx.submission.model import CodeSource, Submission
from phalanx.submission.submit import submit

ROUND_S = 300.0  # longest round
LOG = "import sys; sys.path.insert(0, {0!r}); from phalanx import tracking; tracking.log(loss={{ x }} / {{ e }})"
SEARCHES: dict[str, dict[str, Any]] = {
    "grid": {
        "hptuning": {"concurrency": 3, "matrix": {"x": {"values": [1, 2, 3]}, "e": {"values": [1, 2]}}},
        "run": {"cmd": "sleep 0.{{ x }}; echo {{ x }}-{{ e }}"},
    },
    "random": {
        "hptuning": {
            "concurrency": 2,
            "seed": 3,
            "random_search": {"n_experiments": 5},
            "matrix": {"x": {"uniform": "0:1"}, "e": {"values": [1, 2]}},
        },
        "run": {"cmd": "sh -c 'exit $(( {{ e }} - 1 ))'"},
    },
    "hyperband": {
        "hptuning": {
            "concurrency": 3,
            "seed": 5,
            "matrix": {"x": {"uniform": "0:1"}},
            "hyperband": {
                "max_iter": 3,
                "eta": 3,
                "resource": {"name": "e", "type": "int"},
                "metric": {"name": "loss", "optimization": "minimize"},
                "resume": True,
            },
        },
        "run": {"cmd": f'{sys.executable} -c "{LOG}"'},
    },
    "repeats": {
        "hptuning": {
            "concurrency": 3,
            "seed": 5,
            "repeat": 2,
            "matrix": {"x": {"uniform": "0:1"}},
            "asha": {
                "n_experiments": 3,
                "max_iter": 3,
                "eta": 3,
                "resource": {"name": "e", "type": "int"},
                "metric": {"name": "loss", "optimization": "minimize"},
            },
        },
        "run": {"cmd": f'sleep 0.{{{{ seed }}}}; {sys.executable} -c "{LOG}"'},
    },
}


class Violation(Exception):
    """A guarantee was violated."""


class TrialResult(NamedTuple):
    params: str
    attempts: int
    status: str


def begin(folder: Path, search: Mapping[str, Any]) -> tuple[Home, str]:
    """A group in a new home."""
    import json

    sources = str(Path(__file__).resolve().parent.parent / "src")
    text = json.dumps({"version": 1, "kind": "group", **search}).replace("{0!r}", f"'{sources}'")
    spec, tree = load([("group.yml", text.encode())], {})
    home = Home(folder / "home")
    with Store.open(home.path) as store:
        code = CodeSource(folder)
        group = submit(home, store, Submission(spec=spec, tree=tree, environment=dict(os.environ), code=code))
    return home, group.id


def child_scheduler(home: Home) -> int:
    """A scheduler in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            with Store.open(home.path) as store:
                run_until_idle(home, store, idle_s=0.1)
        finally:
            os._exit(0)
    return pid


def play(home: Home, group_id: str, chance: random.Random | None) -> int:
    """Run the group to its end. Returns how often its scheduler was killed."""
    kills, deadline = 0, time.monotonic() + ROUND_S
    while True:
        with Store.open(home.path) as store:
            group = store.find(group_id)
            left = store.active()
        if group.is_done and not left:
            return kills
        if time.monotonic() > deadline:
            raise Violation(f"{group.status} ({group.reason}) after {ROUND_S:.0f} s; left: {left}")
        pid = child_scheduler(home)
        if chance is None:
            os.waitpid(pid, 0)
            continue
        time.sleep(chance.choice([0.005, 0.03, 0.1, 0.4]) * chance.uniform(0.5, 2.0))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        kills += 1


def result(home: Home, group_id: str) -> tuple[dict[tuple[int, int], TrialResult], str]:
    """The trials of a group that has ended, and its status. Raises Violation."""
    records = GroupFolder(home.run(group_id).path).records()
    made = [record["trial"] for record in records if record["what"] == "create"]
    if made != list(range(len(made))):
        raise Violation(f"trials in the journal: {made}")
    with Store.open(home.path) as store:
        group = store.find(group_id)
        runs: dict[str, Run] = {run.id: run for run in store.runs(f"group:{group_id}", limit=None)}
        faults = store.check()
    repeats = max((record["repeat"] + 1 for record in records if record["what"] == "repeated"), default=1)
    ids = {trial_id(group_id, number, repeat): (number, repeat) for number in made for repeat in range(repeats)}
    if set(runs) != set(ids) or set(home.run_ids()) != {*ids, group_id} or faults:
        raise Violation(f"runs {sorted(runs)}, folders {sorted(home.run_ids())}, trials {ids}; {faults}")
    retried = Counter((record["trial"], record["repeat"]) for record in records if record["what"] == "retried")
    trials = {
        ids[run.id]: TrialResult(str(sorted(run.params.items())), run.attempt - retried[ids[run.id]], run.status)
        for run in runs.values()
    }
    return dict(sorted(trials.items())), group.status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300, help="how many schedulers to kill, at least")
    parser.add_argument("--seed", type=int, default=None)
    asked = parser.parse_args()
    seed = random.randrange(1 << 30) if asked.seed is None else asked.seed
    chance = random.Random(seed)
    print(f"seed {seed}", flush=True)
    expected = {}
    for name, search in SEARCHES.items():
        with tempfile.TemporaryDirectory() as folder:
            home, group_id = begin(Path(folder), search)
            play(home, group_id, None)
            expected[name] = result(home, group_id)
    kills = rounds = 0
    while kills < asked.kills:
        for name, search in SEARCHES.items():
            with tempfile.TemporaryDirectory() as folder:
                home, group_id = begin(Path(folder), search)
                kills += play(home, group_id, chance)
                found = result(home, group_id)
            rounds += 1
            if found != expected[name]:
                raise Violation(f"{name} (seed {seed}): {found} instead of {expected[name]}")
            print(f"{rounds} groups, {kills} kills: {name} ended as without", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
