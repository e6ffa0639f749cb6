"""The submission of an op, made from that of its pipeline."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from phalanx.errors import CallError, SpecError, SpecErrors
from phalanx.spec import Spec
from phalanx.spec.model import Operation, thaw
from phalanx.spec.pipelines.ops import op_spec
from phalanx.spec.pipelines.reader import elsewhere
from phalanx.submission.model import OpPlace, Submission
from phalanx.submission.snapshots import files_of

NO_VALUES: Mapping[str, Any] = {}
_OF_THE_PIPELINE = ("name", "description", "tags", "after")


def op_submission(
    whole: Submission, op: Operation, place: OpPlace, values: Mapping[str, Any] = NO_VALUES
) -> Submission:
    """`values`: of the params that are outputs of other ops. Raises CallError, SpecErrors."""
    if op.spec is None:
        raise CallError(elsewhere(op))
    spec = op_spec(op, values)
    on = whole.on if whole.on is not None or spec.backend else whole.spec.backend
    name = whole.name or whole.spec.name
    return replace(
        whole,
        spec=spec,
        files=(),
        params={},
        name=f"{name}-{op.name}" if name else op.name,
        description=None,
        tags=(*whole.tags, *op.settings.get("tags", ())),
        timeout_s=None,
        after=(),
        waits_for=(),
        on=on,
        origin=None,
        op=place,
    )


def alike(ops: Iterable[Operation]) -> Iterator[tuple[Operation, bool]]:
    """Each op, and whether an op before it differs from it in its params at most: a cluster accepts both or none."""
    seen: set[str] = set()
    for op in ops:
        sections = [thaw(op.settings.get(name)) for name in ("environment", "build")]
        key = json.dumps([dict(op.template), sections], sort_keys=True, default=str)
        yield op, key in seen
        seen.add(key)


class OpFaults:
    """The faults of all ops, raised together."""

    def __init__(self) -> None:
        self.errors: list[SpecError] = []
        self.ops: dict[str, list[str]] = {}  # by message

    def add(self, op: str, fault: CallError | SpecErrors) -> None:
        if isinstance(fault, SpecErrors):
            self.errors += [error for error in fault.errors if error not in self.errors]
        else:
            self.ops.setdefault(str(fault), []).append(op)

    def check(self) -> None:
        """Raises SpecErrors or CallError if there were faults."""
        if self.errors:
            raise SpecErrors(self.errors)
        if self.ops:
            raise CallError("; ".join(f"{_named(ops)}: {message}" for message, ops in self.ops.items()))


def _named(ops: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in ops[:8]) + (" …" if len(ops) > 8 else "")
    return f"op {shown}" if len(ops) == 1 else f"ops {shown}"


def reuses(op: Operation, whole: Spec) -> bool:
    assert whole.pipeline is not None
    return bool(op.settings.get("reuse", whole.pipeline.reuse))


def digest_of_code(folder: Path | None) -> str:
    """A hash of the names and contents of the files of the code, as a snapshot would take them."""
    digest = hashlib.sha256()
    for name in sorted(files_of(folder)) if folder is not None else ():
        digest.update(f"{name}\0{digest_of_file(folder / name) if folder is not None else ''}\0".encode())
    return digest.hexdigest()


def digest_of_file(path: Path) -> str:
    """A hash of a file, or of all files of a folder."""
    if path.is_dir():
        parts = [f"{one.relative_to(path)}\0{digest_of_file(one)}" for one in sorted(path.rglob("*")) if one.is_file()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def reuse_key(submission: Submission, code: str, inputs: Mapping[str, Any]) -> str:
    """What two runs have in common if one can take the place of the other: the file, the code and the inputs.
    `inputs`: values of params that are outputs of other ops; of paths, the hash of their content."""
    document = thaw(submission.spec.document)
    document = {name: value for name, value in document.items() if name not in _OF_THE_PIPELINE}
    params = {name: value for name, value in thaw(submission.spec.params).items() if name not in inputs}
    document["params"] = {**params, **{name: thaw(value) for name, value in inputs.items()}}
    facts = [document, submission.backend, code]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
