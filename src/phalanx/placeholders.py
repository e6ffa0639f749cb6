"""Placeholders: values with holes that are filled only on the machine where they are used.

A plan is made before the hosts, ports and folders of a run are known. A value that depends on them is a tuple of texts
and holes; everything else is a plain string. User text is never searched for holes, so none can be injected. Standard
library only, Python 3.8+: the agent fills the holes next to the replica.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Sequence, Tuple, Union

ANY = "*"
_SAFE = re.compile(r"[\w.:/@%+=,~<>* -]*\Z")  # letters of any language, and characters of addresses and paths


class Hole(NamedTuple):
    """One missing value: the `host` or `port` of a replica, the `path` of one of the run's folders, or the network
    `interface` that its replicas share, which is empty if unknown."""

    kind: str
    of: str


class Each(NamedTuple):
    """The same parts for every replica of a role; a hole of `*` means the current replica."""

    role: str
    parts: Parts
    separator: str


Parts = Tuple[Union[str, Hole], ...]
Value = Union[str, Tuple[Union[str, Hole, Each], ...]]
Members = Mapping[str, Sequence[str]]
Fill = Callable[[Hole], str]


def host(replica: str = ANY) -> Hole:
    return Hole("host", replica)


def port(replica: str = ANY) -> Hole:
    return Hole("port", replica)


def interface() -> Hole:
    return Hole("interface", ANY)


def path(name: str) -> Hole:
    return Hole("path", name)


def fill(value: Value, members: Members, answer: Fill) -> str:
    """The value as text, with every hole filled. Raises ValueError for text that could break out of its quotes."""
    if isinstance(value, str):
        return value
    return "".join(part if isinstance(part, str) else _answered(part, answer) for part in unfold(value, members))


def unfold(value: Value, members: Members) -> Iterator[str | Hole]:
    """The texts and holes of a value, in order; `members`: the names of the replicas by role."""
    for part in (value,) if isinstance(value, str) else value:
        if not isinstance(part, Each):
            yield part
            continue
        for number, name in enumerate(members.get(part.role, ())):
            if number:
                yield part.separator
            for inner in part.parts:
                yield Hole(inner.kind, name) if isinstance(inner, Hole) and inner.of == ANY else inner


def is_safe(text: str) -> bool:
    """Whether a text cannot break out of quotes around it."""
    return _SAFE.match(text) is not None


def _answered(hole: Hole, answer: Fill) -> str:
    text = answer(hole)
    if not is_safe(text):
        raise ValueError(f"the {hole.kind} of {hole.of} has characters that cannot be passed on: {text!r}")
    return text


def encode(value: Value) -> Any:
    """A value as JSON: plain text as itself, anything with holes as {"parts": […]}."""
    return value if isinstance(value, str) else {"parts": [_encode_part(part) for part in value]}


def _encode_part(part: str | Hole | Each) -> Any:
    if isinstance(part, str):
        return part
    if isinstance(part, Hole):
        return {part.kind: part.of}
    return {
        "each": part.role,
        "parts": [_encode_part(inner) for inner in part.parts],
        "separator": part.separator,
    }


def decode(data: Any) -> Value:
    """The inverse of `encode`."""
    return data if isinstance(data, str) else tuple(_decode_part(part) for part in data["parts"])


def _decode_part(data: Any) -> str | Hole | Each:
    if isinstance(data, str):
        return data
    if "each" in data:
        parts = tuple(_decode_part(part) for part in data["parts"])
        return Each(data["each"], parts, data["separator"])  # type: ignore[arg-type]
    ((kind, of),) = data.items()
    return Hole(kind, of)
