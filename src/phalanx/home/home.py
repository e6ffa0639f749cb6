"""A home: the folder of all runs. A run's folder is the truth of that run; the store is an index over them.

<home>/runs/<id>/  run.json  spec.yml  plan.json  history  stop.json  job/…  code/…  outputs/…
                   replicas/<role>-<index>/attempt-<n>/{log, spool, agent.json, end.json}
<home>/stops/<id>     a request to stop the run
<home>/resumes/<id>   a request to resume a run that has ended
<home>/arrivals/<id>  a run that another process created; to be adopted
<home>/settling/<id>  a run that has ended, whose series and files are still to be processed
<home>/arrays/<id>/   an array of an engine: which attempts of which runs its tasks are
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from phalanx import run_paths
from phalanx.atomic_files import make_private, share_file, write_atomic, write_plain
from phalanx.errors import disk_fault, path_error
from phalanx.home.run_folder import RunFolder, encode_run
from phalanx.store import Run, StatusChange
from phalanx.tracking import user_settings

BALLAST_BYTES = 256 << 10
LEFTOVERS_S = 3600.0  # seconds after which a draft is abandoned


def default_home() -> Path:
    return Path(user_settings.default_home())


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
        self.arrays = path / "arrays"
        self.ballast = path / "ballast"
        marks = (self.stops, self.resumes, self.arrivals, self.settling)
        try:
            for folder in (path, self.runs, self.agents, self.environments, *marks):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                    raise PermissionError(errno.EACCES, f"{folder} is not writable")
        except OSError as fault:
            raise path_error(f"cannot use {path} as home", fault, "set PHALANX_HOME to another folder") from None

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
        then: Iterable[StatusChange] = (),
    ) -> RunFolder:
        """A new run's folder, there completely or not at all; see `draft`. Raises SystemFault when the disk refuses."""
        return self.draft(run, files, lambda: self.keep_environment(run.id, environment), fill, then).publish()

    def draft(
        self,
        run: Run,
        files: Mapping[str, bytes],
        keep_environment: Callable[[], None],
        fill: Callable[[Path], None] | None = None,
        then: Iterable[StatusChange] = (),
    ) -> RunDraft:
        """Write a new run's folder under a hidden name; `fill` may put more into it. Its history is begun, with the
        statuses of `then` after the first: a scheduler may adopt and start the run the moment it appears.
        `keep_environment` keeps the submitter's environment, apart from the folder, private, and only until the run is
        over: it may hold secrets. Raises SystemFault when the disk refuses."""
        draft = RunDraft(self, run)
        try:
            with ExitStack() as undo:
                undo.callback(draft.discard)
                keep_environment()
                draft.path.mkdir(mode=0o700)
                for name, data in {run_paths.RUN: encode_run(run), **files}.items():
                    if "/" in name:
                        make_private((draft.path / name).parent, draft.path)
                    write_plain(draft.path / name, data)
                if fill is not None:
                    fill(draft.path)
                first = StatusChange(run.id, 1, run.attempt, run.status, run.reason, run.created_at)
                for change in (first, *then):
                    RunFolder(draft.path).append(change)
                undo.pop_all()
        except OSError as fault:
            raise disk_fault(f"the run cannot be kept in {self.runs}", fault) from None
        return draft

    def keep_environment(self, run_id: str, environment: Mapping[str, str]) -> None:
        write_atomic(self.environments / f"{run_id}.json", json.dumps(dict(environment)).encode(), sync=False)

    def share_environment(self, run_id: str, other: str) -> None:
        """Keep the same environment for another run."""
        share_file(self.environments / f"{run_id}.json", self.environments / f"{other}.json")

    def environment(self, run_id: str) -> dict[str, str]:
        """The submitter's environment; ours when it is gone."""
        try:
            found: dict[str, str] = json.loads((self.environments / f"{run_id}.json").read_bytes())
        except (OSError, ValueError):
            return dict(os.environ)
        return found

    def forget_environment(self, run_id: str) -> None:
        (self.environments / f"{run_id}.json").unlink(missing_ok=True)

    def asked_to_stop(self) -> list[str]:
        """The runs with an unprocessed request to stop."""
        return [entry.name for entry in os.scandir(self.stops)]

    def forget_stop(self, run_id: str) -> None:
        (self.stops / run_id).unlink(missing_ok=True)

    def asked_to_resume(self) -> list[str]:
        """The runs with an unprocessed request to resume."""
        return [entry.name for entry in os.scandir(self.resumes)]

    def arrived(self) -> list[str]:
        """The runs that another process created and that are not adopted yet."""
        return [entry.name for entry in os.scandir(self.arrivals)]

    def reserve_disk(self) -> None:
        """Reserve some disk space, to be released when the disk is full, so that runs that fail for lack of disk are
        still recorded."""
        try:
            disk = os.statvfs(self.path)
            if not self._holds_ballast() and disk.f_bavail * disk.f_frsize > 2 * BALLAST_BYTES:
                write_atomic(self.ballast, bytes(BALLAST_BYTES))
        except OSError:
            pass  # the disk filled up meanwhile: there is nothing to reserve

    def release_disk(self) -> bool:
        """True when that freed space. The emptied file stays: its time shows when the disk was full."""
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
        """When the ballast was released because the disk was full; None while it is held."""
        try:
            state = self.ballast.stat()
        except FileNotFoundError:
            return None
        return None if state.st_size else state.st_mtime

    def tidy(self) -> None:
        """Remove what killed submitters left: drafts of runs, and environments without a run."""
        import shutil

        horizon = time.time() - LEFTOVERS_S
        for path in map(self.runs.joinpath, os.listdir(self.runs)):
            if path.name.startswith(".") and _is_older(path, horizon):
                shutil.rmtree(path, ignore_errors=True)
        for path in map(self.environments.joinpath, os.listdir(self.environments)):
            if _is_older(path, horizon) and not (self.runs / path.name.removesuffix(".json")).exists():
                path.unlink(missing_ok=True)


class RunDraft:
    """A run's folder that is written, but hidden. `Home.tidy` removes those that a killed process left."""

    def __init__(self, home: Home, run: Run) -> None:
        self.home = home
        self.run = run
        self.path = home.runs / f".{run.id}"

    def publish(self) -> RunFolder:
        """Let the run appear. Raises SystemFault when the disk refuses."""
        try:
            self.path.rename(self.home.runs / self.run.id)
        except OSError as fault:
            self.discard()
            raise disk_fault(f"the run cannot be kept in {self.home.runs}", fault) from None
        return self.home.run(self.run.id)

    def discard(self) -> None:
        import shutil  # slow, and most commands create and remove nothing

        shutil.rmtree(self.path, ignore_errors=True)
        self.home.forget_environment(self.run.id)


def _is_older(path: Path, horizon: float) -> bool:
    """None for a file that is gone: a draft that was just renamed."""
    try:
        return path.stat().st_mtime < horizon
    except FileNotFoundError:
        return False
