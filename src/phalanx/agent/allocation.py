"""An attempt on a cluster: where every rank runs, and how they ended.

`report_host` runs beside every rank, prepares its node and prints where it is. The coordinator of the job turns these
lines into the facts of the attempt (`gather`): hosts, ports, folders, GPUs, time limit. When all ranks have ended,
`conclude` says whether the run is over. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from phalanx import run_paths
from phalanx.agent import launcher
from phalanx.agent.claims import job_here, job_number
from phalanx.agent.deadlines import CHECKPOINTED, LEAVE_S
from phalanx.agent.interactive.hold import read_hold
from phalanx.atomic_files import write_atomic
from phalanx.ends import Cause, End, read_end
from phalanx.naming import LAUNCHER, is_launcher
from phalanx.stored_plan import StoredPlan

if TYPE_CHECKING:
    from phalanx.agent.virtualenv import PreparedPython

PORTS = range(20_000, 32_000)  # below the kernel's ephemeral ports
PORTS_APART = 256  # ranks per node: each searches a disjoint set of ports
GRACE_S = 10.0
MOST_WORDS = 200  # of a step, in characters
REPORT = "phalanx-report"  # the first word of a line of a report
LONGEST_PART = 800  # of a report in one line: srun mixes longer lines of several nodes
NEEDS_PREPARING = ("venv", "conda", "image", "requirements", "steps")  # keys of `environment.python`
PREPARED = "prepared"  # said by the script of a job, if the ranks start later
GO = "go"  # said to all ranks, when the facts are written
ONLY_ITSELF = ("127.0.0.1", "127.0.1.1")  # what a node's own name often resolves to on the node itself
_SIOCGIFADDR = 0x8915
_LEFT = re.compile(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)\Z")


def report_host(plan: StoredPlan, facts_file: str) -> int:
    """Prepare the node of this rank and print where it is."""
    rank = int(os.environ["SLURM_PROCID"])
    name, place = plan.order[rank], int(os.environ.get("SLURM_LOCALID", "0"))
    host = host_here()
    address = address_of(host)
    python: dict[str, Any] = {**launcher.NO_PYTHON, "packages": []}
    if any(plan.python.get(key) for key in NEEDS_PREPARING) or _archive(facts_file) is not None:
        prepared = _prepared_python(plan, facts_file, name, host)
        if prepared is None:
            return 1
        python = prepared
    report = {
        "name": name,
        "place": place,
        "host": host,
        "address": address,
        "port": free_port(int(os.environ.get("SLURM_JOB_ID", "0")), place),
        "interface": interface_of(address),
        "gpus": [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu],
        **python,
        "packages": python["packages"] if place == 0 else [],
    }
    print(*report_lines(rank, report), sep="\n", flush=True)
    return 0


def report_lines(rank: int, report: dict[str, Any]) -> Iterator[str]:
    """A report in short lines: its rank, how many lines follow, a part of it."""
    text = json.dumps(report)
    parts = [text[begin : begin + LONGEST_PART] for begin in range(0, len(text), LONGEST_PART)]
    for number, part in enumerate(parts, 1):
        yield f"{REPORT} {rank} {len(parts) - number} {part}"


def may_start(said: TextIO) -> bool:
    """Wait until all ranks have reported. False if the job ends before."""
    return said.readline().strip() == GO


def _prepared_python(plan: StoredPlan, facts_file: str, name: str, host: str) -> dict[str, Any] | None:
    """The Python of this node, for the facts; None if it could not be prepared."""
    from phalanx.agent import virtualenv  # takes as long to import as all the rest, and most runs need nothing of it

    try:
        prepared = virtualenv.prepare(
            plan.python, _scratch(plan), _archive(facts_file), os.getcwd(), _teller(facts_file)
        )
    except virtualenv.VirtualenvError as fault:
        print(f"phalanx: {name} on {host}: {fault}", *fault.lines, sep="\n", file=sys.stderr, flush=True)
        _give_up(name, facts_file, f"{host} could not be prepared: {fault}", fault.lines)
        return None
    _keep(prepared, facts_file)
    return {
        "variables": {key: value for key, value in prepared.variables.items() if key != "PATH"},
        "path": prepared.variables.get("PATH", "").partition(os.pathsep)[0],
        "before": virtualenv.with_folder(prepared.before, run_folder_of(facts_file)),
        "packages": prepared.packages,
    }


def _teller(facts_file: str) -> Callable[[str], None]:
    """Writes what this node does to a file that users see; only the first node does."""
    path = os.path.join(run_folder_of(facts_file), run_paths.progress_file(attempt_of(facts_file)))

    def tell(text: str) -> None:
        if os.environ.get("SLURM_NODEID", "0") == "0":
            try:
                write_atomic(path, text[:MOST_WORDS].encode())
            except OSError:
                pass  # it only informs

    return tell


def _scratch(plan: StoredPlan) -> str:
    """The node-local storage, as the site names it."""
    for name in (plan.scratch or "", "SLURM_TMPDIR", "TMPDIR"):
        folder = os.environ.get(name, "")
        if folder and os.access(folder, os.W_OK | os.X_OK):
            return folder
    return "/tmp"  # noqa: S108 - what is made there is private, and checked to be ours


def _archive(facts_file: str) -> str | None:
    path = os.path.join(os.path.dirname(facts_file), run_paths.VIRTUALENV_ARCHIVE)
    return path if os.path.exists(path) else None


def _keep(prepared: PreparedPython, facts_file: str) -> None:
    """Pack the virtual environment of the first rank's node, if later jobs want it."""
    folder = os.path.dirname(facts_file)
    is_wanted = os.path.exists(os.path.join(folder, run_paths.KEEP_VIRTUALENV)) and "VIRTUAL_ENV" in prepared.variables
    if is_wanted and os.environ["SLURM_PROCID"] == "0" and _archive(facts_file) is None:
        from phalanx.agent import virtualenv

        _teller(facts_file)("packing the virtual environment")
        try:
            virtualenv.pack(prepared, os.path.join(folder, run_paths.VIRTUALENV_ARCHIVE))
        except OSError as fault:
            print(f"the virtual environment was not kept: {fault}", file=sys.stderr)


def host_here() -> str:
    """The name of this node, as the scheduler knows it."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def address_of(host: str) -> str:
    """The address at which other nodes reach this one. If the node's own name resolves to the loopback, use that
    of its first network. Not every framework can listen at a name."""
    try:
        address = socket.gethostbyname(host)
    except OSError:
        address = "127.0.0.1"
    if address not in ONLY_ITSELF:
        return address
    return next((found for _, found in _interfaces() if not found.startswith("127.")), address)


def free_port(seed: int, place: int) -> int:
    """A port that is free now. It is not reserved until it is used, a moment later; the preflight check reports
    conflicts. Raises OSError."""
    blocks = len(PORTS) // PORTS_APART
    for step in range(blocks):
        port = PORTS.start + (seed * 7 + step) % blocks * PORTS_APART + place % PORTS_APART
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError("no free port on this node")


def interface_of(address: str) -> str:
    """The network interface with an address; empty if this machine has none."""
    if address.startswith("127."):
        return "lo"
    return next((name for name, found in _interfaces() if found == address), "")


def _interfaces() -> list[tuple[str, str]]:
    """The network interfaces and their addresses."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            found.append((name, socket.inet_ntoa(answer[20:24])))
    return found


def _give_up(name: str, facts_file: str, message: str, lines: list[str]) -> None:
    """Write the end of a replica that never started."""
    attempt = attempt_of(facts_file)
    launcher.write_failure(
        _folder(facts_file, name, attempt), name, attempt, End(Cause.SETUP, None, None, message), lines
    )


def attempt_of(facts_file: str) -> int:
    attempt = run_paths.attempt_number(os.path.splitext(os.path.basename(facts_file))[0])
    if attempt is None:
        raise ValueError(f"{facts_file} is not named after an attempt")
    return attempt


def run_folder_of(facts_file: str) -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(facts_file)))


def _folder(facts_file: str, name: str, attempt: int) -> str:
    return os.path.join(run_folder_of(facts_file), run_paths.attempt_folder(name, attempt))


def gather(plan: StoredPlan, facts_file: str, first: int, lines: Iterable[str]) -> int:
    """Write the facts of the attempt, once all ranks have reported. `first`: the attempt from which the run's time
    counts. `lines`: what they reported; other lines go to standard error."""
    left_s, limit_s = time_left()  # while the nodes are still being prepared
    asked_at = time.time()
    found = {report["name"]: report for report in _reports(lines, len(plan.order))}
    missing = [name for name in plan.order if name not in found]
    if missing:
        print(f"phalanx: not all nodes could be prepared: no report from {', '.join(missing[:8])}", file=sys.stderr)
        return 1
    ranks = [found[name] for name in plan.order]
    attempt, run = attempt_of(facts_file), run_folder_of(facts_file)
    job = os.path.join(run, run_paths.JOB)
    hosts = list(dict.fromkeys(rank["host"] for rank in ranks))
    names = [*plan.order, *(replica.name for replica in plan.replicas if replica.role == LAUNCHER)]
    interfaces = {rank["interface"] for rank in ranks}
    shared = plan.interface or (interfaces.pop() if len(interfaces) == 1 else "")
    facts: dict[str, Any] = {
        "attempt": attempt,
        "first": first,
        "job": job_here(),
        "began_at": time.time(),
        "spent_s": _spent(plan, facts_file, first, attempt),
        "ends_at": None if left_s is None else asked_at + left_s,
        "limit_s": limit_s,
        "host": {**{name: rank["address"] for name, rank in found.items()}, "*": ranks[0]["address"]},
        "node": {name: rank["host"] for name, rank in found.items()},
        "port": {name: found[name]["port"] if name in found else ranks[0]["port"] for name in names},
        "interface": {"*": shared},
        "path": {
            "outputs": os.path.join(run, run_paths.OUTPUTS),
            "logs": os.path.join(run, run_paths.REPLICAS),
            "hostfile": os.path.join(job, run_paths.HOSTFILE),
            "hosts.sh": os.path.join(job, run_paths.HOSTS_SCRIPT),
            "*": os.path.join(run, "data"),
        },
        "folders": {name: os.path.join(run, run_paths.attempt_folder(name, attempt)) for name in names},
        "working": os.getcwd(),
        "client": client_paths(job),
        "gpus": _gpus(plan, found),
        "grace_s": GRACE_S,
        "hold_s": read_hold(run, attempt),
        "python": {
            rank["host"]: {key: rank[key] for key in ("variables", "path", "before")}
            for rank in ranks
            if rank["place"] == 0
        },
    }
    slots = {host: sum(rank["host"] == host for rank in ranks) for host in hosts}
    hostfile = "".join(f"{host} slots={count}\n" for host, count in slots.items())
    write_atomic(os.path.join(job, run_paths.HOSTFILE), hostfile.encode())
    hosts_script = "".join(f"echo {host}:{count}\n" for host, count in slots.items())
    write_atomic(os.path.join(job, run_paths.HOSTS_SCRIPT), hosts_script.encode())
    packages = {rank["host"]: rank["packages"] for rank in ranks if rank["packages"]}
    if packages:
        write_atomic(os.path.join(run, run_paths.packages_file(attempt)), json.dumps(packages).encode())
    write_atomic(facts_file, json.dumps(facts).encode())
    return 0


def _reports(lines: Iterable[str], count: int) -> Iterator[dict[str, Any]]:
    """So many reports of ranks; fewer if the lines end, or the script says that no more will come."""
    parts: dict[str, list[str]] = {}
    for line in lines:
        words = line.rstrip("\n").split(" ", 3)
        if words == [PREPARED]:
            return
        if len(words) < 4 or words[0] != REPORT:
            sys.stderr.write(line)
            continue
        parts.setdefault(words[1], []).append(words[3])
        if words[2] == "0":
            yield json.loads("".join(parts[words[1]]))
            count -= 1
            if not count:
                return


def client_paths(job: str) -> list[str]:
    """What belongs on the PYTHONPATH of the training, where the job carries it."""
    client = os.path.join(job, run_paths.CLIENT_ARCHIVE)
    return [client, os.path.join(client, "phalanx", "tracking", "polyaxon")] if os.path.exists(client) else []


def _gpus(plan: StoredPlan, found: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """The GPUs of each node, split among its replicas; the processes of one share them. Empty where Slurm assigns
    none: programs then see all GPUs."""
    given: dict[str, list[str]] = {}
    used: dict[str, int] = {}
    planned = plan.by_name
    for name in plan.order:
        replica = planned[name]
        rank = found[name]
        if not rank["gpus"]:
            continue
        if replica.local:
            given[name] = given[replica.first_process]
            continue
        count = int(replica.amount("gpu").reserved or 0)
        begin = used.get(rank["host"], 0)
        given[name] = rank["gpus"][begin : begin + count]
        used[rank["host"]] = begin + count
    return given


def _spent(plan: StoredPlan, facts_file: str, first: int, attempt: int) -> float:
    """Time spent in earlier segments of this run."""
    if plan.segment_s is None:
        return 0.0
    spent = 0.0
    for earlier in range(first, attempt):
        began = _read(os.path.join(run_folder_of(facts_file), run_paths.facts_file(earlier))).get("began_at")
        ends = [read_end(_folder(facts_file, name, earlier)) for name in plan.order]
        ended = max((end.ended_at for end in ends if end is not None and end.cause != Cause.LOST), default=None)
        if began is not None and ended is not None:
            spent += max(0.0, ended - began)
    return spent


def time_left() -> tuple[float | None, float | None]:
    """Time left for this job in Slurm, and its time limit; None when unknown."""
    try:
        answer = subprocess.run(
            ["squeue", "-h", "-j", job_number(), "-o", "%L|%l"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None, None
    left, _, limit = answer.stdout.decode().split("\n")[0].partition("|")
    return seconds_left(left.strip()), seconds_left(limit.strip())


def seconds_left(text: str) -> float | None:
    """`1-02:03:04`, `2:03:04`, `3:04`; None for `UNLIMITED` and the like."""
    match = _LEFT.match(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def conclude(plan: StoredPlan, facts_file: str) -> int:
    """Return 0 when the run has finished, 85 when its next segment follows, 1 when something failed."""
    attempt = attempt_of(facts_file)
    deciding = plan.deciding if plan.launch != "mpirun" else tuple(filter(is_launcher, plan.by_name))
    ends = [read_end(_folder(facts_file, name, attempt)) for name in deciding]
    causes = {end.cause if end is not None else None for end in ends}
    if causes <= {Cause.FINISHED}:
        return 0
    if Cause.SEGMENT in causes and causes <= {Cause.SEGMENT, Cause.FINISHED, Cause.STOPPED}:
        timeout_s = plan.timeout_s
        facts = _read(facts_file)
        spent_s = facts.get("spent_s", 0.0) + time.time() - facts.get("began_at", time.time())
        if timeout_s is None or timeout_s - spent_s > 2 * LEAVE_S:
            return CHECKPOINTED
    return 1


def release_node(facts_file: str) -> int:
    """Clean up the node of this rank."""
    from phalanx.agent import virtualenv

    prepared = _read(facts_file).get("python", {}).get(host_here(), {})
    virtualenv.leave(prepared.get("variables", {}))
    return 0


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as stream:
            found = json.loads(stream.read())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
