"""What is looked at before a run is submitted, by whoever submits it: whether it can run at all, what its place would
refuse, and what it will not get there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from phalanx import backends, plan
from phalanx.backends.contract import LOCAL_BACKENDS, NO_OPTIONS, Review
from phalanx.errors import CallError, Location, Note, SpecError
from phalanx.plan import Plan
from phalanx.plan.document import document
from phalanx.scheduler.capacity import excess, requested_by, this_machine
from phalanx.sites.findings import SiteFinding
from phalanx.spec import Kind, Spec
from phalanx.spec.tree import Node
from phalanx.submission.availability import require_engine


def runs_locally(loaded: Spec, backend: str | None) -> bool:
    """Whether its replicas are processes of this machine."""
    return (backend or loaded.backend or "native") in LOCAL_BACKENDS


def check_runnable(
    home: Path,
    loaded: Spec,
    backend: str | None,
    environment: Mapping[str, str],
    cluster: Mapping[str, str | None] = NO_OPTIONS,
) -> None:
    """`cluster`: which one, as the command line names it. Raises CallError."""
    if loaded.kind in (Kind.GROUP, Kind.PIPELINE):
        raise CallError(f"a {loaded.kind} is many runs, which `run` cannot start yet; `phalanx plan` shows its first")
    place = backend or loaded.backend or "native"
    if place not in LOCAL_BACKENDS and place not in backends.names():
        known = ", ".join(backends.names())
        raise CallError(f"runs cannot start on `{place}` yet: --on names one of {known}")
    if loaded.command is None and loaded.kind in (Kind.EXPERIMENT, Kind.JOB):
        raise CallError("nothing to run: the file has no `run: {cmd: ...}`")
    require_engine(home, place, environment, cluster)


def capacity_excess(loaded: Spec) -> str | None:
    """What a run asks for beyond what this machine has, in words."""
    return excess(requested_by(document(plan.make(loaded, "trial"))), this_machine()[0])


def ignored_fields(loaded: Spec) -> list[str]:
    """What the file asks for that this machine does not give: a run must not rely on it in silence."""
    told = []
    build, settings = loaded.build, loaded.environment.settings
    if build is not None and (build.image or build.dockerfile):
        told.append(f"runs in the environment of this shell, not in the image of `{build.image or build.dockerfile}`")
    if build is not None:
        named = [name for name in ("ref", "commit", "branch") if getattr(build, name)]
        told += [f"`build.{name}` is not used on this machine: the code is that of this folder" for name in named]
    missing = ("secret_refs", "config_map_refs", "data_refs", "artifact_refs")
    told += [f"`environment.{name}` is not available on this machine" for name in missing if getattr(settings, name)]
    if loaded.environment.outputs is not None:
        told.append("`environment.outputs` is not available on this machine")
    return told


class BackendVerdict:
    """What a backend says of a file, with the places in it."""

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
        told = {name: value for review in self.reviews for name, value in review.data.items()} | {"advice": advice}
        if self.errors:
            return {"ok": False, "errors": [error.as_json() for error in self.errors], **told}
        return told


def review(  # noqa: PLR0913
    on: str,
    plans: Iterable[tuple[str, Plan]],
    tree: Node,
    *,
    home: Path,
    environment: Mapping[str, str],
    options: Mapping[str, str | None] = NO_OPTIONS,
) -> BackendVerdict:
    """What the backend `on` says of plans, each with the prefix of its messages. Raises CallError, SpecErrors."""
    there = backends.find(on)
    groups: dict[str, list[tuple[str, Plan]]] = {}
    for prefix, made in plans:
        groups.setdefault(there.backend_for(made), []).append((prefix, made))
    reviews = [
        backends.find(name).review(group, home, environment, options)
        for name, group in (groups or {there.name: []}).items()
    ]
    return BackendVerdict(reviews, tree)


def _said(finding: SiteFinding) -> str:
    return finding.message + (f" ({finding.suggestion})" if finding.suggestion else "")


def _place(tree: Node, path: str) -> Location:
    """Where a path stands in the file: its value, or the key of the section nearest to it; else the file."""
    node, is_there = tree, bool(path)
    for step in path.split("."):
        child = node.get(step)
        if child is None:
            is_there = False
            break
        node = child
    mark = node.mark if is_there else node.key_mark
    return mark.place() if mark is not None else Location(tree.mark.source.name)
