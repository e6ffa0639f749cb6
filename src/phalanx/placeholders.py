"""Placeholders: values with holes that are filled only on the machine where they are used.

A plan is made before the hosts, ports and folders of a run are known. A value that depends on them is a tuple of texts
and holes; everything else is a plain string. User text is never searched for holes, so none can be injected. Standard
library only, Python 3.8+: the agent fills the holes next to the replica.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Protocol, Sequence, Tuple, Union

ANY = "*"
SELF = "self"  # the replica that the value is for
_SAFE = re.compile(r"[\w.:/@%+=,~<>* -]*\Z")  # letters of any language, and characters of addresses and paths


class Hole(NamedTuple):
    """One missing value: the `host` or `port` of a replica, the `path` of one of the run's folders, the network
    `interface` that its replicas share, which is empty if unknown, or one of the replica's `own` numbers."""

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


def own(number: str) -> Hole:
    """A field of `OwnNumbers`: replicas whose values differ only in these share one template."""
    return Hole("own", number)


class OwnNumbers(NamedTuple):
    """What tells a process from others of its kind. `node`: its replica, counted over all roles. `cross`: the number of
    earlier replicas with a process of the same local number. In a plan, `Member` has these, too."""

    name: str
    index: int  # type: ignore[assignment] # hides `tuple.index`
    rank: int
    node: int = 0
    cross: int = 0


class Numbered(Protocol):
    """`OwnNumbers`, or what else has its fields."""

    @property
    def name(self) -> str: ...
    @property
    def node(self) -> int: ...
    @property
    def cross(self) -> int: ...


class OwnValues(Mapping[str, Value]):
    """The variables of one process: a template that all processes of its kind share, and its own numbers, which are
    filled in when a variable is read."""

    __slots__ = ("numbers", "template")

    def __init__(self, template: Mapping[str, Value], numbers: Numbered) -> None:
        self.template, self.numbers = template, numbers

    def __getitem__(self, name: str) -> Value:
        return owned(self.template[name], self.numbers)

    def __iter__(self) -> Iterator[str]:
        return iter(self.template)

    def __len__(self) -> int:
        return len(self.template)

    def __contains__(self, name: object) -> bool:
        return name in self.template

    def __repr__(self) -> str:
        return repr(dict(self))


def is_own(value: Value) -> bool:
    """Whether the value depends on the numbers of the replica."""
    if isinstance(value, str):
        return False
    return any(isinstance(part, Hole) and (part.kind == "own" or part.of == SELF) for part in value)


def owned(value: Value, numbers: Numbered) -> Value:
    """The value of one replica: its own numbers are filled in, holes that the machine fills stay."""
    if not is_own(value):
        return value
    parts = tuple(_owned(part, numbers) for part in value)
    return "".join(parts) if all(isinstance(part, str) for part in parts) else parts  # type: ignore[arg-type]


def _owned(part: str | Hole | Each, numbers: Numbered) -> str | Hole | Each:
    if not isinstance(part, Hole):
        return part
    if part.kind == "own":
        return str(getattr(numbers, part.of))
    return Hole(part.kind, numbers.name) if part.of == SELF else part


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
    if kind == "own" and of not in OwnNumbers._fields:
        raise ValueError("no number of a replica")
    return Hole(kind, of)
