"""The nodes of an allocation: a service on each starts and observes trials as processes of that node.

The scheduler connects to the services with JSON lines over TCP. Each connection begins with a proof that both know the
secret of the home. A scheduler that was killed connects again; the trials do not notice.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

from phalanx.agent.fork_server import ForkServerLost
from phalanx.backends.local import runner
from phalanx.backends.local.capacity import this_machine
from phalanx.ends import Cause, End
from phalanx.home import attempts
from phalanx.home.attempts import AttemptFolder, ReplicaPhase, ReplicaState
from phalanx.home.home import Home
from phalanx.scheduler.local_executor import LocalExecutor, LocalStart
from phalanx.store import Run

CONNECT_S = 120.0  # for the services of all nodes to appear
CALL_S = 90.0  # for the answer to one call: longer than a start may take
MACHINE = "machine"  # in the facts of an attempt: the node that runs it
RETRY_S = 0.2
# Variables of Slurm that describe the whole job: a framework would take them for those of a trial.
OF_A_JOB = ("SLURM", "PMI_", "PMIX_", "PHALANX_", "POLYAXON_")
KEPT = (
    *("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JOB_ID", "SLURM_TMPDIR", "SLURMD_NODENAME"),
    *("PHALANX_HOME", "PHALANX_DATABASE", "PHALANX_PYTHON", "PHALANX_OUTPUTS_URL"),
)
THREADS = "OMP_NUM_THREADS"


class NodeLost(Exception):
    """A node of the allocation does not answer: the job ends, and the next one takes over."""


def trial_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a trial inherits from the job: without what the job and its agent set for themselves."""
    found = {name: value for name, value in environment.items() if name in KEPT or not name.startswith(OF_A_JOB)}
    if found.get(THREADS) == environment.get("SLURM_CPUS_PER_TASK"):
        found.pop(THREADS, None)  # for the whole node
    if environment.get("WANDB_DIR", "") == environment.get("PHALANX_TRACK"):
        found = {name: value for name, value in found.items() if name not in ("WANDB_DIR", "WANDB_MODE")}
    if found.get("MLFLOW_TRACKING_URI", "").startswith("http://127.0.0.1"):
        del found["MLFLOW_TRACKING_URI"]  # the endpoint of the agent
    return found


# on a node -----------------------------------------------------------------------------------------------------------


class NodeService:
    """Answers one scheduler at a time, until it says that the job is over."""

    def __init__(self, executor: LocalExecutor, address: tuple[str, int], secret: bytes) -> None:
        self.executor = executor
        self.secret = secret
        self.environment = trial_environment(os.environ)
        self.gpus = this_machine()[1]
        self.is_over = False
        self.listener = socket.create_server(address, backlog=4)  # only at the address that the scheduler uses

    def serve(self) -> None:
        while not self.is_over:
            connection, _ = self.listener.accept()
            with connection, connection.makefile("rwb") as stream:
                try:
                    if self._is_known(stream):
                        self._answer_all(stream)
                except (OSError, ValueError):
                    continue  # it was killed: another one connects

    def _is_known(self, stream: Any) -> bool:
        nonce = secrets.token_hex(16)
        _send(stream, {"nonce": nonce})
        answer = _receive(stream)
        return hmac.compare_digest(str(answer.get("proof", "")), proof(self.secret, nonce))

    def _answer_all(self, stream: Any) -> None:
        _send(stream, {"gpus": list(self.gpus)})
        while not self.is_over:
            asked = _receive(stream)
            try:
                answer = {"answer": self._answer(asked["call"], asked)}
            except ForkServerLost as fault:
                answer = {"fault": "fork", "message": str(fault)}
            except SubprocessError as fault:
                answer = {"fault": "start", "message": str(fault)}
            except OSError as fault:
                answer = {"fault": "system", "message": str(fault)}
            _send(stream, answer)

    def _answer(self, call: str, asked: Mapping[str, Any]) -> Any:
        match call:
            case "start":
                environment = {**self.environment, **asked["environment"]}
                folder = _folder(asked["folder"])
                start = LocalStart(folder, Path(asked["working"]), environment, asked["gpus"], asked["facts"])
                self.executor.start(start)
                for fault in filter(None, self.executor.started().values()):
                    raise fault
            case "observe":
                return [_states(self.executor.observe(_folder(folder))) for folder in asked["folders"]]
            case "is_starting":
                known = [ReplicaState(ReplicaPhase.RUNNING, pid=pid) for pid in asked["pids"]]
                return runner.is_starting(asked["run"], known)
            case "signal":
                seen = {name: ReplicaState(ReplicaPhase.RUNNING, pid=pid) for name, pid in asked["pids"].items()}
                runner.signal_replicas(seen, asked["number"])
            case "sweep":
                return runner.sweep(asked["run"])
            case "fail_start":
                runner.fail_start(_folder(asked["folder"]), OSError(asked["message"]))
            case "leave":
                self.is_over = True
        return None


# in the scheduler ----------------------------------------------------------------------------------------------------


class AllocatedNode:
    """A node as the scheduler sees it. Raises NodeLost when it does not answer."""

    def __init__(self, name: str, address: tuple[str, int], secret: bytes) -> None:
        self.name = name
        until = time.monotonic() + CONNECT_S
        while True:
            try:
                self.socket = socket.create_connection(address, timeout=CALL_S)
                self.stream = self.socket.makefile("rwb")
                _send(self.stream, {"proof": proof(secret, str(_receive(self.stream)["nonce"]))})
                self.gpus: tuple[str, ...] = tuple(_receive(self.stream)["gpus"])
                return
            except (OSError, ValueError, KeyError) as fault:
                if time.monotonic() > until:
                    raise NodeLost(f"{name} cannot be reached at {address[0]}:{address[1]}: {fault}") from None
                time.sleep(RETRY_S)

    def call(self, call: str, **fields: Any) -> Any:
        try:
            _send(self.stream, {"call": call, **fields})
            answer = _receive(self.stream)
        except (OSError, ValueError) as fault:
            raise NodeLost(f"{self.name} does not answer: {fault}") from None
        match answer.get("fault"):
            case "fork":
                raise ForkServerLost(answer["message"])
            case "start":
                raise SubprocessError(answer["message"])
            case "system":
                raise OSError(answer["message"])
        return answer["answer"]


class NodesExecutor(LocalExecutor):
    """Runs attempts on the nodes of an allocation. `places`: where each run is, or shall start."""

    def __init__(self, home: Home, nodes: list[AllocatedNode], ends_at: float | None) -> None:
        super().__init__(home)
        self.nodes = nodes
        self.ends_at = ends_at
        self.places: dict[str, AllocatedNode] = {}
        self.polled: dict[tuple[str, int], dict[str, ReplicaState]] = {}

    def node_of(self, attempt_folder: AttemptFolder) -> AllocatedNode:
        """Of an attempt of an earlier job any node says that it is lost."""
        known = self.places.get(attempt_folder.run_id)
        if known is None:
            name = attempts.read_facts(attempt_folder).get(MACHINE)
            known = next((node for node in self.nodes if node.name == name), self.nodes[0])
            self.places[attempt_folder.run_id] = known
        return known

    def start(self, asked: LocalStart) -> None:
        node = self.places[asked.attempt_folder.run_id]
        facts = {**asked.facts, MACHINE: node.name, "ends_at": self.ends_at}
        fields = {"environment": dict(asked.environment), "gpus": dict(asked.gpus), "facts": facts}
        node.call("start", folder=written_folder(asked.attempt_folder), working=str(asked.working), **fields)

    @property
    def is_poll_due(self) -> bool:
        return True

    def poll(self, runs: Mapping[str, AttemptFolder], is_over: Callable[[str], bool]) -> Collection[str]:
        """Ask each node once for all its runs."""
        super().poll(runs, is_over)
        self.places = {run_id: node for run_id, node in self.places.items() if run_id in runs}
        self.polled = {}
        for node in self.nodes:
            there = [folder for folder in runs.values() if self.node_of(folder) is node]
            if there:
                answers = node.call("observe", folders=[written_folder(folder) for folder in there])
                for folder, states in zip(there, answers, strict=True):
                    self.polled[folder.run_id, folder.attempt] = _read_states(states)
        return ()

    def observe(self, attempt_folder: AttemptFolder) -> dict[str, ReplicaState]:
        known = self.polled.pop((attempt_folder.run_id, attempt_folder.attempt), None)  # once: it may be lost meanwhile
        if known is not None and known.keys() >= set(attempt_folder.replicas):
            return {name: known[name] for name in attempt_folder.replicas}
        (states,) = self.node_of(attempt_folder).call("observe", folders=[written_folder(attempt_folder)])
        return _read_states(states)

    def has_begun(self, run: Run, attempt_folder: AttemptFolder) -> bool:
        for node in self.nodes:
            node.call("sweep", run=run.id)
        return any(observed.state != ReplicaPhase.ABSENT for observed in self.observe(attempt_folder).values())

    def is_starting(self, run: Run, seen: Mapping[str, ReplicaState]) -> bool:
        pids = [observed.pid for observed in seen.values() if observed.pid is not None]
        return any(node.call("is_starting", run=run.id, pids=pids) for node in self._nodes_of(run))

    def signal(
        self,
        attempt_folder: AttemptFolder,
        seen: Mapping[str, ReplicaState],
        number: signal.Signals,
        *,
        all_of_it: bool,  # noqa: ARG002
    ) -> None:
        pids = {
            name: observed.pid
            for name, observed in seen.items()
            if observed.state == ReplicaPhase.RUNNING and observed.pid is not None
        }
        self.node_of(attempt_folder).call("signal", pids=pids, number=int(number))

    def sweep(self, run: Run) -> None:
        for node in self._nodes_of(run):
            node.call("sweep", run=run.id)

    def _nodes_of(self, run: Run) -> list[AllocatedNode]:
        """Its node; all of them if that is not known."""
        return [self.places[run.id]] if run.id in self.places else self.nodes

    def leave(self) -> None:
        """The job is over."""
        for node in self.nodes:
            node.call("leave")


def proof(secret: bytes, nonce: str) -> str:
    return hmac.new(secret, f"phalanx node 1\n{nonce}".encode(), "sha256").hexdigest()


def _send(stream: Any, content: Mapping[str, Any]) -> None:
    stream.write(json.dumps(content).encode() + b"\n")
    stream.flush()


def _receive(stream: Any) -> dict[str, Any]:
    """Raises OSError at the end of the connection, ValueError."""
    line = stream.readline()
    if not line:
        raise ConnectionError("the connection was closed")
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("not a message")
    return found


def written_folder(folder: AttemptFolder) -> list[Any]:
    return [str(folder.run_folder), folder.run_id, folder.attempt, list(folder.replicas)]


def _folder(written: list[Any]) -> AttemptFolder:
    path, run_id, attempt, replicas = written
    return AttemptFolder(Path(path), run_id, attempt, tuple(replicas))


def _states(seen: Mapping[str, ReplicaState]) -> dict[str, Any]:
    return {
        name: {**one._asdict(), "end": None if one.end is None else one.end.to_json()} for name, one in seen.items()
    }


def _read_states(written: Mapping[str, Any]) -> dict[str, ReplicaState]:
    return {
        name: ReplicaState(
            ReplicaPhase(one["state"]),
            pid=one["pid"],
            end=End.from_json(one["end"]),
            message=one["message"],
            cause=Cause(one["cause"]),
            lines=tuple(one["lines"]),
        )
        for name, one in written.items()
    }
