"""The folder of a run that Phalanx did not start: a notebook's, a plain script's, an imported one.

It looks like any other run's (`run.json`, `history`, `plan.json` with one replica, `agent.json` of whoever writes it):
whoever schedules adopts it and watches it like any other. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.atomic_files import write_atomic
from phalanx.ends import Cause, End
from phalanx.spool import Writer

REPLICA = "master-0"
BACKEND = "outside"  # of runs that somebody else started
BEAT_S = 10.0  # how often a process that we track says that it is there
PATIENCE_S = 120.0  # how long it may say nothing, for those who cannot see it otherwise
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # 32 of them, none that is taken for another


class Description(NamedTuple):
    """What is known of a run when it begins."""

    project: str = "default"
    name: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    params: Mapping[str, Any] = {}
    user: str | None = None
    source: str = "tracking"  # what made it
    argv: tuple[str, ...] = ()


def new_id() -> str:
    return "".join(_ALPHABET[byte % 32] for byte in os.urandom(10))


def default_home() -> str:
    named = os.environ.get("PHALANX_HOME")
    return os.path.abspath(os.path.expanduser(named)) if named else os.path.expanduser("~/.phalanx")


def attempt_folder(run_folder: str, replica: str = REPLICA, attempt: int = 1) -> str:
    return os.path.join(run_folder, run_paths.attempt_folder(replica, attempt))


def create(
    home: str,
    about: Description,
    run_id: str | None = None,
    created_at: float | None = None,
    watcher: Mapping[str, Any] | None = None,
) -> str:
    """A new run, under way: its folder, there completely or not at all. `watcher`: how to see whether it still is; this
    process, unless told. Raises OSError."""
    run_id = run_id or new_id()
    now = time.time() if created_at is None else created_at
    runs = os.path.join(home, "runs")
    arrivals = os.path.join(home, "arrivals")
    for folder in (runs, arrivals):
        make_private(folder)
    draft = os.path.join(runs, f".{run_id}")
    final = os.path.join(runs, run_id)
    if os.path.exists(final):
        raise FileExistsError(f"there is a run {run_id} already")
    os.mkdir(draft, 0o700)
    try:
        write_json(os.path.join(draft, run_paths.RUN), _run_document(run_id, about, now))
        write_json(os.path.join(draft, run_paths.PLAN), _plan_document(about))
        make_private(attempt_folder(draft))
        os.mkdir(os.path.join(draft, run_paths.OUTPUTS), 0o700)
        write_json(os.path.join(attempt_folder(draft), run_paths.AGENT), dict(watcher or this_process()))
        history = Writer(os.path.join(draft, run_paths.HISTORY))
        try:
            for number, status, reason in ((1, "created", about.source), (2, "running", "under way")):
                change = {"number": number, "attempt": number - 1, "status": status, "reason": reason, "at": now}
                history.append_json({"run_id": None, **change})
        finally:
            history.close()
        os.rename(draft, final)
    finally:
        if os.path.isdir(draft):  # something failed
            import shutil

            shutil.rmtree(draft, ignore_errors=True)
    try:
        touch(os.path.join(arrivals, run_id))
    except OSError:
        pass  # it is found all the same, a little later
    return final


def _run_document(run_id: str, about: Description, now: float) -> dict[str, Any]:
    return {
        "id": run_id,
        "project": about.project,
        "kind": "experiment",
        "name": about.name,
        "description": about.description,
        "framework": None,
        "backend": BACKEND,
        "user": about.user or user_name(),
        "status": "created",
        "reason": about.source,
        "attempt": 0,
        "priority": 0,
        "created_at": now,
        "updated_at": now,
        "started_at": None,
        "finished_at": None,
        "original": None,
        "cloning": None,
        "group": None,
        "commit": None,
        "tags": list(about.tags),
        "params": dict(about.params),
        "summary": {},
    }


def _plan_document(about: Description) -> dict[str, Any]:
    """One replica that takes nothing of what the scheduler has to give."""
    role, _, index = REPLICA.rpartition("-")
    replica = {
        "role": role,
        "index": int(index),
        "rank": 0,
        "argv": list(about.argv) or [about.source],
        "resources": {"cpu": {"limits": 0}},
    }
    replica.update({"environment": {}, "defaults": {}})
    return {"roles": {role: 1}, "environment": {}, "replicas": [replica]}


def this_process() -> dict[str, Any]:
    """Who is to be looked at, to know whether the run is still under way. Elsewhere than on this machine its signs of
    life count."""
    return {
        "pid": os.getpid(),
        "started": _started(),
        "boot": _boot_id(),
        "host": os.uname().nodename,
        "patience_s": PATIENCE_S,
        "is_agent": False,
    }


def _started() -> int:
    """When this process began, in the kernel's count since the machine did: numbers of processes are used again."""
    try:
        with open("/proc/self/stat", "rb") as stream:
            return int(stream.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return "unknown"


def write_end(folder: str, cause: Cause, message: str, started_at: float | None, at: float | None = None) -> None:
    """How the one replica of such a run ended: finished, error or stopped. The first word counts. Raises OSError."""
    path = os.path.join(folder, run_paths.END)
    if os.path.exists(path):
        return
    end = End(
        cause,
        None,
        None,
        message,
        replica=REPLICA,
        started_at=started_at,
        ended_at=time.time() if at is None else at,
        host=os.uname().nodename,
    )
    write_json(path, end.to_json())


def write_json(path: str, content: Mapping[str, Any]) -> None:
    """A private file that is there completely or not at all."""
    write_atomic(path, json.dumps(content, default=str).encode())


def make_private(folder: str) -> None:
    """A folder and those above it that are missing: `os.makedirs` would leave them open to others."""
    if not os.path.isdir(folder):
        above = os.path.dirname(folder)
        if above not in ("", folder):
            make_private(above)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:  # another was faster; or it is no folder, which whoever uses it will hear
            pass


def touch(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.utime(descriptor)  # not by its name: whoever waits for a mark may have taken it away already
    finally:
        os.close(descriptor)


def user_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid())


def parse_tags(values: Iterable[Any]) -> tuple[str, ...]:
    """Tags as people give them: one text with commas, or any number of them."""
    texts = (str(value) for value in ([values] if isinstance(values, str) else values))
    return tuple(dict.fromkeys(word for text in texts for part in text.split(",") if (word := part.strip())))
