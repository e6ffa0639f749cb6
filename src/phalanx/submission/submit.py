"""A new run: its folder, then its row. Whoever is killed in between leaves a run that the scheduler adopts."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from phalanx import backends, plan, spec
from phalanx.backends.agent_zip import carry, pack
from phalanx.backends.contract import LOCAL_BACKENDS, Job
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.ingest.adoption import add_to_store
from phalanx.placeholders import is_safe
from phalanx.plan import Plan
from phalanx.plan.document import document
from phalanx.spec.model import thaw
from phalanx.spec.yaml_writer import modern_document, to_yaml
from phalanx.store import Run, Store
from phalanx.store.statuses import Status
from phalanx.submission import availability, snapshots
from phalanx.tracking.external_folder import new_id, user_name


def submit(  # noqa: PLR0913 - all that makes a run
    home: Home,
    store: Store,
    loaded: spec.Spec,
    *,
    working: Path,
    environment: Mapping[str, str],
    wishes: Mapping[str, Any],
    outputs: Path | None = None,
    snapshot: bool = False,
    code: Path | None = None,
    put_code: Callable[[Path], None] | None = None,
) -> tuple[Run, Plan]:
    """A run of a spec, created and queued. `wishes`: name, description, tags, project, priority, timeout_s, the run it
    was made from (original, cloning), the virtual environment of its build (venv; archive: as a file), where it
    runs (on; cluster: which one, by kubeconfig, context and namespace), and whose it is (user). `outputs`: what its
    outputs begin with. `snapshot`: it runs from a copy of the working folder's code, as it does wherever that folder
    is not; `code`: from a copy of another run's; `put_code` makes the folder of its code. Raises SpecErrors, CallError.
    """
    run_id = new_id()
    project = wishes.get("project") or "default"
    made = plan.make(loaded, run_id, project)
    if wishes.get("timeout_s") is not None:
        made = replace(made, timeout_s=wishes["timeout_s"])
    run = _run(loaded, made, project, wishes)
    job = _job(home, made, run.backend, wishes.get("cluster") or {}, environment)
    if run.backend not in LOCAL_BACKENDS and not backends.find(run.backend).shares_files:
        snapshot = snapshot or (code is None and put_code is None)  # it goes along
    own_code = home.run(run_id).path / "code"
    has_code = snapshot or code is not None or put_code is not None

    def fill(folder: Path) -> None:
        if code is not None:
            shutil.copytree(code, folder / "code", symlinks=True)
        elif snapshot:
            snapshots.take(working, folder / "code")
        elif put_code is not None:
            put_code(folder / "code")
        if outputs is not None:
            shutil.copytree(outputs, folder / "outputs", symlinks=True)
        if run.backend in LOCAL_BACKENDS:
            pack(home.agents)  # now, so that a disk without room for the agent refuses the run and does not strand it
        elif job is not None and job.carries_agent:
            _carry(folder, home, wishes.get("archive"))

    files = {
        "spec.yml": to_yaml(modern_document(loaded)).encode(),
        "plan.json": json.dumps(document(made)).encode(),
        "submitted.json": json.dumps(
            {
                "working": str(own_code if has_code else working),
                "from": str(own_code if put_code is not None else working),
                "host": socket.gethostname(),
                "venv": wishes.get("venv"),
            }
        ).encode(),
    }
    if job is not None:
        files |= {name: text.encode() for name, text in job.files.items()}
    folder = home.add(run, files, environment, fill)
    add_to_store(store, folder, run)
    return run, made


def _carry(folder: Path, home: Home, archive: str | None) -> None:
    """Put beside a job what it needs to run without us: the agent, and the archive of its virtual environment."""
    carry(folder / "job", home.agents)
    for script in folder.glob("*.sh"):
        script.chmod(0o700)
    if archive is not None:
        os.link(archive, folder / "job" / "venv.tar")


def _run(loaded: spec.Spec, made: Plan, project: str, wishes: Mapping[str, Any]) -> Run:
    now = datetime.now(UTC)
    return Run(
        id=made.run_id,
        project=project,
        kind=made.kind,
        name=wishes.get("name") or loaded.name,
        description=wishes.get("description") or loaded.description,
        framework=loaded.framework,
        backend=backend_of(made, wishes.get("on")),
        user=wishes.get("user") or user_name(),
        status=Status.CREATED,
        reason="submitted",
        attempt=0,
        priority=wishes.get("priority") or 0,
        created_at=now,
        updated_at=now,
        started_at=None,
        finished_at=None,
        original=wishes.get("original"),
        cloning=wishes.get("cloning"),
        group=wishes.get("group"),
        commit=wishes.get("commit"),
        tags=tuple(dict.fromkeys([*loaded.tags, *wishes.get("tags", ())])),
        params=thaw(loaded.params),
        summary={},
    )


def backend_of(made: Plan, on: str | None) -> str:
    """Where a run goes: where its submitter says, or else its file."""
    if on is None:
        return made.backend
    if on in LOCAL_BACKENDS:
        return made.backend if made.backend in LOCAL_BACKENDS else on
    return backends.find(on).backend_for(made)


def _job(
    home: Home, made: Plan, backend: str, options: Mapping[str, str | None], environment: Mapping[str, str]
) -> Job | None:
    """What the run's place is given; nothing for this machine, where the plan itself is run. Raises CallError, also
    when nothing can be submitted there now."""
    if backend in LOCAL_BACKENDS:
        return None
    if not is_safe(str(home.path)):
        raise CallError(
            f"the home {str(home.path)!r} has quotes or other characters that cannot be passed on to {backend}: "
            "PHALANX_HOME names another"
        )
    place = backends.find(backend)
    known = place.target(home.path, made, options=options, ask=True)
    availability.ask(place, known, environment)
    return place.render(made, known)
