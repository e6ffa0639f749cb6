"""Examples run as their users run them: the installed `phalanx`, and the Python of a real framework on the PATH."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from phalanx.store.series.run_series import RunSeries
from tests.cli.running import COMMAND, Answer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE_S = 240.0
# Lines of ranks that one launcher started may be run into each other.
_DONE = re.compile(r"rank (\d+) of (\d+) done, weights ((?:(?!rank )[^\n])+)")


class Stage:
    """A home, a copy of an example's folder beside it, and the Python that has its framework."""

    def __init__(self, base: Path, example: str, python: Path, source: Path | None = None) -> None:
        self.home = base / "home"
        self.folder = base / example
        shutil.copytree(source or EXAMPLES / example, self.folder)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PHALANX_", "MLFLOW_"))}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**kept, "PHALANX_HOME": str(self.home), "PATH": path}

    def call(self, *arguments: str) -> Answer:
        done = subprocess.run(
            [COMMAND, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
        )
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def run(self, file: str = "polyaxonfile.yml", **params: Any) -> Trained:
        """A run from its start to its end, whatever that is."""
        given = [word for name, value in params.items() for word in ("-P", f"{name}={value}")]
        return Trained(self, str(self.call("run", "--json", "-f", file, *given).data["id"]))

    def trained(self, file: str = "polyaxonfile.yml", **params: Any) -> Trained:
        """A run that succeeded."""
        run = self.run(file, **params)
        assert run.status == "succeeded", run.report()
        return run

    def alone(self, file: str = "polyaxonfile.yml", **params: Any) -> Trained:
        """The same training by one process: the file without its replicas."""
        return self.trained(self.changed(file, _without_replicas, "alone.yml"), **params)

    def changed(self, file: str, change: Callable[[dict[str, Any]], None], name: str = "changed.yml") -> str:
        """A file of the example's, changed, under a name of its own."""
        document = yaml.safe_load((self.folder / file).read_text())
        change(document)
        (self.folder / name).write_text(yaml.safe_dump(document))
        return name

    def interrupted(
        self, file: str = "polyaxonfile.yml", *, after: int = 5, metric: str = "loss", **params: Any
    ) -> str:
        """The id of a run that was stopped after some of its steps."""
        given = [word for name, value in params.items() for word in ("-P", f"{name}={value}")]
        run_id = self.call("run", "-d", "-f", file, *given).out.strip()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            series = RunSeries(self.home / "runs" / run_id)  # not by a command: many of them would slow the training
            if any(line.steps and max(line.steps) >= after for line in series.series(metric)):
                break
            ended = list((self.home / "runs" / run_id).glob("replicas/*/*/end.json"))
            assert not ended, Trained(self, run_id).report()
            assert time.monotonic() < deadline, Trained(self, run_id).report()
            time.sleep(0.2)
        stopped = self.call("stop", run_id)
        assert stopped.code == 0, stopped.err
        return run_id

    def resumed(self, run_id: str) -> Trained:
        answer = self.call("resume", "--json", run_id)
        assert answer.out, answer.err
        run = Trained(self, run_id)
        assert run.status == "succeeded", run.report()
        points = self.call("metrics", run_id, "--csv").out
        attempts = set(re.findall(r"^[^,]+,[\w.-]+,\d+,(\d),", points, re.MULTILINE))
        assert attempts == {"1", "2"}, (
            points
        )  # it went on: neither from the beginning, nor to the end before it was stopped
        return run

    def close(self) -> None:
        """Nothing of it is left behind."""
        mark = f"PHALANX_HOME={self.home}".encode()
        for folder in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)


class Trained:
    """A run as the commands show it."""

    def __init__(self, stage: Stage, run_id: str) -> None:
        self.stage = stage
        self.id = run_id
        self.shown: dict[str, Any] = stage.call("show", run_id, "--json").data

    @property
    def status(self) -> str:
        return str(self.shown["status"])

    @property
    def reason(self) -> str:
        return str(self.shown["reason"])

    @property
    def is_done(self) -> bool:
        return self.status in ("succeeded", "failed", "stopped")

    @property
    def folder(self) -> Path:
        return Path(self.shown["folder"])

    def text(self) -> str:
        """What a person is shown."""
        return self.stage.call("show", self.id).out

    def log(self, replica: str) -> str:
        attempt = self.shown["attempt"]
        return (self.folder / "replicas" / replica / f"attempt-{attempt}" / "log").read_text(errors="replace")

    def logs(self) -> str:
        return self.stage.call("logs", self.id).out

    def report(self) -> str:
        """Everything that helps to understand a failed test."""
        return f"{self.text()}\n{self.logs()[-12_000:]}"

    def series(self, metric: str) -> dict[str, list[tuple[int, float]]]:
        """Steps and values by replica."""
        found: list[dict[str, Any]] = self.stage.call("metrics", self.id, metric, "--json").data.get("metrics", [])
        lines = [line for one in found for line in one["series"]]
        return {line["replica"]: list(zip(line["steps"], line["values"], strict=True)) for line in lines}

    def steps(self, metric: str) -> dict[str, list[int]]:
        return {replica: [step for step, _ in points] for replica, points in self.series(metric).items()}

    def last(self, metric: str) -> dict[str, float]:
        return {replica: points[-1][1] for replica, points in self.series(metric).items()}

    def weights(self) -> dict[int, str]:
        """What each rank said that it ended with, by rank; all of the attempt's ranks are there."""
        found = _DONE.findall(self.logs())
        last = {int(rank): weights.strip() for rank, _, weights in found}
        assert found, self.report()
        assert sorted(last) == list(range(int(found[-1][1]))), self.report()
        return last

    def assert_agreed(self) -> None:
        """All ranks ended with the same parameters."""
        assert len(set(self.weights().values())) == 1, self.weights()

    def models(self) -> list[str]:
        """The models that were registered by the run."""
        listed = self.stage.call("models", "--json").data["models"]
        return [str(model["name"]) for model in listed]


def _without_replicas(document: dict[str, Any]) -> None:
    for name in ("replicas", "tensorflow", "mxnet", "pytorch", "horovod", "mpi"):
        document.get("environment", {}).pop(name, None)


def assert_continuous(steps: dict[str, list[int]], count: int) -> None:
    """One line of each replica that logged, without a gap or a step twice, over both attempts."""
    assert steps
    for replica, found in steps.items():
        assert found == list(range(count)), (replica, found)
