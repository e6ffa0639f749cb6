"""Runs on this machine: starting, watching and ending the replicas of one attempt."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.agent import processes
from phalanx.agent.launching import AGENT_MARK, boot_id
from phalanx.agent.supervising import last_lines
from phalanx.backends.agent_zip import agent_file, client_paths
from phalanx.backends.local import host_files
from phalanx.naming import is_launcher

PORTS = range(20_000, 32_000)  # below what the kernel hands out by itself, so nobody is given one by chance
SAID = ("log", "agent.json")
LAUNCH_S = 60.0  # for the launcher to fork the agents: it takes a few hundredths


class Seat(NamedTuple):
    """Where one attempt of a run lives on this machine."""

    run_folder: Path
    run_id: str
    attempt: int
    replicas: tuple[str, ...]

    def folder(self, replica: str) -> Path:
        return self.run_folder / "replicas" / replica / f"attempt-{self.attempt}"

    @property
    def facts_file(self) -> Path:
        return self.run_folder / "job" / f"attempt-{self.attempt}.json"


class Sighting(NamedTuple):
    """What is seen of a replica: `absent` (not started yet), `running`, `ended`, or `lost` (its agent is gone). `pid`
    is whom to tell to end; none for one that is not on this machine."""

    state: str
    pid: int | None = None
    end: Mapping[str, Any] | None = None
    message: str = "its agent was killed"  # of one that is lost


def reserve_ports(count: int) -> dict[int, socket.socket]:
    """Ports that nobody uses now, and that no other run on this machine will be given: each is held by a name, which
    the agents inherit and the kernel frees when the last of them has ended. Raises OSError when there are too few.
    """
    held: dict[int, socket.socket] = {}
    first = random.randrange(len(PORTS))  # noqa: S311 - to be elsewhere than others, not a secret
    for step in range(len(PORTS)):
        if len(held) == count:
            return held
        port = PORTS[(first + 7 * step) % len(PORTS)]  # 7 does not divide their number: it comes by all of them
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
    raise OSError(f"{count} free ports are needed and only {len(held)} are there")


def facts_of(seat: Seat) -> dict[str, Any]:
    """What an attempt was started with; nothing when it was not."""
    found = _read_json(seat.facts_file)
    return found if isinstance(found, dict) else {}


def start(  # noqa: PLR0913 - what a machine must know of an attempt
    seat: Seat,
    *,
    working: Path,
    environment: Mapping[str, str],
    gpus: Mapping[str, list[str]],
    grace_s: float,
    agents: Path,
) -> None:
    """Start the replicas, each with a port of its own; whoever comes later finds them by `look`. To be called again
    only after `sweep`, and when no replica was ever seen. Raises OSError when nothing was started,
    CalledProcessError or TimeoutExpired when a part may have been.
    """
    for folder in (seat.run_folder / "outputs", seat.facts_file.parent, *map(seat.folder, seat.replicas)):
        make_private(folder, seat.run_folder)
    command = [
        sys.executable,
        "-I",
        "-S",
        str(agent_file(agents)),
        str(seat.run_folder / "plan.json"),
        str(seat.facts_file),
    ]
    client = client_paths(agents)
    ports = reserve_ports(len(seat.replicas))
    facts = {
        "attempt": seat.attempt,
        "host": {"*": "127.0.0.1"},
        "interface": {"*": "lo"},
        "port": dict(zip(seat.replicas, ports, strict=True)),
        "path": {
            "outputs": str(seat.run_folder / "outputs"),
            "logs": str(seat.run_folder / "replicas"),
            "hostfile": str(seat.run_folder / "job" / "hostfile"),
            "hosts.sh": str(seat.run_folder / "job" / "hosts.sh"),
            "*": str(seat.run_folder / "data"),
        },
        "folders": {name: str(seat.folder(name)) for name in seat.replicas},
        "working": str(working),
        "client": client,
        "gpus": dict(gpus),
        "grace_s": grace_s,
    }
    try:
        for file, text in host_files(sum(not is_launcher(name) for name in seat.replicas)).items():
            write_whole(seat.facts_file.with_name(file), text.encode(), sync=False)
        write_whole(seat.facts_file, json.dumps(facts).encode(), sync=False)
        with os.fdopen(os.open(_complaints(seat), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as complaints:
            subprocess.run(
                command,
                check=True,
                timeout=LAUNCH_S,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                env={**environment, AGENT_MARK: seat.run_id},
                start_new_session=True,
                pass_fds=[name.fileno() for name in ports.values()],
            )
    finally:
        for name in ports.values():
            name.close()


def _complaints(seat: Seat) -> Path:
    return seat.facts_file.with_suffix(".log")


def give_up(seat: Seat, fault: Exception) -> None:
    """After a start that failed halfway: nothing of it goes on, and every replica has an end."""
    sweep(seat.run_id)
    try:
        said = _complaints(seat).read_text(errors="replace").strip().splitlines()
    except OSError:
        said = []
    for name in seat.replicas:
        declare_lost(seat, name, f"its agent could not be started: {said[-1] if said else fault}"[:400])


def look(seat: Seat) -> dict[str, Sighting]:
    """What is seen of each replica now."""
    return {name: look_at(seat.folder(name)) for name in seat.replicas}


def look_at(folder: Path) -> Sighting:
    """One replica, by the folder of its attempt."""
    end = read_end(folder)
    if end is not None:
        return Sighting("ended", end=end)
    agent = _read_json(folder / "agent.json")
    if agent is None:
        return Sighting("absent")
    if agent["boot"] == boot_id():
        pid = agent["pid"]
        is_alive = is_alive_here(agent)
    else:
        pid = None
        is_alive = time.time() - _last_sign(folder) < agent.get("patience_s", 0.0)
    if is_alive:
        return Sighting("running", pid=pid)
    end = read_end(folder)  # it may have ended between the two looks
    if end is not None:
        return Sighting("ended", end=end)
    if agent.get("is_agent", True):
        return Sighting("lost", pid=pid)
    silent = "its process ended without a word" if pid is not None else "it gave no sign of life any more"
    return Sighting("lost", pid=pid, message=silent)


def is_alive_here(process: Mapping[str, Any]) -> bool:
    """Whether a process of this machine, by its number, its start and the machine's, is there."""
    return process["boot"] == boot_id() and processes.is_alive(process["pid"], process["started"])


def read_end(folder: Path) -> Any:
    """A damaged one counts as none: the replica is then declared lost."""
    end = _read_json(folder / "end.json")
    return end if isinstance(end, dict) and isinstance(end.get("ended_at"), int | float) and "cause" in end else None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def ask_to_end(seen: Mapping[str, Sighting], number: int = signal.SIGTERM) -> None:
    """Tell agents to end their replicas; they know how long to wait. A launcher ends when those that it started have,
    and would take them with it: it is told only when it is left alone."""
    running = {name: sight.pid for name, sight in seen.items() if sight.state == "running" and sight.pid is not None}
    ranks = [pid for name, pid in running.items() if not is_launcher(name)]
    processes.send(ranks or running.values(), number)


def last_lines_of(seat: Seat, replica: str) -> list[str]:
    """The end of a replica's log."""
    return last_lines(str(seat.folder(replica) / "log"))


def last_word(seat: Seat) -> float:
    """When any replica, or a process that it started, last wrote a line or a metric. When they began, if none has."""
    newest = 0.0
    for place in (seat.run_folder / "replicas").glob(f"*/attempt-{seat.attempt}"):
        try:
            with os.scandir(place) as entries:
                said = (entry for entry in entries if entry.name in SAID or entry.name.endswith((".points", ".events")))
                newest = max([newest, *(entry.stat().st_mtime for entry in said)])
        except OSError:
            continue  # it was just removed
    return newest or time.time()


def is_starting(run_id: str, sightings: Iterable[Sighting]) -> bool:
    """Whether there is still someone who may announce a replica: the launcher, or an agent that was just forked."""
    known = {seen.pid for seen in sightings}
    return bool(_living(processes.find_marked([(AGENT_MARK, run_id)])) - known)


def _living(pids: Iterable[int]) -> set[int]:
    return {pid for pid in pids if (stat := processes.read_stat(pid)) is not None and stat.state not in ("Z", "X")}


def sweep(run_id: str) -> int:
    """Kill whatever is left of a run: orphans of killed agents, daemons. Answers how many there were."""
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


def declare_lost(seat: Seat, replica: str, message: str, *, just_now: bool = True) -> None:
    """Write the end that a killed agent could not. Does nothing when there is one. `just_now`: it was there a moment
    ago; otherwise it ended when it last gave a sign of life, which tells whether it was the first to fail.
    """
    folder = seat.folder(replica)
    make_private(folder, seat.run_folder)
    content = {
        "version": 1, "replica": replica, "attempt": seat.attempt,
        "cause": "lost", "code": None, "signal": None, "message": message,
        "started_at": None, "ended_at": time.time() if just_now else _last_sign(folder), "host": socket.gethostname(),
        "log_bytes": 0, "last_lines": last_lines(str(folder / "log")), "peak": {},
    }  # fmt: skip
    if read_end(folder) is None:
        write_whole(folder / "end.json", json.dumps(content).encode())


def _last_sign(folder: Path) -> float:
    """When anything in its folder was last written."""
    try:
        with os.scandir(folder) as entries:
            return max((entry.stat(follow_symlinks=False).st_mtime for entry in entries), default=time.time())
    except OSError:
        return time.time()


def make_private(folder: Path, below: Path) -> None:
    """A folder and those between it and `below`: `mkdir(parents=True)` would leave them open to others."""
    for missing in reversed([folder, *folder.parents][: len(folder.relative_to(below).parts)]):
        missing.mkdir(mode=0o700, exist_ok=True)


def write_whole(path: Path, data: bytes, *, sync: bool = True) -> None:
    """A private file that is there completely or not at all, whoever is killed meanwhile. Without `sync` a loss of
    power in the next seconds may take it: fair for what only matters while the machine is up, and many times faster.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            if sync:
                os.fsync(stream.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
