"""A backend that runs each job as a background process of this machine, through `sh`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from phalanx.backends.contract import (
    ENDED,
    NO_OPTIONS,
    RUNNING,
    Backend,
    Connections,
    Engine,
    EngineUnavailable,
    Job,
    JobRejected,
    Observation,
)
from phalanx.ends import Cause
from phalanx.errors import CallError
from phalanx.plan.document import document
from phalanx.plan.model import Plan
from phalanx.spec.shapes import Field, Number, RecordShape

SCRIPT = """\
#!/bin/sh
# sh run.sh FOLDER ATTEMPT PIDFILE
nice -n {nice} python3 -I -S "$1/job/agent.pyz" "$1/plan.json" "$1/job/attempt-$2.json" \\
  --all-here "shell:$(basename "$3" .pid)" &
echo $$ $! >"$3.draft" && mv "$3.draft" "$3"
wait $!
echo $? >"$3.code.draft" && mv "$3.code.draft" "$3.code"
"""


class ShellEngine(Engine):
    """A job is a file `RUN.ATTEMPT.pid` in one folder, with `RUN.ATTEMPT.pid.code` beside it once it has ended."""

    name = "shell"
    slowest_poll_s = 1.0

    def __init__(self, jobs: Path) -> None:
        self.jobs = jobs

    def preflight(self, environment: Mapping[str, str]) -> None:
        for command in ("nice", "python3", "setsid"):
            if shutil.which(command, path=environment.get("PATH", os.defpath)) is None:
                raise CallError(f"`{command}` is not on the PATH: install it")

    def submit(
        self,
        folder: Path,
        run_id: str,
        attempt: int,
        first: int,
        *,
        working: Path,
        environment: Mapping[str, str],
    ) -> str:
        job = f"{run_id}.{attempt}"
        script = ["sh", str(folder / "run.sh"), str(folder), str(attempt), str(self.jobs / f"{job}.pid")]
        try:
            self.jobs.mkdir(mode=0o700, exist_ok=True)
            with self.log_of(folder, f"shell:{job}").open("wb") as output:
                subprocess.run(
                    ["sh", "-c", 'setsid "$@" &', "sh", *script],
                    cwd=working,
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    check=True,
                )
        except subprocess.CalledProcessError as fault:
            raise JobRejected(str(fault)) from None
        except OSError as fault:  # a full disk, too many processes
            raise EngineUnavailable(str(fault)) from None
        return f"shell:{job}"

    def observe(self, handles: Collection[str]) -> dict[str, Observation]:
        found = {}
        for file in self.jobs.glob("*.pid"):
            run_id, _, attempt = file.stem.rpartition(".")
            state, why, cause = _state(file)
            found[f"shell:{file.stem}"] = Observation(state, why, cause, run_id=run_id, attempt=int(attempt))
        return found

    def cancel(self, handles: Collection[str]) -> None:
        for handle in handles:
            file = self.jobs / f"{handle.partition(':')[2]}.pid"
            if file.exists() and _state(file)[0] == RUNNING:
                with suppress(ProcessLookupError):
                    os.kill(_pids(file)[1], signal.SIGTERM)  # the agent ends all replicas


def _pids(file: Path) -> tuple[int, int]:
    """Of the script and of the agent."""
    script, agent = file.read_text().split()
    return int(script), int(agent)


def _state(file: Path) -> tuple[str, str, Cause]:
    is_alive = any(Path(f"/proc/{pid}").exists() for pid in _pids(file))
    code = file.with_name(f"{file.name}.code")  # checked last: the script writes it before it ends
    if code.exists():
        number = code.read_text().strip()
        return ENDED, f"its script ended with code {number}", Cause.FINISHED if number == "0" else Cause.ERROR
    return (RUNNING, "", Cause.LOST) if is_alive else (ENDED, "its process was killed", Cause.LOST)


class Shell(Backend):
    name = "shell"
    settings = RecordShape("shell", {"nice": Field(Number(low=0, high=19, whole=True), "How nice the job is.")})

    def target(
        self,
        home: Path,
        plan: Plan | None = None,
        *,
        options: Mapping[str, str | None] = NO_OPTIONS,
        ask: bool = False,
    ) -> Path:
        return home / "shell"

    def render(self, plan: Plan, target: Any = None) -> Job:
        if plan.totals.gpu is not None:
            raise CallError("the shell has no GPUs: remove `resources.gpu`")
        nice = plan.backend_settings.get("shell", {}).get("nice", 0)
        files = {"run.sh": SCRIPT.format(nice=nice), "plan.json": json.dumps(document(plan))}
        return Job(files, start="sh {folder}/run.sh {folder} 1 job.pid", shown="run.sh", carries_agent=True)

    def engine(self, target: Path, connections: Connections) -> Engine:
        return ShellEngine(target)


BACKEND = Shell()
