"""The agent of a pod: the first process of its container.

The container's variables identify the replica; the files that the run's objects carry (`/phalanx/job`) define what it
runs and where the others are. The agent starts the replica's processes, forwards what they write, reaps orphans,
forwards termination signals, and exits with the exit code of the command. Before it, in a separate container,
`init_container` unpacks the code and runs the steps of the file.

PHALANX_POD_ROOT replaces `/phalanx` in tests. Standard library only, Python 3.8+.
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
from phalanx.agent.interactive.entry import enter_here
from phalanx.agent.preflight import PATIENCE_S, PreflightFailed
from phalanx.agent.stdout_courier import Output, StdoutCourier, kept_files
from phalanx.agent.supervisor import WATCHED, Task
from phalanx.ends import Cause, End, read_end
from phalanx.frames import is_kept
from phalanx.stored_plan import StoredPlan, parse_plan

ROOT, ROOT_VARIABLE = "/phalanx", "PHALANX_POD_ROOT"
TOKEN, SERVER = "PHALANX_RUN_TOKEN", "PHALANX_RUN_SERVER"
OURS = (TOKEN, SERVER, ROOT_VARIABLE, "PHALANX_MEMBERS", "PHALANX_POD_INDEX")  # hidden from the training
MARK = ".pod"  # the owner of a replica's folder
TERMINATION_LOG = "/dev/termination-log"  # Kubernetes copies it into the pod's status
MOST_SAID = 3_000  # bytes of it; Kubernetes keeps 4096
LOOK_S = 0.2
GRACE_S = 20.0
LATE_S = 4.0  # after the grace period a replica and its supervisor are killed
FAREWELL_S = 8.0  # after the grace period, until Kubernetes kills the agent
FALL_BACK_S = 5.0  # of that, for the fallback delivery
MOST_OUTPUTS = 4 << 20  # bytes of outputs delivered with the log: kubelets keep 10 MiB of it
PORT = 2222
MISUSED = 78  # EX_CONFIG of sysexits
STOPPED = 128 + signal.SIGTERM
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)  # an image may choose which one a container gets
_PR_SET_DUMPABLE = 4


class PodError(Exception):
    """Nothing can run in this container. The message is for the user."""


class Pod(NamedTuple):
    """This pod. `member`: the replica, named after its first process; `names`: all its processes."""

    root: str
    plan: StoredPlan
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
        """The configured courier, unless it is not available."""
        kind = str(self.place.get("courier") or "frames")
        return "frames" if kind == "server" and not (self.server and self.token) else kind

    @property
    def outputs(self) -> str:
        return str(self.place.get("outputs") or os.path.join(self.run_folder, run_paths.OUTPUTS))

    @property
    def working(self) -> str:
        return str((self.place.get("code") or {}).get("working") or os.getcwd())

    @property
    def grace_s(self) -> float:
        """How long the command has to exit after a signal."""
        return float(self.place.get("grace_s") or GRACE_S)

    @property
    def build(self) -> str:
        """Where `prepare` creates the Python environment of this replica."""
        return os.path.join(self.run_folder, ".phalanx-build", f"{self.member}.{self.attempt}")

    def folder(self, name: str) -> str:
        return os.path.join(self.replicas, name, run_paths.attempt_name(self.attempt))


def find(environment: dict[str, str]) -> Pod:
    """Raises PodError."""
    root = environment.get(ROOT_VARIABLE) or ROOT
    job = os.path.join(root, run_paths.JOB)
    try:
        with gzip.open(os.path.join(job, "plan.json.gz"), "rb") as stream:
            plan = parse_plan(stream.read())._replace(segment_s=None)  # Slurm only
        with open(os.path.join(job, "place.json"), "rb") as stream:
            place = json.loads(stream.read())
    except (OSError, EOFError, ValueError) as fault:
        raise PodError(f"cannot read the run's plan in {job}: {fault}. Does its ConfigMap still exist?") from None
    member = _member(environment)
    names = [replica.name for replica in plan.replicas if replica.first_process == member]
    if not names:
        raise PodError(f"the plan has no replica {member!r}")
    replicas = {replica.first_process for replica in plan.replicas}
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
    index = environment.get("PHALANX_POD_INDEX") or environment.get("JOB_COMPLETION_INDEX") or "0"
    if not index.isdigit() or int(index) >= len(members):
        raise PodError(f"this is pod {index!r} of {len(members)}: PHALANX_MEMBERS has no replica for it")
    return members[int(index)]


def facts_of(pod: Pod) -> dict[str, Any]:
    """Values for the placeholders of the plan, as `launcher` takes them."""
    hosts, ports, data = (pod.place.get(key) or {} for key in ("host", "port", "data"))
    host: dict[str, str] = {"*": str(hosts.get("*", "127.0.0.1"))}
    port: dict[str, int] = {}
    for process in pod.plan.replicas:
        name, replica = process.name, process.first_process
        host[name] = str(hosts.get(name) or hosts.get(replica) or host["*"])
        port[name] = int(ports.get(name) or int(ports.get(replica) or ports.get("*") or PORT) + process.local)
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
        "hold_s": pod.place.get("hold_s"),
    }


def _interface() -> str:
    """The network interface of the pod; pods have one."""
    from phalanx.agent.allocation import address_of, interface_of

    try:
        return interface_of(address_of(socket.gethostname()))
    except OSError:
        return ""


def _python(pod: Pod) -> dict[str, Any]:
    """The Python that `prepare` created, if it did."""
    venv = os.path.join(pod.build, "venv")
    if not os.path.exists(os.path.join(pod.build, "done")):
        return launcher.NO_PYTHON
    return {"variables": {"VIRTUAL_ENV": venv}, "path": os.path.join(venv, "bin"), "before": []}


def _client(pod: Pod) -> list[str]:
    client = os.path.join(pod.root, "agent", run_paths.CLIENT_ARCHIVE)
    return [client, os.path.join(client, "phalanx", "tracking", "polyaxon")] if os.path.exists(client) else []


def _gpus(pod: Pod) -> list[str]:
    """The GPUs of the container: numbered from 0, and all its own."""
    amount = pod.plan.by_name[pod.member].amount("gpu")
    return [str(index) for index in range(int(amount.limits or amount.requests or 0))]


# the pod's life ------------------------------------------------------------------------------------------------------


def arrived() -> Pod | None:
    """This pod, with secrets hidden from other processes from here on. None after reporting why it is unknown."""
    try:
        pod = find(dict(os.environ))
    except PodError as fault:
        print(f"phalanx: {fault}", file=sys.stderr, flush=True)
        return None
    for name in os.environ.keys() - pod.environment.keys():
        del os.environ[name]
    return pod


def run() -> int:
    """Run the pod. Returns the exit code of the container."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    hide_environment()
    pod = arrived()
    return MISUSED if pod is None else run_replica(pod).code


def enter(name: str, argv: list[str]) -> int:
    """Run a command beside a process of this pod's replica; see `entry`."""
    pod = arrived()
    return MISUSED if pod is None else enter_here(facts_of(pod), name, argv)


class PodOutcome(NamedTuple):
    """`code`: exit code of the container. `is_end_requested`: whether it was signalled to end."""

    code: int
    is_end_requested: bool


def run_replica(pod: Pod) -> PodOutcome:
    """Run the replica from start to end. The caller has blocked the signals in `WATCHED`."""
    processes.adopt_orphans()
    try:
        for name in pod.names:
            _make(pod.folder(name))
            if _go_on(pod, pod.folder(name)):
                # The others are running and do not wait for this one.
                pod = pod._replace(plan=pod.plan._replace(meets=()))
    except PodError as fault:
        report_end(pod, str(fault), [])
        return PodOutcome(MISUSED, is_end_requested=False)
    life = PodReplica(pod)
    code = life.live()
    return PodOutcome(code, is_end_requested=life.end_requested_at is not None)


def _go_on(pod: Pod, folder: str) -> bool:
    """Whether the kubelet restarted a container of this same pod: then the end of the first container is
    removed."""
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
    """Runs the replica of a pod until everything is delivered."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.output = Output(1)
        self.relay = StdoutCourier(
            pod.replicas, pod.attempt, pod.member, self.output, is_log_alone=pod.courier != "frames"
        )
        self.supervisors: dict[int, Task] = {}
        self.refused: set[str] = set()  # replicas that another agent runs
        self.helper: int | None = None  # the pid of the key-value server
        self.end_requested_at: float | None = None
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
            why = courier.trouble or next(iter(courier.unwanted.values()), "it did not respond in time")
            print(
                f"phalanx: not everything reached the server, so it is sent with the log: {why}",
                file=sys.stderr,
                flush=True,
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
        """Start the processes of the replica. A failure to start is their end."""
        pod = self.pod
        try:
            _make(pod.outputs)
            facts = facts_of(pod)
            tasks = launcher.tasks_of(pod.plan, facts)
            if not os.path.isdir(pod.working):
                raise PodError(f"the working folder {pod.working} does not exist in this pod")
            if not tasks:
                raise PodError("the plan has no command for this replica")
            self.helper = launcher.serve(pod.plan, facts)
            self.supervisors = launcher.launch(tasks)
        except PreflightFailed as fault:
            self._give_up(End(Cause.MEETING, None, None, str(fault)))
        except PodError as fault:
            self._give_up(End(Cause.SETUP, None, None, str(fault)))
        except (OSError, LookupError, TypeError, ValueError) as fault:
            self._give_up(End(Cause.SETUP, None, None, f"cannot start it in this pod: {type(fault).__name__}: {fault}"))

    def _give_up(self, end: End) -> None:
        for name in self.pod.names:
            with open(os.path.join(self.pod.folder(name), run_paths.LOG), "ab") as log:
                log.write(f"phalanx: {end.message}\n".encode())
            launcher.write_failure(self.pod.folder(name), name, self.pod.attempt, end)

    def _attend(self, patience_s: float) -> None:
        """Handle signals, and reap ended children and orphans."""
        caught = signal.sigtimedwait(WATCHED, patience_s)
        received = caught.si_signo if caught is not None else None
        if received in ENDING:
            self.end_requested_at = self.end_requested_at or time.monotonic()
            processes.send(self.supervisors, signal.SIGTERM if received == signal.SIGINT else received)
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
        """Whether Kubernetes will kill the agent soon; polled while waiting for the end."""
        self._attend(0)
        self.relay.turn()
        return (
            self.end_requested_at is not None
            and time.monotonic() > self.end_requested_at + self.pod.grace_s + FAREWELL_S - reserve_s
        )

    def _kill_the_late(self) -> None:
        if self.end_requested_at is not None and time.monotonic() > self.end_requested_at + self.pod.grace_s + LATE_S:
            processes.send((stat.pid for stat in processes.descendants(os.getpid())), signal.SIGKILL)

    def _see_to_ends(self) -> None:
        """Write the ends of replicas whose supervisor could not; but not of those that another pod runs."""
        for name in self.pod.names:
            folder = self.pod.folder(name)
            if read_end(folder):
                continue
            if name in self.refused:
                print(f"phalanx: another pod already runs {name} of this attempt", file=sys.stderr, flush=True)
                continue
            if self.end_requested_at is not None:
                end = End(Cause.STOPPED, None, signal.SIGKILL, "stopped; it did not exit in time and was killed")
            elif processes.kernel_kills_for_memory() > self.kills_before:
                end = End(Cause.MEMORY, None, signal.SIGKILL, "the kernel killed it and its agent for memory")
            else:
                end = End(Cause.LOST, None, None, "its agent was killed")
            launcher.write_failure(folder, name, self.pod.attempt, end)

    def _wait_for_helper(self) -> None:
        """Wait for the key-value server: ranks elsewhere may need it a little longer."""
        until = time.monotonic() + launcher.SERVED_S + 2.0
        while self.helper is not None and self.end_requested_at is None and time.monotonic() < until:
            self._attend(LOOK_S)
            self.relay.turn()

    def _bring_outputs(self) -> None:
        """Deliver small outputs with the log, and report the ones that are lost."""
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
                f"phalanx: {len(stay)} files ({sum(stay) / 2**20:.1f} MiB) of outputs are lost with this pod. To keep "
                "them, set a store in `environment.artifact_refs`, or use a Phalanx server that pods can reach\n"
            )
            with open(os.path.join(pod.folder(pod.member), run_paths.LOG), "ab") as log:
                log.write(text.encode())


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # gone meanwhile


def _outputs(pod: Pod) -> str | None:
    """The folder of outputs; None when they are stored elsewhere and need no delivery."""
    is_ours = os.path.abspath(pod.outputs).startswith(os.path.abspath(pod.run_folder) + os.sep)
    return pod.outputs if is_ours else None


def write_termination_log(pod: Pod, end: End | None = None) -> None:
    """Write the end to the pod's status, in case nothing else is delivered. `end`: if no file has it."""
    path = TERMINATION_LOG if pod.root == ROOT else os.path.join(pod.root, "termination-log")
    ends = {name: read_end(pod.folder(name)) if end is None else end for name in pod.names}
    summaries = {name: _summary_of(found) for name, found in ends.items()}
    while len(json.dumps(summaries)) > MOST_SAID:
        summaries.popitem()
    try:
        with open(path, "w", encoding="utf-8") as stream:
            json.dump({"phalanx": 1, "ends": summaries}, stream)
    except OSError:
        pass  # not every runtime has one


def _summary_of(end: End | None) -> dict[str, Any]:
    keys = ("cause", "code", "signal", "message")
    return dict.fromkeys(keys) if end is None else {key: getattr(end, key) for key in keys}


def exit_code(ends: list[End | None]) -> int:
    """The exit code, as in a shell, of the first process that did not finish."""
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
    """Raises PodError."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        is_ours = os.access(folder, os.W_OK | os.X_OK)
    except OSError as fault:
        raise PodError(f"{folder} cannot be created: {fault.strerror or fault}{permission_hint(fault)}") from None
    if not is_ours:
        raise PodError(f"cannot write to {folder}{permission_hint(PermissionError())}")


def permission_hint(fault: OSError) -> str:
    """Advice for a volume that belongs to another user."""
    if not isinstance(fault, PermissionError):
        return ""
    return (
        f". This pod runs as user {os.getuid()}: allow it to write there, or set `runAsUser` and `fsGroup` in "
        "`environment.kubernetes.pod`"
    )


def forget(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def hide_environment() -> None:
    """Hide the agent's variables, which hold the token, from /proc. Started processes have their own environment."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def _courier(pod: Pod) -> Any:
    from phalanx.agent.server_courier import ServerCourier
    from phalanx.uploads import Uploader

    post = Uploader(pod.server, pod.token)
    return ServerCourier(post, pod.plan.run_id, pod.attempt, pod.run_folder, _outputs(pod))


def report_end(pod: Pod, message: str, lines: list[str]) -> None:
    """Report the end in the output of this container, the only one that runs, and everywhere else ends are read."""
    print(f"phalanx: {pod.member} could not be prepared: {message}", *lines, sep="\n", flush=True)
    end = End(Cause.SETUP, None, None, message)
    try:
        for name in pod.names:
            launcher.write_failure(pod.folder(name), name, pod.attempt, end, lines)
    except OSError:
        pass  # if nothing can be written, the pod's status has it
    write_termination_log(pod, end)
    output = Output(1)
    relay = StdoutCourier(pod.replicas, pod.attempt, pod.member, output)
    if pod.courier == "server":
        _courier(pod).finish()
    if pod.courier != "volume":
        relay.finish(30.0)
    output.release()
