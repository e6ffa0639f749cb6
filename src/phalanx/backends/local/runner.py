"""Starts, observes and ends the replicas of an attempt on this machine."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from phalanx import run_paths
from phalanx.agent import processes
from phalanx.agent.fork_server import AgentStart, ForkServer
from phalanx.agent.interactive.hold import read_hold
from phalanx.agent.launcher import AGENT_MARK
from phalanx.agent.processes import boot_id, is_alive_here
from phalanx.atomic_files import make_private, read_json, write_atomic
from phalanx.backends.agent_zip import AgentArchives, kept_agent
from phalanx.backends.local.backend import host_files
from phalanx.ends import read_end
from phalanx.home.attempts import AttemptFolder, ReplicaPhase, ReplicaState, last_write, record_lost
from phalanx.naming import is_launcher

PORTS = range(20_000, 32_000)  # below the kernel's ephemeral range, so that no process gets one by chance
LAUNCH_S = 60.0  # for the launcher to fork the agents: usually some 10 ms


def reserve_ports(count: int) -> dict[int, socket.socket]:
    """Reserve free ports that no other run on this machine gets. Each is held by an abstract socket name, which the
    agents inherit and the kernel frees when the last of them has ended. Raises OSError if there are too few.
    """
    held: dict[int, socket.socket] = {}
    first = random.randrange(len(PORTS))  # noqa: S311 - to avoid collisions, not a secret
    for step in range(len(PORTS)):
        if len(held) == count:
            return held
        port = PORTS[(first + 7 * step) % len(PORTS)]  # 7 does not divide their number, so this visits all of them
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0phalanx-port-{port}")
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            name.close()
            continue
        held[port] = name
    for name in held.values():
        name.close()
    raise OSError(f"{count} free ports are needed, only {len(held)} are available")


def start(  # noqa: PLR0913 - the inputs of an attempt
    attempt_folder: AttemptFolder,
    *,
    working: Path,
    environment: Mapping[str, str],
    gpus: Mapping[str, list[str]],
    grace_s: float,
    archives: AgentArchives,
    fork_server: ForkServer,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Start the replicas, each with its own port; `observe` finds them, also in later processes. `more`: facts of the
    attempt. Returns the number of the request, which the fork server answers. Call it again only after `sweep`, and if
    no replica was ever seen. Raises OSError if nothing was started.
    """
    for folder in (
        attempt_folder.run_folder / run_paths.OUTPUTS,
        attempt_folder.facts_file.parent,
        *map(attempt_folder.folder, attempt_folder.replicas),
    ):
        make_private(folder, attempt_folder.run_folder)
    program = _program(archives.agent)
    ports = reserve_ports(len(attempt_folder.replicas))
    facts = {
        "attempt": attempt_folder.attempt,
        "host": {"*": "127.0.0.1"},
        "interface": {"*": "lo"},
        "port": dict(zip(attempt_folder.replicas, ports, strict=True)),
        "path": {
            "outputs": str(attempt_folder.run_folder / run_paths.OUTPUTS),
            "logs": str(attempt_folder.run_folder / run_paths.REPLICAS),
            "hostfile": str(attempt_folder.run_folder / run_paths.JOB / run_paths.HOSTFILE),
            "hosts.sh": str(attempt_folder.run_folder / run_paths.JOB / run_paths.HOSTS_SCRIPT),
            "*": str(attempt_folder.run_folder / "data"),
        },
        "folders": {name: str(attempt_folder.folder(name)) for name in attempt_folder.replicas},
        "working": str(working),
        "client": archives.client,
        "gpus": dict(gpus),
        "grace_s": grace_s,
        "hold_s": read_hold(str(attempt_folder.run_folder), attempt_folder.attempt),
        **more,
    }
    try:
        for file, text in host_files(sum(not is_launcher(name) for name in attempt_folder.replicas)).items():
            write_atomic(attempt_folder.facts_file.with_name(file), text.encode(), sync=False)
        write_atomic(attempt_folder.facts_file, json.dumps(facts).encode(), sync=False)
        with os.fdopen(
            os.open(_complaints(attempt_folder), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
        ) as complaints:
            asked = AgentStart(
                arguments=[str(attempt_folder.run_folder / run_paths.PLAN), str(attempt_folder.facts_file)],
                environment=environment,
                mark=(AGENT_MARK, attempt_folder.run_id),
                stderr=complaints.fileno(),
                descriptors=[name.fileno() for name in ports.values()],
            )
            return fork_server.send(program, asked, LAUNCH_S)
    finally:
        for name in ports.values():
            name.close()


def start_early(kept: Path, environment: Mapping[str, str]) -> ForkServer | None:
    """Start the process that forks agents before an attempt is known. None if there is no agent of this version in the
    folder `kept` yet, or the process cannot be started."""
    agent = kept_agent(kept)
    if agent is None:
        return None
    fork_server = ForkServer()
    try:
        fork_server.start_early(_program(agent), environment, AGENT_MARK)
    except OSError:
        return None
    return fork_server


def _program(agent: Path) -> list[str]:
    return [sys.executable, "-I", "-S", str(agent)]


def _complaints(attempt_folder: AttemptFolder) -> Path:
    return attempt_folder.facts_file.with_suffix(".log")


def fail_start(attempt_folder: AttemptFolder, fault: Exception) -> None:
    """Clean up after a start that failed halfway: kill its processes, and record an end for every replica."""
    sweep(attempt_folder.run_id)
    try:
        said = _complaints(attempt_folder).read_text(errors="replace").strip().splitlines()
    except OSError:
        said = []
    for name in attempt_folder.replicas:
        record_lost(attempt_folder, name, f"its agent could not be started: {said[-1] if said else fault}"[:400])


def observe(attempt_folder: AttemptFolder) -> dict[str, ReplicaState]:
    """The current state of each replica."""
    run_folder, attempt = str(attempt_folder.run_folder), attempt_folder.attempt
    return {  # texts: this is done for every replica many times a second, and paths would take a fifth of its time
        name: observe_replica(f"{run_folder}/{run_paths.attempt_folder(name, attempt)}")
        for name in attempt_folder.replicas
    }


def observe_replica(folder: str | os.PathLike[str]) -> ReplicaState:
    """The current state of one replica, from the folder of its attempt."""
    end = read_end(folder)
    if end is not None:
        return ReplicaState(ReplicaPhase.ENDED, end=end)
    agent = read_json(os.path.join(folder, run_paths.AGENT))
    if agent is None:
        return ReplicaState(ReplicaPhase.ABSENT)
    if agent["boot"] == boot_id():
        pid = agent["pid"]
        is_alive = is_alive_here(agent)
    else:
        pid = None
        is_alive = time.time() - last_write(folder) < agent.get("patience_s", 0.0)
    if is_alive:
        return ReplicaState(ReplicaPhase.RUNNING, pid=pid)
    end = read_end(folder)  # it may have ended between the two reads
    if end is not None:
        return ReplicaState(ReplicaPhase.ENDED, end=end)
    if agent.get("is_agent", True):
        return ReplicaState(ReplicaPhase.LOST, pid=pid)
    silent = "its process ended without a word" if pid is not None else "it gave no sign of life any more"
    return ReplicaState(ReplicaPhase.LOST, pid=pid, message=silent)


def signal_replicas(seen: Mapping[str, ReplicaState], number: int = signal.SIGTERM) -> None:
    """Signal agents to end their replicas; the agents apply the grace period. A launcher ends after the ranks that it
    started, and would kill them with itself: it gets a signal only if no rank is left."""
    running = {
        name: observed.pid
        for name, observed in seen.items()
        if observed.state == ReplicaPhase.RUNNING and observed.pid is not None
    }
    ranks = [pid for name, pid in running.items() if not is_launcher(name)]
    processes.send(ranks or running.values(), number)


def held(attempt_folder: AttemptFolder) -> list[int]:
    """The agents that stay after a failure."""
    if read_hold(str(attempt_folder.run_folder), attempt_folder.attempt) is None:
        return []
    found = (read_json(attempt_folder.folder(name) / run_paths.AGENT) for name in attempt_folder.replicas)
    return [agent["pid"] for agent in found if agent is not None and is_alive_here(agent)]


def is_starting(run_id: str, observed: Iterable[ReplicaState]) -> bool:
    """Whether a process may still write a replica's file: the launcher, or an agent that was just forked."""
    known = {seen.pid for seen in observed}
    return bool(_living(processes.find_marked([(AGENT_MARK, run_id)])) - known)


def _living(pids: Iterable[int]) -> set[int]:
    return {pid for pid in pids if (stat := processes.read_stat(pid)) is not None and stat.state not in ("Z", "X")}


def sweep(run_id: str) -> int:
    """Kill all processes that are left of a run: orphans of killed agents, daemons. Returns their number."""
    swept = 0
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        left = _living(processes.find_marked([("PHALANX_RUN_ID", run_id), (AGENT_MARK, run_id)]))
        if not left:
            break
        swept += len(left)
        processes.send(left, signal.SIGKILL)
        time.sleep(0.01)
    return swept
