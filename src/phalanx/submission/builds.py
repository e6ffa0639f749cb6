"""Builds as runs: where a build puts what it makes, and runs that use an earlier build (`build: {ref: RUN}`)."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from phalanx import run_paths
from phalanx.agent.virtualenv import pip_words
from phalanx.atomic_files import read_json
from phalanx.errors import CallError, path_error
from phalanx.home.dependencies import Dependency
from phalanx.home.home import Home
from phalanx.plan import builders
from phalanx.plan.build_recipes import COPIED_FIRST, key_of
from phalanx.plan.builders import BuildTarget
from phalanx.spec.loader import load_document
from phalanx.spec.model import Build, Kind, Spec, freeze, thaw_written
from phalanx.store import DONE, Run, Store
from phalanx.submission import virtualenvs
from phalanx.submission.model import Submission
from phalanx.submission.virtualenvs import VirtualenvSpec

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z", re.ASCII)
KUBERNETES = ("kubernetes", "kubeflow")


class BuildResult(NamedTuple):
    """What a build makes: a kind, and its path or image name. A file of the run's folder."""

    target: BuildTarget
    at: str | None  # None: only the cluster knows

    @classmethod
    def read(cls, folder: Path) -> BuildResult | None:
        found = read_json(folder / run_paths.BUILD)
        try:
            return cls(BuildTarget(found["target"]), found["at"]) if isinstance(found, dict) else None
        except (LookupError, ValueError):
            return None


class OwnBuild(NamedTuple):
    """The build of one run: its submission, and the key of what it makes."""

    submission: Submission
    key: str
    is_isolated: bool  # without the packages of the machine's Python


def recipe_here(build: Build, folder: Path) -> tuple[str, str] | None:
    """The Dockerfile or definition file of a build, and the key of its content in a folder; None if it makes no image.
    Raises CallError."""
    context = folder / (build.context or ".")
    try:
        text = builders.recipe_of(build)
        if text is None and builders.target_of(build) is not BuildTarget.VIRTUALENV:
            text = (folder / (build.dockerfile or "")).read_text(encoding="utf-8", errors="surrogateescape")
        if text is None:
            return None
        matches = {pattern: sorted(context.glob(pattern)) for pattern in COPIED_FIRST}
        if build.dockerfile is None:
            unused = {line for pattern, line in builders.FIRST_LINES.items() if not matches[pattern]}
            text = "".join(line for line in text.splitlines(keepends=True) if line.rstrip("\n") not in unused)
        names = [name for found in matches.values() for name in found if name.is_file()]
        files = [(os.fsencode(name.name), name.read_bytes()) for name in names]
    except OSError as fault:
        raise path_error("cannot read what the build reads", fault) from None
    return text, key_of(text.encode("utf-8", "surrogateescape"), files)


def check(submission: Submission) -> None:
    """Check that this machine has what a build needs. Raises CallError."""
    build = submission.spec.build or Build()
    if build.ref is not None:
        raise CallError("`ref` names an earlier build, and a build makes a new one: name an `image` instead")
    if not submission.is_local:
        return
    if build.dockerfile is not None and build.to is None:
        raise CallError(
            "a Dockerfile makes an image: say where it goes, with `--to NAME.tar` or `--to REGISTRY/NAME:TAG`"
        )
    target = builders.target_of(build)
    names, path = builders.builders_of(target), submission.environment.get("PATH", os.defpath)
    if names and not any(shutil.which(name, path=path) for name in names):
        raise CallError(builders.MISSING_BUILDERS[target])


def result_of(home: Home, submission: Submission, run_id: str) -> BuildResult:
    """Where a build puts what it makes. Raises CallError."""
    build, folder = submission.spec.build or Build(), submission.code.folder
    target = builders.target_of(build)
    if submission.backend in KUBERNETES:
        return BuildResult(BuildTarget.REGISTRY, build.to)
    if target is BuildTarget.VIRTUALENV:
        if folder is None:  # the code comes from elsewhere: what its files contain is not known here
            return BuildResult(target, str(home.path / "builds" / run_id / "venv"))
        key = virtualenvs.key_of(VirtualenvSpec(submission.spec.environment.python, build), folder)
        return BuildResult(target, str(home.path / "builds" / key / "venv"))
    if target is BuildTarget.REGISTRY:
        return BuildResult(target, build.to)
    kind, _, path = (build.to or "").rpartition(":")
    working = (
        folder if folder is not None and not submission.code.is_snapshot else home.run(run_id).path / run_paths.CODE
    )
    return BuildResult(target, f"{kind}:{working / path}" if kind else str(working / path))


def variables(result: BuildResult, *, is_isolated: bool = False) -> dict[str, str]:
    """The variables that tell the command of a build its place. `is_isolated`: without the packages of the machine's
    Python."""
    if result.target is not BuildTarget.VIRTUALENV or result.at is None:
        return {}
    found = {builders.FOLDER: os.path.dirname(result.at), "PHALANX_FOUND_PYTHON": sys.executable}
    return {**found, "PHALANX_BUILD_ISOLATED": "1"} if is_isolated else found


def own_build(submission: Submission) -> OwnBuild | None:
    """The build that makes the virtual environment of a run of this machine, as its own run. None if the run needs
    none, or is not made alone: for groups, pipelines and other backends, the submitter or a node makes it."""
    spec, folder = submission.spec, submission.code.folder
    wanted = VirtualenvSpec.by(spec, with_steps=submission.is_built)
    is_alone = spec.kind in (Kind.EXPERIMENT, Kind.JOB) and spec.search is None and submission.place is None
    if wanted is None or folder is None or not (submission.is_local and submission.may_install and is_alone):
        return None
    python, build = wanted
    install = (shlex.join(["python", *pip_words(python._asdict())]),) if python.requirements else ()
    document = {
        "version": 1,
        "kind": "build",
        **({"name": f"{spec.name}-build"} if spec.name else {}),
        "build_steps": [*install, *build.build_steps],
        "env_vars": dict(build.env_vars),
        "nocache": build.nocache,
    }
    content = build._replace(build_steps=(*install, *build.build_steps), image=None, ref=None, to=None, dockerfile=None)
    asked = replace(
        submission,
        spec=replace(
            load_document(spec.file, {"version": 1, "kind": "build"}), build=content, document=freeze(document)
        ),
        name=f"{submission.name or spec.name}-build" if submission.name or spec.name else None,
        description=None,
        tags=(),
        timeout_s=None,
        waits_for=(),
        code=replace(submission.code, is_snapshot=False, put=None),
        origin=None,
        is_built=False,
    )
    return OwnBuild(asked, virtualenvs.key_of(wanted, folder), is_isolated=bool(python.requirements))


def is_built(home: Home, own: OwnBuild) -> bool:
    """Whether equal content was built before."""
    build = own.submission.spec.build
    return (home.path / "builds" / own.key / "done").exists() and not (build is not None and build.nocache)


def underway(home: Home, store: Store, at: str) -> Run | None:
    """An unfinished build of this home that makes the same."""
    for run in store.runs("kind:build, status:created|resuming|warning|scheduled|starting|running", limit=None):
        made = BuildResult.read(home.run(run.id).path)
        if made is not None and made.at == at:
            return run
    return None


def pinned(spec: Spec, find: Callable[[str], Run]) -> Spec:
    """The same spec with the id of the build that `build.ref` names, so that it means the same build later. Raises
    CallError."""
    build = spec.build
    if build is None or build.ref is None or spec.kind is Kind.BUILD:
        return spec
    try:
        run = find(build.ref)
    except CallError as fault:
        raise CallError(f"`build.ref`: {fault}") from None
    document: Any = thaw_written(spec.document)
    document["build"] = {**document["build"], "ref": run.id}
    return replace(spec, build=build._replace(ref=run.id), document=freeze(document))


def with_pinned_ops(whole: Spec, specs: Mapping[str, Spec]) -> Spec:
    """The same pipeline, whose ops name builds by the ids that are in their pinned specs."""
    refs = {name: spec.build.ref for name, spec in specs.items() if spec.build is not None and spec.build.ref}
    if not refs:
        return whole
    document: Any = thaw_written(whole.document)
    for op in document["ops"]:  # what an op says about its build is laid over its template
        if op["name"] in refs:
            op["build"] = {**(op.get("build") or {}), "ref": refs[op["name"]]}
    return replace(whole, document=freeze(document))


def with_earlier_build(home: Home, submission: Submission) -> Submission:
    """The submission with what an earlier build made in the place of `build.ref`; while that is not finished, it waits
    for it. Raises CallError."""
    spec, build = submission.spec, submission.spec.build
    if build is None or build.ref is None or spec.kind is Kind.BUILD:
        return submission
    made, is_made = _made_by(home, build.ref)
    if not is_made:
        run = home.run(build.ref).read()
        depends = Dependency.on_build(build.ref, run.name if run is not None else None)
        others = [other for other in submission.waits_for if other.run_id != build.ref]
        submission = replace(submission, waits_for=(*others, depends))
    at, python = made.at or "", spec.environment.python
    plain = build._replace(ref=None, build_steps=())
    is_remote = submission.backend in KUBERNETES
    if made.target is BuildTarget.REGISTRY and is_remote:
        return replace(submission, spec=replace(spec, build=plain._replace(image=at)))
    if made.target is BuildTarget.VIRTUALENV and not is_remote:
        python = python._replace(venv=at)
    elif made.target is BuildTarget.APPTAINER and not is_remote and not submission.is_local:
        python = python._replace(image=at)
    else:
        where = "this machine" if submission.is_local else submission.backend
        raise CallError(
            f"`build.ref`: run {build.ref} made {at}, and runs on {where} cannot use it: {_HINTS[is_remote]}"
        )
    environment = spec.environment._replace(python=python)
    return replace(submission, spec=replace(spec, build=plain, environment=environment))


_HINTS = {
    True: "build it with `--to REGISTRY/NAME:TAG`",
    False: "build a virtual environment (without `--to`), or for Slurm `--to NAME.sif`",
}


def _made_by(home: Home, run_id: str) -> tuple[BuildResult, bool]:
    """What a build makes, and whether it is there. Raises CallError."""
    if not _ID.match(run_id):
        raise CallError(f"`build.ref`: `{run_id[:60]}` is not the id of a run")
    folder = home.run(run_id)
    history = folder.history()
    made, status = BuildResult.read(folder.path), history[-1].status if history else None
    if made is None:
        raise CallError(f"`build.ref`: run {run_id} is not a build")
    is_made = status == "succeeded"
    if status in DONE and not is_made:
        raise CallError(f"`build.ref`: build {run_id} is {status}, not succeeded: `phalanx logs {run_id}` shows why")
    if made.at is None:
        raise CallError(f"`build.ref`: the image of build {run_id} has no name: build it with `--to REGISTRY/NAME:TAG`")
    if is_made and made.target is not BuildTarget.REGISTRY and not os.path.exists(made.at.rpartition(":")[2]):
        raise CallError(f"`build.ref`: what build {run_id} made is gone: {made.at}; run the build again")
    return made, is_made
