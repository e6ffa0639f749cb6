"""Which replica failed first, which failed as a consequence, and what to do: from how the replicas ended. Pure.

When one replica of a run dies, the others fail soon after, each with an error about a lost connection. The culprit is
the first that failed for another reason. Frameworks list the errors of a lost peer (their `symptoms`), so that a
replica that exited faster from the loss than the culprit from its fault is not blamed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from phalanx.ends import FAILURES, Cause, End
from phalanx.naming import is_launcher
from phalanx.plan import frameworks
from phalanx.stored_plan import StoredPlan

MOST_LINES = 15
MOST_TEXT = 200  # characters of a line in a reason

_EXCEPTION = re.compile(r"(?:\[rank\d+\]:\s?|\[\d+,\d+\]<stderr>:\s*)*((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:: .*)?)\s*\Z")
_OUR_ERROR = "phalanx: "  # the script of a build says with this which step failed
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s*File "(.+)", line (\d+) in (.+)')
_STACK = "(most recent call first):"
_MPI_RANK = re.compile(r"Process name: \[\[\d+,\d+\],(\d+)\]|mpirun noticed that process rank (\d+) ")
_MPI_TAG = re.compile(r"\[\d+,(\d+)\]<std(?:err|out)>:\s?(.*)")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|<frozen ")

# not the loss of a peer, though it is reported as a network error
_OWN_FAULT = re.compile("EADDRINUSE|[Aa]ddress already in use")
_LIMIT_OF_JOB = "time limit of its job, "  # in the message of an agent on Slurm
_NAMELESS = ("wrapper", "inner", "<module>", "<lambda>", "__call__")  # a decorator's frames carry no information


class ReplicaFailure(NamedTuple):
    """A replica that failed. `log` is the replica whose log shows it: the launcher, where one starts all ranks."""

    replica: str
    rank: int | None
    attempt: int
    at: float
    cause: str
    message: str
    log: str


class FirstFailure(NamedTuple):
    """The replica that failed first, its last lines, and a hint."""

    replica: str
    source: str  # the replica that the end is of: the launcher, where one starts all ranks
    end: End
    why: str
    advice: str
    lines: tuple[str, ...]
    is_symptom: bool  # no replica failed for its own reason
    others: Mapping[str, str]  # how the others ended as a consequence

    @property
    def reason(self) -> str:
        return f"{self.replica}: {self.why}" + (f"; {self.advice}" if self.advice else "")

    def as_fact(self, attempt: int) -> dict[str, Any]:
        return {
            "attempt": attempt,
            "replica": self.replica,
            "cause": str(self.end.cause),
            "why": self.why,
            "advice": self.advice,
            "lines": list(self.lines),
            "consequences": dict(self.others),
        }


def first_failure(plan: StoredPlan, ends: Mapping[str, End], of: Sequence[Cause] = FAILURES) -> FirstFailure | None:
    """None when no replica failed. `of` are the causes that count as a failure."""
    failed = {name: end for name, end in ends.items() if end.cause in of}
    if not failed:
        return None
    symptoms = symptoms_of(plan.wiring)
    suspects = {name: is_symptom(end, symptoms) for name, end in failed.items()}
    first = min(failed, key=lambda name: (suspects[name], failed[name].ended_at, name))
    end = failed[first]
    others = {
        name: _consequence(other, first, end) for name, other in ends.items() if name != first and _followed(other)
    }
    if end.cause == Cause.STOPPED:
        # What was stopped in the same way was stopped together: it is no consequence.
        others = {name: why for name, why in others.items() if ends[name].message != end.message}
    if end.cause == Cause.STALLED:
        return _stall(plan, ends, first)
    name, lines = _launched(plan, first, end)
    why = _why(end, lines)
    advice = _advice(plan, name, end, why)
    if not advice and suspects[first]:
        advice = _lost_whom(ends, first)
    return FirstFailure(name, first, end, why, advice, lines[-MOST_LINES:], suspects[first], others)


def failures(plan: StoredPlan, ends: Mapping[str, End], attempt: int, recorded: object = None) -> list[ReplicaFailure]:
    """All replicas that failed in an attempt: the first failure in front, then the others by time.

    `recorded` is the failure that the scheduler recorded for the run (see `FirstFailure.as_fact`). It decides for its
    attempt, because the scheduler may know more than the ends say, such as that a node failed.
    """
    ranks = {replica.name: replica.rank for replica in plan.replicas}

    def failure(source: str, name: str | None = None, message: str | None = None) -> ReplicaFailure:
        end, replica = ends[source], name or source
        text = message or end.message
        return ReplicaFailure(replica, ranks.get(replica), attempt, end.ended_at, end.cause, text, log=source)

    first = first_failure(plan, ends)
    front = [] if first is None else [failure(first.source, first.replica)]
    if isinstance(recorded, Mapping) and recorded.get("attempt") == attempt:
        name = recorded.get("replica")
        if name in ends and (first is None or first.replica != name):
            front = [failure(str(name), message=str(recorded.get("why") or ""))]
    others = [
        failure(name) for name, end in ends.items() if end.cause in FAILURES and name not in {f.log for f in front}
    ]
    return [*front, *sorted(others, key=lambda other: (other.at, other.replica))]


@lru_cache(maxsize=32)
def symptoms_of(framework: str | None) -> re.Pattern[str]:
    """The framework's patterns for a lost peer. Looked up by name: a plan may come from elsewhere, and a pattern in it
    might run forever."""
    found = frameworks.find(framework) if isinstance(framework, str) else None
    return re.compile("|".join(f"(?:{text})" for text in found.symptoms) if found and found.symptoms else "(?!)")


def is_symptom(end: End, symptoms: re.Pattern[str]) -> bool:
    """Whether its output reports the loss of a peer. A killed replica did not fail from a loss."""
    killed = end.signal not in (None, 6)  # some frameworks abort when they lose another
    if end.cause != Cause.ERROR or killed:
        return False
    said = _last_fault(end.last_lines)
    return any(map(symptoms.search, said)) and not any(map(_OWN_FAULT.search, said))


def _last_fault(lines: Sequence[str]) -> Sequence[str]:
    """The lines from the last traceback on; without a traceback, the last few lines."""
    starts = [place for place, line in enumerate(lines) if _TRACEBACK in line]
    return lines[starts[-1] :] if starts else lines[-MOST_LINES:]


def _lost_whom(ends: Mapping[str, End], first: str) -> str:
    """The verdict for a run in which no replica failed for its own reason."""
    early = sorted(name for name, end in ends.items() if end.cause == Cause.FINISHED)
    if early:
        return f"{', '.join(early[:8])} had already ended: do all ranks take the same number of steps?"
    return f"{first} lost its connection to another replica, but none failed by itself: see what the others were doing"


def _followed(end: End) -> bool:
    return end.cause in (Cause.STOPPED, *FAILURES)


def _consequence(end: End, first: str, cause: End) -> str:
    """The reason for a replica that ended because another one did. `cause`: how that one ended."""
    is_failure = cause.cause not in (Cause.STOPPED, Cause.LOST) or not cause.message
    if end.cause == Cause.STOPPED:
        return f"stopped because {first} failed" if is_failure else f"stopped because of {first}: {cause.message}"
    return f"{end.message}, after {first} {'failed' if is_failure else 'ended'}"


def _why(end: End, lines: Sequence[str]) -> str:
    """How the replica ended, with its error message where one is found."""
    message = end.message or "lost"
    if end.cause != Cause.ERROR:
        return message
    raised = _raised(lines)
    if raised is not None:
        return f"{raised} ({message})"
    if lines and (end.code in (126, 127) or lines[-1].startswith(_OUR_ERROR)):
        return f"{lines[-1].strip().removeprefix(_OUR_ERROR)[:MOST_TEXT]} ({message})"
    return message


def _raised(lines: Sequence[str]) -> str | None:
    """The last exception that Python printed."""
    if not any(_TRACEBACK in line for line in lines):
        return None
    errors = (found[1] for line in reversed(lines) if (found := _EXCEPTION.match(line)))
    return next((text[:MOST_TEXT] for text in errors), None)


def ends_with_exception(lines: Sequence[str]) -> bool:
    """Whether the log ends with an uncaught exception, as far as its lines show."""
    return bool(lines) and _EXCEPTION.match(lines[-1]) is not None and _raised(lines[-MOST_LINES:]) is not None


def _launched(plan: StoredPlan, first: str, end: End) -> tuple[str, tuple[str, ...]]:
    """The rank that mpirun reports as failed, and its own lines, if all ranks share one replica's log."""
    lines = end.last_lines
    if plan.launch == "each":
        return first, lines
    ranks = [found[1] or found[2] for line in lines if (found := _MPI_RANK.search(line))]
    names = {str(replica.rank): replica.name for replica in plan.replicas}
    if not ranks or ranks[0] not in names:
        return first, lines
    own = tuple(found[2] for line in lines if (found := _MPI_TAG.match(line)) and found[1] == ranks[0])
    return names[ranks[0]], own or lines


def _stall(plan: StoredPlan, ends: Mapping[str, End], first: str) -> FirstFailure:
    """All replicas were idle. If many wait at one place, the culprit is the one that is elsewhere."""
    places: dict[StackLocation, list[str]] = {}
    for name, end in ends.items():
        place = whereabouts(end.last_lines) if end.cause == Cause.STALLED else None
        if place is not None and not place.serves:
            places.setdefault(place, []).append(name)
    # The smallest group first; among equal ones, user code before library calls.
    groups = sorted(places.items(), key=lambda group: (len(group[1]), group[0].call))
    suspect = groups[0][1][0] if len(groups) > 1 else first
    positions = "; ".join(f"{', '.join(names)} at {place}" for place, names in groups)
    for name, end in ends.items():
        raised = _raised(_before_stack(end.last_lines)) if end.cause == Cause.STALLED else None
        if raised is not None:
            return _stuck(ends, name, raised)
    gave_up = sorted(
        (end.ended_at, name) for name, end in ends.items() if end.cause == Cause.ERROR and not is_launcher(name)
    )
    if gave_up:
        name = gave_up[0][1]
        quiet = f"{name} gave up waiting: {_why(ends[name], ends[name].last_lines)}"
    else:
        quiet = f"no replica wrote a line or a metric for {plan.stall_timeout_s or 0:g} s"
    if len(groups) > 1 or gave_up:
        advice = f"the others wait for {suspect}: see why it is behind"
    else:
        advice = "all wait at the same place: do they expect another rank, or something outside the run?"
    why = f"stalled: {quiet}" + (f"; {positions}" if positions else "")
    waited = f", waiting for {suspect}" if len(groups) > 1 or gave_up else ""
    others = {
        name: _consequence(end, suspect, ends[suspect]) if end.cause == Cause.STOPPED else f"{end.message}{waited}"
        for name, end in ends.items()
        if name != suspect and _followed(end)
    }
    lines = _stack(ends[suspect])
    return FirstFailure(suspect, suspect, ends[suspect], why, advice, lines, is_symptom=False, others=others)


def _stuck(ends: Mapping[str, End], name: str, raised: str) -> FirstFailure:
    """The replica failed but could not exit, because it waits for the others at exit. MPI ranks do."""
    others = {
        other: _consequence(end, name, ends[name]) for other, end in ends.items() if other != name and _followed(end)
    }
    advice = (
        "it could not exit after that, because it waits for the others (with mpi4py, `python -m mpi4py …` aborts "
        "them all)"
    )
    lines = tuple(_before_stack(ends[name].last_lines)[-MOST_LINES:])
    return FirstFailure(name, name, ends[name], f"{raised} (then stalled)", advice, lines, False, others)


def _before_stack(lines: Sequence[str]) -> Sequence[str]:
    """The lines before the program was terminated."""
    starts = [place for place, line in enumerate(lines) if line.startswith("Fatal Python error:")]
    return lines[: starts[0]] if starts else lines


def _stack(end: End) -> tuple[str, ...]:
    """A program's stack dump, without its list of modules."""
    lines = end.last_lines
    frames = [line for line in lines if _FRAME.match(line) or line.rstrip().endswith(_STACK)]
    return tuple((frames or lines)[-MOST_LINES:])


class StackLocation(NamedTuple):
    """The position of a Python program: the last line of user code, and the library function it called."""

    line: str
    call: str
    serves: bool  # waiting is its normal state: a parameter server, a scheduler

    def __str__(self) -> str:
        return f"{self.line} ({self.call})" if self.call else self.line


def whereabouts(lines: Sequence[str]) -> StackLocation | None:
    """Parsed from the stacks that Python dumped at termination. The last one is the main thread's."""
    starts = [place for place, line in enumerate(lines) if line.rstrip().endswith(_STACK)]
    frames = []
    for line in lines[starts[-1] + 1 if starts else 0 :]:  # a deep stack is cut at its beginning
        found = _FRAME.match(line)
        if found is None:
            break
        frames.append((found[1], found[2], found[3]))
    serves = any("kvstore_server" in file or function == "join" for file, _, function in frames)
    call = ""
    for file, number, function in frames:
        if not _LIBRARY.search(file):
            return StackLocation(f"{file.rpartition('/')[2]}:{number}", call, serves)
        if function not in _NAMELESS:
            call = function
    return StackLocation(f"{frames[0][0].rpartition('/')[2]}:{frames[0][1]}", "", serves) if frames else None


def _advice(plan: StoredPlan, name: str, end: End, why: str) -> str:
    """A hint, where one is known."""
    settings = _settings(plan, name)
    if end.cause == Cause.MEMORY:
        used = end.peak.get("fair_mib") or end.peak.get("memory_mib") or 0.0
        more = f"; try {_rounded(1.25 * used):g} MiB" if used else ""
        return f"request more memory: `{settings}.resources.memory`{more}"
    if end.cause == Cause.SETUP:
        return _advice_of_setup(end)
    if end.cause == Cause.TIMEOUT and _LIMIT_OF_JOB in why:
        return "increase it: `environment.timeout`, or what overrides it (SBATCH_TIMELIMIT, the directive `time`)"
    if end.cause == Cause.TIMEOUT:
        return "increase its time limit: `environment.timeout`"
    for pattern, advice in _KNOWN:
        found = re.search(pattern, why)
        if found:
            return advice.format(*found.groups(), name=name)
    if end.signal == 9:
        return "killed by a user or by the kernel's out-of-memory killer (see `dmesg`)"
    if end.signal in (4, 6, 7, 8, 11):
        return f"it crashed in native code: `phalanx logs --replica {name}` shows its stack"
    return ""


def _advice_of_setup(end: End) -> str:
    """A hint for a node whose setup failed."""
    text = "\n".join(end.last_lines)
    found = re.search(r"No matching distribution found for (\S+)", text)
    if found:
        return f"`phalanx wheels {found[1]}` lists the wheels for this Python: see `environment.python`"
    if re.search(r"NewConnectionError|Temporary failure in name resolution|Network is unreachable", text):
        return "the nodes have no internet access: install from a wheelhouse, `environment.python.wheelhouse`"
    return "see `environment.python` and `build.build_steps`" if text else ""  # the setup never got this far


_KNOWN = (
    (r"ModuleNotFoundError: No module named '([\w.]+)'", "install `{0}` in the Python that {name} runs"),
    (r"ImportError: (?:lib|cannot open shared object)", "load the module, or set the path, that provides this library"),
    (r"(\S+): (?:command )?not found", "`{0}` is not on the PATH of {name}"),
    (r"cannot enter the working folder (.+?): ", "is `{0}` on the machine of {name}, and may its user enter it?"),
    (r"cannot start (\S+):", "`{0}` is not on the PATH of {name}"),
    (r"EADDRINUSE|[Aa]ddress already in use", "another program uses this port: run again to get another one"),
    (r"CUDA out of memory|OutOfMemoryError", "use smaller batches or more GPUs to fit into GPU memory"),
    (r"[Nn]o space (?:is )?left on|ENOSPC", "free disk space, or move PHALANX_HOME to another disk"),
    (
        r"[Tt]imed? ?out.*(?:clients joined|rendezvous|barrier|waiting for)",
        "a rank did not arrive: is the world size equal to the number of replicas?",
    ),
)


def _settings(plan: StoredPlan, name: str) -> str:
    """The section of the file with a replica's request."""
    role = name.rpartition("-")[0]
    if role == "master" or len(plan.replicas) == 1:
        return "environment"
    return f"environment.replicas.default_{'worker' if role == 'worker' else 'ps'}"


def _rounded(mib: float) -> float:
    """Rounded up to the next usual size."""
    step = 64 if mib < 1024 else 256 if mib < 8192 else 1024
    return -(-mib // step) * step
