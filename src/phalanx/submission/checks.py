"""Checks of a submission: whether it can run, what its backend would reject, and which fields are ignored."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from phalanx import backends, extras
from phalanx.backends.contract import LOCAL_BACKENDS, NO_OPTIONS, Backend, Connections, Review
from phalanx.backends.local.capacity import excess, requested_by, this_machine
from phalanx.errors import CallError, Location, Note, SpecError, SpecErrors
from phalanx.home.home import Home
from phalanx.insight.gpu_history import gpu_remarks, runs_before
from phalanx.naming import has_control_characters
from phalanx.plan import Plan, notebooks
from phalanx.plan.document import document
from phalanx.sites.findings import ADVICE, SiteFinding
from phalanx.sites.request import resources_path
from phalanx.spec import Kind, Spec
from phalanx.spec.model import PythonOptions, Search
from phalanx.spec.tree import Node
from phalanx.store import Run, Store
from phalanx.stored_plan import decode_plan
from phalanx.submission import builds
from phalanx.submission.model import Notify, Remark, RemarkKind, Submission
from phalanx.tune.decision import packages

ALL_PROJECTS = "*"
LARGEST_PRIORITY = 1_000_000


def check_fields(submission: Submission) -> None:
    """Check names and numbers. CallError."""
    check_project(submission.project)
    check_priority(submission.priority)
    if submission.timeout_s is not None and submission.timeout_s <= 0:
        raise CallError(
            '`timeout` must be longer than 0 seconds: write seconds, or a duration such as "90m" or "1d12h"'
        )
    for name, text in {
        "name": submission.name,
        "on": submission.on,
        "commit": submission.code.commit,
    }.items():
        check_name(name, text or "")
    for tag in (*submission.tags, *submission.spec.tags):
        check_name("tags", tag)
    check_text("description", submission.description or "")


def check_priority(value: object) -> int:
    """CallError."""
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > LARGEST_PRIORITY:
        raise CallError(f"`priority` must be an integer from -{LARGEST_PRIORITY:,} to {LARGEST_PRIORITY:,}")
    return value


def check_project(name: str) -> None:
    """CallError."""
    if name == ALL_PROJECTS:
        raise CallError(f"`{ALL_PROJECTS}` means all projects and cannot be a project name")
    check_name("project", name)


def check_name(field: str, name: str) -> None:
    """CallError for a name with line breaks or other control characters."""
    if has_control_characters(name):
        raise CallError(f"`{field}` must not contain line breaks or other control characters: {name[:100]!r}")


def check_text(field: str, text: str) -> None:
    """Reject NUL and surrogates, which no file and no variable can contain. Raises CallError."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise CallError(f"`{field}` must not contain NUL or surrogates")


def check_runnable(home: Path, submission: Submission) -> None:
    """Check that the submission can run, and that its engine accepts jobs now. CallError."""
    loaded, backend = submission.spec, submission.backend
    if not submission.is_local and backend not in backends.names():
        known = ", ".join(backends.names())
        raise CallError(f"runs cannot start on `{backend}`: --on accepts {known}")
    if loaded.command is None and loaded.kind in (Kind.EXPERIMENT, Kind.JOB):
        raise CallError("nothing to run: the file has no `run: {cmd: ...}`")
    if loaded.kind is Kind.BUILD:
        builds.check(submission)
    require_engine(home, backend, submission.environment, submission.cluster)


def require_engine(
    home: Path, backend: str, environment: Mapping[str, str], options: Mapping[str, str | None] = NO_OPTIONS
) -> None:
    """Check the engine of a new run. `options`: the cluster, as named on the command line. Raises CallError."""
    if backend not in LOCAL_BACKENDS:
        found = backends.find(backend)
        _ask(found, found.target(home, options=options), environment)


def require_engine_of(home: Home, run: Run, environment: Mapping[str, str]) -> None:
    """Check the engine for another attempt of a run, or another run of the same file. Raises CallError."""
    if run.backend not in LOCAL_BACKENDS:
        found = backends.find(run.backend)
        _ask(found, found.target_of_run(home.path, home.run(run.id).path), environment)


def _ask(backend: Backend, place: Any, environment: Mapping[str, str]) -> None:
    """Raises CallError if jobs cannot be submitted to this target of a backend now."""
    with Connections() as connections:
        engine = backend.engine(place, connections)
        if engine is not None:
            engine.preflight(environment)


def check_notebook(submission: Submission, path: str) -> None:
    """Check that Jupyter is installed where that can be known: in what runs here, or in the shell whose environment a
    Slurm job gets. `path`: the PATH of the run. CallError."""
    loaded, is_on_slurm = submission.spec, submission.backend == "slurm"
    is_made_there = loaded.environment.python != PythonOptions() or bool(loaded.build and loaded.build.build_steps)
    if loaded.kind is not Kind.NOTEBOOK or not (submission.is_local or (is_on_slurm and not is_made_there)):
        return
    server = notebooks.server_of(loaded)
    missing = [name for name in ("jupyter", f"jupyter-{server}") if shutil.which(name, path=path) is None]
    if missing:
        package = "jupyterlab" if server == "lab" else "notebook"
        raise CallError(f"`{missing[-1]}` is not installed, or not on PATH: `pip install {package}`")


def check_search(search: Search) -> None:
    """Check that a search can run here. CallError."""
    if search.algorithm == "random_search" and search.size is None:
        raise CallError("the matrix has no end: write `random_search: {n_experiments: N}`")
    for package in packages(search.algorithm):
        if not extras.is_installed(package):
            fault = ModuleNotFoundError(f"No module named {package!r}", name=package)
            raise extras.missing("search", f"the search `{search.algorithm}`", fault)


def check_capacity(made: Plan, notify: Notify, *, strict: bool) -> None:
    """Warn if the run is too large for this machine. It is no error, so that a laptop can test a cluster's file. Raises
    CallError when `strict`."""
    beyond = excess(requested_by(decode_plan(document(made))), this_machine()[0])
    if beyond and strict:
        raise CallError(f"the run requests more than this machine has: {beyond}; without `strict` it runs anyway")
    if beyond:
        notify(Remark(RemarkKind.WARNING, f"requests more than this machine has: {beyond}"))


def check_backend(home: Path, submission: Submission, made: Plan, notify: Notify) -> None:
    """Find what the run's cluster would reject, before the run waits in a queue for days. Raises SpecErrors with all
    errors errors at once, CallError."""
    verdict = review(
        submission.on or submission.backend,
        [("", made)],
        submission.tree,
        home=home,
        environment=submission.environment,
    )
    for note in verdict.notes:
        notify(Remark(RemarkKind.ADVICE, note))
    if verdict.errors:
        raise SpecErrors(verdict.errors)


def ignored_fields(loaded: Spec) -> list[str]:
    """Messages about fields of the file that this machine ignores: the user must know."""
    notes = []
    build, settings = loaded.build, loaded.environment.settings
    if loaded.kind is Kind.BUILD:
        is_image = build is not None and build.image is not None and build.to is None
        return [f"a virtual environment is made; the image `{build.image}` is not used"] if build and is_image else []
    if build is not None and (build.image or build.dockerfile):
        notes.append(f"runs in the environment of this shell, not in the image `{build.image or build.dockerfile}`")
    if build is not None:
        named = [name for name in ("ref", "commit", "branch") if getattr(build, name)]
        notes += [f"`build.{name}` is ignored on this machine: the run uses the code in this folder" for name in named]
    missing = ("secret_refs", "config_map_refs", "data_refs", "artifact_refs")
    notes += [f"`environment.{name}` is not available on this machine" for name in missing if getattr(settings, name)]
    if loaded.environment.outputs is not None:
        notes.append("`environment.outputs` is not available on this machine")
    return notes


class BackendVerdict:
    """The findings of a backend about a file, with their locations in it."""

    def __init__(self, reviews: Iterable[Review], tree: Node) -> None:
        self.reviews = list(reviews)
        found = [one for review in self.reviews for one in review.findings]
        faults = (one for one in found if one.severity == "error")
        errors = [SpecError(_place(tree, one.path), one.path, one.message, one.suggestion) for one in faults]
        self.errors = sorted(errors, key=lambda error: error.place[:3])
        self.advice = [one for one in found if one.severity != "error"]
        self.notes = [Note(_place(tree, one.path), one.path, _said(one)) for one in self.advice]

    def as_json(self) -> dict[str, Any]:
        advice = [
            {**note.as_json(), "message": one.message, "suggestion": one.suggestion}
            for note, one in zip(self.notes, self.advice, strict=True)
        ]
        data = {name: value for review in self.reviews for name, value in review.data.items()} | {"advice": advice}
        if self.errors:
            return {"ok": False, "errors": [error.as_json() for error in self.errors], **data}
        return data


def review(  # noqa: PLR0913
    on: str,
    plans: Iterable[tuple[str, Plan]],
    tree: Node,
    *,
    home: Path,
    environment: Mapping[str, str],
    options: Mapping[str, str | None] = NO_OPTIONS,
) -> BackendVerdict:
    """Let the backend `on` review plans, each with the prefix of its messages. Raises CallError, SpecErrors."""
    there = backends.find(on)
    groups: dict[str, list[tuple[str, Plan]]] = {}
    for prefix, made in plans:
        groups.setdefault(there.backend_for(made.backend), []).append((prefix, made))
    reviews = [
        backends.find(name).review(group, home, environment, options)
        for name, group in (groups or {there.name: []}).items()
    ]
    return BackendVerdict(reviews, tree)


def gpu_history(home: Home, store: Store, loaded: Spec, made: Plan, folder: Path) -> Review:
    """Advice about GPUs that earlier runs of a file in this folder hardly used."""
    earlier = runs_before(home, store, name=loaded.name, framework=loaded.framework, folder=folder)
    if not earlier:
        return Review([])  # encoding a plan of many replicas takes seconds
    remarks = gpu_remarks(decode_plan(document(made)), earlier)
    return Review([SiteFinding(ADVICE, f"{resources_path(one.role)}.gpu", one.text, one.suggestion) for one in remarks])


def _said(finding: SiteFinding) -> str:
    return finding.message + (f" ({finding.suggestion})" if finding.suggestion else "")


def _place(tree: Node, path: str) -> Location:
    """The location of a path in the file: its value, or the key of the nearest section; else the file."""
    node, is_there = tree, bool(path)
    for step in path.split("."):
        child = node.get(step)
        if child is None:
            is_there = False
            break
        node = child
    mark = node.mark if is_there else node.key_mark
    return mark.place() if mark is not None else Location(tree.mark.source.name)
