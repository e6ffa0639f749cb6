"""Supervises one replica from start to end.

The command writes to the log file directly: without a pipe in between it is never slowed, and a killed
agent loses nothing. The agent checks the file's size a few times a second and records in the spool when it grew
to which size: the time of a line is derived from this.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import sys
import time
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.agent import preflight, processes
from phalanx.agent.deadlines import CHECKPOINTED, Deadline, TimeLimits, processes_handling
from phalanx.agent.interactive.no_notebook import NoNotebook
from phalanx.agent.left_files import LeftFiles
from phalanx.agent.mlflow.offer import MlflowOffer
from phalanx.agent.preflight import PATIENCE_S
from phalanx.agent.writer_processes import WriterProcesses
from phalanx.ends import Cause, End
from phalanx.spool import Writer
from phalanx.stored_plan import CollectSettings

LOOK_S = 0.2  # how often the size of the log is checked
EARLY_S = 2.0  # how long new processes are looked for that often, too
MEASURE_S = 1.0  # how often the process tree is measured
MEASURE_LIMITED_S = 0.4  # the same with a memory limit
SAMPLE_S = 5.0  # how often usage is recorded
ENDS_KEPT = 60  # last lines of the log in end.json: enough for a traceback
TAIL_BYTES = 16_384
END_RESERVED = 32_768  # bytes of disk reserved at the start, so that the end can be written to a full disk
NO_SPACE = "; the disk of its run was full"
FULL_BYTES = 64 << 10  # with less free disk, the program's own error message may be missing
SAVE_AGAIN_S = 0.5  # until the next request to save, if no process handles the signal
ABORT_S = 2.0  # for a hanging command to print a traceback
HEAR_S = 2.0  # for a signal sent to the whole job to reach the agent, too
COLLECT_S = 600.0  # to copy files of the working folder when the command has ended
COLLECT_HASTILY_S = 5.0  # the same if it was ended by a limit or on request
LISTEN_S = 1.0  # how often requests by file are checked
SERVED_S = 2.0  # for a command that only serves to end by itself, when all that it serves have ended
_TO_END = (signal.SIGTERM, signal.SIGINT)
WATCHED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class NotebookTask(NamedTuple):
    """`page`: the path of its page. Without `port` it listens on a socket."""

    page: str
    port: int | None


class Task(NamedTuple):
    """What the agent needs to know about a replica."""

    name: str
    attempt: int
    folder: str  # of this replica and attempt
    working: str
    argv: list[str]
    environment: dict[str, str]
    is_contained: bool = False  # the command is that of a container runtime
    memory_mib: float | None = None
    limits: TimeLimits = TimeLimits()
    grace_s: float = 10.0
    gpus: list[str] | None = None
    meeting: preflight.PreflightPlan | None = None
    server: preflight.Address | None = None  # must be reachable before it starts
    serves: tuple[str, ...] = ()  # the folders of the replicas whose ends it waits for before it ends
    is_remote: bool = False  # no signals from the scheduler: requests come by file
    shares_signals: bool = False  # the cluster signals the command as well as the agent
    patience_s: float = PATIENCE_S  # timeout for the server
    outputs: str = ""
    collect: CollectSettings | None = None  # None: the working folder is not watched
    siblings: tuple[str, ...] = ()  # the folders of all replicas that share the working folder
    notebook: NotebookTask | None = None  # the command is Jupyter's
    hold_s: float | None = None  # how long it can be entered after a failure
    offers_mlflow: bool = False  # the agent answers the MLflow clients of the command


class ProcessExit(NamedTuple):
    """The kernel's report on a command that ended: the size of its largest process, and its total CPU time."""

    status: int
    at: float
    cpu_s: float
    memory_mib: float


class Supervisor:
    def __init__(self, task: Task) -> None:
        self.task = task
        self.spool = Writer(os.path.join(task.folder, run_paths.SPOOL))
        self.log_path = os.path.join(task.folder, run_paths.LOG)
        self.started_at = time.time()
        self.started = time.monotonic()
        self.meter = processes.UsageMeter()
        self.peak: dict[str, float] = {}
        self.log_size = -1
        self.last_sample = float("-inf")
        self.over_memory = False
        self.is_exposed = False  # a notebook that answers everyone
        self.is_syncing = False
        self.was_full = False  # the disk, at any moment: room that was made later does not help the command
        self.cause: Cause | None = None  # why we ended it ourselves
        self.deadline = Deadline(task.limits)
        self.writers = WriterProcesses(task.environment)
        self.early_until = 0.0
        self.mlflow: MlflowOffer | None = None
        self.notebook = NoNotebook()
        self.served_at: float | None = None  # since when all that it serves have ended
        self.kernel_kills = processes.kernel_kills_for_memory()
        self.left = LeftFiles.of(task.folder, task.working, task.outputs, task.collect, task.siblings)
        self._reserve()

    def _reserve(self) -> None:
        self.end_draft = os.path.join(self.task.folder, run_paths.END_DRAFT)
        descriptor = os.open(self.end_draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, b" " * END_RESERVED)
        except OSError:
            pass  # full already: no reason not to run
        finally:
            os.close(descriptor)

    def run(self) -> End:
        """Start the command and wait until none of its processes is left. Writes end.json once, atomically."""
        signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        processes.adopt_orphans()
        end = self._meet()
        ended_at = time.time()
        if end is None:
            if self.left is not None:
                self.left.begin(os.stat(self.end_draft).st_ctime_ns)
            self.mlflow = _offered(self.task)
            self.notebook = _notebook_of(self.task)
            child = start_command(self.task._replace(argv=[*self.task.argv, *self.notebook.options]), self.log_path)
            self.deadline = Deadline(self.task.limits)  # the time of the preflight does not count
            self._note({"start": child})
            ended = self._watch(child)
            ended_at = ended.at
            self._raise_peak({"cpu_s": ended.cpu_s, "memory_mib": ended.memory_mib})  # peaks between two measurements
            _end_rest()
            end = self._judge(ended.status)
            self.notebook.close(end.code, self._say)
            _collect(self.left, self.task.working, COLLECT_S if self.cause is None else COLLECT_HASTILY_S)
        self._look_at_log()
        _sync_to_the_end(self.task.folder)
        self._write_end(end, ended_at)
        return end

    def _meet(self) -> End | None:
        """Check that all replicas reach each other; the end if they do not."""
        task = self.task
        try:
            if task.meeting is not None:
                preflight.run_preflight(task.meeting, self._say, _is_end_requested)
            if task.server is not None:
                preflight.connect(task.server, task.name, task.patience_s, _is_end_requested, self._say)
        except preflight.PreflightInterrupted:
            return End(Cause.STOPPED, None, None, "stopped before it started")
        except preflight.PreflightFailed as fault:
            self._say(f"phalanx: {fault}")
            return End(Cause.MEETING, None, None, str(fault))
        return None

    def _say(self, text: str) -> None:
        """Write a line of the agent to the replica's log."""
        log = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(log, f"{text}\n".encode())
        except OSError:
            pass
        finally:
            os.close(log)

    def _look_at_servers(self) -> None:
        if self.mlflow is not None:
            self.mlflow.check()
        self.is_exposed = not self.notebook.check(self._say)

    def _watch(self, child: int) -> ProcessExit:
        """Watch the command until it ends."""
        deadline = self.deadline
        kill_at: float | None = None
        measure_at = listen_at = 0.0
        self.early_until = time.monotonic() + EARLY_S
        while True:
            caught = signal.sigtimedwait(WATCHED, LOOK_S)
            received = caught.si_signo if caught is not None else None
            ended = _reap(child)
            if ended is not None:
                if received in _TO_END or _is_end_requested_too(self.task, ended):
                    self.cause = self.cause or Cause.STOPPED
                return ended
            now = time.monotonic()
            is_signalled = received in _TO_END and self.task.shares_signals  # the command must not be signalled twice
            if self.task.is_remote and now >= listen_at:
                listen_at = now + LISTEN_S
                received = received if received in (*_TO_END, signal.SIGQUIT) else self._asked(now)
            if received in _TO_END:
                kill_at = self._ask_to_end(child, Cause.STOPPED, kill_at, is_signalled=is_signalled)
            elif received == signal.SIGQUIT:
                kill_at = self._abort(child, kill_at)
            elif deadline.is_over(now):
                kill_at = self._ask_to_end(child, deadline.cause, kill_at)
            elif deadline.is_time_to_save(now) and not self._request_checkpoint(child):
                deadline.save_at = now + SAVE_AGAIN_S  # the program may not have set its handler yet
            self._look_at_log()
            self._look_at_servers()
            if now >= measure_at:
                measure_at = now + (MEASURE_S if self.task.memory_mib is None else MEASURE_LIMITED_S)
                self._measure(now)
            self._note_early_writers(now)
            if self.over_memory or self.is_exposed:
                self.cause = self.cause or (Cause.MEMORY if self.over_memory else Cause.ERROR)
                kill_at = now
            if kill_at is not None and now >= kill_at:
                _signal_tree(child, signal.SIGKILL)
                kill_at = now + 1.0

    def _asked(self, now: float) -> signal.Signals | None:
        """The signal requested by file: by the scheduler, or because all replicas that it serves have ended."""
        if os.path.exists(os.path.join(self.task.folder, run_paths.ASKED_TO_ABORT)):
            return signal.SIGQUIT
        if os.path.exists(os.path.join(self.task.folder, run_paths.ASKED_TO_END)):
            return signal.SIGTERM
        served = self.task.serves
        if served and all(os.path.exists(os.path.join(folder, run_paths.END)) for folder in served):
            self.served_at = now if self.served_at is None else self.served_at
        is_done = self.served_at is not None and now - self.served_at >= SERVED_S
        return signal.SIGTERM if is_done else None

    def _request_checkpoint(self, child: int) -> bool:
        """Ask the processes that handle the signal to save. False if there are none."""
        tree = processes.descendants(os.getpid())
        if self.task.is_contained:
            tree = processes.in_container(tree, child)
        handling = processes_handling(tree, self.task.limits.signal)
        processes.send(handling, self.task.limits.signal)
        if handling:
            self._note({"checkpoint": len(handling)})
        return bool(handling)

    def _ask_to_end(self, child: int, cause: Cause, kill_at: float | None, *, is_signalled: bool = False) -> float:
        """Send TERM at most once: a second one would interrupt the handling of the first."""
        if kill_at is not None:
            return kill_at
        self.cause = self.cause or cause
        if not is_signalled:
            self._signal(child, signal.SIGTERM)
        return time.monotonic() + self.task.grace_s

    def _abort(self, child: int, kill_at: float | None) -> float:
        """End a hanging command with a signal on which Python prints a traceback, see PYTHONFAULTHANDLER."""
        if kill_at is not None:
            return kill_at
        self.cause = self.cause or Cause.STALLED
        self._signal(child, signal.SIGABRT)
        return time.monotonic() + ABORT_S

    def _signal(self, child: int, number: int) -> None:
        """Signal the command; in a container, not the runtime, which may end first, or pass the signal on again."""
        inside = processes.in_container(processes.descendants(os.getpid()), child) if self.task.is_contained else []
        if inside:
            processes.send((stat.pid for stat in inside), number)
        else:
            _signal_tree(child, number)

    # measuring ---------------------------------------------------------------------------------------------------

    def _measure(self, now: float) -> None:
        tree = processes.descendants(os.getpid())
        self._note_writers(tree, now)
        usage = self.meter.measure(tree)
        if self.left is not None:
            self.left.see(tree, now)
        self._raise_peak(usage._asdict())
        self.was_full |= _is_full(self.task.folder)
        self._sync_what_is_tracked()
        if now - self.last_sample >= SAMPLE_S:
            self.last_sample = now
            sample: dict[str, Any] = {"use": {key: round(value, 3) for key, value in usage._asdict().items()}}
            if self.task.gpus:
                from phalanx.agent.gpus import sample_gpus

                sample["gpus"] = sample_gpus(self.task.gpus)
            self._note(sample)
        limit = self.task.memory_mib
        if limit is not None and usage.memory_mib > limit:
            self._raise_peak({"fair_mib": processes.shared_fairly_mib(tree)})
            self.over_memory = self.peak["fair_mib"] > limit

    def _note_early_writers(self, now: float) -> None:
        """Short trainings start and end between two measurements."""
        if now < self.early_until:
            self._note_writers(processes.descendants(os.getpid()), now)

    def _note_writers(self, tree: list[processes.Stat], now: float) -> None:
        note = self.writers.look(tree, now)
        if note:
            self._note(note)

    def _sync_what_is_tracked(self) -> None:
        """Start syncing once there is tracked data: most replicas never track, and `threading` is slow to import."""
        if not self.is_syncing and _has_tracked(self.task.folder):
            from phalanx.agent.fsync import keep_syncing

            self.is_syncing = True
            keep_syncing(self.task.folder)

    def _raise_peak(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.peak[name] = max(self.peak.get(name, 0.0), float(value))

    def _look_at_log(self) -> None:
        try:
            size = os.stat(self.log_path).st_size
        except OSError:
            return
        if size != self.log_size:
            self.log_size = size
            self._note({"log": size})

    def _note(self, data: dict[str, Any]) -> None:
        """A full disk costs records, not the run."""
        try:
            self.spool.append_json({"at": round(time.time(), 3), **data})
        except OSError as fault:
            self.was_full |= fault.errno in (errno.ENOSPC, errno.EDQUOT)

    # the end -----------------------------------------------------------------------------------------------------

    def _judge(self, status: int) -> End:
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        if self.cause is not None:
            return End(self.cause, code, number, self._why())
        if code == 0:
            return End(Cause.FINISHED, 0, None, "finished")
        if code == CHECKPOINTED and self.task.limits.is_segment:
            if self.deadline.cause == Cause.TIMEOUT:  # no segment follows: the time of the whole run is nearly over
                return End(Cause.TIMEOUT, code, None, f"saved and exited before {self.task.limits.words}")
            return End(Cause.SEGMENT, code, None, "saved and exited for the next segment")
        has_kernel_killed = processes.kernel_kills_for_memory() > self.kernel_kills
        is_killed = number == signal.SIGKILL or code == 128 + signal.SIGKILL  # a shell reports the signal as its code
        if has_kernel_killed and is_killed:
            return End(Cause.MEMORY, None, signal.SIGKILL, "the kernel killed it for memory")
        how = f"exit code {code}" if number is None else f"killed by signal {number} ({_signal_name(number)})"
        if has_kernel_killed:  # a process of its own, or another replica in the same control group
            how += "; the kernel killed a process beside it for memory"
        if self.was_full or _is_full(self.task.folder):
            how += NO_SPACE
        return End(Cause.ERROR, code, number, how)

    def _why(self) -> str:
        if self.cause == Cause.MEMORY:
            asked = self.task.memory_mib or 0.0
            return f"killed at {self.peak.get('fair_mib', 0.0):.0f} of {asked:.0f} MiB"
        if self.cause == Cause.TIMEOUT:
            return f"ended by {self.task.limits.words}"
        if self.cause == Cause.SEGMENT:
            return "ended with its segment"
        return str(self.cause or Cause.STOPPED)

    def _write_end(self, end: End, ended_at: float) -> None:
        """Write into the reserved space, then rename."""
        end = end._replace(
            replica=self.task.name,
            attempt=self.task.attempt,
            started_at=self.started_at,
            ended_at=ended_at,
            host=socket.gethostname(),
            log_bytes=max(self.log_size, 0),
            last_lines=tuple(last_lines(self.log_path)),
            peak={name: round(value, 3) for name, value in self.peak.items()},
        )
        data = json.dumps(end.to_json()).encode()
        while len(data) > END_RESERVED and end.last_lines:  # junk takes up to six bytes for one
            end = end._replace(last_lines=end.last_lines[1:])
            data = json.dumps(end.to_json()).encode()
        descriptor = os.open(self.end_draft, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError("the end was only partly written to disk")
            os.ftruncate(descriptor, len(data))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(self.end_draft, os.path.join(self.task.folder, run_paths.END))


def _collect(left: LeftFiles | None, working: str, within_s: float) -> None:
    """A command that was ended from outside leaves little time; more signals leave none."""
    until = time.monotonic() + within_s

    def is_late() -> bool:
        return time.monotonic() > until or not signal.sigpending().isdisjoint((*_TO_END, signal.SIGQUIT))

    if left is not None:
        try:
            left.finish(is_late)
        except OSError as fault:  # the folder may be gone: that is no reason to lose the end
            print(f"phalanx: cannot collect files of {working}: {fault}", file=sys.stderr)


def _has_tracked(folder: str) -> bool:
    try:
        return any(name.endswith((".points", ".events")) for name in os.listdir(folder))
    except OSError:
        return False  # it was removed: continue to watch the replica


def _sync_to_the_end(folder: str) -> None:
    if _has_tracked(folder):
        from phalanx.agent.fsync import sync, tracked_files

        for path in tracked_files(folder):
            sync(path)


def _offered(task: Task) -> MlflowOffer | None:
    try:
        return MlflowOffer(task.folder, task.environment) if task.offers_mlflow else None
    except OSError:
        return None  # clients do what they do without Phalanx


def _notebook_of(task: Task) -> NoNotebook:
    if task.notebook is None:
        return NoNotebook()
    from phalanx.agent.interactive.notebook import NotebookServer

    return NotebookServer(task.folder, task.environment, *task.notebook)


def last_lines(path: str) -> list[str]:
    """The last lines of a log as clean text: long lines are cut, undecodable bytes replaced."""
    try:
        with open(path, "rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - TAIL_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line[-400:] for line in text.splitlines() if line.strip()][-ENDS_KEPT:]


def _is_full(folder: str) -> bool:
    try:
        state = os.statvfs(folder)
    except OSError:
        return False
    return state.f_bavail * state.f_frsize < FULL_BYTES


def _is_end_requested_too(task: Task, ended: ProcessExit) -> bool:
    """Whether the agent is signalled, too: a cluster signals all processes of a job; the command may exit first."""
    if _is_end_requested():
        return True
    was_signalled = os.WIFSIGNALED(ended.status) and os.WTERMSIG(ended.status) in _TO_END
    return task.shares_signals and was_signalled and signal.sigtimedwait(_TO_END, HEAR_S) is not None


def start_command(task: Task, log_path: str) -> int:
    """Start the command in its own session, with its output in the log. Returns its process id."""
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    child = os.fork()
    if child:
        os.close(log)
        return child
    what = "prepare the command"
    try:
        os.setsid()
        processes.die_with_parent()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.closerange(3, 256)
        what = f"enter the working folder {task.working}"
        os.chdir(task.working)
        what = f"start {task.argv[0]}"
        _become(task.argv, task.environment)
    except OSError as fault:
        os.write(2, f"phalanx: cannot {what}: {fault.strerror or fault}\n".encode())
    finally:
        os._exit(127)


def _signal_tree(child: int, number: int) -> None:
    """Signal the command's process group first, then processes that left it."""
    try:
        os.killpg(child, number)
    except ProcessLookupError:
        processes.send((child,), number)  # it has just been forked, and its group does not exist yet
    except PermissionError:
        pass
    tree = processes.descendants(os.getpid())
    processes.send((stat.pid for stat in tree if stat.pid != child), number)


def _end_rest() -> None:
    """End daemons that outlived the command: TERM once, then KILL until none is left."""
    if not processes.reap_children():
        return  # orphans are children, too
    for number, patience_s in ((signal.SIGTERM, 0.5), (signal.SIGKILL, 5.0)):
        until = time.monotonic() + patience_s
        tree = processes.descendants(os.getpid())
        processes.send((stat.pid for stat in tree), number)
        while processes.reap_children() and time.monotonic() < until:
            signal.sigtimedwait((signal.SIGCHLD,), 0.02)
            if number == signal.SIGKILL:
                processes.send((stat.pid for stat in processes.descendants(os.getpid())), number)


def _become(argv: list[str], environment: dict[str, str]) -> None:
    """Replace this process by the command; never returns. Commands are for bash; small images only have sh."""
    try:
        os.execvpe(argv[0], argv, environment)
    except FileNotFoundError:
        if argv[0] != "bash":
            raise
    os.execvpe("sh", ["sh", *argv[1:]], environment)


def _is_end_requested() -> bool:
    return signal.sigtimedwait((signal.SIGTERM, signal.SIGINT, signal.SIGQUIT), 0) is not None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _reap(child: int) -> ProcessExit | None:
    """The exit of the child if it has ended; also reaps orphans."""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == child:
            return ProcessExit(status, time.time(), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024.0)
        if pid == 0:
            return None
