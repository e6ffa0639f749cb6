"""The home of this machine, for the verbs: see `phalanx.cli.places`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from phalanx.cli.homes import open_home
from phalanx.cli.submitting import Order, submit_here
from phalanx.errors import CallError
from phalanx.naming import named

if TYPE_CHECKING:
    from phalanx.cli.first_errors import FirstError
    from phalanx.cli.following import Batch
    from phalanx.cli.happening import Event
    from phalanx.cli.looking import Frame
    from phalanx.logs.lines import Line
    from phalanx.logs.reading import Voice
    from phalanx.scheduler.home import Home, RunFolder
    from phalanx.scheduler.outputs import Entry
    from phalanx.scheduler.previews import Preview
    from phalanx.scheduler.serving import Attendant
    from phalanx.scheduler.taking import Taken
    from phalanx.scheduler.trees import Progress
    from phalanx.store import Artifact, Run, Store
    from phalanx.store.series import RunSeries

RESUMED_S = 30.0  # for a scheduler that is busy
HOLD_S = 0.3  # how long a fresh line waits for those of other replicas that were written before it


class AtHome:
    server = None

    def __init__(self, *, settled: bool = True) -> None:
        self.home, self.rows = open_home()
        self.files = HomeFiles(self.home)
        self.logs = HomeLogs(self.home, self.rows)
        self.acts = HomeActs(self.home, self.rows)
        if settled:
            from phalanx.scheduler.serving import settle

            try:
                settle(self.home, self.rows)
            except BaseException:
                self.close()
                raise

    def series(self, run: Run) -> RunSeries:
        from phalanx.store.series import RunSeries

        return RunSeries(self.home.run(run.id).path)

    def events(self, run: Run) -> list[Event]:
        from phalanx.cli.happening import events_of_folder

        return events_of_folder(self.home.run(run.id), self.rows.statuses(run.id))

    def frame(self) -> Frame:
        from phalanx.cli.looking import look

        return look(self.home, self.rows)

    @contextmanager
    def attended(self) -> Iterator[Callable[[], object]]:
        with attending(self.home, self.rows) as attendant:
            yield attendant.turn

    def artifacts_of(self, project: str, most: int) -> list[Artifact]:
        from phalanx.store.models import ModelIndex

        return ModelIndex(self.rows).project_artifacts(project, limit=most)

    def sharers(self, artifacts: Sequence[Artifact]) -> Mapping[str, Sequence[str]]:
        from phalanx.store.models import ModelIndex

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
def attending(home: Home, store: Store) -> Iterator[Attendant]:
    """Schedules while nobody else does, and leaves somebody behind in the end."""
    from phalanx.scheduler.serving import Attendant

    attendant = Attendant(home, store)
    try:
        yield attendant
    finally:
        attendant.leave()


def waits_for(store: Store, run: Run) -> str | None:
    told = store.facts(run.id).get("waiting") if run.status in ("scheduled", "starting", "running") else None
    return str(told["why"]) if isinstance(told, dict) else None


class HomeFiles:
    def __init__(self, home: Home) -> None:
        self.home = home

    def entries(self, run: Run, path: str) -> list[Entry]:
        from phalanx.scheduler.outputs import browse

        return browse(self.home.run(run.id).path, path)

    def storage(self, run: Run) -> str | None:
        from phalanx.scheduler.outputs import read_manifest

        return read_manifest(self.home.run(run.id).path).url

    def look(self, run: Run, path: str) -> tuple[Preview, int]:
        from phalanx.scheduler.previews import preview
        from phalanx.scheduler.taking import open_output

        stream, entry = open_output(self.home, run.id, path)
        with stream:
            return preview(stream, entry.path, entry.size), entry.size

    def take(self, run: Run, path: str, target: Path, *, force: bool, progress: Progress) -> Taken:
        from phalanx.scheduler.taking import take

        return take(self.home, run.id, path, target, force=force, progress=progress)


class HomeLogs:
    def __init__(self, home: Home, store: Store) -> None:
        self.home = home
        self.store = store

    def voices(self, run: Run) -> list[Voice]:
        from phalanx.logs.reading import voices_of

        return voices_of(self.home.run(run.id).path)

    def lines(
        self,
        run: Run,
        voices: Sequence[Voice],
        attempt: int,
        tail: int | None,
        *,
        fold: bool,  # noqa: ARG002 - of each log
    ) -> Iterator[Line]:
        from phalanx.logs.lines import merged
        from phalanx.logs.reading import Log

        folder = self.home.run(run.id).path
        return merged(Log(folder, voice, attempt, tail).lines() for voice in voices)

    def follow(
        self, run: Run, voices: Sequence[Voice], attempt: int | None, tail: int | None, told: list[int]
    ) -> Iterator[Batch]:
        """Schedules while nobody else does."""
        from phalanx.cli.following import Batch
        from phalanx.logs.lines import merged
        from phalanx.logs.reading import Log
        from phalanx.scheduler.serving import TURN_S

        logs: list[Log] = []
        with attending(self.home, self.store) as attendant:
            while not told:
                attendant.turn()
                run = self.store.find(run.id)
                wanted = attempt or run.attempt
                if wanted and (not logs or logs[0].attempt != wanted):
                    yield Batch(merged(log.lines() for log in logs), float("-inf"))
                    logs = [Log(self.home.run(run.id).path, voice, wanted, tail) for voice in voices]
                over = run.is_done or run.attempt > wanted
                until = None if over else time.time() - HOLD_S
                lines = _attended((log.lines(until) for log in logs), attendant)
                yield Batch(lines, float("inf") if until is None else until - HOLD_S, tail if logs else None)
                tail = None if logs else tail
                if over:
                    return
                time.sleep(TURN_S)

    def error(self, run: Run, voices: Sequence[Voice], attempt: int) -> FirstError:
        from phalanx.cli.first_errors import first_error_here

        return first_error_here(self.home.run(run.id).path, voices, attempt)


def _attended(logs: Iterable[Iterator[Line]], attendant: Attendant) -> Iterator[Line]:
    """The lines of logs. Runs are looked after between two of them: there may be a gigabyte to print."""
    from phalanx.logs.lines import merged
    from phalanx.scheduler.serving import TURN_S

    next_turn = time.monotonic() + TURN_S
    for line in merged(logs):
        yield line
        if time.monotonic() >= next_turn:
            attendant.turn()
            next_turn = time.monotonic() + TURN_S


class HomeActs:
    def __init__(self, home: Home, store: Store) -> None:
        self.home = home
        self.store = store

    def submit(self, order: Order) -> Run:
        return submit_here(self.home, self.store, order)

    def stop(self, runs: Sequence[Run], patience_s: float) -> list[Run]:
        for run in runs:
            if not run.is_done:
                self.home.run(run.id).ask_to_stop("stopped by its user")
        deadline = time.monotonic() + patience_s
        with attending(self.home, self.store) as attendant:
            while True:
                attendant.turn()
                found = [self.store.find(run.id) for run in runs]
                if all(run.is_done for run in found) or time.monotonic() >= deadline:
                    return found
                time.sleep(attendant.pause_s)

    def clone(self, run: Run, how: str) -> Run:
        from phalanx.scheduler.cloning import clone

        return clone(self.home, self.store, run, how, dict(os.environ))

    def resume(self, run: Run) -> Run:
        from phalanx.scheduler.home import Lease
        from phalanx.scheduler.resuming import ask_to_resume, heed_resumes

        ask_to_resume(self.home, run, dict(os.environ))
        lease = Lease(self.home)
        deadline = time.monotonic() + RESUMED_S
        while run.id in self.home.asked_to_resume():  # by a server, say; by ourselves when nobody schedules
            if lease.take():
                heed_resumes(self.home, self.store)
            elif time.monotonic() > deadline:
                raise CallError(f"whoever schedules here did not take up run {run.id}: see `phalanx doctor`")
            else:
                time.sleep(0.05)
        lease.release()
        lease.close()
        return self.store.find(run.id)

    def remove(self, runs: Sequence[Run]) -> None:
        from phalanx.scheduler.removing import remove

        remove(self.home, self.store, runs)

    def leave(self, run: Run) -> None:
        from phalanx.scheduler.serving import start_background

        start_background(self.home)
        keep_records(self.home, run)

    def attend(self, run: Run, *, quiet: bool) -> Run:
        """Schedules it when nobody else does."""
        from phalanx.cli.following import Chorus, tell_waits
        from phalanx.cli.interrupts import stop_on_interrupt

        folder = self.home.run(run.id)
        chorus = Chorus(_names(folder))
        hung_up = stop_on_interrupt(folder.ask_to_stop)
        started, told = False, ""
        with attending(self.home, self.store) as attendant:
            while not run.is_done and not hung_up:
                attendant.turn()
                run = self.store.find(run.id)
                told = tell_waits(None if quiet else waits_for(self.store, run), told)
                if run.attempt and not started:
                    started = True
                    keep_records(self.home, run)  # it takes time, and need not delay the start
                if run.attempt and not quiet:
                    chorus.follow(folder.path, run.attempt)
                    chorus.sing()
                if not run.is_done:
                    time.sleep(attendant.pause_s)
            if not quiet and not hung_up:
                chorus.sing(to_the_end=True)
        if hung_up:
            sys.exit(128 + signal.SIGHUP)
        return run


def _names(folder: RunFolder) -> tuple[str, ...]:
    """The replicas that run something, from the plan."""
    plan = json.loads(folder.plan_file.read_bytes())
    return tuple(named(replica) for replica in plan["replicas"] if replica["argv"])


def keep_records(home: Home, run: Run) -> None:
    """What it would take to do the run again, beside it. Costs some time, so it is done while the run starts."""
    from phalanx.backends.attempts import write_whole
    from phalanx.scheduler.cloning import submitted
    from phalanx.scheduler.records import gather

    source = submitted(home, run)
    records = gather(Path(source.get("from", ".")), home.environment(run.id), run.params)
    try:
        write_whole(home.run(run.id).path / "records.json", json.dumps(records, indent=1).encode())
    except OSError as fault:
        click.echo(f"note: the run's surroundings could not be kept: {fault.strerror}", err=True)
