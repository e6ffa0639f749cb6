"""The size of variables: Linux starts no process with a variable of more than 128 KiB.

Most frameworks need the address of one replica. TensorFlow's TF_CONFIG lists all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from phalanx.errors import CallError
from phalanx.placeholders import Each, Hole, Value
from phalanx.plan.model import Plan, template_of

LARGEST = 128 << 10  # bytes of `NAME=value` and its final NUL
_ADVICE = "use fewer replicas, each with more GPUs"


class AddressLengths(NamedTuple):
    """The number of characters of the shortest host and the shortest port."""

    host: int = 1
    port: int = 4


class LongVariable(NamedTuple):
    name: str
    size: int  # bytes, at least

    @property
    def words(self) -> str:
        return (
            f"{self.name} lists the addresses of all replicas and would have at least {self.size >> 10} KiB, "
            f"but Linux starts no process with a variable of more than {LARGEST >> 10} KiB"
        )


def too_long(plan: Plan, lengths: AddressLengths = AddressLengths()) -> LongVariable | None:  # noqa: B008
    """A variable with which no replica could start, for any address."""
    firsts = {replica.role: template_of(replica) for replica in reversed(plan.replicas)}  # roles have different wiring
    for variables in (plan.shared, *firsts.values()):
        for name, value in variables.items():
            if isinstance(value, str):
                continue  # only lists of addresses grow with the run
            size = len(name) + 2 + _least(value, plan.roles, lengths)
            if size > LARGEST:
                return LongVariable(name, size)
    return None


def refuse_too_long(plan: Plan, lengths: AddressLengths) -> None:
    """Raises CallError."""
    found = too_long(plan, lengths)
    if found is not None:
        raise CallError(f"{found.words}: {_ADVICE}")


def note(plan: Plan) -> str | None:
    """What to say about a plan that cannot start anywhere."""
    found = too_long(plan)
    return None if found is None else f"no replica could start: {found.words} ({_ADVICE})"


def _least(value: Value, roles: Mapping[str, int], lengths: AddressLengths) -> int:
    """The number of characters that the text of a value has at least."""
    size = 0
    for part in value:
        if isinstance(part, str):
            size += len(part)
        elif isinstance(part, Hole):
            size += _of_hole(part, lengths)
        else:
            size += _of_list(part, roles.get(part.role, 0), lengths)
    return size


def _of_list(part: Each, count: int, lengths: AddressLengths) -> int:
    one = sum(len(inner) if isinstance(inner, str) else _of_hole(inner, lengths) for inner in part.parts)
    return one * count + len(part.separator) * max(0, count - 1)


def _of_hole(hole: Hole, lengths: AddressLengths) -> int:
    return {"host": lengths.host, "port": lengths.port, "own": 1}.get(hole.kind, 0)
