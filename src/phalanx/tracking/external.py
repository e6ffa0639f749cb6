"""Runs of notebooks and plain scripts. Standard library only, Python 3.8+."""

from __future__ import annotations

import os
import sys
from typing import Any

from phalanx import run_paths
from phalanx.tracking import external_folder, folder_upload
from phalanx.tracking.recorder import warn
from phalanx.tracking.run import TrackedRun, ending
from phalanx.tracking.values import clean, error_text, guarded

CODE_UNKNOWN = "ended without an uncaught exception; exit code unknown"
MARKS = ("PHALANX_TRACK", "PHALANX_RUN_ID", "PHALANX_PROJECT", "PHALANX_OUTPUTS", "PHALANX_OUTSIDE")


class ExternalRun(TrackedRun):
    """The run that this process created, and that ends with it. Child processes find it by the environment."""

    shipper: folder_upload.FolderUploader | None = None
    fault_before: Any = None  # an exception left uncaught before the run began
    before: dict[str, str | None]  # the previous values of the environment variables set here

    def mark_environment(self) -> None:
        self.before = {name: os.environ.get(name) for name in MARKS}
        values = (self.folder, self.id, self.project, self.outputs, "1")
        os.environ.update(zip(MARKS, values))  # noqa: B905 - Python 3.8

    def _unmark_environment(self) -> None:
        if os.environ.get("PHALANX_TRACK") != self.folder:
            return
        for name, value in self.before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def finish(self, status: str = "succeeded", reason: str = "") -> None:
        is_ours = not self.is_finished and not self.is_child
        super().finish(status, reason)
        if not is_ours:
            return
        self._unmark_environment()
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


def begin(
    name: str | None, project: str | None, tags: tuple[str, ...], description: str | None, server: str | None
) -> ExternalRun:
    """Raises OSError, ValueError."""
    home = external_folder.default_home()
    url = folder_upload.server_url(server)
    argv = tuple(clean(str(argument)) for argument in getattr(sys, "argv", ()))
    about = external_folder.Description(
        project=project or os.environ.get("PHALANX_PROJECT") or "default",
        name=name,
        description=description,
        tags=tags,
        source=f"tracked by {os.path.basename(argv[0]) or 'python'}" if argv else "tracked",
        argv=argv,
    )
    run_folder = external_folder.create(os.path.join(home, "outbox") if url else home, about)
    run = ExternalRun(
        os.path.basename(run_folder),
        about.project,
        external_folder.attempt_folder(run_folder),
        os.path.join(run_folder, run_paths.OUTPUTS),
        0,
        is_managed=False,
        has_agent=False,
    )
    run.fault_before = getattr(sys, "last_value", None)
    run.mark_environment()
    run.start_heartbeat()  # for the heartbeat: it may train for long before it logs anything
    if url:
        run.shipper = folder_upload.FolderUploader(url, folder_upload.token(home), run_folder)
        run.shipper.start()
    return run
