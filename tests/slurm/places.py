"""A home whose runs go to a Slurm cluster."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from tests.cli.homes import Place, ended, wait_for
from tests.slurm.cluster import Cluster

PATIENCE_S = 120.0  # a dead node is noticed after 30 s, and who was on it may start again 10 s later


class SlurmPlace(Place):
    """The same, on a login node of the cluster."""

    def __init__(self, base: Path, cluster: Cluster) -> None:
        super().__init__(base)
        self.cluster = cluster

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(**{**self.cluster.environment, **more})

    def until(self, run: str, *statuses: str, patience_s: float = PATIENCE_S) -> str:
        def reached() -> str:
            status = str(self.call("show", run, "--json").data["status"])
            return status if status in statuses else ""

        return str(wait_for(reached, patience_s))

    def close(self) -> None:
        """Nobody works for this home any more, here or on a node."""
        while pids := self.processes():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        for process in self.started:
            ended(process)

    def script(self, body: str, name: str = "job.sh") -> str:
        """A script for `sbatch`."""
        path = self.folder / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        return str(path)

    def submit(self, body: str, *options: str) -> str:
        """The id of a job that is not phalanx's; what it prints is in `<id>.out`."""
        output = f"--output={self.folder}/%j.out"
        return self.cluster.ask("sbatch", "--parsable", output, *options, self.script(body))

    def output(self, job: str) -> str:
        path = self.folder / f"{job}.out"
        return path.read_text() if path.exists() else ""

    def job_state(self, job: str) -> str:
        """RUNNING, PENDING, …: the controller's word, of the first component; empty when it has none."""
        return self.cluster.call("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").stdout.partition("\n")[0]

    def until_job(self, job: str, *states: str, patience_s: float = PATIENCE_S) -> str:
        return str(wait_for(lambda: state if (state := self.job_state(job)) in states else "", patience_s))

    def rows(self, *command: str) -> list[list[str]]:
        """The fields of a question's answer, which are divided by bars."""
        return [line.split("|") for line in self.cluster.ask(*command).splitlines()]

    def accounted(self, job: str, fields: str = "State") -> list[list[str]]:
        """All runs of a job, oldest first, as `sacct` has them."""
        return self.rows("sacct", "-nXPD", "-j", job, "-o", fields)

    def until_accounted(self, job: str, *states: str, patience_s: float = PATIENCE_S) -> str:
        def last() -> str:
            rows = self.accounted(job)
            return rows[-1][0].split()[0] if rows and rows[-1][0].split()[0] in states else ""

        return str(wait_for(last, patience_s))
