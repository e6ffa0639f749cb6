"""The Slurm engine: submits, observes and cancels jobs with Slurm's commands, as a user on a login node."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any

from phalanx import run_paths
from phalanx.agent.interactive.entry import ENTER
from phalanx.agent.processes import boot_id
from phalanx.atomic_files import read_json, write_atomic
from phalanx.backends.contract import (
    ENDED,
    Engine,
    EngineUnavailable,
    JobDependency,
    JobRejected,
    Observation,
    SubmissionStart,
    TooManyTasks,
    TunnelRequest,
    TunnelStep,
)
from phalanx.backends.slurm import arrays, states
from phalanx.backends.slurm.states import (
    ARRAY_COMMENT,
    PREFIX,
    QUEUE_FORMAT,
    RECORDS_FORMAT,
    Row,
    group_by_job,
    observed,
)
from phalanx.ends import Cause
from phalanx.errors import CallError
from phalanx.home.array_folder import ArrayTask, can_be_listed, read_tasks, write_tasks
from phalanx.home.attempts import AttemptFolder

PATIENCE_S = 60.0  # timeout of a command: a busy controller is slow
KILL_S = 5.0  # for a command that has timed out to end
RECORDS_PATIENCE_S = 20.0
TEST_PATIENCE_S = 10.0
MOST_IDS = 500  # in one call
RECALL_DAYS = 30
TIMED_OUT, NOT_FOUND = (124, 137, -9), 127  # exit codes of `timeout`
USERS = "your machine"
COMMANDS = ("sbatch", "squeue", "scancel")  # required to submit and observe jobs
USUAL_ARRAY = 1001  # Slurm's default of MaxArraySize
_MAX_ARRAY = re.compile(r"^MaxArraySize\s*=\s*(\d+)", re.MULTILINE)


class SlurmEngine(Engine):
    name = "slurm"

    def __init__(self, submit_interval_s: float = 0.0, *, has_node_ssh: bool = True) -> None:
        self.submit_interval_s = submit_interval_s
        self.has_node_ssh = has_node_ssh
        self.cancelled: frozenset[str] = frozenset()  # jobs that this process cancelled: the records add nothing
        self.tables: dict[str, list[tuple[str, int]]] = {}  # of arrays, by folder
        self.most_tasks: int | None = None  # of an array; None until Slurm was asked

    def preflight(self, environment: Mapping[str, str]) -> None:
        """Check only that the commands exist: a controller that is down for a moment is retried."""
        for command in COMMANDS:
            if shutil.which(command, path=environment.get("PATH", os.defpath)) is None:
                raise CallError(
                    f"{_missing(command)}, or render the job with `phalanx plan --on slurm -o job` and submit it there"
                )

    def test_submission(self, script: str, environment: Mapping[str, str]) -> str | None:
        """Ask Slurm whether it would accept a job, without submitting it. Returns None, or why it cannot say so now.
        Raises EngineUnavailable and JobRejected."""
        variables = _outside_of_jobs(environment)
        try:
            _call(["sbatch", "--test-only"], variables, TEST_PATIENCE_S, script)
        except JobRejected as fault:
            if not states.is_for_want_of_nodes(str(fault)):
                raise
            # It says the same of a request that no node can ever hold, and of one whose nodes are down.
            away = states.unavailable_nodes(
                _call(["sinfo", "-h", "-o", states.NODES_FORMAT], variables, TEST_PATIENCE_S)
            )
            if not away:
                raise
            return f"Slurm cannot start the job now ({fault}); unavailable are {away}"
        return None

    def submit(  # noqa: PLR0913
        self,
        folder: Path,
        run_id: str,
        attempt: int,
        first: int,
        *,
        working: Path,
        environment: Mapping[str, str],
    ) -> str:
        return self.submit_after(folder, run_id, attempt, first, working=working, environment=environment, after=())

    def takes_dependencies(self, folder: Path) -> bool:
        """Not if it is heterogeneous: an option of the command line applies to its first component only."""
        return arrays.directives_of((folder / arrays.SCRIPT).read_text(encoding="utf-8")) is not None

    def submit_after(  # noqa: PLR0913
        self,
        folder: Path,
        run_id: str,
        attempt: int,
        first: int,
        *,
        working: Path,
        environment: Mapping[str, str],
        after: Sequence[JobDependency],
    ) -> str:
        output = str(folder / run_paths.JOB).replace("%", "%%") + "/slurm-%j.out"
        command = [
            "sbatch",
            "--parsable",
            f"--job-name={PREFIX}-{run_id}",
            _comment(run_id, attempt),
            f"--chdir={working}",
            f"--output={output}",
            *([f"--dependency={_dependency(after)}", "--kill-on-invalid-dep=no"] if after else ()),
            str(folder / "run.sh"),
            str(folder),
            str(attempt),
            str(first),
        ]
        try:
            return f"{self.name}:{_submitted(command, environment)}"
        except JobRejected as fault:
            if after and states.is_about_dependency(str(fault)):  # Slurm has forgotten a job that the scheduler has not
                raise EngineUnavailable(f"sbatch: {fault}") from None
            raise

    def change_dependencies(self, handle: str, after: Sequence[JobDependency]) -> None:
        try:
            _call(["scontrol", "update", f"JobId={_number(handle)}", f"Dependency={_dependency(after)}"])
        except EngineUnavailable as fault:
            if not states.is_only_over(str(fault).removeprefix("scontrol: ")):
                raise

    def array_key(self, folder: Path, working: Path) -> str | None:
        if not can_be_listed([folder, working]):
            return None
        return arrays.directives_of((folder / "run.sh").read_text(encoding="utf-8"))

    def submit_array(
        self, folder: Path, tasks: Sequence[ArrayTask], at_once: int | None, environment: Mapping[str, str]
    ) -> list[str]:
        if len(tasks) > max(1, self._most_tasks()):
            raise TooManyTasks(f"an array may have {self.most_tasks} tasks")
        directives = self.array_key(tasks[0].folder, tasks[0].working)
        assert directives is not None, "`array_key` is called first"
        write_tasks(folder, tasks)
        write_atomic(folder / arrays.SCRIPT, arrays.array_script(directives, len(tasks)).encode(), sync=False)
        limit = "" if at_once is None else f"%{at_once}"
        command = [
            "sbatch",
            "--parsable",
            f"--job-name={PREFIX}-{folder.name}",
            _array_comment(folder),
            f"--array=0-{len(tasks) - 1}{limit}",
            f"--chdir={folder}",
            f"--output={str(folder).replace('%', '%%')}/%a.out",
            str(folder / arrays.SCRIPT),
            str(folder),
        ]
        try:
            number = _submitted(command, environment)
        except (JobRejected, EngineUnavailable) as fault:
            if len(tasks) > 1 and states.is_too_many(str(fault)):
                raise TooManyTasks(str(fault)) from None
            raise
        return [f"{self.name}:{number}_{task}" for task in range(len(tasks))]

    def _most_tasks(self) -> int:
        if self.most_tasks is None:
            found = _MAX_ARRAY.search(_call(["scontrol", "show", "config"]))
            self.most_tasks = int(found[1]) if found is not None else USUAL_ARRAY
        return self.most_tasks

    def limit_array(self, array: str, at_once: int) -> None:
        """No limit of tasks means none that may start: then the waiting tasks are held."""
        number = _number(array)
        limit = [["update", f"JobId={number}", f"ArrayTaskThrottle={at_once}"], ["release", number]]
        for words in limit if at_once else [["hold", number]]:
            try:
                _call(["scontrol", *words])
            except EngineUnavailable as fault:
                if not states.is_only_over(str(fault).removeprefix("scontrol: ")):
                    raise

    def array_of(self, handle: str) -> str | None:
        return handle.rpartition("_")[0] or None

    def is_submitting(self, run_id: str, attempt: int, start: SubmissionStart) -> bool:
        """sbatch outlives a scheduler that is killed, but not its own timeout, nor its machine."""
        if start.boot == boot_id():
            return _is_in_a_command(_array_comment(start.array) if start.array else _comment(run_id, attempt))
        return 0.0 <= time.time() - start.at < PATIENCE_S + KILL_S

    def observe(self, handles: Collection[str]) -> dict[str, Observation]:
        found = self._queue()
        # Only the records have jobs that left squeue, the user who cancelled a job, and the exact cause of a failure.
        asked = [handle for handle in handles if handle not in found or self._is_unclear(handle, found[handle])]
        self.cancelled = self.cancelled.intersection(found)
        with suppress(EngineUnavailable):  # a site may have no records; squeue's output is valid without them
            found |= self._records(asked) if asked else {}
        return found

    def history(self, run_id: str) -> dict[str, Observation]:
        found = self._queue()
        with suppress(EngineUnavailable):
            since = f"now-{RECALL_DAYS}days"
            words = ["sacct", "-nXP", f"--name={PREFIX}-{run_id}", "-S", since, "-o", RECORDS_FORMAT]
            found = self._observed(states.record_rows(_call(words, patience_s=RECORDS_PATIENCE_S))) | found
        return {handle: seen for handle, seen in found.items() if seen.run_id == run_id}

    def _queue(self) -> dict[str, Observation]:
        variables = {**os.environ, "SLURM_BITSTR_LEN": "0"}  # list all waiting tasks of an array
        command = ["squeue", "-h", "-t", "all", "-u", _user(), "-o", QUEUE_FORMAT]
        return self._observed(states.queue_rows(_call(command, variables)))

    def _is_unclear(self, handle: str, seen: Observation) -> bool:
        is_ours = seen.cause == Cause.STOPPED and handle in self.cancelled
        return seen.state == ENDED and seen.cause in (Cause.STOPPED, Cause.LOST) and not is_ours

    def _records(self, handles: list[str]) -> dict[str, Observation]:
        numbers = ",".join(_number(handle) for handle in handles[:MOST_IDS])
        words = ["sacct", "-nXP", "-j", numbers, "-o", RECORDS_FORMAT]
        rows = states.record_rows(_call(words, patience_s=RECORDS_PATIENCE_S))
        observations = self._observed(rows)
        # Records are delayed: only the states of ended jobs are reliable.
        return {handle: seen for handle, seen in observations.items() if seen.state == ENDED}

    def _observed(self, rows: list[Row]) -> dict[str, Observation]:
        found = {}
        for job, of_one in group_by_job(rows).items():
            seen, array = _named(observed(of_one)), states.array_folder(of_one[0])
            if array is not None:
                run_id, attempt = self._task(array, int(job.partition("_")[2]))
                seen = seen._replace(run_id=run_id, attempt=attempt)
            found[f"{self.name}:{job}"] = seen
        return found

    def _task(self, array: str, number: int) -> tuple[str | None, int]:
        """The run and the attempt of a task; (None, 1) if its table is gone."""
        if array not in self.tables:
            try:
                self.tables[array] = [(task.run_id, task.attempt) for task in read_tasks(Path(array))]
            except (OSError, ValueError):
                return None, 1
        table = self.tables[array]
        return table[number] if number < len(table) else (None, 1)

    def why_restarted(self, handle: str) -> str:
        try:
            words = ["sacct", "-nXPD", "-j", _number(handle), "-o", RECORDS_FORMAT]
            return states.restarted_for(states.record_rows(_call(words, patience_s=RECORDS_PATIENCE_S)))
        except EngineUnavailable:
            return states.restarted_for([])

    def log_of(self, folder: Path, handle: str) -> Path:
        return folder / run_paths.JOB / f"slurm-{_number(handle)}.out"

    def entry(
        self, attempt_folder: AttemptFolder, replica: str, argv: Sequence[str], *, is_terminal: bool
    ) -> list[str]:
        """A step of its own in the job: it shares the resources of the replica, and needs no ssh to the node."""
        agent = _agent_of(attempt_folder, replica)
        if shutil.which("srun") is None:
            raise CallError(_missing("srun"))
        folder = attempt_folder.run_folder
        options = [f"--jobid={agent['job']}", f"--nodelist={agent['node']}", "--overlap", "--nodes=1", "--ntasks=1"]
        if "component" in agent:
            options.append(f"--het-group={agent['component']}")
        options += ["--mem=0", "--mpi=none", "--export=ALL", "--quiet", *(["--pty"] if is_terminal else [])]
        archive = folder / run_paths.JOB / run_paths.AGENT_ARCHIVE
        program = [str(agent["python"]), "-I", "-S", str(archive), str(folder / run_paths.PLAN)]
        return ["srun", *options, *program, str(attempt_folder.facts_file), ENTER, replica, *argv]

    def tunnel(self, attempt_folder: AttemptFolder, replica: str, asked: TunnelRequest) -> list[TunnelStep]:
        """Through the login node. For nodes that accept no ssh, a step of the job connects from its node to the login
        node, where sshd makes a socket that only the user can use."""
        address, port, login, _ = asked
        if self.has_node_ssh and not asked.is_reverse:
            node = f"{login.partition('@')[0]}@{_agent_of(attempt_folder, replica)['node']}"
            return [TunnelStep(USERS, f"ssh -N -J {quote(login)} -L {port}:{quote(address)} {quote(node)}")]
        relay = str(attempt_folder.folder(replica) / run_paths.NOTEBOOK / "relay")
        back = f"ssh -N -o StreamLocalBindUnlink=yes -R {quote(relay)}:{quote(address)} {quote(login)}"
        return [
            TunnelStep("this machine", f"phalanx exec {attempt_folder.run_id} --replica {replica} -- {back}"),
            TunnelStep(USERS, f"ssh -N -L {port}:{quote(relay)} {quote(login)}"),
        ]

    def refine(self, seen: Observation, lines: Collection[str]) -> Observation:
        return states.refine(seen, lines)

    def cancel(self, handles: Collection[str]) -> None:
        numbers = [*map(_number, handles)]
        for first in range(0, len(numbers), MOST_IDS):
            _call(["scancel", "--quiet", *numbers[first : first + MOST_IDS]])
        self.cancelled |= frozenset(handles)


def _agent_of(attempt_folder: AttemptFolder, replica: str) -> dict[str, Any]:
    """What the agent of a replica recorded about itself. Raises CallError."""
    agent = read_json(attempt_folder.folder(replica) / run_paths.AGENT)
    if not isinstance(agent, dict) or not {"job", "node", "python"} <= agent.keys():
        raise CallError(f"{replica} of run {attempt_folder.run_id} has not started yet")
    return agent


def _missing(command: str) -> str:
    return f"`{command}` is not on the PATH of {socket.gethostname()}: run this on a login node of the cluster"


def _submitted(command: list[str], environment: Mapping[str, str]) -> str:
    """The number of the job that `sbatch` submits. Raises EngineUnavailable and JobRejected."""
    answer = _call(command, {**_outside_of_jobs(environment), "PHALANX_FOUND_PYTHON": sys.executable})
    number = answer.strip().splitlines()[-1].partition(";")[0] if answer.strip() else ""
    if not number.isdigit():
        raise EngineUnavailable(f"sbatch did not print a job number: {answer[:200]!r}")
    return number


def _dependency(after: Sequence[JobDependency]) -> str:
    """The value of `--dependency`: all of it must hold."""
    strict = [_number(one.handle) for one in after if one.must_succeed]
    others = [_number(one.handle) for one in after if not one.must_succeed]
    return ",".join(":".join([kind, *found]) for kind, found in (("afterok", strict), ("afterany", others)) if found)


def _array_comment(folder: Path | str) -> str:
    """The option of sbatch by which an array is found again."""
    return f"--comment={ARRAY_COMMENT}{folder}"


def _comment(run_id: str, attempt: int) -> str:
    """The option of sbatch by which the job of an attempt is found again."""
    return f"--comment={PREFIX}:{run_id}:{attempt}"


def _is_in_a_command(word: str) -> bool:
    """Whether a process of this machine has this word in its command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                return True
    return False


def _number(handle: str) -> str:
    return handle.partition(":")[2]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _named(seen: Observation) -> Observation:
    """Replace the id of the user who cancelled a job by the name: Slurm reports only the id."""
    import pwd

    def name(found: re.Match[str]) -> str:
        try:
            return pwd.getpwuid(int(found[1])).pw_name
        except (KeyError, ValueError):
            return f"user {found[1]}"

    return seen._replace(why=re.sub(r"\{user:(\w+)\}", name, seen.why))


def _outside_of_jobs(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables of a surrounding job: sbatch and srun would use them."""
    kept = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
    return {name: value for name, value in environment.items() if not name.startswith("SLURM_") or name in kept}


def _call(
    command: list[str],
    environment: Mapping[str, str] | None = None,
    patience_s: float | None = None,
    script: str = "",
) -> str:
    """The output of a command, with `script` as its input. Its timeout also holds if this process is killed. Raises
    EngineUnavailable and JobRejected."""
    patience_s = PATIENCE_S if patience_s is None else patience_s
    limit = ["timeout", f"--kill-after={KILL_S:g}", f"{patience_s:g}"]
    try:
        done = subprocess.run(
            [*limit, *command],
            env=environment,
            input=script.encode(),
            capture_output=True,
            timeout=patience_s + 2 * KILL_S,
            check=False,
        )
    except FileNotFoundError:
        raise EngineUnavailable("`timeout` is not on the PATH: it belongs to the coreutils") from None
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise EngineUnavailable(f"{command[0]} does not respond: {fault}") from None
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "replace")
    if done.returncode == NOT_FOUND:
        raise EngineUnavailable(f"`{command[0]}` is not on the PATH: is this a login node of the cluster?")
    if done.returncode in TIMED_OUT:
        raise EngineUnavailable(f"{command[0]} does not respond: no answer after {patience_s:g} s")
    said = done.stderr.decode("utf-8", "replace")
    complaint = states.error_of(said)
    if command[0] == "sbatch" and not states.may_pass(said):
        raise JobRejected(complaint)
    raise EngineUnavailable(f"{command[0]}: {complaint}")
