"""The workspace of a local home: see `phalanx.cli.workspace.base`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx import run_paths
from phalanx.cli.workspace.open_home import open_home
from phalanx.errors import CallError
from phalanx.home.lease import Lease
from phalanx.insight.wait_reasons import waits_for
from phalanx.naming import QUEUED_STATUSES
from phalanx.scheduler.runner import TURN_S, SchedulerRunner, schedule_once, start_background, start_early

if TYPE_CHECKING:
    from phalanx.agent.fork_server import ForkServer
    from phalanx.artifacts.code_record import CodeRecord
    from phalanx.artifacts.downloads import DownloadResult
    from phalanx.artifacts.outputs import OutputEntry
    from phalanx.artifacts.previews import Preview
    from phalanx.artifacts.trees import Progress
    from phalanx.cli.many_runs import Batch
    from phalanx.cli.workspace.activity import ActivitySnapshot
    from phalanx.cli.workspace.events import RunEvent
    from phalanx.cli.workspace.first_error import FirstError
    from phalanx.cli.workspace.log_follower import LogBatch
    from phalanx.client.groups import HomeGroup
    from phalanx.client.pipelines import HomePipeline
    from phalanx.home.home import Home
    from phalanx.home.projects import ProjectDetails, ProjectSummary
    from phalanx.insight.stragglers import RunProgress
    from phalanx.logs.lines import LogLine
    from phalanx.logs.replica_logs import LogSource
    from phalanx.store import Artifact, Run, Store
    from phalanx.store.series.run_series import RunSeries
    from phalanx.submission.model import Submission
    from phalanx.submission.queue_report import QueueReport

RESUMED_S = 30.0  # limit for a busy scheduler to accept a resume
TAKEN_S = 30.0  # and a change of a group
QUEUE_S = 1.0  # how long a picture of the queue is used
HOLD_S = 0.3  # how long a new line is held back for earlier lines of other replicas


class HomeWorkspace:
    """To be closed after use. Every method of a workspace may raise CallError and StoreError."""

    server = None  # the address of the server

    def __init__(self, *, settled: bool = True) -> None:
        self.home, self.rows = open_home()
        self.files = HomeFiles(self.home)
        self.logs = HomeLogs(self.home, self.rows)
        self.acts = HomeRunActions(self.home, self.rows)
        self._queue: tuple[float, QueueReport] | None = None
        if settled:
            with ExitStack() as undo:
                undo.callback(self.close)
                schedule_once(self.home, self.rows)
                undo.pop_all()

    def series(self, run: Run) -> RunSeries:
        from phalanx.store.series.run_series import RunSeries

        return RunSeries(self.home.run(run.id).path)

    def group(self, run: Run) -> HomeGroup:
        from phalanx.client.groups import HomeGroup
        from phalanx.scheduler.search.group_report import GroupReport

        return HomeGroup(self.rows, GroupReport(self.home, self.rows, run))

    def pipeline(self, run: Run) -> HomePipeline:
        from phalanx.client.pipelines import HomePipeline
        from phalanx.scheduler.pipelines.report import PipelineReport

        return HomePipeline(self.rows, PipelineReport(self.home, self.rows, run))

    def change_group(self, group: Run, verb: str, *args: Any) -> Run:
        """Leave a request (a method of `GroupRequests`), and wait until a scheduler, here or in another process, has
        taken it."""
        from phalanx.submission.group_requests import GroupRequests

        requests = GroupRequests(self.home, group, dict(os.environ))
        getattr(requests, verb)(*args)
        deadline = time.monotonic() + TAKEN_S
        with self.attended() as turn:
            while True:
                turn()
                if requests.are_taken():
                    break
                if time.monotonic() > deadline:
                    raise CallError(
                        f"the scheduler has not taken the request for group {group.id}: see `phalanx doctor`"
                    )
                time.sleep(0.05)
        after = self.rows.find(group.id)
        if group.is_done:
            self.acts.leave(after)
        return after

    def progress(self, run: Run) -> RunProgress:
        """How far the replicas of the newest attempt are."""
        from phalanx.insight.stragglers import progress_of
        from phalanx.store.series.replica_steps import AttemptSteps

        replicas = self.rows.replicas(run.id)
        steps = AttemptSteps(self.home.run(run.id).path, max(1, run.attempt)).look(one.name for one in replicas)
        return progress_of(steps, {one.name for one in replicas if one.status == "running"})

    def events(self, run: Run) -> list[RunEvent]:
        from phalanx.cli.workspace.events import events_of_folder

        return events_of_folder(self.home.run(run.id), self.rows.statuses(run.id))

    def tracked(self, run: Run, kinds: Sequence[str]) -> list[RunEvent]:
        """The events of these kinds that training recorded."""
        from phalanx.cli.workspace.events import of_tracked
        from phalanx.home.tracked_events import read_events

        found = read_events(self.home.run(run.id).path, kinds)
        return sorted(map(of_tracked, found), key=lambda event: event.at)

    def frame(self) -> ActivitySnapshot:
        """The current snapshot for `top`."""
        from phalanx.cli.workspace.activity import home_activity

        return home_activity(self.home, self.rows)

    @contextmanager
    def attended(self) -> Iterator[Callable[[], object]]:
        """A function to call regularly within the context, so that runs proceed while they are watched."""
        with attending(self.home, self.rows, self.acts.fork_server) as runner:
            yield runner.run_pass

    def artifacts_of(self, project: str, most: int) -> list[Artifact]:
        from phalanx.store.model_index import ModelIndex

        return ModelIndex(self.rows).project_artifacts(project, limit=most)

    def runs_with_content(self, artifacts: Sequence[Artifact]) -> Mapping[str, Sequence[str]]:
        """The runs that have the same contents, by digest."""
        from phalanx.store.model_index import ModelIndex

        return ModelIndex(self.rows).runs_with(row.digest for row in artifacts if row.digest is not None)

    def waits_for(self, run: Run) -> str | None:
        """What a run waits for, here or in the queue of a cluster, as text."""
        return waits_for(self.rows, [run]).get(run.id) or self._queue_reason(run)

    def _queue_reason(self, run: Run) -> str | None:
        if run.status not in QUEUED_STATUSES:
            return None
        from phalanx.submission.queue_report import QueueReport, requested

        now = time.monotonic()
        if self._queue is None or now - self._queue[0] > QUEUE_S:
            from phalanx.backends.local.capacity import this_machine

            active, blocked = self.rows.active(), self.rows.blocked()
            report = QueueReport(active, blocked, lambda one: requested(self.home, one), this_machine()[0])
            self._queue = now, report
        return self._queue[1].why(run)

    @property
    def retention(self) -> HomeRetention:
        return HomeRetention(self.home, self.rows)

    @property
    def projects(self) -> HomeProjects:
        return HomeProjects(self.home, self.rows)

    def code(self, run: Run) -> CodeRecord:
        """The git commit, the uncommitted changes and the snapshot of a run's code."""
        from phalanx.artifacts.code_record import read_code

        return read_code(self.home.run(run.id))

    def get_code(self, run: Run, target: Path) -> None:
        """Write the files of its snapshot to a new folder. Raises CallError."""
        from phalanx.artifacts.code_record import code_tree, copy_code

        tree = code_tree(self.home.run(run.id))
        if tree is not None:
            copy_code(tree, target)

    def lies_in(self, run: Run) -> Mapping[str, str]:
        """The location of a run: its folder and the packages installed for it."""
        folder = self.home.run(run.id).path
        packages = folder / run_paths.packages_file(run.attempt)
        details = {"packages": f"installed on its nodes: {packages}"} if packages.exists() else {}
        return {**details, "folder": str(folder)}

    def close(self) -> None:
        self.rows.close()


@contextmanager
def attending(home: Home, store: Store, fork_server: ForkServer | None = None) -> Iterator[SchedulerRunner]:
    """Run the scheduler if no other process does, and start one in the background at the end."""
    runner = SchedulerRunner(home, store, fork_server=fork_server)
    try:
        yield runner
    finally:
        runner.release()


class HomeProjects:
    """All methods raise CallError."""

    def __init__(self, home: Home, store: Store) -> None:
        from phalanx.home.projects import Projects

        self._projects = Projects(home, store)

    def list(self) -> list[ProjectSummary]:
        return self._projects.list()

    def show(self, name: str) -> ProjectDetails:
        return self._projects.show(name)

    def create(self, name: str, description: str) -> ProjectSummary:
        from phalanx.home.stars import OWNER

        return self._projects.create(name, description, OWNER)

    def describe(self, name: str, description: str) -> ProjectSummary:
        from phalanx.home.stars import OWNER

        return self._projects.describe(name, description, OWNER)

    def remove(self, name: str) -> None:
        self._projects.remove(name)


class HomeRetention:
    """Raises SpecErrors and CallError if config.yml of the home is wrong."""

    def __init__(self, home: Home, store: Store) -> None:
        from phalanx.retention.cleanup import Retention
        from phalanx.settings.home_settings import read_home_settings

        self._retention = Retention(home, store, read_home_settings(home.path))
        self._retention.recover()

    def plan(self, project: str | None) -> dict[str, Any]:
        return self._retention.plan(project).as_json()

    def apply(self, project: str | None) -> dict[str, Any]:
        freed, troubles = self._retention.apply(self._retention.plan(project), "phalanx gc")
        return {"freed": freed, "troubles": troubles}


class HomeFiles:
    def __init__(self, home: Home) -> None:
        self.home = home

    def entries(self, run: Run, path: str) -> list[OutputEntry]:
        """The files and folders at a path and below it. Raises CallError if there are none."""
        from phalanx.artifacts.outputs import browse

        return browse(self.home.run(run.id).path, path)

    def storage(self, run: Run) -> str | None:
        """The remote storage that the files were pushed to."""
        from phalanx.artifacts.outputs import read_manifest

        return read_manifest(self.home.run(run.id).path).url

    def look(self, run: Run, path: str) -> tuple[Preview, int]:
        """The preview of a file, and its size. Raises CallError."""
        from phalanx.artifacts.downloads import open_output
        from phalanx.artifacts.previews import preview

        stream, entry = open_output(self.home, run.id, path)
        with stream:
            return preview(stream, entry.path, entry.size), entry.size

    def take(self, run: Run, path: str, target: Path, *, force: bool, progress: Progress) -> DownloadResult:
        """Download a file or folder and verify its digest. Raises CallError."""
        from phalanx.artifacts.downloads import download

        return download(self.home, run.id, path, target, force=force, progress=progress)


class HomeLogs:
    def __init__(self, home: Home, store: Store, fork_server: ForkServer | None = None) -> None:
        self.home = home
        self.store = store
        self.fork_server = fork_server

    def sources(self, run: Run) -> list[LogSource]:
        from phalanx.logs.replica_logs import log_sources

        return log_sources(self.home.run(run.id).path)

    def lines(
        self,
        run: Run,
        sources: Sequence[LogSource],
        attempt: int,
        tail: int | None,
        *,
        fold: bool,  # noqa: ARG002 - `tail` applies to each log
    ) -> Iterator[LogLine]:
        """The lines in order of time; `tail`: at least the last ones, where `fold` counts identical lines once."""
        from phalanx.logs.merge import merged
        from phalanx.logs.replica_logs import ReplicaLog

        folder = self.home.run(run.id).path
        return merged(ReplicaLog(folder, source, attempt, tail).lines() for source in sources)

    def follow(
        self,
        run: Run,
        sources: Sequence[LogSource],
        attempt: int | None,
        tail: int | None,
        pause: Callable[[float], bool],
    ) -> Generator[LogBatch, None, None]:
        """New lines until the run is over, or `pause` returns False; it waits for so many seconds. Runs the scheduler
        if no other process does."""
        from phalanx.cli.workspace.log_follower import LogBatch
        from phalanx.logs.merge import merged
        from phalanx.logs.replica_logs import ReplicaLog

        logs: list[ReplicaLog] = []
        with attending(self.home, self.store, self.fork_server) as runner:
            while True:
                runner.run_pass()
                run = self.store.find(run.id)
                wanted = attempt or run.attempt
                if wanted and (not logs or logs[0].attempt != wanted):
                    yield LogBatch(merged(log.lines() for log in logs), float("-inf"), run)
                    logs = [ReplicaLog(self.home.run(run.id).path, source, wanted, tail) for source in sources]
                over = run.is_done or run.attempt > wanted
                until = None if over else time.time() - HOLD_S
                lines = _attended((log.lines(until) for log in logs), runner)
                before = float("inf") if until is None else until - HOLD_S
                yield LogBatch(lines, before, run, tail if logs else None, waits_for(self.store, [run]).get(run.id))
                tail = None if logs else tail
                if over or not pause(runner.pause_s):
                    return

    def error(self, run: Run, sources: Sequence[LogSource], attempt: int) -> FirstError:
        """The replica that failed first, and the lines that show why."""
        from phalanx.cli.workspace.first_error import first_error_here

        return first_error_here(self.home.run(run.id), sources, attempt, self.store.facts(run.id))


def _attended(logs: Iterable[Iterator[LogLine]], runner: SchedulerRunner) -> Iterator[LogLine]:
    """The merged lines, with scheduler passes in between, because there may be a gigabyte to print."""
    from phalanx.logs.merge import merged

    next_turn = time.monotonic() + TURN_S
    for line in merged(logs):
        yield line
        if time.monotonic() >= next_turn:
            runner.run_pass()
            next_turn = time.monotonic() + TURN_S


class HomeRunActions:
    def __init__(self, home: Home, store: Store) -> None:
        self.home = home
        self.store = store
        self.fork_server: ForkServer | None = None  # started while a run is prepared

    def prepare(self, submission: Submission, *, quiet: bool, is_watched: bool = False) -> Callable[[], Run]:
        """Check a run. The result queues it, and blocks signals until it is watched. Both raise SpecErrors, CallError.
        `is_watched`: whether this process will watch it."""
        if is_watched and submission.is_local:
            self.fork_server = start_early(self.home, submission.environment)
        from phalanx.cli.local_submission import prepare_local

        return prepare_local(self.home, self.store, submission, quiet=quiet)

    def batch(self, *, quiet: bool) -> Batch:
        """For many runs that one call queues."""
        from phalanx.cli.local_submission import HomeBatch

        return HomeBatch(self.home, self.store, quiet=quiet)

    def stop(self, runs: Sequence[Run], patience_s: float, each: Callable[[Sequence[Run]], None]) -> list[Run]:
        """Stop runs, and wait up to `patience_s` for them to end. `each` is called with them while it waits."""
        for run in runs:
            if not run.is_done:
                self.home.run(run.id).ask_to_stop("stopped by its user")
        deadline = time.monotonic() + patience_s
        with attending(self.home, self.store) as runner:
            while True:
                runner.run_pass()
                found = [self.store.find(run.id) for run in runs]
                if all(run.is_done for run in found) or time.monotonic() >= deadline:
                    return found
                each(found)
                runner.pause()

    def set_priority(self, run: Run, priority: int) -> Run:
        """Raises CallError."""
        from phalanx.submission.priority import set_priority

        return set_priority(self.home, self.store, run, priority)

    def clone(self, run: Run, how: str) -> Run:
        """A new run of the same file: `restart`, or `copy`, with a copy of its outputs. Raises CallError."""
        from phalanx.submission.clone import clone

        return clone(self.home, self.store, run, how, dict(os.environ))

    def resume(self, run: Run) -> Run:
        """Start the next attempt of a finished run. Raises CallError."""
        from phalanx.scheduler.resumes import apply_requests
        from phalanx.submission.resume import request_resume

        request_resume(self.home, run, dict(os.environ))
        lease = Lease(self.home)
        deadline = time.monotonic() + RESUMED_S
        while run.id in self.home.asked_to_resume():  # until the scheduler, here or in another process, accepts it
            if lease.take():
                apply_requests(self.home, self.store)
            elif time.monotonic() > deadline:
                raise CallError(f"the scheduler did not accept the resume of run {run.id}: see `phalanx doctor`")
            else:
                time.sleep(0.05)
        lease.release()
        lease.close()
        return self.store.find(run.id)

    def remove(self, runs: Sequence[Run]) -> None:
        """Delete runs. Raises CallError before deleting anything if one has not finished."""
        from phalanx.submission.removal import remove

        remove(self.home, self.store, runs)

    def archive(self, runs: Sequence[Run], *, archived: bool) -> list[Run]:
        """Archive or unarchive runs, and groups with their trials. Raises CallError before changing anything if one has
        not finished."""
        from phalanx.ingest.run_changes import RunEdit, change_runs, require_archivable
        from phalanx.submission.removal import with_parts

        found = with_parts(self.store, runs)
        if archived:
            require_archivable(found)
        change_runs(self.home, self.store, found, RunEdit(archived=archived))
        return [self.store.find(run.id) for run in runs]

    def star(self, runs: Sequence[Run], *, is_starred: bool) -> None:
        """Add or remove stars of the home's owner."""
        from phalanx.home.stars import OWNER, change_stars

        change_stars(self.home, self.store, OWNER, [run.id for run in runs], is_starred=is_starred)

    def tag(self, runs: Sequence[Run], add: Sequence[str], remove: Sequence[str]) -> list[Run]:
        return self._change(runs, added=add, removed=remove)

    def rename(self, run: Run, name: str) -> Run:
        return self._change([run], name=name)[0]

    def describe(self, run: Run, description: str) -> Run:
        return self._change([run], description=description)[0]

    def _change(self, runs: Sequence[Run], **changes: Any) -> list[Run]:
        from phalanx.ingest.run_changes import RunEdit, change_runs

        return change_runs(self.home, self.store, runs, RunEdit(**changes))

    def leave(self, *runs: Run) -> None:
        """Make sure that the runs continue without this process."""
        start_background(self.home)
        record_provenance(self.home, *runs)

    def attend(self, run: Run, *, quiet: bool) -> Run:
        """Watch a run until it finishes, and print its logs unless `quiet`. Ctrl-C stops the run."""
        from phalanx.cli.interrupts import stop_on_interrupt
        from phalanx.cli.render.log_lines import LogPrinter
        from phalanx.cli.workspace.log_follower import follow, wait

        logs = HomeLogs(self.home, self.store, self.fork_server)
        hung_up = stop_on_interrupt(self.home.run(run.id).ask_to_stop)
        sources = logs.sources(run)
        provenance = ProvenanceRecorder(self.home)
        batches = logs.follow(run, sources, None, None, lambda seconds: wait(seconds, hung_up))
        follow(batches, None if quiet else LogPrinter([one.name for one in sources]), hung_up, provenance.keep)
        if hung_up:
            import signal

            sys.exit(128 + signal.SIGHUP)
        return self.store.find(run.id)


class ProvenanceRecorder:
    """Keeps the records of a run once it has started: that takes time, and need not delay the start."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.is_done = False

    def keep(self, run: Run) -> None:
        if run.attempt and not self.is_done:
            self.is_done = True
            record_provenance(self.home, run)


def record_provenance(home: Home, *runs: Run) -> None:
    """Costs some time, so it is done while the runs start."""
    from phalanx.submission.git import git_state
    from phalanx.submission.provenance import record

    read_git = cache(git_state)  # once for all runs of a folder
    for run in runs:
        try:
            record(home, run, home.environment(run.id), sys.argv, read_git)
        except CallError as fault:
            click.echo(f"note: {fault}", err=True)
