"""The folder of a run that Phalanx did not start: from a notebook, a plain script or an import.

It looks like that of any other run (`run.json`, `history`, `plan.json` with one replica, `agent.json` of the writer):
the scheduler adopts and watches it like any other. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.atomic_files import read_json, write_atomic
from phalanx.ends import Cause, End
from phalanx.spool import Writer, read

REPLICA = "master-0"
BACKEND = "outside"  # of runs not started by Phalanx
BEAT_S = 10.0  # interval of the heartbeat of a tracked process
PATIENCE_S = 120.0  # longest silence, for observers that cannot check the process
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # 32 characters without lookalikes
_ID_SIGNS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


class Description(NamedTuple):
    """What is known about a run when it starts."""

    project: str = "default"
    name: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    params: Mapping[str, Any] = {}
    user: str | None = None
    source: str = "tracking"  # what made it
    argv: tuple[str, ...] = ()
    group: str | None = None


def new_id() -> str:
    return _id_from(os.urandom(10))


def derived_id(*parts: object) -> str:
    """An id of the same form that is always the same for the same parts."""
    import hashlib

    return _id_from(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:10])


def _id_from(data: bytes) -> str:
    return "".join(_ALPHABET[byte % 32] for byte in data)


def valid_id(text: str) -> str:
    """The id, or one made from it that every home and server accepts: the same text always gives the same id."""
    is_valid = 4 <= len(text) <= 64 and text[0] != "-" and all(sign in _ID_SIGNS for sign in text)
    if is_valid:
        return text
    import hashlib

    plain = "".join(sign if sign in _ID_SIGNS else "-" for sign in text.lower()[:48]).strip("-")
    return f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:10]}".lstrip("-")


def attempt_folder(run_folder: str, replica: str = REPLICA, attempt: int = 1) -> str:
    return os.path.join(run_folder, run_paths.attempt_folder(replica, attempt))


def run_id_of(attempt: str) -> str:
    """The id of the run to which the folder of an attempt belongs."""
    return os.path.basename(os.path.dirname(os.path.dirname(os.path.dirname(attempt)))).partition(".")[0]


def create(  # noqa: PLR0913 - the parts of a run's folder
    home: str,
    about: Description,
    run_id: str | None = None,
    created_at: float | None = None,
    watcher: Mapping[str, Any] | None = None,
    *,
    folder_name: str | None = None,
) -> str:
    """Create a running run and return its folder, atomically. `watcher`: how to check that it is still running; this
    process by default. `folder_name`: if it is not the id. Raises OSError."""
    run_id = run_id or new_id()
    folder_name = folder_name or run_id
    now = time.time() if created_at is None else created_at
    runs = os.path.join(home, "runs")
    arrivals = os.path.join(home, "arrivals")
    for folder in (runs, arrivals):
        make_private(folder)
    draft = os.path.join(runs, f".{folder_name}")
    final = os.path.join(runs, folder_name)
    if os.path.exists(final):
        raise FileExistsError(f"run {run_id} already exists")
    os.mkdir(draft, 0o700)
    try:
        write_json(os.path.join(draft, run_paths.RUN), _run_document(run_id, about, now))
        write_json(os.path.join(draft, run_paths.PLAN), _plan_document(about))
        make_private(attempt_folder(draft))
        os.mkdir(os.path.join(draft, run_paths.OUTPUTS), 0o700)
        write_json(os.path.join(attempt_folder(draft), run_paths.AGENT), dict(watcher or this_process()))
        _append_history(draft, [(1, 0, "created", about.source), (2, 1, "running", "under way")], now)
        os.rename(draft, final)
    finally:
        if os.path.isdir(draft):  # something failed
            import shutil

            shutil.rmtree(draft, ignore_errors=True)
    announce(final)
    return final


def announce(run_folder: str) -> None:
    """Ask the scheduler to read the history of a run."""
    home = os.path.dirname(os.path.dirname(run_folder))
    try:
        touch(os.path.join(home, "arrivals", os.path.basename(run_folder)))
    except OSError:
        pass  # the scheduler finds a new run a little later


def _append_history(run_folder: str, changes: Iterable[tuple[int, int, str, str]], at: float) -> None:
    history = Writer(os.path.join(run_folder, run_paths.HISTORY))
    try:
        for number, attempt, status, reason in changes:
            change = {"number": number, "attempt": attempt, "status": status, "reason": reason, "at": at}
            history.append_json({"run_id": None, **change})
    finally:
        history.close()


def _history(run_folder: str) -> list[dict[str, Any]]:
    """The status changes that count: of several with one number, the first."""
    found: list[dict[str, Any]] = []
    for record in read(os.path.join(run_folder, run_paths.HISTORY)):
        change = record.data()
        if change["number"] == len(found) + 1:
            found.append(change)
    return found


def begin_attempt(run_folder: str, reason: str, watcher: Mapping[str, Any] | None = None) -> int:
    """Continue such a run as its next attempt, also if its process was killed. Returns the number of the attempt.
    Raises OSError, and ValueError if the folder is not that of such a run."""
    with open(os.path.join(run_folder, run_paths.RUN), "rb") as stream:
        if json.load(stream).get("backend") != BACKEND:
            raise ValueError("it was started by Phalanx: continue it with `phalanx resume`")
    while True:
        history = _history(run_folder)
        if not history:
            raise ValueError("its history cannot be read")
        last = int(history[-1]["attempt"])
        attempt = _new_attempt(run_folder, last + 1, dict(watcher or this_process()))
        if last:
            write_end(attempt_folder(run_folder, attempt=last), Cause.LOST, "its process ended without a word", None)
        _forget(os.path.join(run_folder, run_paths.STOP))
        number, now = len(history) + 1, time.time()
        changes = [(number, last, "resuming", reason), (number + 1, attempt, "running", "under way")]
        _append_history(run_folder, changes, now)
        if any(change["attempt"] == attempt for change in _history(run_folder)):  # no other writer was faster
            announce(run_folder)
            return attempt


def _new_attempt(run_folder: str, attempt: int, watcher: Mapping[str, Any]) -> int:
    """A new folder, which no other process uses, and its number."""
    while True:
        folder = attempt_folder(run_folder, attempt=attempt)
        make_private(os.path.dirname(folder))
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            attempt += 1
            continue
        write_json(os.path.join(folder, run_paths.AGENT), watcher)
        return attempt


def _forget(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def is_running_here(run_folder: str) -> bool:
    """Whether the newest attempt is that of a living process of this machine."""
    try:
        folder = attempt_folder(run_folder, attempt=int(_history(run_folder)[-1]["attempt"]))
        watcher = read_json(os.path.join(folder, run_paths.AGENT))
        return not os.path.exists(os.path.join(folder, run_paths.END)) and _is_alive(watcher)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _is_alive(process: Mapping[str, Any]) -> bool:
    """Whether a process that recorded itself lives on this machine. Raises LookupError, TypeError, ValueError."""
    is_here = process["boot"] == _boot_id() and bool(process["pid"])
    return is_here and _started(int(process["pid"])) == process["started"]


def server_of(run_folder: str) -> str | None:
    """The address of the server that runs on this machine over the home of a run."""
    server = read_json(os.path.join(os.path.dirname(os.path.dirname(run_folder)), "server.json"))
    try:
        return str(server["url"]) if _is_alive(server) else None
    except (LookupError, TypeError, ValueError):
        return None


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
        "group": about.group,
        "commit": None,
        "tags": list(about.tags),
        "params": dict(about.params),
        "summary": {},
    }


def _plan_document(about: Description) -> dict[str, Any]:
    """A plan with one replica that uses no resources of the scheduler."""
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
    """The process to check, to know whether the run is still active. On other machines its heartbeat
    counts."""
    return {
        "pid": os.getpid(),
        "started": _started(),
        "boot": _boot_id(),
        "host": os.uname().nodename,
        "patience_s": PATIENCE_S,
        "is_agent": False,
    }


def _started(pid: int | None = None) -> int:
    """When a process, or this one, started, in kernel ticks since boot: pids are reused. 0: it is unknown."""
    try:
        with open(f"/proc/{pid or 'self'}/stat", "rb") as stream:
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
    """Write how the replica of such a run ended: finished, error or stopped. The first end counts. Raises OSError."""
    path = os.path.join(folder, run_paths.END)
    if os.path.exists(path):
        return
    end = End(
        cause,
        None,
        None,
        message,
        replica=REPLICA,
        attempt=run_paths.attempt_number(os.path.basename(folder)) or 1,
        started_at=started_at,
        ended_at=time.time() if at is None else at,
        host=os.uname().nodename,
    )
    write_json(path, end.to_json())


def write_json(path: str, content: Mapping[str, Any]) -> None:
    """Write a private file atomically."""
    write_atomic(path, json.dumps(content, default=str).encode())


def make_private(folder: str) -> None:
    """Create a private folder and its missing parents: `os.makedirs` would leave them open to others."""
    if not os.path.isdir(folder):
        above = os.path.dirname(folder)
        if above not in ("", folder):
            make_private(above)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:  # created concurrently; or not a folder, which the first use reports
            pass


def touch(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.utime(descriptor)  # not by name: the reader of a mark may have removed it already
    finally:
        os.close(descriptor)


def user_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return str(os.getuid())


def parse_tags(values: Iterable[Any]) -> tuple[str, ...]:
    """Tags as users give them: one string with commas, or any number of strings."""
    texts = (str(value) for value in ([values] if isinstance(values, str) else values))
    return tuple(dict.fromkeys(word for text in texts for part in text.split(",") if (word := part.strip())))
