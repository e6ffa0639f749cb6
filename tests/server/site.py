"""The application behind a real socket, with a real home, store and scheduler, in this process."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import uvicorn

from phalanx.home.home import Home
from phalanx.server.app import make_app
from phalanx.server.auth.rate_limits import RateLimits
from phalanx.server.auth.tokens import run_token
from phalanx.server.context import Context
from phalanx.server.http.body_pace import TimedProtocol
from phalanx.server.ops.scheduler_thread import SchedulerThread
from phalanx.store import Run, Store
from tests.server.documented_answers import DocumentedAnswers

API = "/api/2.0/mlflow"


class Site:
    def __init__(
        self, folder: Path, database: str | None = None, limits: RateLimits | None = None, **more: Any
    ) -> None:
        self.home = Home(folder / "home")
        self.database = database
        self.scheduling = SchedulerThread(self.home, database)
        self.context = Context(self.home, database, self.scheduling.wake, self.scheduling.turns)
        self.token = self.context.tokens.create("tester", "write")
        self.app = make_app(self.context, limits=limits, **more)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each answer waits for an ACK
        config = uvicorn.Config(
            self.app,
            http=TimedProtocol,
            log_level="critical",
            lifespan="off",
            ws="none",
            proxy_headers=False,
            timeout_graceful_shutdown=5,
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listening]})
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        # There are no certificates in plain HTTP, and all that the machine trusts take long to read.
        self.documented = DocumentedAnswers(self.app)
        hooks = {"response": [self.documented.check]}
        self.client = httpx.Client(base_url=self.url, timeout=30.0, trust_env=False, verify=False, event_hooks=hooks)

    def __enter__(self) -> Self:
        Store.open(self.home.path, self.database).close()
        self.scheduling.start()
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.client.close()
        self.server.should_exit = True
        self.thread.join()
        self.listening.close()
        self.scheduling.stop()
        self.context.close()
        shutil.rmtree(self.home.path, ignore_errors=True)  # whoever was left behind ends with it

    def ask(self, method: str, path: str, token: str | None = None, **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}", **more.pop("headers", {})}
        return self.client.request(method, path, headers=headers, **more)

    def raw(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """With the path exactly as it is written, which no proper client sends."""
        host, port = self.listening.getsockname()
        connection = http.client.HTTPConnection(host, port, timeout=30)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def files(self) -> dict[str, tuple[int, int, int]]:
        """All of the home but what every request writes: who a file is, how large, and when it was written last.
        There are too many to read."""
        found = {}
        for folder, _, names in os.walk(self.home.path):
            for name in names:
                if not name.startswith(("phalanx.db", "audit.log")):
                    with suppress(FileNotFoundError):  # the scheduler is at work
                        stat = os.lstat(os.path.join(folder, name))
                        found[os.path.join(folder, name)] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        return found

    def get(self, path: str, /, **params: Any) -> Any:
        answer = self.ask("GET", path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any, status: int = 200) -> Any:
        answer = self.ask("POST", path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    # MLflow's API ------------------------------------------------------------------------------------------------

    def mlflow(self, method: str, path: str, fields: Any = None, prefix: str = "", token: str | None = None) -> Any:
        answer = self.mlflow_answer(method, path, fields, prefix, token)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def mlflow_answer(
        self, method: str, path: str, fields: Any = None, prefix: str = "", token: str | None = None
    ) -> httpx.Response:
        if method == "GET":
            return self.ask(method, f"{prefix}{API}/{path}", token, params=fields or {})
        return self.ask(method, f"{prefix}{API}/{path}", token, content=json.dumps(fields or {}))

    def begin(self, experiment: str = "0", token: str | None = None, **fields: Any) -> str:
        run = self.mlflow("POST", "runs/create", {"experiment_id": experiment, **fields}, token=token)["run"]
        return str(run["info"]["run_id"])

    def run(self, run_id: str) -> Any:
        return self.mlflow("GET", "runs/get", {"run_id": run_id})["run"]

    def tags(self, run_id: str) -> dict[str, str]:
        return {tag["key"]: tag["value"] for tag in self.run(run_id)["data"]["tags"]}

    def stored(self, run_id: str) -> Run:
        with Store.open(self.home.path, self.database) as store:
            return store.find(run_id)

    def folder(self, run_id: str) -> Path:
        return self.home.run(run_id).path

    def attempt(self, run_id: str, replica: str = "master-0", number: int = 1) -> Path:
        return self.folder(run_id) / "replicas" / replica / f"attempt-{number}"

    def run_token(self, run_id: str, attempt: int = 1) -> str:
        return run_token(self.home.path, run_id, attempt)


def artifact(run_id: str, path: str) -> str:
    return f"/api/2.0/mlflow-artifacts/artifacts/{run_id}/artifacts/{quote(path)}"


def experiment(site: Site, name: str, **more: Any) -> str:
    return str(site.mlflow("POST", "experiments/create", {"name": name, **more})["experiment_id"])


def refused(site: Site, method: str, path: str, fields: Any, code: str = "INVALID_PARAMETER_VALUE") -> str:
    answer = site.mlflow_answer(method, path, fields)
    assert answer.status_code >= 400, answer.text
    assert answer.json()["error_code"] == code, answer.text
    return str(answer.json()["message"])
