"""Runs made from runs: restart, copy and rerun."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shutil import copytree

from phalanx import run_paths, spec
from phalanx.atomic_files import read_json
from phalanx.errors import CallError
from phalanx.home.home import Home
from phalanx.plan.framework_checks import load
from phalanx.spec import Spec
from phalanx.store import Run, Store
from phalanx.stored_plan import PlanDamaged, read_plan
from phalanx.submission.model import CodeSource, Origin, PreparedEnvironment, PreparedRun, Submission
from phalanx.submission.resume import require_managed, require_working
from phalanx.submission.submit import create, prepare
from phalanx.submission.virtualenvs import variables
from phalanx.tracking.calls.sealed_files import FOLDER, call_name, read_regular

COPY = "copy"


def spec_of(home: Home, run: Run) -> Spec:
    """The spec of a run. Raises CallError if its folder has none."""
    return spec.load([_file_of(home, run)])


def _file_of(home: Home, run: Run) -> tuple[str, bytes]:
    require_managed(run)
    path = home.run(run.id).path / run_paths.SPEC
    try:
        return str(path), path.read_bytes()
    except OSError:
        raise CallError(f"the folder of run {run.id} has no spec.yml") from None


def clone(home: Home, store: Store, original: Run, cloning: str, environment: Mapping[str, str]) -> Run:
    """Create a new run of the same spec, in the same working folder or with its own copy of the same snapshot; `copy`
    also copies the outputs. Raises CallError, SpecErrors."""
    return create(home, store, prepare_clone(home, original, cloning, environment))


def prepare_clone(
    home: Home, original: Run, cloning: str, environment: Mapping[str, str], user: str | None = None
) -> PreparedRun:
    """Like `submit.prepare`, for a clone. Raises CallError, SpecErrors."""
    return prepare(home, _submission(home, original, cloning, environment, user), notify=lambda _: None)


def _submission(
    home: Home, original: Run, cloning: str, environment: Mapping[str, str], user: str | None
) -> Submission:
    """The original submission again. The checks of its backend passed or were skipped then."""
    require_managed(original)
    folder = home.run(original.id).path
    code = code_of(home, original)
    venv = home.run(original.id).submitted().get("venv")
    if venv is not None and not Path(venv).is_dir():
        raise CallError(f"the build of run {original.id} no longer exists: {venv}; run its file again with --build")
    if venv is not None:
        environment = variables(Path(venv), environment)
    archive = folder / run_paths.JOB / run_paths.VIRTUALENV_ARCHIVE
    loaded, tree = load([_file_of(home, original)], {})
    return Submission(
        spec=loaded,
        tree=tree,
        environment=environment,
        code=code,
        call=_call_of(folder),
        name=original.name,
        description=original.description,
        tags=original.tags,
        project=original.project,
        priority=original.priority,
        timeout_s=_timeout_s(folder),
        on=original.backend,
        cluster=read_json(folder / run_paths.CLUSTER) or {},
        user=user,
        is_unchecked=True,
        prepared=PreparedEnvironment(environment, venv, archive if archive.exists() else None),
        origin=Origin(original.id, cloning, folder / run_paths.OUTPUTS if cloning == COPY else None),
        is_remote=user is not None or home.run(original.id).is_remote,
    )


def _call_of(folder: Path) -> bytes | None:
    """The call file of a function; None if the run has none, or a copy of the code that has it."""
    found = next((folder / FOLDER).glob(call_name("*")), None)
    return None if found is None else read_regular(str(found))


def code_of(home: Home, original: Run) -> CodeSource:
    """The same folder, or a copy of the same snapshot. Raises CallError if it no longer exists."""
    folder = home.run(original.id)
    working, source = require_working(home, original), folder.submitted()
    if not folder.has_snapshot():
        return CodeSource(working)

    def put(target: Path) -> None:
        copytree(working, target, symlinks=True)

    user_folder = None if "git" in source else Path(source.get("from", "."))
    return CodeSource(user_folder, put=put, commit=original.commit, git=source.get("git"))


def _timeout_s(folder: Path) -> float | None:
    """Of the original: its file's, or that of its submission."""
    try:
        return read_plan(folder).timeout_s
    except (OSError, PlanDamaged):
        return None
