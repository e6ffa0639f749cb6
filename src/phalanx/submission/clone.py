"""Runs made from runs: restart, copy and rerun."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx import run_paths, spec
from phalanx.artifacts.downloads import restore
from phalanx.atomic_files import read_json
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.store import Run, Store
from phalanx.submission.availability import require_engine_of
from phalanx.submission.resume import require_managed
from phalanx.submission.submit import submit
from phalanx.submission.virtualenvs import variables


def spec_of(home: Home, run: Run) -> spec.Spec:
    """The spec that a run was made of. Raises CallError when its folder has lost it, or never had one."""
    require_managed(run)
    path = home.run(run.id).path / run_paths.SPEC
    try:
        return spec.load([(str(path), path.read_bytes())])
    except OSError:
        raise CallError(f"the folder of run {run.id} has no spec.yml any more") from None


def submitted(home: Home, run: Run) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((home.run(run.id).path / run_paths.SUBMITTED).read_bytes())
    except (OSError, ValueError):
        return {}
    return found


def clone(  # noqa: PLR0913 - what makes a run of another
    home: Home,
    store: Store,
    original: Run,
    cloning: str,
    environment: Mapping[str, str],
    *,
    user: str | None = None,
) -> Run:
    """A new run of the same spec, in the same working folder or with its own copy of the same snapshot; `copy` brings
    the outputs along. Raises CallError."""
    require_managed(original)
    source = submitted(home, original)
    code = home.run(original.id).path / run_paths.CODE
    is_snapshot = source.get("working") == str(code)
    working = Path(source.get("from" if is_snapshot else "working", "."))
    if not (code if is_snapshot else working).is_dir():
        raise CallError(f"the working folder of run {original.id} is gone: {working}")
    venv = source.get("venv")
    if venv is not None and not Path(venv).is_dir():
        raise CallError(f"the build of run {original.id} is gone: {venv}; run its file again with --build")
    if venv is not None:
        environment = variables(Path(venv), environment)
    require_engine_of(home, original, environment)
    archive = home.run(original.id).path / run_paths.JOB / run_paths.VIRTUALENV_ARCHIVE
    wishes = {
        "venv": venv,
        "on": original.backend,
        "name": original.name,
        "description": original.description,
        "tags": original.tags,
        "project": original.project,
        "priority": original.priority,
        "original": original.id,
        "cloning": cloning,
        "user": user,
        "archive": archive if archive.exists() else None,
        "cluster": read_json(home.run(original.id).path / run_paths.CLUSTER),
    }
    if cloning == "copy":
        restore(home, original.id)
    outputs = home.run(original.id).path / run_paths.OUTPUTS
    bring = outputs if cloning == "copy" and outputs.is_dir() else None
    run, _ = submit(
        home,
        store,
        spec_of(home, original),
        working=working,
        environment=environment,
        wishes=wishes,
        outputs=bring,
        code=code if is_snapshot else None,
    )
    return run
