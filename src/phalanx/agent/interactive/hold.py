"""Keeps a replica enterable after its command has failed: `hold` of the file, and `phalanx run --hold`.

The end is written first. Then the agent stays, with a process that has the variables and the folder of the command, so
that `entry` finds them; on a cluster the job stays with it. The scheduler writes beforehand which attempts are held:
those after which no restart follows. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import os
import signal
import time

from phalanx import run_paths
from phalanx.agent import processes
from phalanx.agent.supervisor import WATCHED, Task, start_command
from phalanx.atomic_files import read_json, write_atomic
from phalanx.ends import Cause, End, read_end

CAUSES = (Cause.ERROR, Cause.MEMORY, Cause.STALLED, Cause.MEETING)  # something can be found out at these ends
LOOK_S = 1.0
ALONE_S = 30.0  # for a scheduler to end the other replicas; then the agent that is held asks them to end
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


def write_hold(run_folder: str, attempt: int, hold_s: float | None) -> None:
    """Record for how long an attempt, and those that an engine starts after it, are held. Raises OSError."""
    path = os.path.join(run_folder, run_paths.HOLD)
    if hold_s is not None:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_atomic(path, json.dumps({"attempt": attempt, "hold_s": hold_s}).encode())
    elif os.path.exists(path):
        os.unlink(path)


def read_hold(run_folder: str, attempt: int) -> float | None:
    """For how long an attempt is held after a failure; None if it is not."""
    found = read_json(os.path.join(run_folder, run_paths.HOLD))
    if not isinstance(found, dict) or not isinstance(found.get("attempt"), int) or found["attempt"] > attempt:
        return None
    hold_s = found.get("hold_s")
    return float(hold_s) if isinstance(hold_s, (int, float)) else None


def hold(task: Task, end: End) -> None:
    """Stay until the time is over, or until a signal. Returns at once if there is nothing to hold."""
    if task.hold_s is None or not _is_held(task, end):
        return
    now = time.monotonic()
    until, alone_at = now + task.hold_s, now + ALONE_S
    keeper = start_command(task._replace(argv=["sleep", str(int(task.hold_s) + 60)]), os.devnull)
    while now < until:
        caught = signal.sigtimedwait(WATCHED, min(LOOK_S, until - now))
        if caught is not None and caught.si_signo in _ENDING:
            break
        now = time.monotonic()
        if task.is_remote and now >= alone_at:
            alone_at = float("inf")
            _end_others(task)
    processes.send([keeper], signal.SIGKILL)
    processes.reap_children()


def _is_held(task: Task, end: End) -> bool:
    """It failed, or was ended because another replica failed."""
    if end.cause != Cause.STOPPED:
        return end.cause in CAUSES
    others = (read_end(folder) for folder in task.siblings)
    return any(other is not None and other.cause in CAUSES for other in others)


def _end_others(task: Task) -> None:
    for folder in task.siblings:
        try:
            if not os.path.exists(os.path.join(folder, run_paths.END)):
                with open(os.path.join(folder, run_paths.ASKED_TO_END), "ab"):
                    pass
        except OSError:
            continue  # it has not started: it will not find the others
