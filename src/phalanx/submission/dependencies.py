"""Which runs a new run waits for: `--after RUN[:succeeded|failed|done]`, or `after:` in the file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from phalanx.errors import CallError
from phalanx.home.dependencies import Dependency, RequiredEnd
from phalanx.store import Run
from phalanx.submission.model import Submission

MOST = 1000


def resolve(texts: Iterable[str], find: Callable[[str], Run]) -> tuple[Dependency, ...]:
    """The dependencies that texts mean. `find` returns the run that a user means, or raises CallError. Raises CallError
    with all faults: of unknown runs, and of runs that have ended in another way than required."""
    found: dict[str, Dependency] = {}
    faults: list[str] = []
    for text in dict.fromkeys(texts):
        try:
            dependency = _resolved(text, find)
        except CallError as fault:
            faults.append(str(fault))
            continue
        known = found.setdefault(dependency.run_id, dependency)
        if known.condition != dependency.condition:
            faults.append(f"{known.label} is named twice: to {known.verb}, and to {dependency.verb}")
    if len(found) > MOST:
        faults.append(f"a run may wait for at most {MOST:,} runs; this one names {len(found):,}")
    if faults:
        raise CallError(f"`after`: {'; '.join(faults)}")
    return tuple(found.values())


def with_dependencies(submission: Submission, find: Callable[[str], Run]) -> Submission:
    """The same, with the runs that it waits for: those of its file, and its own. Raises CallError."""
    after = (*submission.spec.after, *submission.after)
    return replace(submission, waits_for=resolve(after, find)) if after else submission


def _resolved(text: str, find: Callable[[str], Run]) -> Dependency:
    name, _, word = text.rpartition(":")
    if not name or word not in tuple(RequiredEnd):
        name, word = text, ""
    try:
        run = find(name)
    except CallError as fault:
        if ":" in text and not word:
            raise CallError(f"{fault}; after a colon, write {', '.join(RequiredEnd)}") from None
        raise
    dependency = Dependency.on(run, RequiredEnd(word or RequiredEnd.SUCCEEDED))
    if dependency.condition.holds(run.status) is False:
        raise CallError(f"{dependency.label} has already ended as {run.status}, so it will never {dependency.verb}")
    return dependency
