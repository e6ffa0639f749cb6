"""The home of this machine, for the verbs: see `phalanx.cli.workspace.base`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.local_submission import RunRequest, submit_local
from phalanx.cli.workspace.open_home import open_home
from phalanx.errors import CallError
from phalanx.stored_plan import read_replicas

if TYPE_CHECKING:
    from phalanx.artifacts.downloads import DownloadResult
    from phalanx.artifacts.outputs import OutputEntry
    from phalanx.artifacts.previews import Preview
    from phalanx.artifacts.trees import Progress
    from phalanx.cli.workspace.activity import ActivitySnapshot
    from phalanx.cli.workspace.events import RunEvent
    from phalanx.cli.workspace.first_error import FirstError
    from phalanx.cli.workspace.log_follower import LogBatch
    from phalanx.home.home import Home
    from phalanx.home.run_folder import RunFolder
    from phalanx.logs.lines import LogLine
    from phalanx.logs.replica_logs import LogSource
    from phalanx.scheduler.runner import SchedulerRunner
    from phalanx.store import Artifact, Run, Store
    from phalanx.store.series.run_series import RunSeries

RESUMED_S = 30.0  # for a scheduler that is busy
HOLD_S = 0.3  # how long a fresh line waits for those of other replicas that were written before it


class HomeWorkspace:
    server = None

    def __init__(self, *, settled: bool = True) -> None:
        self.home, self.rows = open_home()
        self.files = HomeFiles(self.home)
        self.logs = HomeLogs(self.home, self.rows)
        self.acts = HomeRunActions(self.home, self.rows)
        if settled:
            from phalanx.scheduler.runner import schedule_once

            with ExitStack() as undo:
                undo.callback(self.close)
                schedule_once(self.home, self.rows)
                undo.pop_all()

    def series(self, run: Run) -> RunSeries:
        from phalanx.store.series.run_series import RunSeries

        return RunSeries(self.home.run(run.id).path)

    def events(self, run: Run) -> list[RunEvent]:
        from phalanx.cli.workspace.events import events_of_folder

        return events_of_folder(self.home.run(run.id), self.rows.statuses(run.id))

    def frame(self) -> ActivitySnapshot:
        from phalanx.cli.workspace.activity import home_activity

        return home_activity(self.home, self.rows)

    @contextmanager
    def attended(self) -> Iterator[Callable[[], object]]:
        with attending(self.home, self.rows) as attendant:
            yield attendant.run_pass

    def artifacts_of(self, project: str, most: int) -> list[Artifact]:
        from phalanx.store.model_index import ModelIndex

        return ModelIndex(self.rows).project_artifacts(project, limit=most)

    def sharers(self, artifacts: Sequence[Artifact]) -> Mapping[str, Sequence[str]]:
        from phalanx.store.model_index import ModelIndex

        return ModelIndex(self.rows).runs_with(row.digest for row in artifacts if row.digest is not None)

    def waits_for(self, run: Run) -> str | None:
        return waits_for(self.rows, run)

    def lies_in(self, run: Run) -> Mapping[str, str]:
        folder = self.home.run(run.id).path
        packages = folder / "job" / f"attempt-{run.attempt}.packages.json"
        told = {"packages": f"installed on its nodes: {packages}"} if packages.exists() else {}
        return {**told, "folder": str(folder)}

    def close(self) -> None:
        self.rows.close()


@contextmanager
def attending(home: Home, store: Store) -> Iterator[SchedulerRunner]:
    """Schedules while nobody else does, and leaves somebody behind in the end."""
    from phalanx.scheduler.runner import SchedulerRunner

    attendant = SchedulerRunner(home, store)
    try:
        yield attendant
    finally:
        attendant.release()


def waits_for(store: Store, run: Run) -> str | None:
    told = store.facts(run.id).get("waiting") if run.status in ("scheduled", "starting", "running") else None
    return str(told["why"]) if isinstance(told, dict) else None


class HomeFiles:
    def __init__(self, home: Home) -> None:
        self.home = home

    def entries(self, run: Run, path: str) -> list[OutputEntry]:
        from phalanx.artifacts.outputs import browse

        return browse(self.home.run(run.id).path, path)

    def storage(self, run: Run) -> str | None:
        from phalanx.artifacts.outputs import read_manifest

        return read_manifest(self.home.run(run.id).path).url

    def look(self, run: Run, path: str) -> tuple[Preview, int]:
        from phalanx.artifacts.downloads import open_output
        from phalanx.artifacts.previews import preview

        stream, entry = open_output(self.home, run.id, path)
        with stream:
            return preview(stream, entry.path, entry.size), entry.size

    def take(self, run: Run, path: str, target: Path, *, force: bool, progress: Progress) -> DownloadResult:
        from phalanx.artifacts.downloads import download

        return download(self.home, run.id, path, target, force=force, progress=progress)


class HomeLogs:
    def __init__(self, home: Home, store: Store) -> None:
        self.home = home
        self.store = store

    def voices(self, run: Run) -> list[LogSource]:
        from phalanx.logs.replica_logs import log_sources

        return log_sources(self.home.run(run.id).path)

    def lines(
        self,
        run: Run,
        voices: Sequence[LogSource],
        attempt: int,
        tail: int | None,
        *,
        fold: bool,  # noqa: ARG002 - of each log
    ) -> Iterator[LogLine]:
        from phalanx.logs.merge import merged
        from phalanx.logs.replica_logs import ReplicaLog

        folder = self.home.run(run.id).path
        return merged(ReplicaLog(folder, voice, attempt, tail).lines() for voice in voices)

    def follow(
        self, run: Run, voices: Sequence[LogSource], attempt: int | None, tail: int | None, told: list[int]
    ) -> Iterator[LogBatch]:
        """Schedules while nobody else does."""
        from phalanx.cli.workspace.log_follower import LogBatch
        from phalanx.logs.merge import merged
        from phalanx.logs.replica_logs import ReplicaLog
        from phalanx.scheduler.runner import TURN_S

        logs: list[ReplicaLog] = []
        with attending(self.home, self.store) as attendant:
            while not told:
                attendant.run_pass()
                run = self.store.find(run.id)
                wanted = attempt or run.attempt
                if wanted and (not logs or logs[0].attempt != wanted):
                    yield LogBatch(merged(log.lines() for log in logs), float("-inf"))
                    logs = [ReplicaLog(self.home.run(run.id).path, voice, wanted, tail) for voice in voices]
                over = run.is_done or run.attempt > wanted
                until = None if over else time.time() - HOLD_S
                lines = _attended((log.lines(until) for log in logs), attendant)
                yield LogBatch(lines, float("inf") if until is None else until - HOLD_S, tail if logs else None)
                tail = None if logs else tail
                if over:
                    return
                time.sleep(TURN_S)

    def error(self, run: Run, voices: Sequence[LogSource], attempt: int) -> FirstError:
        from phalanx.cli.workspace.first_error import first_error_here

        return first_error_here(self.home.run(run.id).path, voices, attempt)


def _attended(logs: Iterable[Iterator[LogLine]], attendant: SchedulerRunner) -> Iterator[LogLine]:
    """The lines of logs. Runs are looked after between two of them: there may be a gigabyte to print."""
    from phalanx.logs.merge import merged
    from phalanx.scheduler.runner import TURN_S

    next_turn = time.monotonic() + TURN_S
    for line in merged(logs):
        yield line
        if time.monotonic() >= next_turn:
            attendant.run_pass()
            next_turn = time.monotonic() + TURN_S


class HomeRunActions:
    def __init__(self, home: Home, store: Store) -> None:
        self.home = home
        self.store = store

    def submit(self, order: RunRequest) -> Run:
        return submit_local(self.home, self.store, order)

    def stop(self, runs: Sequence[Run], patience_s: float) -> list[Run]:
        for run in runs:
            if not run.is_done:
                self.home.run(run.id).ask_to_stop("stopped by its user")
        deadline = time.monotonic() + patience_s
        with attending(self.home, self.store) as attendant:
            while True:
                attendant.run_pass()
                found = [self.store.find(run.id) for run in runs]
                if all(run.is_done for run in found) or time.monotonic() >= deadline:
                    return found
                time.sleep(attendant.pause_s)

    def clone(self, run: Run, how: str) -> Run:
        from phalanx.submission.clone import clone

        return clone(self.home, self.store, run, how, dict(os.environ))

    def resume(self, run: Run) -> Run:
        from phalanx.home.lease import Lease
        from phalanx.scheduler.resumes import apply_requests
        from phalanx.submission.resume import request_resume

        request_resume(self.home, run, dict(os.environ))
        lease = Lease(self.home)
        deadline = time.monotonic() + RESUMED_S
        while run.id in self.home.asked_to_resume():  # by a server, say; by ourselves when nobody schedules
            if lease.take():
                apply_requests(self.home, self.store)
            elif time.monotonic() > deadline:
                raise CallError(f"whoever schedules here did not take up run {run.id}: see `phalanx doctor`")
            else:
                time.sleep(0.05)
        lease.release()
        lease.close()
        return self.store.find(run.id)

    def remove(self, runs: Sequence[Run]) -> None:
        from phalanx.submission.removal import remove

        remove(self.home, self.store, runs)

    def leave(self, run: Run) -> None:
        from phalanx.scheduler.runner import start_background

        start_background(self.home)
        keep_records(self.home, run)

    def attend(self, run: Run, *, quiet: bool) -> Run:
        """Schedules it when nobody else does."""
        from phalanx.cli.interrupts import stop_on_interrupt
        from phalanx.cli.workspace.log_follower import LogFollower, print_waiting

        folder = self.home.run(run.id)
        chorus = LogFollower(_names(folder))
        hung_up = stop_on_interrupt(folder.ask_to_stop)
        started, told = False, ""
        with attending(self.home, self.store) as attendant:
            while not run.is_done and not hung_up:
                attendant.run_pass()
                run = self.store.find(run.id)
                told = print_waiting(None if quiet else waits_for(self.store, run), told)
                if run.attempt and not started:
                    started = True
                    keep_records(self.home, run)  # it takes time, and need not delay the start
                if run.attempt and not quiet:
                    chorus.follow(folder.path, run.attempt)
                    chorus.print_new()
                if not run.is_done:
                    time.sleep(attendant.pause_s)
            if not quiet and not hung_up:
                chorus.print_new(to_the_end=True)
        if hung_up:
            sys.exit(128 + signal.SIGHUP)
        return run


def _names(folder: RunFolder) -> tuple[str, ...]:
    """The replicas that run something, from the plan."""
    return tuple(replica.name for replica in read_replicas(folder.path) if replica.has_command)


def keep_records(home: Home, run: Run) -> None:
    """What it would take to do the run again, beside it. Costs some time, so it is done while the run starts."""
    from phalanx.home.atomic_files import write_atomic
    from phalanx.submission.clone import submitted
    from phalanx.submission.provenance import collect

    source = submitted(home, run)
    records = collect(Path(source.get("from", ".")), home.environment(run.id), run.params)
    try:
        write_atomic(home.run(run.id).path / "records.json", json.dumps(records, indent=1).encode())
    except OSError as fault:
        click.echo(f"note: the run's surroundings could not be kept: {fault.strerror}", err=True)
