"""The workspace of a server: see `phalanx.cli.workspace.base`."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.cli.interrupts import defer_signals, stop_on_interrupt
from phalanx.cli.render.output import table
from phalanx.cli.server_submission import ServerBatch, check_sendable, print_answer_notes, send_code
from phalanx.cli.workspace.activity import ActivitySnapshot, server_activity
from phalanx.cli.workspace.events import ALERTS, RunEvent, events_of_rows, of_tracked
from phalanx.cli.workspace.first_error import FirstError
from phalanx.cli.workspace.log_follower import LogBatch, follow, wait
from phalanx.client import Client, RequestRefused
from phalanx.client.queries import RemoteLogFollower
from phalanx.client.rows import Details, replica_of, run_of
from phalanx.errors import CallError, path_error
from phalanx.logs.lines import LogLine
from phalanx.stored_plan import PlanDamaged, decode_plan

if TYPE_CHECKING:
    from phalanx.artifacts.code_record import CodeRecord
    from phalanx.artifacts.downloads import DownloadResult
    from phalanx.artifacts.outputs import OutputEntry
    from phalanx.artifacts.previews import Preview
    from phalanx.artifacts.trees import Progress
    from phalanx.cli.many_runs import Batch
    from phalanx.client.config import ServerChoice
    from phalanx.client.groups import RemoteGroup
    from phalanx.client.pipelines import RemotePipeline
    from phalanx.client.series import RemoteSeries
    from phalanx.home.projects import ProjectDetails, ProjectSummary
    from phalanx.insight.stragglers import RunProgress
    from phalanx.logs.replica_logs import LogSource
    from phalanx.store import Artifact, ReplicaRecord, Run, StatusChange
    from phalanx.store.records import Summary
    from phalanx.submission.model import Submission

LOOK_S = 0.5  # between two looks at what we wait for
RESUMED_S = 30.0
MOST_EVENTS = 10_000  # as many as the server gives at once
HOLD_S = 1.0  # how long a line may wait for those of other replicas that were written before it


class ServerWorkspace:
    def __init__(self, found: ServerChoice) -> None:
        self.client = Client(found.url, found.token)
        self.server = found.url
        self.rows = ServerRows(self.client)
        self.files = ServerFiles(self.client)
        self.logs = ServerLogs(self.client)
        self.acts = ServerRunActions(self.client, self.rows)

    def series(self, run: Run) -> RemoteSeries:
        return self.client.all_series(run)

    def group(self, run: Run) -> RemoteGroup:
        return self.client.group(run)

    def pipeline(self, run: Run) -> RemotePipeline:
        return self.client.pipeline(run)

    def change_group(self, group: Run, verb: str, *args: Any) -> Run:
        getattr(self.client.group(group), verb)(*args)
        return self.rows.find(group.id)

    def progress(self, run: Run) -> RunProgress:
        from phalanx.insight.stragglers import Lag, ReplicaProgress, RunProgress

        topology = self.client.topology(run)
        replicas = {
            str(row["name"]): ReplicaProgress(row["step"], row["step_at"], row["behind"], Lag(row["lag"]))
            for row in topology["replicas"]
            if row["step"] is not None
        }
        return RunProgress(topology["front"], topology["straggler"], replicas)

    def events(self, run: Run) -> list[RunEvent]:
        newest = self.rows.replicas(run.id)
        earlier = [one for number in range(1, run.attempt) for one in self.rows.attempt(run.id, number)]
        alerts = self.client.events(run, ",".join(ALERTS), limit=MOST_EVENTS)
        return events_of_rows(self.rows.statuses(run.id), [*earlier, *newest], alerts)

    def tracked(self, run: Run, kinds: Sequence[str]) -> list[RunEvent]:
        found = self.client.events(run, ",".join(kinds), limit=MOST_EVENTS)
        return sorted(map(of_tracked, found), key=lambda event: event.at)

    def frame(self) -> ActivitySnapshot:
        return server_activity(self.client)

    @contextmanager
    def attended(self) -> Iterator[Callable[[], object]]:
        """Nothing to call: the server runs the scheduler."""
        yield lambda: None

    def artifacts_of(self, project: str, most: int) -> list[Artifact]:
        found: list[Artifact] = []
        for run in self.rows.runs(limit=None, project=project):
            if len(found) >= most:
                break
            found += self.rows.artifacts(run.id)
        return found[:most]

    def runs_with_content(self, artifacts: Sequence[Artifact]) -> None:
        """None: the server does not provide this."""

    def waits_for(self, run: Run) -> str | None:
        return self.rows.waits.get(run.id)

    @property
    def retention(self) -> ServerRetention:
        return ServerRetention(self.client)

    @property
    def projects(self) -> ServerProjects:
        return ServerProjects(self.client)

    def code(self, run: Run) -> CodeRecord:
        return self.client.code(run)

    def get_code(self, run: Run, target: Path) -> None:
        from phalanx.backends.code_archive import unpack

        with tempfile.NamedTemporaryFile(prefix="phalanx-") as packed:
            self.client.download_code(run, packed.name)
            try:
                with open(packed.name, "rb") as stream:
                    unpack(stream, target)
            except OSError as fault:
                raise path_error(f"cannot write {target}", fault) from None

    def lies_in(self, run: Run) -> Mapping[str, str]:  # noqa: ARG002 - the same for all runs
        return {"server": self.server}

    def close(self) -> None:
        self.client.close()


class ServerRows:
    """Queries on the runs of a server, with the methods of `Store`. One response has all details of a run; it is
    cached until the next `find` of the run."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.known: dict[str, Details] = {}
        self.waits: dict[str, str] = {}

    def find(self, prefix: str) -> Run:
        found = self.client.details(prefix)
        self.known[found.run.id] = found
        self._note(found.run.id, found.waits_for)
        return found.run

    def _note(self, run_id: str, waits: str | None) -> None:
        if waits:
            self.waits[run_id] = waits
        else:
            self.waits.pop(run_id, None)

    def _details(self, run_id: str) -> Details:
        if run_id not in self.known:
            self.find(run_id)
        return self.known[run_id]

    def runs(
        self,
        query: str = "",
        sort: str = "-created_at",
        limit: int | None = 20,
        offset: int = 0,
        project: str | None = None,
        *,
        unarchived: bool = False,
        user: str = "",  # noqa: ARG002 - the server knows who asks
    ) -> list[Run]:
        found = self.client.run_rows(query, sort, limit, offset, project, archived=not unarchived)
        for row in found:
            self._note(str(row["id"]), row.get("waits_for"))
        return [run_of(row) for row in found]

    def count(self, query: str = "", project: str | None = None, *, unarchived: bool = False, user: str = "") -> int:  # noqa: ARG002
        return self.client.count(query, project, archived=not unarchived)

    def count_archived(self, query: str = "", project: str | None = None, *, user: str = "") -> int:  # noqa: ARG002
        return int(self.client.counts(query, project).get("archived", 0))

    def statuses(self, run_id: str) -> list[StatusChange]:
        return list(self._details(run_id).statuses)

    def replicas(self, run_id: str) -> list[ReplicaRecord]:
        return list(self._details(run_id).replicas)

    def attempt(self, run_id: str, number: int) -> list[ReplicaRecord]:
        """The replicas of an earlier attempt."""
        return [replica_of(row, run_id, number) for row in self.client.topology(run_id, number)["replicas"]]

    def facts(self, run_id: str) -> dict[str, Any]:
        return dict(self._details(run_id).facts)

    def labels(self, run_id: str) -> dict[str, str]:
        return dict(self._details(run_id).labels)

    def summaries(self, run_id: str) -> dict[str, Summary]:
        return dict(self._details(run_id).summaries)

    def artifacts(self, run_id: str) -> list[Artifact]:
        return list(self._details(run_id).artifacts)


class ServerProjects:
    def __init__(self, client: Client) -> None:
        self.client = client

    def list(self) -> list[ProjectSummary]:
        return self.client.project_summaries()

    def show(self, name: str) -> ProjectDetails:
        return self.client.project(name)

    def create(self, name: str, description: str) -> ProjectSummary:
        return self.client.create_project(name, description)

    def describe(self, name: str, description: str) -> ProjectSummary:
        return self.client.describe_project(name, description)

    def remove(self, name: str) -> None:
        self.client.remove_project(name)


class ServerRetention:
    def __init__(self, client: Client) -> None:
        self.client = client

    def plan(self, project: str | None) -> dict[str, Any]:
        return self.client.retention_plan(project)

    def apply(self, project: str | None) -> dict[str, Any]:
        return self.client.apply_retention(project)


class ServerFiles:
    def __init__(self, client: Client) -> None:
        self.client = client

    def entries(self, run: Run, path: str) -> list[OutputEntry]:
        return self.client.outputs(run, path)

    def storage(self, run: Run) -> str | None:  # noqa: ARG002 - the server does not provide this
        return None

    def look(self, run: Run, path: str) -> tuple[Preview, int]:
        from phalanx.artifacts.previews import Preview

        row = self.client.preview(run, path)
        kind = str(row.get("title") or row["kind"]).partition(",")[0]  # the rest of the title is in the facts
        lines = [str(line) for line in row.get("lines") or ()] or _table_lines(row.get("table"))
        facts = dict(row.get("facts") or {})
        return Preview(kind, facts, lines, bool(row.get("is_cut"))), int(row.get("size") or 0)

    def take(self, run: Run, path: str, target: Path, *, force: bool, progress: Progress) -> DownloadResult:
        return self.client.download(run, path, target, force=force, progress=progress)


def _table_lines(found: Any) -> list[str]:
    if not isinstance(found, dict) or not found.get("columns"):
        return []
    width = len(found["columns"])
    rows = [[str(cell) for cell in row][:width] for row in (found["columns"], *(found.get("rows") or ()))]
    return table([[*row, *[""] * (width - len(row))] for row in rows])


class ServerLogs:
    def __init__(self, client: Client) -> None:
        self.client = client

    def sources(self, run: Run) -> list[LogSource]:
        from phalanx.logs.replica_logs import LogSource

        try:
            planned = decode_plan(self.client.plan(run)).with_command
            return [LogSource(replica.name, replica.role, replica.rank) for replica in planned]
        except (RequestRefused, PlanDamaged):  # a run that was only tracked has no plan
            found = self.client.logs(run)
            return [
                LogSource(str(row["replica"]), str(row["replica"]).rpartition("-")[0], row.get("rank")) for row in found
            ]

    def lines(
        self, run: Run, sources: Sequence[LogSource], attempt: int, tail: int | None, *, fold: bool
    ) -> Iterator[LogLine]:
        names = self._names(run, sources)
        if tail is None:
            return self.client.lines(run, names, attempt)
        ranks = {source.name: source.rank for source in sources}
        found = self.client.last_lines(run, tail, names, attempt, fold=fold)
        return (line._replace(rank=ranks.get(line.replica)) for line in found)

    def _names(self, run: Run, sources: Sequence[LogSource]) -> list[str]:
        """The names to request; an empty list means all replicas, of which there may be hundreds."""
        return [] if len(sources) == len(self.sources(run)) else [source.name for source in sources]

    def follow(
        self,
        run: Run,
        sources: Sequence[LogSource],
        attempt: int | None,
        tail: int | None,
        pause: Callable[[float], bool],
    ) -> Generator[LogBatch, None, None]:
        follower = RemoteLogFollower(self.client, run.id, self._names(run, sources), attempt, tail)
        while True:
            is_over = follower.is_done()
            run = follower.run or run
            before = time.time() - HOLD_S
            yield LogBatch(follower.lines(), before, run, None, follower.waits_for, follower.trouble)
            if is_over and follower.is_current:
                yield LogBatch(iter(()), float("inf"), run)
                return
            if not pause(follower.pause_s):
                return

    def error(self, run: Run, sources: Sequence[LogSource], attempt: int) -> FirstError:
        from phalanx.insight.autopsy import ReplicaFailure

        if len(sources) != len(self.sources(run)):
            raise CallError("--errors looks at all replicas when it asks a server: leave --replica, --role, --rank out")
        answer = self.client.first_error(run, attempt or None)
        number = int(answer["attempt"])
        failures = []
        if answer["replica"] is not None:
            ranks = {source.name: source.rank for source in sources}
            at, name = float(answer["at"]), str(answer["replica"])
            cause, message = str(answer["cause"]), str(answer["message"])
            failures.append(ReplicaFailure(name, answer["rank"], number, at, cause, message, log=name))
            for row in answer["later"]:
                name, message = str(row["replica"]), str(row["message"])
                later = at + float(row["after_s"])
                failures.append(ReplicaFailure(name, ranks.get(name), number, later, "", message, log=name))
        lines = [LogLine(float(row["at"]), row["replica"], row["rank"], number, row["text"]) for row in answer["lines"]]
        return FirstError(failures[0] if failures else None, failures, lines, answer["error"])


class ServerRunActions:
    def __init__(self, client: Client, rows: ServerRows) -> None:
        self.client = client
        self.rows = rows

    def batch(self, *, quiet: bool) -> Batch:
        """For many runs that one call queues."""
        return ServerBatch(self.client, quiet=quiet)

    def prepare(
        self,
        submission: Submission,
        *,
        quiet: bool,
        is_watched: bool = False,  # noqa: ARG002 - it starts nothing here
    ) -> Callable[[], Run]:
        """The server itself checks each run when it is queued."""
        check_sendable(submission)
        return partial(self._submit, submission, quiet=quiet)

    def _submit(self, submission: Submission, *, quiet: bool) -> Run:
        code = send_code(self.client, submission, quiet=quiet)
        defer_signals()
        made = self.client.send(submission, code)
        print_answer_notes(made.notes, quiet=quiet)
        return made.run

    def stop(self, runs: Sequence[Run], patience_s: float, each: Callable[[Sequence[Run]], None]) -> list[Run]:
        found = [run if run.is_done else self.client.stop(run) for run in runs]
        deadline = time.monotonic() + patience_s
        while not all(run.is_done for run in found) and time.monotonic() < deadline:
            each(found)
            time.sleep(min(LOOK_S, patience_s))
            found = [run if run.is_done else self.client.status(run.id) for run in found]
        return found

    def set_priority(self, run: Run, priority: int) -> Run:
        return self.client.set_priority(run, priority)

    def clone(self, run: Run, how: str) -> Run:
        return self.client.copy(run) if how == "copy" else self.client.restart(run)

    def resume(self, run: Run) -> Run:
        found = self.client.resume(run)
        deadline = time.monotonic() + RESUMED_S
        while found.is_done and found.attempt == run.attempt:  # not yet accepted by the scheduler
            if time.monotonic() > deadline:
                raise CallError(f"the scheduler of {self.client.url} has not accepted the resume of run {run.id} yet")
            time.sleep(LOOK_S)
            found = self.client.status(run.id)
        return found

    def remove(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self.client.delete(run)

    def archive(self, runs: Sequence[Run], *, archived: bool) -> list[Run]:
        return [self.client.archive(run) if archived else self.client.unarchive(run) for run in runs]

    def star(self, runs: Sequence[Run], *, is_starred: bool) -> None:
        for run in runs:
            (self.client.star if is_starred else self.client.unstar)(run)

    def tag(self, runs: Sequence[Run], add: Sequence[str], remove: Sequence[str]) -> list[Run]:
        return [self.client.tag(run, add, remove) for run in runs]

    def rename(self, run: Run, name: str) -> Run:
        return self.client.rename(run, name)

    def describe(self, run: Run, description: str) -> Run:
        return self.client.describe(run, description)

    def leave(self, *runs: Run) -> None:
        """Nothing to do: the server keeps the runs going."""

    def attend(self, run: Run, *, quiet: bool) -> Run:
        from phalanx.cli.render.log_lines import LogPrinter

        asked: list[str] = []
        passed_on: list[str] = []

        def pass_on(run: Run) -> None:
            if len(asked) > len(passed_on):
                passed_on[:] = asked
                self.client.stop(run)

        hung_up = stop_on_interrupt(lambda reason: _once_more(asked, reason))
        logs = ServerLogs(self.client)
        sources = logs.sources(run)
        batches = logs.follow(run, sources, None, None, lambda seconds: wait(seconds, hung_up, asked))
        follow(batches, None if quiet else LogPrinter([one.name for one in sources]), hung_up, pass_on)
        if hung_up:
            sys.exit(128 + signal.SIGHUP)
        return self.rows.find(run.id)


def _once_more(asked: list[str], reason: str) -> None:
    """The first Ctrl-C stops the run; a second one leaves without waiting for the server."""
    if asked:
        raise KeyboardInterrupt
    asked.append(reason)
