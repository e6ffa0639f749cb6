"""Chaos test of groups and pipelines: what runs them is killed at random moments; each must end as if it had not been.

    python scripts/group_chaos.py --kills 300 --seed 7
    scripts/with_postgres.sh python scripts/group_chaos.py --kills 300

Each round runs a group or pipeline of real commands in a new home, under a scheduler of its own or under
`phalanx serve`, on SQLite or on PostgreSQL. Meanwhile SIGKILL hits the scheduler or server, agents, the process that
forks agents, and PostgreSQL. The group must end with the same trials, params, values, rungs and statuses as in a round
without kills, a pipeline with the same statuses, params, outputs and number of runs of its ops: none lost, no attempt
run twice, no process left.
"""

# ruff: noqa: S311 - chaos must be repeatable, not secret

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import phalanx.scheduler.groups
import phalanx.scheduler.pipelines.active  # noqa: F401 - imported here, so that a child need not
from phalanx.agent.fork_server import FORK_SERVER
from phalanx.agent.launcher import AGENT_MARK
from phalanx.agent.processes import descendants, find_marked, read_stat
from phalanx.errors import SystemFault
from phalanx.home.group_folder import GroupFolder, trial_id
from phalanx.home.home import Home
from phalanx.plan.framework_checks import load
from phalanx.scheduler.group_state import GroupState
from phalanx.scheduler.pipelines.report import PipelineReport
from phalanx.scheduler.runner import run_until_idle
from phalanx.store import Run, Store
from phalanx.submission.model import CodeSource, Submission
from phalanx.submission.removal import with_parts
from phalanx.submission.submit import submit
from phalanx.tune.decision import packages

PHALANX = str(Path(sys.executable).with_name("phalanx"))
SOURCES = str(Path(__file__).resolve().parent.parent / "src")
ROUND_S = 600.0  # longest round
ENDS_S = 30.0  # for the processes of a group that has ended
MOST_OF_A_RUN = 2  # agents of a run that are killed: after four at a rung, the trial counts as failed
RESOURCE = {"name": "e", "type": "int"}
UNIFORM = {"x": {"uniform": "0:1"}}
LOSS = {"name": "loss", "optimization": "minimize"}
NOTE = "echo $PHALANX_ATTEMPT >> ../starts/$PHALANX_RUN_ID"  # to see that no attempt starts twice
LOG = f"import sys; sys.path.insert(0, '{SOURCES}'); from phalanx import tracking; tracking.log(loss=%s)"


def logging(loss: str) -> dict[str, str]:
    return {"cmd": f'{NOTE}; {sys.executable} -S -c "{LOG % loss}"; sleep 0.1'}


SEARCHES: dict[str, dict[str, Any]] = {
    "grid_search": {
        "hptuning": {"concurrency": 3, "matrix": {"x": {"values": [1, 2, 3]}, "e": {"values": [1, 2]}}},
        "run": {"cmd": f"{NOTE}; sleep 0.{{{{ x }}}}; echo {{{{ x }}}}-{{{{ e }}}}"},
    },
    "random_search": {
        "hptuning": {
            "concurrency": 2,
            "seed": 3,
            "random_search": {"n_experiments": 5},
            "matrix": {**UNIFORM, "e": {"values": [1, 2]}},
        },
        "run": {"cmd": f"{NOTE}; sleep 0.1; exit $(( {{{{ e }}}} - 1 ))"},
    },
    "hyperband": {
        "hptuning": {
            "concurrency": 3,
            "seed": 5,
            "matrix": UNIFORM,
            "hyperband": {"max_iter": 3, "eta": 3, "resource": RESOURCE, "metric": LOSS, "resume": True},
        },
        "run": logging("{{ x }} / {{ e }}"),
    },
    "pbt": {
        "hptuning": {
            "concurrency": 3,
            "seed": 5,
            "matrix": UNIFORM,
            "pbt": {"n_experiments": 4, "max_iter": 2, "interval": 1, "resource": RESOURCE, "metric": LOSS},
        },
        "run": logging("{{ x }} / {{ e }}"),
    },
    "asha with repeats": {
        "hptuning": {
            "concurrency": 3,
            "seed": 5,
            "repeat": 2,
            "matrix": UNIFORM,
            "asha": {"n_experiments": 3, "max_iter": 3, "eta": 3, "resource": RESOURCE, "metric": LOSS},
        },
        "run": {"cmd": "sleep 0.{{ seed }}; " + logging("{{ x }} / {{ e }}")["cmd"]},
    },
    # The decisions of the others depend on the order in which trials end: one at a time has one order.
    "asha": {
        "hptuning": {
            "concurrency": 1,
            "seed": 5,
            "matrix": UNIFORM,
            "asha": {"n_experiments": 5, "max_iter": 3, "eta": 3, "resource": RESOURCE, "metric": LOSS},
        },
        "run": logging("{{ x }} / {{ e }}"),
    },
    "bo": {
        "hptuning": {"concurrency": 1, "seed": 5, "matrix": UNIFORM,
                     "bo": {"n_initial_trials": 2, "n_iterations": 1, "metric": LOSS}},
        "run": logging("{{ x }}"),
    },
    "tpe": {
        "hptuning": {"concurrency": 1, "seed": 5, "matrix": UNIFORM,
                     "tpe": {"n_experiments": 3, "n_initial_trials": 2, "metric": LOSS}},
        "run": logging("{{ x }}"),
    },
    "cmaes": {
        "hptuning": {"concurrency": 1, "seed": 5, "matrix": {**UNIFORM, "y": {"uniform": "0:1"}},
                     "cmaes": {"n_experiments": 3, "population": 2, "metric": LOSS}},
        "run": logging("{{ x }} + {{ y }}"),
    },
}  # fmt: skip


OUTPUT = [{"name": "n", "type": "int"}]


def op(name: str, template: str, *after: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "template": {"name": template}, "dependencies": list(after), **more}


def job(name: str, command: str, **more: Any) -> dict[str, Any]:
    """An agent that is killed fails its attempt: the run is restarted."""
    restarts = {"environment": {"max_restarts": MOST_OF_A_RUN + 1}}
    return {"kind": "job", "name": name, "run": {"cmd": f"{NOTE}; {command}"}, **restarts, **more}


PLUS_ONE = job(
    "plus-one",
    "sleep 0.1; echo '{% raw %}{\"n\": {% endraw %}'$(( {{ n }} + 1 ))} > $PHALANX_OUTPUTS/outputs.json",
    inputs=[{"name": "n", "type": "int"}], outputs=OUTPUT,
)  # fmt: skip
PIPELINES: dict[str, dict[str, Any]] = {
    "pipeline": {
        "concurrency": 2,
        "ops": [
            op("a", "plus-one", params={"n": 1}),
            op("b", "plus-one", params={"n": "{{ ops.a.outputs.n }}"}),
            op("c", "plus-one", params={"n": "{{ ops.a.outputs.n }}"}),
            op("d", "plus-one", "c", params={"n": "{{ ops.b.outputs.n }}"}),
        ],
        "templates": [PLUS_ONE],
    },
    "pipeline with a failure": {
        "ops": [
            op("a", "ok"),
            op("b", "bad", "a", max_retries=1, retry_delay=0.1),
            op("c", "ok", "b"),
            op("d", "ok", "b", trigger="all_failed"),
            op("e", "ok", "d", conditions=[{"kind": "status", "op": "b"}]),
            op("f", "ok", "e", skip_on_upstream_skip=True),
        ],
        "templates": [job("ok", "sleep 0.1"), {**job("bad", "exit 3"), "environment": {"max_restarts": 0}}],
    },
    "pipeline with a group": {
        "ops": [
            op("a", "plus-one", params={"n": 1}),
            op("g", "search", params={"n": "{{ ops.a.outputs.n }}"}),
            op("b", "ok", "g"),
        ],
        "templates": [
            PLUS_ONE,
            job("ok", "sleep 0.1"),
            {**SEARCHES["grid_search"], "kind": "group", "name": "search", "inputs": [{"name": "n", "type": "int"}]},
        ],
    },
}


class Violation(Exception):
    """A guarantee was violated."""


class TrialResult(NamedTuple):
    params: str
    attempts: int
    status: str
    state: str  # for the search
    rung: int
    value: float | None


class OpResult(NamedTuple):
    status: str
    runs: int
    params: str
    outputs: str


class Postgres:
    """The server of `with_postgres.sh`; a database of its own for each round."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.made = 0
        (folder,) = parse_qs(urlsplit(url).query)["host"]
        self.data = Path(folder) / "data"

    def new_database(self) -> str:
        self.made += 1
        name = f"chaos_{self.made}"
        # A killed server loses what it had not passed to the kernel; `with_postgres.sh` allows that for speed.
        self._run(f"CREATE DATABASE {name}", f"ALTER DATABASE {name} SET synchronous_commit TO on")
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    def kill_connection(self, chance: random.Random) -> bool:
        """The server then ends all connections, and starts again from its log."""
        found = [row[0] for row in self._run("SELECT pid FROM pg_stat_activity WHERE datname LIKE 'chaos_%'")]
        return bool(found) and kill(chance.choice(found))

    def restart(self) -> bool:
        server = int((self.data / "postmaster.pid").read_text().splitlines()[0])
        tool = Path(os.readlink(f"/proc/{server}/exe")).with_name("pg_ctl")
        owner = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        command = [*owner, str(tool), "-D", str(self.data), "-l", str(self.data.parent / "server.log")]
        subprocess.run(
            [*command, "-m", "immediate", "-w", "restart"], check=True, cwd="/", stdout=subprocess.DEVNULL, timeout=60
        )
        return True

    def _run(self, *statements: str) -> list[tuple[Any, ...]]:
        import psycopg

        deadline = time.monotonic() + ENDS_S
        while True:
            try:
                with psycopg.connect(self.url, autocommit=True) as connection:
                    answers = [connection.execute(one) for one in statements]
                    return answers[-1].fetchall() if answers[-1].description else []
            except psycopg.OperationalError:  # it starts again
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


class Round:
    """A group in a new home, and the process that schedules it."""

    def __init__(self, folder: Path, search: Mapping[str, Any], url: str | None, *, is_served: bool) -> None:
        self.folder, self.url, self.is_served = folder, url, is_served
        for name in ("work", "starts"):
            (folder / name).mkdir()
        self.home = Home(folder / "home")
        self.kind = "pipeline" if "ops" in search else "group"
        text = json.dumps({"version": 1, "kind": self.kind, **search})
        spec, tree = load([("file.yml", text.encode())], {})
        asked = Submission(spec=spec, tree=tree, environment=dict(os.environ), code=CodeSource(folder / "work"))
        with Store.open(self.home.path, url) as store:
            self.group_id = submit(self.home, store, asked).id
        self.pid: int | None = None
        self.agents_killed: Counter[str] = Counter()

    # what runs it ------------------------------------------------------------------------------------------------

    def keep_scheduled(self) -> None:
        """Start its scheduler or server, unless it is running."""
        if self.pid is not None and os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            return
        self.pid = self._serve() if self.is_served else self._schedule()

    def _schedule(self) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                with suppress(SystemFault), Store.open(self.home.path, self.url) as store:
                    run_until_idle(self.home, store, idle_s=0.1)
            finally:
                os._exit(0)
        return pid

    def _serve(self) -> int:
        environment = {**os.environ, **({"PHALANX_DATABASE": self.url} if self.url else {})}
        process = subprocess.Popen(
            [PHALANX, "serve", "--home", str(self.home.path), "--port", "0", "--no-token-url"],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        process.returncode = 0  # it is waited for by its pid
        return process.pid

    def kill_scheduler(self) -> bool:
        if self.pid is None or not kill(self.pid):
            return False
        os.waitpid(self.pid, 0)
        self.pid = None
        return True

    def kill_fork_server(self) -> bool:
        found = [stat.pid for stat in descendants(self.pid)] if self.pid is not None else []
        return any(kill(pid) for pid in found if FORK_SERVER in command_of(pid) and AGENT_MARK + "= " in variables(pid))

    def kill_agent(self, chance: random.Random) -> bool:
        """Or the process that starts it."""
        run_ids = [name for name in self.home.run_ids() if self.agents_killed[name] < MOST_OF_A_RUN]
        chance.shuffle(run_ids)
        for run_id in run_ids:
            found = [pid for pid in find_marked([(AGENT_MARK, run_id)]) if FORK_SERVER in command_of(pid)]
            if any(map(kill, found)):
                self.agents_killed[run_id] += 1
                return True
        return False

    # what is seen ------------------------------------------------------------------------------------------------

    def is_over(self) -> bool:
        try:
            with Store.open(self.home.path, self.url) as store:
                return store.find(self.group_id).is_done and not store.active()
        except SystemFault:
            return False  # the database starts again

    def result(self) -> tuple[Mapping[Any, TrialResult | OpResult], str]:
        """The trials of a group, or the ops of a pipeline, that has ended, and its status. Raises Violation."""
        return self._ops() if self.kind == "pipeline" else self._trials()

    def _ops(self) -> tuple[dict[str, OpResult], str]:
        with Store.open(self.home.path, self.url) as store:
            pipeline = store.find(self.group_id)
            shown = PipelineReport(self.home, store, pipeline).summary()["ops"]
            runs = {run.id: run for run in with_parts(store, [pipeline]) if run.id != pipeline.id}
            faults = store.check()
            for run_id in (*runs, self.group_id):
                if self.home.run(run_id).history() != store.statuses(run_id):
                    faults.append(f"run {run_id}: {self.home.run(run_id).history()}, but {store.statuses(run_id)}")
        ids = {run_id for one in shown for run_id in one["runs"]}
        ids |= {run.id for run in runs.values() if run.group in ids}
        if set(runs) != ids or set(self.home.run_ids()) != {*ids, self.group_id} or faults:
            raise Violation(f"runs {sorted(runs)}, folders {sorted(self.home.run_ids())}, ops {shown}; {faults}")
        alone = {run_id: run for run_id, run in runs.items() if run.kind != "group"}
        self._check_starts({run_id: run for run_id, run in alone.items() if run.status != "failed"})
        found = {
            one["name"]: OpResult(one["status"], len(one["runs"]), str(one["params"]), str(one["outputs"]))
            for one in shown
        }
        return found, pipeline.status

    def _trials(self) -> tuple[dict[tuple[int, int], TrialResult], str]:
        records = GroupFolder(self.home.run(self.group_id).path).records()
        made = [record["trial"] for record in records if record["what"] == "create"]
        if made != list(range(len(made))):
            raise Violation(f"trials in the journal: {made}")
        with Store.open(self.home.path, self.url) as store:
            group = store.find(self.group_id)
            runs: dict[str, Run] = {run.id: run for run in store.runs(f"group:{self.group_id}", limit=None)}
            faults = store.check()
            for run_id in (*runs, self.group_id):
                if self.home.run(run_id).history() != store.statuses(run_id):
                    faults.append(f"run {run_id}: {self.home.run(run_id).history()}, but {store.statuses(run_id)}")
        repeats = max((record["repeat"] + 1 for record in records if record["what"] == "repeated"), default=1)
        ids = {trial_id(self.group_id, number, one): (number, one) for number in made for one in range(repeats)}
        if set(runs) != set(ids) or set(self.home.run_ids()) != {*ids, self.group_id} or faults:
            raise Violation(f"runs {sorted(runs)}, folders {sorted(self.home.run_ids())}, trials {ids}; {faults}")
        self._check_starts(runs)
        retried = Counter((record["trial"], record["repeat"]) for record in records if record["what"] == "retried")
        known = GroupState(None, 1, records, repeats).history.trials
        trials = {}
        for run_id, key in ids.items():
            run, trial = runs[run_id], known[key[0]]
            params, attempts = str(sorted(run.params.items())), run.attempt - retried[key]
            trials[key] = TrialResult(params, attempts, run.status, trial.state, trial.rung, trial.value)
        return trials, group.status

    def _check_starts(self, runs: Mapping[str, Run]) -> None:
        for run_id, run in runs.items():
            file = self.folder / "starts" / run_id
            started = Counter(file.read_text().split()) if file.exists() else Counter[str]()
            if any(count > 1 for count in started.values()) or str(run.attempt) not in started:
                raise Violation(f"run {run_id} with {run.attempt} attempts started its command as {dict(started)}")
        deadline = time.monotonic() + ENDS_S
        marks = [(name, run_id) for run_id in runs for name in (AGENT_MARK, "PHALANX_RUN_ID")]
        while left := [pid for pid in find_marked(marks) if (stat := read_stat(pid)) and stat.state != "Z"]:
            if time.monotonic() > deadline:
                raise Violation(f"processes are left: {[command_of(pid) for pid in left]}")
            time.sleep(0.05)


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def command_of(pid: int) -> str:
    return _read(f"/proc/{pid}/cmdline")


def variables(pid: int) -> str:
    return _read(f"/proc/{pid}/environ")


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""


@contextmanager
def begun(search: Mapping[str, Any], url: str | None = None, *, is_served: bool = False) -> Iterator[Round]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found = Round(Path(folder), search, url, is_served=is_served)
        try:
            yield found
        finally:
            found.kill_scheduler()


def play(found: Round, disturb: Callable[[], None], pause_s: Callable[[], float]) -> None:
    """Run the group to its end."""
    deadline = time.monotonic() + ROUND_S
    while not found.is_over():
        if time.monotonic() > deadline:
            with Store.open(found.home.path, found.url) as store:
                group, left = store.find(found.group_id), store.active()
            raise Violation(f"{group.status} ({group.reason}) after {ROUND_S:.0f} s; left: {left}")
        found.keep_scheduled()
        time.sleep(pause_s())
        disturb()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300, help="how many processes to kill, at least")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--searches", default=",".join([*SEARCHES, *PIPELINES]), help="by name, separated by commas")
    asked = parser.parse_args()
    seed = random.randrange(1 << 30) if asked.seed is None else asked.seed
    chance = random.Random(seed)
    server_url = os.environ.get("PHALANX_TEST_POSTGRES")
    postgres = Postgres(server_url) if server_url else None
    searches = {name: {**SEARCHES, **PIPELINES}[name] for name in asked.searches.split(",")}
    missing = [name for name in searches if any(find_spec(package) is None for package in packages_of(name))]
    for name in missing:
        del searches[name]
    left_out = f"; left out for lack of packages: {', '.join(missing)}" if missing else ""
    print(f"seed {seed}, {'SQLite and PostgreSQL' if postgres else 'SQLite'}{left_out}", flush=True)
    expected = {}
    for name, search in searches.items():
        with begun(search) as found:
            play(found, lambda: None, lambda: 0.1)
            expected[name] = found.result()
    kills: Counter[str] = Counter()
    rounds = 0
    while kills.total() < asked.kills:
        for name, search in searches.items():
            database = postgres if chance.random() < 0.5 else None
            url = database.new_database() if database is not None else None
            is_served = chance.random() < 0.25
            with begun(search, url, is_served=is_served) as found:
                play(found, *misfortune(found, database, chance, kills, is_slow=is_served or bool(packages_of(name))))
                ended = found.result()
            rounds += 1
            if ended != expected[name]:
                raise Violation(f"{name} (seed {seed}): {ended} instead of {expected[name]}")
            print(f"{rounds} rounds, {kills.total()} kills: {name} ended as without", flush=True)
    print(", ".join(f"{what}: {count}" for what, count in sorted(kills.items())))
    return 0


def packages_of(name: str) -> tuple[str, ...]:
    """What the search of this name needs: it begins with its algorithm."""
    return packages(name.partition(" ")[0]) if name in SEARCHES else ()


def misfortune(
    found: Round, database: Postgres | None, chance: random.Random, kills: Counter[str], *, is_slow: bool
) -> tuple[Callable[[], None], Callable[[], float]]:
    """Kills something, after a random pause. `is_slow`: it needs seconds without a kill to get on."""
    deeds: dict[str, Callable[[], bool]] = {
        "server" if found.is_served else "scheduler": found.kill_scheduler,
        "fork server": found.kill_fork_server,
        "agent": lambda: found.kill_agent(chance),
    }
    if database is not None:
        deeds["database connection"] = lambda: database.kill_connection(chance)
        deeds["database"] = database.restart
    often = [name for name in deeds if name != "database"]

    def disturb() -> None:
        what = "database" if database is not None and chance.random() < 0.05 else chance.choice(often)
        if deeds[what]():
            kills[what] += 1

    pauses = [0.1, 0.5, 2.0, 8.0] if is_slow else [0.005, 0.03, 0.1, 0.4]
    return disturb, lambda: chance.choice(pauses) * chance.uniform(0.5, 2.0)


if __name__ == "__main__":
    sys.exit(main())
