"""Parses the output of Slurm's commands, and explains states and reasons in plain words. Pure.

It reads text formats, not JSON: the JSON changes between releases, and has wrong exit codes in some.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from phalanx.backends.contract import ENDED, RUNNING, WAITING, Observation
from phalanx.ends import Cause

PREFIX = "phalanx"
ARRAY_COMMENT = f"{PREFIX}-array:"  # before the folder of an array
QUEUE_FORMAT = "%A|%i|%T|%r|%S|%e|%V|%N|%k|%j"
RECORDS_FORMAT = "JobID,State,ExitCode,DerivedExitCode,Reason,Start,End,NodeList,Comment,JobName"
NODES_FORMAT = "%N|%T|%a"
OUT_OF_MEMORY = "0:125"  # as an exit code
_COMMENT = re.compile(rf"{PREFIX}:([A-Za-z0-9_-]+)(?::(\d+))?\Z")
_NAME = re.compile(rf"{PREFIX}-([A-Za-z0-9_-]+)\Z")
_LISTED = r"\d+(?:-\d+(?::[1-9]\d*)?)?"
_IDENT = re.compile(
    rf"(?P<job>\d+)(?:\+(?P<component>\d+)|_(?P<task>\d+)|_\[(?P<listed>{_LISTED}(?:,{_LISTED})*)(?:%\d+)?\])?",
    re.ASCII,
)
MOST_TASKS = 4_000_000  # the highest number of a task that Slurm can be configured for
_MEMORY = re.compile(r"xceeded (?:job )?memory limit|oom_kill event|oom-kill event|out-of-memory handler")
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING", "RESV_DEL_HOLD"}
_RUNNING = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
_CAUSES = {
    "COMPLETED": (Cause.FINISHED, "finished"),
    "FAILED": (Cause.LOST, "the job failed"),
    "CANCELLED": (Cause.STOPPED, "the job was cancelled"),
    "TIMEOUT": (Cause.TIMEOUT, "ended by the time limit of its job"),
    "DEADLINE": (Cause.TIMEOUT, "ended by the deadline of its job"),
    "OUT_OF_MEMORY": (Cause.MEMORY, "killed by Slurm for memory"),
    "NODE_FAIL": (Cause.LOST, "its node failed"),
    "BOOT_FAIL": (Cause.LOST, "its node could not be started"),
    "PREEMPTED": (Cause.LOST, "preempted by a job of higher priority"),
    "REVOKED": (Cause.LOST, "the job was revoked"),
}
_RESTARTS = {
    "NODE_FAIL": "a node failed, and Slurm restarts the job",
    "BOOT_FAIL": "a node could not be started, and Slurm restarts the job",
    "PREEMPTED": "preempted by a job of higher priority, and restarted",
    "REQUEUED": "requeued by a user",
}
_REASONS = {
    "None": "Slurm has not considered it yet",
    "Priority": "jobs of higher priority come first",
    "Resources": "it is next, and waits for enough free nodes",
    "BeginTime": "its begin time has not been reached",
    "Dependency": "another job must end first",
    "DependencyNeverSatisfied": "the job that it depends on failed: it will never start",
    "JobHeldUser": "it is held by its user: `scontrol release` releases it",
    "JobHeldAdmin": "it is held by an administrator: ask the site",
    "JobHoldMaxRequeue": "it was requeued too often, and is held",
    "AssocMaxJobsLimit": "you run as many jobs as the account allows",
    "AssocMaxSubmitJobLimit": "you have submitted as many jobs as the account allows",
    "MaxJobsPerAccount": "the account has reached its limit of running jobs",
    "MaxCpuPerAccount": "the account has reached its limit of CPUs",
    "MaxGRESPerAccount": "the account has reached its limit of GPUs",
    "QOSMaxJobsPerUserLimit": "you run as many jobs as this quality of service allows",
    "QOSMaxCpuPerUserLimit": "you use as many CPUs as this quality of service allows",
    "QOSMaxGRESPerUser": "you use as many GPUs as this quality of service allows",
    "QOSMaxMemoryPerUser": "you use as much memory as this quality of service allows",
    "QOSMaxWallDurationPerJobLimit": "it requests more time than the quality of service allows: it will never start",
    "QOSGrpCpuLimit": "the users of this quality of service have reached their limit of CPUs",
    "QOSGrpGRES": "the users of this quality of service have reached their limit of GPUs",
    "QOSNotAllowed": "the account may not use this quality of service: it will never start",
    "AssocGrpCpuLimit": "the account has reached its limit of CPUs",
    "AssocGrpGRES": "the account has reached its limit of GPUs",
    "AssocGrpCPUMinutesLimit": "the account has used up its CPU time",
    "AssocGrpCPURunMinutesLimit": "the account has reserved too much CPU time for running jobs",
    "AssocGrpGRESMinutes": "the account has used up its GPU time",
    "PartitionNodeLimit": "it requests more nodes than the partition allows: it will never start",
    "PartitionTimeLimit": "it requests more time than the partition allows: it will never start",
    "PartitionConfig": "it exceeds what the partition allows or has (time, nodes, CPUs, memory): it will never start",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "ReqNodeNotAvail": "a node that it needs is not available, or reserved for maintenance",
    "NodeDown": "a node that it needs is down",
    "BadConstraints": "no node matches its request: it will never start",
    "Reservation": "its reservation has not begun",
    "Licenses": "it waits for a licence",
    "Prolog": "its nodes are being prepared",
    "Cleaning": "its previous start is being cleaned up",
    "InvalidAccount": "the account does not exist: it will never start",
    "InvalidQOS": "the quality of service does not exist: it will never start",
    "AccountNotAllowed": "the account may not use this partition: it will never start",
    "NonZeroExitCode": "it ended with an error",
    "launch_failed_requeued_held": "it could not be started, and is held",
    "JobArrayTaskLimit": "the array has reached its limit of running tasks",
}
_USABLE = re.compile(r"(?:idle|mixed|allocated|completing|planned)[~#%$@+^-]?\Z")
# Transient errors: the same call may work later. All other errors of sbatch are permanent.
_PASSING = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Zero Bytes were transmitted|Connection refused|"
    r"Unexpected message received|temporarily unavailable|Transport endpoint|Communication connection failure|"
    r"AssocMaxSubmitJobLimit|QOSMaxSubmitJobPerUserLimit|MaxSubmitJobs|"
    r"Slurm temporarily unable to accept job|Resource temporarily|Message receive failure|"
    r"authentication|Munge|slurm_persist_conn|Insane message|"
    r"Could not establish a configuration source|Unable to process configuration file",
    re.IGNORECASE,
)
_OVER = re.compile(r"No error|Invalid job id|already (?:finished|completing)|no longer pending")
_TOO_MANY = re.compile(
    r"Invalid job array specification|SubmitJob|Slurm temporarily unable to accept job|Resource temporarily"
    r"|Job violates accounting/QOS policy",
    re.IGNORECASE,
)


class Row(NamedTuple):
    """A line about a job. `job` is the number of the whole job: for a heterogeneous one, of its first component; for a
    task of an array, that of the array and that of the task, such as `12_7`."""

    job: str
    component: int
    state: str
    nodes: str
    reason: str
    starts_at: str
    exit_code: str
    of_steps: str  # the exit code of the worst of its steps
    name: str
    comment: str


def queue_rows(text: str) -> list[Row]:
    """Parse `squeue -h -o QUEUE_FORMAT`. Only names and comments can contain `|`, and those of Phalanx do not."""
    rows: list[Row] = []
    for line in text.splitlines():
        parts = [*line.split("|"), ""]
        if len(parts) < 10:
            continue
        number, ident, state, reason, starts_at, _, _, nodes, comment, name = parts[:10]
        ident = ident if "+" in ident or "_" in ident else number
        rows += _rows(ident, state, nodes, reason, starts_at, "", "", name, comment)
    return rows


def record_rows(text: str) -> list[Row]:
    """Parse `sacct -nXP -o RECORDS_FORMAT`. With `-D`, a restarted job has a row for each start."""
    rows: list[Row] = []
    for line in text.splitlines():
        parts = [*line.split("|"), ""]
        if len(parts) < 10:
            continue
        ident, state, exit_code, of_steps, reason, _, _, nodes, comment, name = parts[:10]
        rows += _rows(ident, state, nodes, reason, "", exit_code, of_steps, name, comment)
    return rows


def _rows(ident: str, *rest: str) -> Iterator[Row]:
    """The row of a job, or of each task of `12_[3,5-9%2]`: tasks that were never started share a line."""
    found = _IDENT.fullmatch(ident)
    if found is None:
        return
    number, component, task, listed = found.group("job", "component", "task", "listed")
    if listed is not None:
        for one in tasks_of(listed):
            yield Row(f"{number}_{one}", 0, *rest)
    else:
        yield Row(number if task is None else f"{number}_{task}", int(component or 0), *rest)


def tasks_of(listed: str) -> Iterator[int]:
    """The numbers in `3,5-9` or `0-20:4`."""
    for part in listed.split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        yield from range(int(low), min(int(high or low), MOST_TASKS) + 1, int(step or 1))


def observed(rows: list[Row]) -> Observation:
    """The state of a job, from the rows of its components: the state of the first, the nodes of all."""
    first = min(rows, key=lambda row: row.component)
    state = first.state.split(" ")[0].rstrip("+")
    nodes = ",".join(row.nodes for row in rows if row.nodes and row.nodes != "None assigned")
    run_id, attempt = owner(first)
    known = {"nodes": nodes, "run_id": run_id, "attempt": attempt}
    if state in _WAITING:
        starts_at = "" if first.starts_at in ("N/A", "Unknown", "") else first.starts_at
        reasons = [row.reason for row in rows if row.reason not in ("None", "")]
        return Observation(WAITING, waiting_for(reasons[0] if reasons else "None"), starts_at=starts_at, **known)  # type: ignore[arg-type]
    if state in _RUNNING or state not in _CAUSES:  # an unknown state does not count as ended
        return Observation(RUNNING, "suspended" if state == "SUSPENDED" else "", **known)  # type: ignore[arg-type]
    if state == "FAILED" and any(row.of_steps == OUT_OF_MEMORY for row in rows):
        state = "OUT_OF_MEMORY"  # a step ran out of memory, and the job failed because of it
    cause, words = _CAUSES[state]
    if state == "FAILED" and first.exit_code not in ("", "0:0"):
        words = f"{words} ({_exit_words(first.exit_code)})"
    if state == "NODE_FAIL" and nodes:
        words = f"one of {nodes} failed" if "," in nodes or "[" in nodes else f"{nodes} failed"
    if state == "CANCELLED" and " by " in first.state:
        words = f"{words} by {{user:{first.state.rpartition(' ')[2]}}}"
    return Observation(ENDED, words, cause, **known)  # type: ignore[arg-type]


def refine(seen: Observation, lines: Iterable[str]) -> Observation:
    """Improve an observation by the output of the job: its state does not show that a step was killed for memory."""
    if seen.state == ENDED and seen.cause == Cause.LOST and any(map(_MEMORY.search, lines)):
        return seen._replace(cause=Cause.MEMORY, why=_CAUSES["OUT_OF_MEMORY"][1])
    return seen


def owner(row: Row) -> tuple[str | None, int]:
    """The run that a job belongs to, and the attempt of its first start."""
    if "_" in row.job:
        return None, 1  # its name and comment are those of the array
    found = _COMMENT.match(row.comment)
    if found is not None:
        return found[1], int(found[2] or 1)
    named = _NAME.match(row.name)  # a site may overwrite comments
    return (named[1], 1) if named is not None else (None, 1)


def array_folder(row: Row) -> str | None:
    """The folder of the array of Phalanx that a task belongs to."""
    if "_" in row.job and row.comment.startswith(ARRAY_COMMENT):
        return row.comment.removeprefix(ARRAY_COMMENT)
    return None


def group_by_job(rows: list[Row]) -> dict[str, list[Row]]:
    jobs: dict[str, list[Row]] = {}
    for row in rows:
        jobs.setdefault(row.job, []).append(row)
    return jobs


def waiting_for(reason: str) -> str:
    """A reason code of Slurm in plain words."""
    code = reason.strip("()").partition(",")[0].strip()
    if code.startswith("Nodes required"):
        return "the nodes that it needs are down, drained or reserved"
    if code not in _REASONS and "_" in code:
        code = code.partition("_")[0]
    words = _REASONS.get(code)
    named = f" ({code})" if code != "None" else ""
    return f"{words}{named}" if words is not None else reason or "Slurm gives no reason"


def restarted_for(rows: list[Row]) -> str:
    """Why a job was restarted, from the records of its earlier starts, oldest first."""
    for row in reversed(rows):
        words = _RESTARTS.get(row.state.split(" ")[0])
        if words is not None:
            at = f" (one of {row.nodes})" if row.state.startswith("NODE_FAIL") and row.nodes else ""
            return f"{words}{at}"
    return "Slurm restarts the job"


def may_pass(complaint: str) -> bool:
    """Whether the error of a command may be transient."""
    return _PASSING.search(complaint) is not None


def is_too_many(complaint: str) -> bool:
    """Whether fewer tasks of an array might be accepted."""
    return _TOO_MANY.search(complaint) is not None


def is_about_dependency(complaint: str) -> bool:
    """Whether a job was rejected because of the jobs that it depends on."""
    return "dependency problem" in complaint.lower()


def is_only_over(complaint: str) -> bool:
    """Whether a job was changed, or has started or ended. An array may be changed except for tasks that have ended:
    `2_0: Job has already finished; 2_1-11: No error`."""
    return all(map(_OVER.search, complaint.split(";")))


def is_for_want_of_nodes(complaint: str) -> bool:
    return "node configuration is not available" in complaint


def unavailable_nodes(text: str) -> str:
    """The nodes that take no jobs now, from `sinfo -h -o NODES_FORMAT`; empty if all do."""
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 2]
    return ", ".join(dict.fromkeys(nodes for nodes, state, is_up in rows if is_up != "up" or not _USABLE.match(state)))


def error_of(text: str) -> str:
    """The error message of a command, without its name."""
    lines = [
        re.sub(r"^(?:\w+: (?:error: |fatal: )?|allocation failure: )", "", line).strip()
        for line in text.splitlines()
        if line.strip()
    ]
    return "; ".join(dict.fromkeys(lines))[:400] or "no error message"


def _exit_words(code: str) -> str:
    status, _, number = code.partition(":")
    return f"signal {number}" if number not in ("", "0") else f"exit code {status}"
