"""Runs of notebooks and plain scripts. Standard library only, Python 3.8+."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.naming import PARENT
from phalanx.tracking import external_folder, folder_upload, user_settings
from phalanx.tracking.environment_marks import MARKS
from phalanx.tracking.notices import plain_name, warn
from phalanx.tracking.run import TrackedRun, ending
from phalanx.tracking.run_request import MUST, NEVER, RunRequest
from phalanx.tracking.values import clean, error_text, guarded

CODE_UNKNOWN = "ended without an uncaught exception; exit code unknown"


class ExternalRun(TrackedRun):
    """The run that this process created, and that ends with it. Child processes find it by the environment."""

    shipper: folder_upload.FolderUploader | None = None
    fault_before: Any = None  # an exception left uncaught before the run began

    def mark_environment(self) -> None:
        MARKS.add(self.folder, self.id, self.project, self.outputs)

    @property
    def url(self) -> str | None:
        return super().url if self.shipper is None else self.shipper.page

    def finish(self, status: str = "succeeded", reason: str = "", **others: Any) -> None:
        is_ours = not self.is_finished and not self.is_child
        super().finish(status, reason, **others)
        if not is_ours:
            return
        MARKS.remove(self.folder)
        with guarded(lambda fault: warn(f"the run was not sent to the server: {error_text(fault)}")):
            if self.shipper is not None and not self.shipper.finish() and not self.shipper.is_said:
                warn(f"the server did not get everything ({self.shipper.trouble}); send the rest with `phalanx sync`")

    def finish_at_exit(self) -> None:
        """The interpreter keeps an uncaught exception, but not the code of a `SystemExit`: only the
        parent process gets that. At a prompt, such an exception did not end the process."""
        fault = getattr(sys, "last_value", None)
        if fault is not None and fault is not self.fault_before and not hasattr(sys, "ps1"):
            self.finish(*ending(fault))
        else:
            self.finish("succeeded", CODE_UNKNOWN)


class _Place(NamedTuple):
    """Where a run is stored."""

    home: str
    url: str | None  # of its server


def begin(wanted: RunRequest, parent: TrackedRun | None = None) -> ExternalRun:
    """Create the run, or continue the one with its id. Raises OSError, ValueError."""
    place = _place(wanted, parent)
    argv = tuple(clean(str(argument)) for argument in getattr(sys, "argv", ()))
    project = wanted.project or (parent.project if parent is not None else None) or os.environ.get("PHALANX_PROJECT")
    about = external_folder.Description(
        project=plain_name(project or "default"),
        name=wanted.name,
        description=wanted.description,
        tags=wanted.tags,
        source=f"tracked by {os.path.basename(argv[0]) or 'python'}" if argv else "tracked",
        argv=argv,
        group=wanted.group,
    )
    folder = _outbox_folder(place, about, wanted) if place.url else _home_folder(place, about, wanted)
    run_folder = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    run = ExternalRun(
        wanted.id if place.url and wanted.id else os.path.basename(run_folder),
        about.project,
        folder,
        os.path.join(run_folder, run_paths.OUTPUTS),
        0,
        is_managed=False,
        has_agent=False,
    )
    run.resumed = os.path.basename(folder) != run_paths.attempt_name(1)
    run.parent = parent
    run.set_name(wanted.name)
    run.fault_before = getattr(sys, "last_value", None)
    run.start_heartbeat()  # for the heartbeat: it may train for long before it logs anything
    if run.resumed:
        run.describe(name=wanted.name, description=wanted.description)
        run.tags(*wanted.tags)
    if parent is not None:
        run.labels({PARENT: parent.id})
    if place.url:
        run.shipper = folder_upload.FolderUploader(place.url, folder_upload.token(place.home), run_folder)
        run.shipper.start()
    return run


def _place(wanted: RunRequest, parent: TrackedRun | None) -> _Place:
    """A child of a run that Phalanx started is stored beside it, if its home can be seen from here."""
    if parent is not None and parent.is_managed and not wanted.server:
        home, runs = os.path.split(os.path.dirname(parent.run_folder))
        is_home = runs == "runs" and os.path.exists(os.path.join(parent.run_folder, run_paths.RUN))
        if is_home and os.path.basename(home) != folder_upload.OUTBOX:
            return _Place(home, None)
    place = _Place(user_settings.default_home(), folder_upload.server_url(wanted.server))
    if parent is not None and parent.has_agent and not place.url:
        warn(f"the child of run {parent.id} is stored on this machine, in {place.home}")
    return place


def _home_folder(place: _Place, about: external_folder.Description, wanted: RunRequest) -> str:
    """The folder of the run's attempt."""
    run_id, missing = wanted.id, ""
    if run_id is not None:
        run_folder = os.path.join(place.home, "runs", run_id)
        if not os.path.exists(run_folder):
            missing = f"there is no run {run_id} to resume; it is started now" if wanted.resume == MUST else ""
        elif wanted.resume == NEVER:
            run_id, missing = None, f"run {run_id} exists and resume is `never`"
        elif external_folder.is_running_here(run_folder):
            run_id, missing = None, f"run {run_id} is still running"
        else:
            try:
                attempt = external_folder.begin_attempt(run_folder, about.source)
                return external_folder.attempt_folder(run_folder, attempt=attempt)
            except (OSError, ValueError) as fault:
                run_id, missing = None, f"run {run_id} cannot be resumed: {error_text(fault)}"
    try:
        run_folder = external_folder.create(place.home, about, run_id)
    except FileExistsError:  # another process started it just now
        run_id, missing = None, f"run {run_id} is still running"
        run_folder = external_folder.create(place.home, about)
    if missing:
        warn(missing if run_id else f"{missing}; this is run {os.path.basename(run_folder)}")
    return external_folder.attempt_folder(run_folder)


def _outbox_folder(place: _Place, about: external_folder.Description, wanted: RunRequest) -> str:
    """The same for a server, which decides which attempt it is."""
    run_id, session = wanted.id or external_folder.new_id(), external_folder.new_id()
    outbox = os.path.join(place.home, folder_upload.OUTBOX)
    is_taken = os.path.exists(os.path.join(outbox, "runs", run_id))  # not sent yet
    watcher = {**external_folder.this_process(), "session": session, "resume": wanted.resume if wanted.id else ""}
    run_folder = external_folder.create(
        outbox, about, run_id, watcher=watcher, folder_name=f"{run_id}.{session}" if is_taken else None
    )
    return external_folder.attempt_folder(run_folder)
