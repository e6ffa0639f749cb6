"""The engine of Kubernetes keeps the contract of engines, on the small API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.backends.contract import Connections, Engine
from phalanx.backends.kubernetes.engine.engine import KubernetesEngine
from phalanx.backends.kubernetes.target import ClusterTarget
from phalanx.home.attempts import AttemptFolder
from tests.backends.engine_contract import EngineContract, Rig
from tests.backends.kubernetes.runs import ONE, Works, log_lines, works


class KubernetesRig(Rig):
    def __init__(self, there: Works, name: str) -> None:
        self.there, self.name = there, name
        self.own: KubernetesEngine = there.engine(name)
        self.engine: Engine = self.own
        self.others = Connections()
        self.pods: dict[str, str] = {}

    def submit(self, run_id: str) -> tuple[AttemptFolder, str]:
        attempt_folder = self.there.run(ONE, run_id, on=self.name)
        handle = self.there.submit(self.own, attempt_folder)
        self.pods[run_id] = self.there.spawn(attempt_folder)["master-0"]
        self.there.say(self.pods[run_id], *log_lines("master-0", b"hello\n"))
        return attempt_folder, handle

    def finish(self, attempt_folder: AttemptFolder) -> None:
        pod = self.pods[attempt_folder.run_id]
        self.there.say(pod, *log_lines("master-0", b"", {})[-1:])
        self.there.server.set_pod_phase(pod, "Succeeded")

    def restart(self) -> Engine:
        return KubernetesEngine(ClusterTarget(self.there.settings), self.others, self.name)


class TestKubernetesEngine(EngineContract):
    @pytest.fixture(name="rig", params=["kubernetes", "kubeflow"])
    def rig_fixture(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rig]:
        with works(tmp_path) as there:
            rig = KubernetesRig(there, request.param)
            with rig.others:
                yield rig
