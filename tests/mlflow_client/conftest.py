"""Real MLflow clients against a real `phalanx serve`. Run by `make test-mlflow`, with an interpreter that has mlflow
and scikit-learn and need not have Phalanx: the server is the one of `.venv`, or what PHALANX_COMMAND names.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = os.environ.get("PHALANX_COMMAND", str(ROOT / ".venv" / "bin" / "phalanx"))


class Served:
    """A home that is served."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {**os.environ, "PHALANX_HOME": str(home)}
        for name in [name for name in self.environment if name.startswith("MLFLOW_")]:
            del self.environment[name]
        self.process = subprocess.Popen(
            [COMMAND, "serve", "--port", "0", "--json"],
            cwd=home.parent,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]
        self.token = (home / "token").read_text().strip()

    def phalanx(self, *arguments: str) -> Any:
        done = subprocess.run(
            [COMMAND, *arguments, "--json"],
            cwd=self.home.parent,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, (done.stdout, done.stderr)
        return json.loads(done.stdout)

    def folder(self, run_id: str) -> Path:
        return self.home / "runs" / run_id

    def close(self) -> None:
        assert self.process.poll() is None, "the server ended before it was told to"
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=30) == 0


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("served") / "home"
    found = Served(home)
    yield found
    found.close()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def mlflow(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The real one, which finds the server as its users' does: by the environment.

    In a folder of its own: a client without a server writes ./mlflow.db.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", served.url)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", served.token)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    found = importlib.import_module("mlflow")
    found.set_tracking_uri(served.url)
    found.set_registry_uri(served.url)
    yield found
    while found.active_run() is not None:
        found.end_run()


@pytest.fixture
def client(mlflow: Any) -> Any:
    return mlflow.MlflowClient()


@pytest.fixture
def experiment(mlflow: Any, request: pytest.FixtureRequest) -> str:
    """An experiment of the test's own."""
    return str(mlflow.set_experiment(request.node.name).experiment_id)


def is_3(mlflow: Any) -> bool:
    return int(mlflow.__version__.split(".")[0]) >= 3
