"""The agent of a pod: the first process of its container, and all that a replica has there.

Which replica this is, the container's variables say; what it runs and where the others are stands in the files that the
run's objects carry (`/phalanx/job`). It starts the replica's processes, passes on what they write, buries whoever is
left without a parent, hands on the word to end, and leaves with the exit code of the command. Before it, in a container
of its own, `readying` unpacks the code and runs the steps of the file.

PHALANX_POD_ROOT stands for `/phalanx`, for tests. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.agent import launcher, processes
from phalanx.agent.preflight import PATIENCE_S, PreflightFailed
from phalanx.agent.stdout_courier import Output, StdoutCourier, kept_files
from phalanx.agent.supervisor import WATCHED, Task
from phalanx.ends import Cause, End, read_end
from phalanx.frames import is_kept
from phalanx.naming import member_name, replica_name

ROOT, ROOT_VARIABLE = "/phalanx", "PHALANX_POD_ROOT"
TOKEN, SERVER = "PHALANX_RUN_TOKEN", "PHALANX_RUN_SERVER"
OURS = (TOKEN, SERVER, ROOT_VARIABLE, "PHALANX_MEMBERS", "PHALANX_POD_INDEX")  # not for the training
MARK = ".pod"  # whose a replica's folder is
TERMINATION_LOG = "/dev/termination-log"  # what is written there stands in the pod's status
MOST_SAID = 3_000  # bytes of it; Kubernetes keeps 4096
LOOK_S = 0.2
GRACE_S = 20.0
LATE_S = 4.0  # past its grace a replica and its supervisor are killed
FAREWELL_S = 8.0  # past its grace, until Kubernetes kills us
FALL_BACK_S = 5.0  # of that, for the other way home
MOST_OUTPUTS = 4 << 20  # bytes of them that come home with the log: kubelets keep 10 MiB of it
PORT = 2222
MISUSED = 78  # as sysexits has it: the configuration is wrong
STOPPED = 128 + signal.SIGTERM
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)  # an image may choose which of them a container is sent
_PR_SET_DUMPABLE = 4


class PodError(Exception):
    """Why nothing can be run in this container, in words for the user."""


class Pod(NamedTuple):
    """Where we are. `member`: the replica, by the name of its first process; `names`: of all its processes."""

    root: str
    plan: dict[str, Any]
    place: dict[str, Any]
    attempt: int
    member: str
    names: list[str]
    token: str
    server: str
    environment: dict[str, str]

    @property
    def run_folder(self) -> str:
        return str(self.place.get("run_folder") or os.path.join(self.root, "run"))

    @property
    def replicas(self) -> str:
        return os.path.join(self.run_folder, run_paths.REPLICAS)

    @property
    def courier(self) -> str:
        """As the place says, unless that way is not open."""
        told = str(self.place.get("courier") or "frames")
        return "frames" if told == "server" and not (self.server and self.token) else told

    @property
    def outputs(self) -> str:
        return str(self.place.get("outputs") or os.path.join(self.run_folder, run_paths.OUTPUTS))

    @property
    def working(self) -> str:
        return str((self.place.get("code") or {}).get("working") or os.getcwd())

    @property
    def grace_s(self) -> float:
        """How long the command has to end when it is told to."""
        return float(self.place.get("grace_s") or GRACE_S)

    @property
    def build(self) -> str:
        """Where `prepare` makes the Python of this replica."""
        return os.path.join(self.run_folder, ".phalanx-build", f"{self.member}.{self.attempt}")

    def folder(self, name: str) -> str:
        return os.path.join(self.replicas, name, run_paths.attempt_name(self.attempt))


def find(environment: dict[str, str]) -> Pod:
    """Raises NotHere."""
    root = environment.get(ROOT_VARIABLE) or ROOT
    job = os.path.join(root, run_paths.JOB)
    try:
        with gzip.open(os.path.join(job, "plan.json.gz"), "rb") as stream:
            plan = json.loads(stream.read())
        with open(os.path.join(job, "place.json"), "rb") as stream:
            place = json.loads(stream.read())
    except (OSError, EOFError, ValueError) as fault:
        raise PodError(f"the run's plan cannot be read in {job}: {fault}. Is its ConfigMap still there?") from None
    plan["segment_s"] = None  # of another kind of cluster
    member = _member(environment)
    names = [replica_name(row) for row in plan["replicas"] if member_name(row["role"], row["index"]) == member]
    if not names:
        raise PodError(f"the plan knows no replica {member!r}")
    replicas = {member_name(row["role"], row["index"]) for row in plan["replicas"]}
    left = {name for name in environment if name.partition(".")[0] in replicas}  # secrets of one: `worker-1.TOKEN`
    left.update(OURS)
    attempt = environment.get("PHALANX_ATTEMPT", "")
    server = environment.get(SERVER) or str(place.get("server") or "")
    return Pod(
        root, plan, place, int(attempt) if attempt.isdigit() else 1, member, names,
        environment.get(TOKEN, ""), server, {name: text for name, text in environment.items() if name not in left},
    )  # fmt: skip


def _member(environment: Mapping[str, str]) -> str:
    members = [name for name in environment.get("PHALANX_MEMBERS", "").split(",") if name]
    told = environment.get("PHALANX_POD_INDEX") or environment.get("JOB_COMPLETION_INDEX") or "0"
    if not told.isdigit() or int(told) >= len(members):
        raise PodError(f"this is pod {told!r} of {len(members)}: PHALANX_MEMBERS does not say which replica that is")
    return members[int(told)]


def facts_of(pod: Pod) -> dict[str, Any]:
    """What the plan leaves open, as `launching` wants it."""
    hosts, ports, data = (pod.place.get(key) or {} for key in ("host", "port", "data"))
    host: dict[str, str] = {"*": str(hosts.get("*", "127.0.0.1"))}
    port: dict[str, int] = {}
    for row in pod.plan["replicas"]:
        name, replica = replica_name(row), member_name(row["role"], row["index"])
        host[name] = str(hosts.get(name) or hosts.get(replica) or host["*"])
        port[name] = int(ports.get(name) or int(ports.get(replica) or PORT) + row.get("local", 0))
    hostfile = pod.environment.get("OMPI_MCA_orte_default_hostfile") or "/etc/mpi/hostfile"
    return {
        "attempt": pod.attempt,
        "job": f"pod:{pod.environment.get('PHALANX_POD') or socket.gethostname()}",
        "pod": pod.environment.get("PHALANX_POD") or socket.gethostname(),
        "host": host,
        "port": port,
        "interface": {"*": _interface()},
        "path": {
            "outputs": pod.outputs,
            "logs": pod.replicas,
            "hostfile": hostfile,
            "hosts.sh": os.path.join(os.path.dirname(hostfile), "discover_hosts.sh"),
            **{f"data/{name}": path for name, path in data.items()},
            "*": os.path.join(pod.run_folder, "data"),
        },
        "folders": {name: pod.folder(name) for name in pod.names},
        "node": dict.fromkeys(pod.names, "pod"),
        "python": {"pod": _python(pod)},
        "working": pod.working,
        "client": _client(pod),
        "environment": pod.environment,
        "yields": list(pod.place.get("yields") or ()),
        "watched": {name: _gpus(pod) for name in pod.names[:1]},
        "meeting_s": float(pod.place.get("peers_s") or PATIENCE_S),
        "grace_s": pod.grace_s,
    }


def _interface() -> str:
    """Of the pod's network; pods have one."""
    from phalanx.agent.allocation import address_of, interface_of

    try:
        return interface_of(address_of(socket.gethostname()))
    except OSError:
        return ""


def _python(pod: Pod) -> dict[str, Any]:
    """The one that `prepare` has made, where it has."""
    venv = os.path.join(pod.build, "venv")
    if not os.path.exists(os.path.join(pod.build, "done")):
        return launcher.NO_PYTHON
    return {"variables": {"VIRTUAL_ENV": venv}, "path": os.path.join(venv, "bin"), "before": []}


def _client(pod: Pod) -> list[str]:
    client = os.path.join(pod.root, "agent", run_paths.CLIENT_ARCHIVE)
    return [client, os.path.join(client, "phalanx", "tracking", "polyaxon")] if os.path.exists(client) else []


def _gpus(pod: Pod) -> list[str]:
    """In a container they are counted from 0, and are all its own."""
    first = next(row for row in pod.plan["replicas"] if replica_name(row) == pod.member)
    amount = first["resources"].get("gpu") or {}
    return [str(index) for index in range(int(amount.get("limits") or amount.get("requests") or 0))]


# the pod's life ------------------------------------------------------------------------------------------------------


def arrived() -> Pod | None:
    """Who we are. From here on what is secret is ours alone. None when nobody can say; then that is told."""
    try:
        pod = find(dict(os.environ))
    except PodError as fault:
        print(f"phalanx: {fault}", file=sys.stderr, flush=True)
        return None
    for name in os.environ.keys() - pod.environment.keys():
        del os.environ[name]
    return pod


def run() -> int:
    """Everything. Answers the exit code of the container."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    hide_environment()
    pod = arrived()
    return MISUSED if pod is None else run_replica(pod).code


class PodOutcome(NamedTuple):
    """`code`: for the container to exit with. `is_told`: whether it was told to end."""

    code: int
    is_told: bool


def run_replica(pod: Pod) -> PodOutcome:
    """The replica from its start to its end. The caller has blocked the signals in `WATCHED`."""
    processes.adopt_orphans()
    try:
        for name in pod.names:
            _make(pod.folder(name))
            if _go_on(pod, pod.folder(name)):
                pod = pod._replace(plan={**pod.plan, "meets": []})  # the others are at work: nobody waits for us there
    except PodError as fault:
        report_end(pod, str(fault), [])
        return PodOutcome(MISUSED, is_told=False)
    life = PodReplica(pod)
    code = life.live()
    return PodOutcome(code, is_told=life.told_at is not None)


def _go_on(pod: Pod, folder: str) -> bool:
    """After a container of this very pod, which its kubelet has started again: its end was not the last. Whether it is
    so."""
    us, mark = pod.environment.get("PHALANX_POD", ""), os.path.join(folder, MARK)
    try:
        with open(mark, encoding="utf-8") as stream:
            is_ours = stream.read() == us
    except OSError:
        is_ours = False
    try:
        for name in (run_paths.AGENT, run_paths.END) if is_ours and us else ():
            if os.path.exists(os.path.join(folder, name)):
                os.unlink(os.path.join(folder, name))
        if not os.path.exists(os.path.join(folder, run_paths.AGENT)):
            with open(mark, "w", encoding="utf-8") as stream:
                stream.write(us)
    except OSError:
        pass  # a full disk: no reason not to run
    return is_ours and bool(us)


class PodReplica:
    """From the start of a pod's replica until all is said."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.output = Output(1)
        self.relay = StdoutCourier(
            pod.replicas, pod.attempt, pod.member, self.output, is_log_alone=pod.courier != "frames"
        )
        self.supervisors: dict[int, Task] = {}
        self.refused: set[str] = set()  # replicas that another agent has
        self.helper: int | None = None  # the process of the key-value server
        self.told_at: float | None = None
        self.kills_before = processes.kernel_kills_for_memory()

    def live(self) -> int:
        pod = self.pod
        if pod.courier in ("frames", "server"):
            self.relay.greet()
        self._start()
        courier = _courier(pod) if pod.courier == "server" else None
        if courier is not None:
            courier.start()
        while self.supervisors:
            self._attend(LOOK_S)
            self._kill_the_late()
            self.relay.turn()
        self._see_to_ends()
        self._wait_for_helper()
        if pod.courier in ("frames", "none"):
            self._bring_outputs()
        if courier is not None and not courier.finish(pulse=lambda: self._is_late(FALL_BACK_S)):
            why = courier.trouble or next(iter(courier.unwanted.values()), "it did not answer in time")
            print(
                f"phalanx: not all came to the server, so it is sent with the log: {why}", file=sys.stderr, flush=True
            )
            self.relay.send_everything()
            self._bring_outputs()
        self.relay.finish(pulse=lambda: self._is_late(0.0))
        write_termination_log(pod)
        self.output.release()
        processes.send((stat.pid for stat in processes.descendants(os.getpid())), signal.SIGKILL)
        if pod.courier == "volume":
            forget(pod.build)
        return exit_code([read_end(pod.folder(name)) for name in pod.names])

    def _start(self) -> None:
        """The processes of the replica. What keeps them from starting is their end."""
        pod = self.pod
        try:
            _make(pod.outputs)
            facts = facts_of(pod)
            tasks = launcher.tasks_of(pod.plan, facts)
            if not os.path.isdir(pod.working):
                raise PodError(f"there is no folder {pod.working} in this pod to run in")
            if not tasks:
                raise PodError("the plan has no command for this replica")
            self.helper = launcher.serve(pod.plan, facts)
            self.supervisors = launcher.launch(tasks)
        except PreflightFailed as fault:
            self._give_up(End(Cause.MEETING, None, None, str(fault)))
        except PodError as fault:
            self._give_up(End(Cause.SETUP, None, None, str(fault)))
        except (OSError, LookupError, TypeError, ValueError) as fault:
            self._give_up(End(Cause.SETUP, None, None, f"this pod cannot start it: {type(fault).__name__}: {fault}"))

    def _give_up(self, end: End) -> None:
        for name in self.pod.names:
            with open(os.path.join(self.pod.folder(name), run_paths.LOG), "ab") as log:
                log.write(f"phalanx: {end.message}\n".encode())
            launcher.write_failure(self.pod.folder(name), name, self.pod.attempt, end)

    def _attend(self, patience_s: float) -> None:
        """What we are told, and who has ended: ours, and orphans of whoever has gone."""
        caught = signal.sigtimedwait(WATCHED, patience_s)
        told = caught.si_signo if caught is not None else None
        if told in ENDING:
            self.told_at = self.told_at or time.monotonic()
            processes.send(self.supervisors, signal.SIGTERM if told == signal.SIGINT else told)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            task = self.supervisors.pop(pid, None)
            if task is not None and status == 0 and not read_end(task.folder):
                self.refused.add(task.name)
            self.helper = None if pid == self.helper else self.helper

    def _is_late(self, reserve_s: float) -> bool:
        """Asked while the end is waited for: whether Kubernetes will end us before long."""
        self._attend(0)
        self.relay.turn()
        return self.told_at is not None and time.monotonic() > self.told_at + self.pod.grace_s + FAREWELL_S - reserve_s

    def _kill_the_late(self) -> None:
        if self.told_at is not None and time.monotonic() > self.told_at + self.pod.grace_s + LATE_S:
            processes.send((stat.pid for stat in processes.descendants(os.getpid())), signal.SIGKILL)

    def _see_to_ends(self) -> None:
        """Of replicas whose supervisor could say none; but not of those that another pod has."""
        for name in self.pod.names:
            folder = self.pod.folder(name)
            if read_end(folder):
                continue
            if name in self.refused:
                print(f"phalanx: another pod has {name} of this attempt", file=sys.stderr, flush=True)
                continue
            if self.told_at is not None:
                end = End(Cause.STOPPED, None, signal.SIGKILL, "stopped; it did not end in time, and was killed")
            elif processes.kernel_kills_for_memory() > self.kills_before:
                end = End(Cause.MEMORY, None, signal.SIGKILL, "the kernel killed it for memory, and its agent")
            else:
                end = End(Cause.LOST, None, None, "its agent was killed")
            launcher.write_failure(folder, name, self.pod.attempt, end)

    def _wait_for_helper(self) -> None:
        """Ranks elsewhere may need the key-value server a little longer than we do."""
        until = time.monotonic() + launcher.SERVED_S + 2.0
        while self.helper is not None and self.told_at is None and time.monotonic() < until:
            self._attend(LOOK_S)
            self.relay.turn()

    def _bring_outputs(self) -> None:
        """Small ones come home with the log; of what stays is told."""
        pod = self.pod
        self.relay.turn()
        stay = [_size(path) for path in self.relay.left_behind]
        room = 0 if self.relay.is_log_alone else MOST_OUTPUTS
        found = kept_files(pod.run_folder, _outputs(pod))
        for size, name, path in sorted((_size(path), name, path) for name, path in found):
            if size <= room and is_kept(name):
                room -= size
                self.relay.kept.append((name, path))
            else:
                stay.append(size)
        if stay:
            text = (
                f"phalanx: {len(stay)} files ({sum(stay) / 2**20:.1f} MiB) of outputs end with this pod: to keep them, "
                "name a store in `environment.artifact_refs`, or run with a Phalanx server that pods reach\n"
            )
            with open(os.path.join(pod.folder(pod.member), run_paths.LOG), "ab") as log:
                log.write(text.encode())


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # gone meanwhile


def _outputs(pod: Pod) -> str | None:
    """The folder of outputs; None when it is kept elsewhere, and nobody needs to bring it home."""
    is_ours = os.path.abspath(pod.outputs).startswith(os.path.abspath(pod.run_folder) + os.sep)
    return pod.outputs if is_ours else None


def write_termination_log(pod: Pod, end: End | None = None) -> None:
    """How it ended, in the pod's status: for where nothing else came home. `end`: that of all, where no file has it."""
    path = TERMINATION_LOG if pod.root == ROOT else os.path.join(pod.root, "termination-log")
    ends = {name: read_end(pod.folder(name)) if end is None else end for name in pod.names}
    told = {name: _told(found) for name, found in ends.items()}
    while len(json.dumps(told)) > MOST_SAID:
        told.popitem()
    try:
        with open(path, "w", encoding="utf-8") as stream:
            json.dump({"phalanx": 1, "ends": told}, stream)
    except OSError:
        pass  # not every runtime has one


def _told(end: End | None) -> dict[str, Any]:
    keys = ("cause", "code", "signal", "message")
    return dict.fromkeys(keys) if end is None else {key: getattr(end, key) for key in keys}


def exit_code(ends: list[End | None]) -> int:
    """As a shell has it, of the first process that did not finish."""
    return next((code for code in map(_code, ends) if code), 0)


def _code(end: End | None) -> int:
    if end is None:
        return 1
    if end.cause == Cause.FINISHED:
        return 0
    if end.cause == Cause.STOPPED:
        return STOPPED
    if end.cause == Cause.SETUP:
        return MISUSED
    if end.cause == Cause.MEMORY:
        return 128 + signal.SIGKILL
    return end.code or (128 + end.signal if end.signal else 1)


def _make(folder: str) -> None:
    """Raises NotHere."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        is_ours = os.access(folder, os.W_OK | os.X_OK)
    except OSError as fault:
        raise PodError(f"{folder} cannot be made: {fault.strerror or fault}{permission_hint(fault)}") from None
    if not is_ours:
        raise PodError(f"nothing can be written to {folder}{permission_hint(PermissionError())}")


def permission_hint(fault: OSError) -> str:
    """What to do about a volume that is somebody else's."""
    if not isinstance(fault, PermissionError):
        return ""
    return (
        f". This pod is user {os.getuid()}: let it write there, or name another by `runAsUser` and `fsGroup` in "
        "`environment.kubernetes.pod`"
    )


def forget(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def hide_environment() -> None:
    """Our variables hold the token: others of our user shall not read them in /proc. What we start has its own."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def _courier(pod: Pod) -> Any:
    from phalanx.agent.server_courier import ServerCourier
    from phalanx.uploads import Uploader

    post = Uploader(pod.server, pod.token)
    return ServerCourier(post, str(pod.plan["run_id"]), pod.attempt, pod.run_folder, _outputs(pod))


def report_end(pod: Pod, message: str, lines: list[str]) -> None:
    """In the output of this container, which is the only one that runs, and wherever else ends are looked for."""
    print(f"phalanx: {pod.member} could not be prepared: {message}", *lines, sep="\n", flush=True)
    end = End(Cause.SETUP, None, None, message)
    try:
        for name in pod.names:
            launcher.write_failure(pod.folder(name), name, pod.attempt, end, lines)
    except OSError:
        pass  # where nothing can be written, the pod's status has it
    write_termination_log(pod, end)
    output = Output(1)
    relay = StdoutCourier(pod.replicas, pod.attempt, pod.member, output)
    if pod.courier == "server":
        _courier(pod).finish()
    if pod.courier != "volume":
        relay.finish(30.0)
    output.release()
