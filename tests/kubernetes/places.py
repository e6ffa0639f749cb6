"""A home whose runs go to a Kubernetes cluster."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from phalanx.store import Store
from tests.cli.homes import Place, ended, wait_for
from tests.cli.running import COMMAND
from tests.kubernetes.programs import FILES
from tests.kubernetes.proxy import Proxy
from tests.kubernetes.worlds import GIVEN, IMAGE, World

PATIENCE_S = 60.0 if GIVEN is None else 300.0  # images are pulled
SLOWER = 1 if GIVEN is None else 5  # pods of a real cluster begin later, one after the other
DONE = ("succeeded", "failed", "stopped")
LOOK_S = 0.1
ON = ("--on", "kubernetes")


class KubernetesPlace(Place):
    """The same, with a kubeconfig that leads through a proxy."""

    def __init__(self, base: Path, world: World) -> None:
        super().__init__(base)
        self.world = world
        self.proxy = Proxy(world.kubeconfig)
        self.kubeconfig = self.proxy.kubeconfig(base / "kubeconfig", world.namespace)
        for name, text in FILES.items():
            (self.folder / name).write_text(text)

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(**{"KUBECONFIG": str(self.kubeconfig), **more})

    def close(self) -> None:
        """Nobody works for this home any more."""
        while pids := self.processes():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        for process in self.started:
            ended(process)
        self.proxy.close()

    # runs

    def file(self, command: str | None, *, name: str = "polyaxonfile.yml", **fields: Any) -> str:
        """With the image that this cluster can pull, unless it says which."""
        if fields.get("kind") != "pipeline":  # its templates say it
            fields.setdefault("build", {"image": IMAGE})
        return super().file(command, name=name, **fields)

    def submitted(self, command: str, *options: str, **fields: Any) -> str:
        """The id of a detached run on the cluster."""
        return self.queued(command, *ON, *options, **fields)

    def see(self, run: str) -> dict[str, Any]:
        answer = self.call("show", run, "--json")
        assert answer.code == 0, answer.err
        found: dict[str, Any] = answer.data
        return found

    def status(self, run: str) -> str:
        """As the store has it: asking the command takes a good part of a core."""
        with Store.open(self.home) as store:
            return str(store.status_of(run))

    def until(self, run: str, *statuses: str, patience_s: float = PATIENCE_S) -> str:
        def reached() -> str:
            time.sleep(LOOK_S)
            status = self.status(run)
            if status in DONE and status not in statuses:
                raise AssertionError(f"never {statuses}: {self.story(run)}")
            return status if status in statuses else ""

        try:
            return str(wait_for(reached, patience_s))
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.story(run)}") from None

    def over(self, *runs: str, patience_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """When all of them are over, what became of them."""

        def all_done() -> bool:
            time.sleep(LOOK_S)
            return all(self.status(run) in DONE for run in runs)

        try:
            wait_for(all_done, patience_s)
        except AssertionError:
            late = [run for run in runs if self.status(run) not in DONE]
            raise AssertionError(f"not over: {[self.story(run) for run in late]}") from None
        return [self.see(run) for run in runs]

    def ran(self, command: str, *options: str, **fields: Any) -> dict[str, Any]:  # type: ignore[override]
        """A run on the cluster from start to end, as `show` has it."""
        return self.over(self.submitted(command, *options, **fields))[0]

    def succeeded(self, command: str, *options: str, **fields: Any) -> dict[str, Any]:
        found = self.ran(command, *options, **fields)
        assert found["status"] == "succeeded", self.story(found["id"])
        return found

    def at_work(self, *runs: str, replica: str = "master-0") -> None:
        """When their agents have said so; which is sooner than any status."""
        for run in runs:
            try:
                wait_for((self.attempt(run, replica) / "agent.json").exists, PATIENCE_S)
            except AssertionError:
                raise AssertionError(f"never began: {self.story(run)}") from None

    def trapped(self, run: str, *replicas: str) -> None:
        """When these run `TRAP`, and have set their handlers: an agent is there before its command."""
        for name in replicas or ("master-0",):
            try:
                wait_for(lambda name=name: "ready" in self.log(run, name), PATIENCE_S)  # type: ignore[misc]
            except AssertionError:
                raise AssertionError(f"{name} never began: {self.story(run)}") from None

    def log(self, run: str, replica: str = "master-0", attempt: int = 1) -> str:
        path = self.attempt(run, replica, attempt) / "log"
        return path.read_text() if path.exists() else ""

    def story(self, run: str) -> str:
        """All that one wants to know of a run that did not go as it should."""
        found = self.see(run)
        pods = [
            (pod["metadata"]["name"], pod["status"].get("phase"), pod["status"].get("containerStatuses"))
            for pod in self.pods(run)
        ]
        kept = {name: found[name] for name in ("status", "reason", "attempt", "statuses", "replicas") if name in found}
        events = self.world.items("events")
        said = [event["message"] for event in events if run in event["involvedObject"].get("name", "")]
        words = "".join(path.read_text()[-1500:] for path in self.home.rglob("scheduler*.log"))
        parts = [json.dumps(kept, indent=1), str(pods), str(self.left(run)), str(said[-5:])]
        return "\n".join([*parts, self.call("logs", run).out[-2000:], words])

    # objects

    def pods(self, run: str, **labels: str) -> list[dict[str, Any]]:
        return self.objects("pods", run, **labels)

    def objects(self, plural: str, run: str, **labels: str) -> list[dict[str, Any]]:
        selector = ",".join(
            [f"phalanx.dev/run={run}", *(f"phalanx.dev/{key}={value}" for key, value in labels.items())]
        )
        return self.world.items(plural, labelSelector=selector)

    def until_pods(self, run: str, count: int, *phases: str, **labels: str) -> list[dict[str, Any]]:
        def enough() -> list[dict[str, Any]]:
            time.sleep(0.1)
            found = [pod for pod in self.pods(run, **labels) if pod["status"].get("phase") in phases]
            return found if len(found) >= count else []

        found: list[dict[str, Any]] = wait_for(enough, PATIENCE_S)
        return found

    def left(self, run: str) -> list[str]:
        """What there still is of a run."""
        return [
            f"{plural}/{thing['metadata']['name']}"
            for plural in ("configmaps", "secrets", "services", "jobs", "pods")
            for thing in self.objects(plural, run)
        ]

    def until_nothing_is_left(self, run: str, patience_s: float = PATIENCE_S) -> None:
        try:
            wait_for(lambda: not self.left(run), patience_s)
        except AssertionError:
            raise AssertionError(f"still there: {self.left(run)}\n{self.story(run)}") from None

    # our own processes

    def schedulers(self) -> list[int]:
        found = []
        for pid in self.processes():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"phalanx.scheduler" in words or COMMAND.encode() in words:
                    found.append(pid)
        return found

    def kill_schedulers(self) -> int:
        pids = self.schedulers()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)
