"""Small training programs, of the standard library alone, and how tests run them on a cluster and ask about them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.homes import wait_for
from tests.cli.running import COMMAND
from tests.slurm.debian import PATH
from tests.slurm.places import PATIENCE_S, SlurmPlace

HERE = Path(__file__).parent
ON_SLURM = ("--on", "slurm")
DONE = ("succeeded", "failed", "stopped")
LOOK_S = 0.3  # asking takes a good part of a core


def program(name: str, *arguments: object) -> str:
    """The command that runs a program."""
    return shlex.join(["python3", str(HERE / f"{name}.py"), *map(str, arguments)])


def submit(place: SlurmPlace, command: str, *options: str, **fields: Any) -> str:
    """The id of a detached run on the cluster."""
    return place.queued(command, *ON_SLURM, *options, **fields)


def submit_with(place: SlurmPlace, command: str, variables: dict[str, str], **fields: Any) -> str:
    """The same, in a shell with other variables, which are also those of whoever looks after it."""
    answer = place.call("run", "-f", place.file(command, **fields), "-d", *ON_SLURM, **variables)  # type: ignore[arg-type]
    assert answer.code == 0, answer.err
    return answer.out.strip()


def ran(place: SlurmPlace, command: str, *options: str, **fields: Any) -> dict[str, Any]:
    """A run on the cluster from start to end, as `show` has it."""
    return over(place, submit(place, command, *options, **fields))[0]


def succeeded(place: SlurmPlace, command: str, *options: str, **fields: Any) -> dict[str, Any]:
    found = ran(place, command, *options, **fields)
    assert found["status"] == "succeeded", f"{found['reason']}\n{place.call('logs', found['id']).out}"
    return found


class AtOnce(NamedTuple):
    """Runs that were submitted together, and are over: waiting for one after the other takes much longer."""

    place: SlurmPlace
    runs: dict[str, dict[str, Any]]  # as `show` has them

    @classmethod
    def of(cls, place: SlurmPlace, wanted: Mapping[str, tuple[str, Mapping[str, Any]]]) -> AtOnce:
        """`wanted`: by name, the command and the other fields of a file."""
        ids = {name: submit(place, command, **fields) for name, (command, fields) in wanted.items()}
        return cls(place, dict(zip(ids, over(place, *ids.values()), strict=True)))

    def succeeded(self, name: str) -> dict[str, Any]:
        found = self.runs[name]
        assert found["status"] == "succeeded", f"{found['reason']}\n{self.place.call('logs', found['id']).out}"
        return found


def see(place: SlurmPlace, run: str) -> dict[str, Any]:
    answer = place.call("show", run, "--json")
    assert answer.code == 0, answer.err
    found: dict[str, Any] = answer.data
    return found


def statuses(place: SlurmPlace) -> dict[str, str]:
    rows = place.call("ps", "--json", "-n", "1000").data["runs"]
    return {row["id"]: row["status"] for row in rows}


def over(place: SlurmPlace, *runs: str, patience_s: float = PATIENCE_S) -> list[dict[str, Any]]:
    """When all of them are over, what became of them."""

    def all_done() -> bool:
        time.sleep(LOOK_S)
        now = statuses(place)
        return all(now[run] in DONE for run in runs)

    wait_for(all_done, patience_s)
    return [see(place, run) for run in runs]


def folder(place: SlurmPlace, run: str) -> Path:
    return place.home / "runs" / run


def rank_outputs(place: SlurmPlace, run: str) -> dict[str, Any]:
    """What the ranks wrote down in the run's outputs, by file."""
    outputs = folder(place, run) / "outputs"
    return {path.stem: json.loads(path.read_text()) for path in sorted(outputs.glob("*.json"))}


def log(place: SlurmPlace, run: str, replica: str = "master-0", attempt: int = 1) -> str:
    path = place.attempt(run, replica, attempt) / "log"
    return path.read_text() if path.exists() else ""


def job_of(place: SlurmPlace, run: str, attempt: int = 1) -> str:
    """The number of the job that an attempt is, or was."""
    path = folder(place, run) / "job" / f"attempt-{attempt}.handle"

    def number() -> str:
        handle = json.loads(path.read_text())["handle"] if path.exists() else None
        return handle.partition(":")[2] if handle else ""

    return str(wait_for(number))


def handle_of(place: SlurmPlace, run: str, attempt: int = 1) -> str | None:
    """The handle of an attempt, as it is on disk."""
    path = folder(place, run) / "job" / f"attempt-{attempt}.handle"
    return json.loads(path.read_text())["handle"] if path.exists() else None


def replica(found: dict[str, Any], name: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = found["replicas"]
    return next(row for row in rows if row["name"] == name)


def history(found: dict[str, Any]) -> list[str]:
    return [change["status"] for change in found["statuses"]]


def series(place: SlurmPlace, run: str, metric: str) -> dict[str, list[tuple[int, int]]]:
    """The attempt and step of every point, by replica."""
    answer = place.call("metrics", run, metric, "--json")
    (found,) = answer.data["metrics"] if answer.code == 0 else ({"series": []},)
    return {line["replica"]: list(zip(line["attempts"], line["steps"], strict=True)) for line in found["series"]}


def jobs_named(place: SlurmPlace, run: str) -> list[str]:
    """All jobs that there ever were of a run."""
    return sorted({row[0] for row in place.rows("sacct", "-nXPD", f"--name=phalanx-{run}", "-o", "JobIDRaw")})


def schedulers(place: SlurmPlace) -> list[int]:
    """Whoever schedules for this home; not what runs on nodes, which is none of a killer's business here."""
    found = []
    for pid in place.processes():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"phalanx.scheduler" in words or COMMAND.encode() in words:
                found.append(pid)
    return found


def kill_schedulers(place: SlurmPlace) -> int:
    pids = schedulers(place)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def in_front_of(place: SlurmPlace, command: str, first: str) -> str:
    """A PATH on which a command of Slurm's does something else first; not where it only tests a submission."""
    folder, real = place.folder / "in-front", shutil.which(command, path=PATH)
    folder.mkdir(exist_ok=True)
    (folder / command).write_text(
        f'#!/bin/bash\n[ "$1" != --test-only ] || exec {real} "$@"\n{first}\nexec {real} "$@"\n'
    )
    (folder / command).chmod(0o755)
    return f"{folder}:{place.environment()['PATH']}"


def until_saved(place: SlurmPlace, job: str) -> None:
    """The controller writes down what has changed after some seconds; a crash loses what is newer."""
    state = place.cluster.state / "controller" / "job_state"
    before = state.stat().st_mtime_ns
    place.cluster.ask("scontrol", "update", f"jobid={job}", "requeue=1")  # `nice` would release a held job
    wait_for(lambda: state.stat().st_mtime_ns > before)
