"""Homes with runs in them, made through the user's door: the installed command, in processes of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from phalanx.backends.local.capacity import this_machine
from phalanx.cli import phalanx
from phalanx.store import Run, Store, StoreError
from tests.cli.running import COMMAND, Answer

PATIENCE_S = 90.0
IN_PROCESSES = (
    os.environ.get("PHALANX_TEST_PROCESSES") == "1"
)  # every call in a process of its own, as `make test-rest` has it
READING = ("artifacts", "compare", "events", "logs", "metrics", "models", "outputs", "ps", "show", "statuses")
THREE = {"replicas": {"n_workers": 2}}  # a master and two workers
ALL_CPUS = {"resources": {"cpu": {"requests": this_machine()[0].cpus}}}  # nobody else has room beside it


def wait_for(condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """What the condition says once it is true."""
    deadline = time.monotonic() + patience_s
    while not (answer := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return answer


class Place:
    """A home, and a folder to work in beside it."""

    def __init__(self, base: Path) -> None:
        self.home = base / "home"
        self.folder = base / "work"
        self.folder.mkdir()
        self.started: list[subprocess.Popen[str]] = []

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PHALANX_")}
        return {**kept, "PHALANX_HOME": str(self.home), **more}

    def call(self, *arguments: str, stdin: bytes = b"", **environment: str) -> Answer:
        """The installed command, in a process of its own; or inside this one, where that is the same and quicker."""
        if not stdin and not environment and self._only_reads(arguments):
            return self.quick(*arguments)
        done = subprocess.run(
            [COMMAND, *arguments],
            cwd=self.folder,
            env=self.environment(**environment),
            input=stdin,
            capture_output=True,
            check=False,
            timeout=120,
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def _only_reads(self, arguments: tuple[str, ...]) -> bool:
        """Whether a call does nothing but look at a home where all runs are over, and where nobody has to schedule."""
        if IN_PROCESSES or not arguments or arguments[0] not in READING or {"-f", "--follow"} & set(arguments):
            return False
        if not (self.home / "phalanx.db").exists():
            return False
        try:
            with Store.open(self.home) as store:
                return not store.active()
        except StoreError:  # the command itself is to report it
            return False

    def quick(self, *arguments: str) -> Answer:
        """The same inside this process, many times as fast: for looking at a home where all runs are over."""
        result = CliRunner().invoke(phalanx, arguments, env=self.environment())
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """The command left running, in a group of its own as a shell starts it."""
        process = subprocess.Popen(
            [COMMAND, *arguments],
            cwd=self.folder,
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def file(self, command: str | None, *, name: str = "polyaxonfile.yml", **fields: Any) -> str:
        """A polyaxonfile; JSON is YAML."""
        content = {"version": 1, "kind": "experiment", **({"run": {"cmd": command}} if command else {}), **fields}
        (self.folder / name).write_text(json.dumps(content))
        return name

    def run(self, command: str, *options: str, **fields: Any) -> Answer:
        """`phalanx run` from start to end."""
        return self.call("run", "-f", self.file(command, **fields), *options)

    def ran(self, command: str, *options: str, **fields: Any) -> str:
        """The id of a run that is over."""
        answer = self.run(command, "--json", *options, **fields)
        return str(answer.data["id"])

    def queued(self, command: str, *options: str, **fields: Any) -> str:
        """The id of a detached run."""
        answer = self.run(command, "-d", *options, **fields)
        assert answer.code == 0, answer.err
        return answer.out.strip()

    def begun(self, *options: str, then: str = "sleep 60", **fields: Any) -> tuple[subprocess.Popen[str], str]:
        """A foreground `phalanx run` whose command is at work, and its id."""
        process = self.start("run", "-f", self.file(f"touch ready; {then}", **fields), *options)
        wait_for((self.folder / "ready").exists)
        (run_id,) = self.run_ids()
        return process, run_id

    def run_ids(self) -> list[str]:
        return [path.name for path in (self.home / "runs").iterdir() if not path.name.startswith(".")]

    def status(self, run: str) -> str:
        """What `ps` says of a run."""
        return next(
            str(row["status"]) for row in self.call("ps", "--json").data["runs"] if run in (row["id"], row["name"])
        )

    def until(self, run: str, *statuses: str) -> str:
        def reached() -> str:
            status = str(self.call("show", run, "--json").data["status"])
            return status if status in statuses else ""

        return str(wait_for(reached))

    def attempt(self, run_id: str, replica: str = "master-0", number: int = 1) -> Path:
        return self.home / "runs" / run_id / "replicas" / replica / f"attempt-{number}"

    def remember(self, run_id: str, **fields: Any) -> Run:
        """A run that was over long ago, as the store has it."""
        now = datetime.now(UTC)
        usual = dict.fromkeys(Run._fields) | {
            "id": run_id,
            "project": "default",
            "kind": "experiment",
            "backend": "native",
            "user": "me",
            "status": "succeeded",
            "reason": "finished",
            "attempt": 1,
            "priority": 0,
            "created_at": now,
            "updated_at": now,
            "started_at": now,
            "finished_at": now + timedelta(seconds=1),
            "tags": (),
            "params": {},
            "summary": {},
        }
        run = Run(**{**usual, **fields})
        with Store.open(self.home) as store:
            store.add(run)
        return run

    def processes(self) -> list[int]:
        """Everyone who works for this home."""
        mark = f"PHALANX_HOME={self.home}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                if folder.name.isdigit() and mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def close(self) -> None:
        """End everyone who works for this home."""
        while pids := self.processes():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        for process in self.started:
            ended(process)


@pytest.fixture(name="place")
def place_fixture(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


def ended(process: subprocess.Popen[str], patience_s: float = PATIENCE_S) -> Answer:
    out, err = process.communicate(timeout=patience_s)
    return Answer(process.returncode, out, err)
