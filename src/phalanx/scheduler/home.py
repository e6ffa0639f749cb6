"""A home: the folder where runs live. A run's folder is the truth of that run; the store is an index over them.

<home>/runs/<id>/  run.json  spec.yml  plan.json  history  stop.json  job/…  code/…  outputs/…
                   replicas/<role>-<index>/attempt-<n>/{log, spool, agent.json, end.json}
<home>/stops/<id>     somebody asked the run to stop
<home>/resumes/<id>   somebody asked a run that is over to go on
<home>/arrivals/<id>  a run that somebody else made; to be adopted
<home>/settling/<id>  a run that is over, whose series and files are to be settled
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from phalanx.backends.attempts import make_private, write_whole
from phalanx.errors import CallError
from phalanx.spool import Reader, Writer
from phalanx.store import DONE, Run, StatusChange
from phalanx.tracking import folders

BALLAST_BYTES = 256 << 10
LEFTOVERS_S = 3600.0  # after which a draft is nobody's work in progress


def default_home() -> Path:
    return Path(folders.default_home())


class Home:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs = path / "runs"
        self.agents = path / "agents"
        self.environments = path / "environments"
        self.stops = path / "stops"
        self.resumes = path / "resumes"
        self.arrivals = path / "arrivals"
        self.settling = path / "settling"
        self.ballast = path / "ballast"
        marks = (self.stops, self.resumes, self.arrivals, self.settling)
        try:
            for folder in (path, self.runs, self.agents, self.environments, *marks):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                    raise PermissionError(errno.EACCES, f"{folder} may not be written")
        except OSError as fault:
            reason = (fault.strerror or str(fault)).lower()
            raise CallError(f"cannot use {path} as home: {reason}; PHALANX_HOME names another") from None

    def run(self, run_id: str) -> RunFolder:
        return RunFolder(self.runs / run_id)

    def run_ids(self) -> list[str]:
        return [entry.name for entry in os.scandir(self.runs) if not entry.name.startswith(".")]

    def add(
        self,
        run: Run,
        files: Mapping[str, bytes],
        environment: Mapping[str, str],
        fill: Callable[[Path], None] | None = None,
    ) -> RunFolder:
        """A new run's folder, there completely or not at all; `fill` may put more into it. Its history is begun: a
        scheduler may adopt and start the run the moment it appears. The submitter's environment is kept apart from
        it, private, and only until the run is over: it may hold secrets. Raises CallError when the disk refuses.
        """
        draft = self.runs / f".{run.id}"
        try:
            self.keep_environment(run.id, environment)
            draft.mkdir(mode=0o700)
            for name, data in {"run.json": encode_run(run), **files}.items():
                make_private((draft / name).parent, draft)
                write_whole(draft / name, data, sync=False)
            if fill is not None:
                fill(draft)
            RunFolder(draft).append(StatusChange(run.id, 1, run.attempt, run.status, run.reason, run.created_at))
            draft.rename(self.runs / run.id)
        except BaseException as fault:
            shutil.rmtree(draft, ignore_errors=True)
            self.forget_environment(run.id)
            if isinstance(fault, OSError):
                reason = (fault.strerror or str(fault)).lower()
                raise CallError(f"the run cannot be kept in {self.runs}: {reason}") from None
            raise
        return self.run(run.id)

    def keep_environment(self, run_id: str, environment: Mapping[str, str]) -> None:
        write_whole(self.environments / f"{run_id}.json", json.dumps(dict(environment)).encode(), sync=False)

    def environment(self, run_id: str) -> dict[str, str]:
        """What the submitter's shell had set; ours when it is gone."""
        try:
            found: dict[str, str] = json.loads((self.environments / f"{run_id}.json").read_bytes())
        except (OSError, ValueError):
            return dict(os.environ)
        return found

    def forget_environment(self, run_id: str) -> None:
        (self.environments / f"{run_id}.json").unlink(missing_ok=True)

    def asked_to_stop(self) -> list[str]:
        """The runs that someone asked to stop and nobody has looked at since."""
        return [entry.name for entry in os.scandir(self.stops)]

    def forget_stop(self, run_id: str) -> None:
        (self.stops / run_id).unlink(missing_ok=True)

    def asked_to_resume(self) -> list[str]:
        """The runs that someone asked to go on, and nobody has looked at since."""
        return [entry.name for entry in os.scandir(self.resumes)]

    def arrived(self) -> list[str]:
        """The runs that somebody else made and nobody has adopted yet."""
        return [entry.name for entry in os.scandir(self.arrivals)]

    def hold_ballast(self) -> None:
        """Some disk of our own, to let go of when there is none left: runs that end for want of disk end on record."""
        try:
            if not self._holds_ballast() and shutil.disk_usage(self.path).free > 2 * BALLAST_BYTES:
                write_whole(self.ballast, bytes(BALLAST_BYTES))
        except OSError:
            pass  # the disk became full meanwhile: then there is nothing to hold

    def drop_ballast(self) -> bool:
        """True when that made room. The emptied file stays: its time says when the disk was full."""
        is_held = self._holds_ballast()
        if is_held:
            os.truncate(self.ballast, 0)
        return is_held

    def _holds_ballast(self) -> bool:
        try:
            return self.ballast.stat().st_size > 0
        except FileNotFoundError:
            return False

    def full_at(self) -> float | None:
        """When the ballast was dropped for want of disk; None while it is held."""
        try:
            state = self.ballast.stat()
        except FileNotFoundError:
            return None
        return None if state.st_size else state.st_mtime

    def tidy(self) -> None:
        """Remove what killed submitters left: drafts of runs, and environments without a run."""
        horizon = time.time() - LEFTOVERS_S
        for path in map(self.runs.joinpath, os.listdir(self.runs)):
            if path.name.startswith(".") and _is_older(path, horizon):
                shutil.rmtree(path, ignore_errors=True)
        for path in map(self.environments.joinpath, os.listdir(self.environments)):
            if _is_older(path, horizon) and not (self.runs / path.name.removesuffix(".json")).exists():
                path.unlink(missing_ok=True)


def _is_older(path: Path, horizon: float) -> bool:
    """What is gone is not: a draft that was just renamed."""
    try:
        return path.stat().st_mtime < horizon
    except FileNotFoundError:
        return False


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def plan_file(self) -> Path:
        return self.path / "plan.json"

    @property
    def stop_file(self) -> Path:
        return self.path / "stop.json"

    def read(self) -> Run | None:
        """The run as it was submitted, with what its history says; None when it cannot be read."""
        try:
            run = decode_run(json.loads((self.path / "run.json").read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        for change in self.history():
            run = run._replace(status=change.status, reason=change.reason, attempt=change.attempt, updated_at=change.at)
        return run

    def history(self) -> list[StatusChange]:
        found: list[StatusChange] = []
        for record in Reader(self.path / "history").poll():
            change = _decode_change(self.path.name, record.data())
            if change.number == len(found) + 1:  # any other was written by two at once: the first one counts
                found.append(change)
        return found

    def append(self, change: StatusChange) -> None:
        """One more line of the history. That a run is over is on the disk itself before anyone is told; the steps
        before it need not outlive the machine, which its processes do not either."""
        writer = Writer(self.path / "history")
        try:
            writer.append_json({**change._asdict(), "run_id": None, "at": change.at.timestamp()})
            if change.status in DONE:
                writer.sync()
        finally:
            writer.close()

    def ask_to_stop(self, reason: str) -> None:
        """Leave word for whoever schedules; the first word counts. The run may be one of thousands that wait, so a
        mark in the home tells which one to look at."""
        if not self.stop_file.exists():
            write_whole(self.stop_file, json.dumps({"reason": reason}).encode())
        (self.path.parent.parent / "stops" / self.path.name).touch(mode=0o600)

    def stop_reason(self) -> str | None:
        try:
            return str(json.loads(self.stop_file.read_bytes())["reason"])
        except (OSError, ValueError, KeyError):
            return None

    def replica_folders(self, attempt: int) -> Iterator[tuple[str, Path]]:
        base = self.path / "replicas"
        for folder in sorted(base.iterdir()) if base.is_dir() else ():
            if (folder / f"attempt-{attempt}").is_dir():
                yield folder.name, folder / f"attempt-{attempt}"


def encode_run(run: Run) -> bytes:
    times = ("created_at", "updated_at", "started_at", "finished_at")
    data: dict[str, Any] = {**run._asdict(), "tags": list(run.tags), "params": dict(run.params), "summary": {}}
    data |= {name: value.timestamp() if (value := data[name]) is not None else None for name in times}
    return json.dumps(data, default=str, indent=1).encode()


def decode_run(data: dict[str, Any]) -> Run:
    for name in ("created_at", "updated_at", "started_at", "finished_at"):
        data[name] = _time(data[name]) if data[name] is not None else None
    return Run(**{**data, "tags": tuple(data["tags"])})


def _decode_change(run_id: str, data: dict[str, Any]) -> StatusChange:
    return StatusChange(**{**data, "run_id": run_id, "at": _time(data["at"])})


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


class Lease:
    """The right to schedule the runs of a home. The kernel takes it back from whoever dies."""

    def __init__(self, home: Home) -> None:
        path = home.path / "scheduler.lock"
        try:
            self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise CallError(f"cannot open {path}: {(fault.strerror or str(fault)).lower()}") from None
        self.held = False

    def take(self) -> bool:
        if not self.held:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            self.held = True
        return True

    def release(self) -> None:
        if self.held:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            self.held = False

    def close(self) -> None:
        os.close(self.descriptor)
