"""Makes a failing case smaller while it fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.cases import Case
from tests.fuzz.yaml_trees import Map, Prefixed, Spot, Tree, bare, copy, parse, spots, to_text

ATTEMPTS = 600
SECONDS = 25.0

Fails = Callable[[Case], bool]


def minimise(case: Case, fails: Fails, attempts: int = ATTEMPTS, seconds: float = SECONDS) -> Case:
    """The smallest case found within these limits: fewer files, params, keys, lines and characters."""
    left, until = attempts, time.monotonic() + seconds
    improved = True
    while improved:
        improved = False
        for smaller in _smaller(case):
            if smaller.size >= case.size and len(smaller.files) == len(case.files):
                continue
            if left <= 0 or time.monotonic() > until:
                return case
            left -= 1
            if fails(smaller):
                case, improved = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Cases with less in them, the largest cuts first."""
    for number in range(len(case.params)):
        yield replace(case, params=case.params[:number] + case.params[number + 1 :])
    if len(case.files) > 1:
        for number in range(len(case.files)):
            yield replace(case, files=case.files[:number] + case.files[number + 1 :])
    for number, (ending, text) in enumerate(case.files):
        for shorter in _shorter(text):
            yield replace(case, files=(*case.files[:number], (ending, shorter), *case.files[number + 1 :]))
    for number, param in enumerate(case.params):
        name, equals, value = param.partition("=")
        if len(value) > 1:
            for part in (value[: len(value) // 2], value[len(value) // 2 :]):
                yield replace(case, params=(*case.params[:number], name + equals + part, *case.params[number + 1 :]))


def _shorter(text: bytes) -> Iterator[bytes]:
    yield from _without_parts(text)
    lines = text.splitlines(keepends=True)
    size = len(lines) // 2
    while size:
        for start in range(0, len(lines), size):
            yield b"".join(lines[:start] + lines[start + size :])
        size //= 2
    size = len(text) // 2
    while size:
        for start in range(0, len(text), size):
            yield text[:start] + text[start + size :]
        size //= 2


def _without_parts(text: bytes) -> Iterator[bytes]:
    """The tree without one of its entries, or with simpler values."""
    try:
        tree = parse(text.decode())
    except UnicodeDecodeError:
        return
    if tree is None:
        return
    count = len(list(spots(tree)))
    for position in range(count):
        twin = copy(tree)
        spot = list(spots(twin))[position]
        for value in _simpler(spot.value):
            spot.put(value)
            yield to_text(twin).encode("utf-8", "surrogatepass")
        if _dropped(twin, spot):
            yield to_text(twin).encode("utf-8", "surrogatepass")


def _simpler(value: Tree) -> Iterator[Tree]:
    if isinstance(value, Prefixed):
        yield value.value
    elif not isinstance(value, str) and len(value) > 1:
        yield type(value)(value[: len(value) // 2])
        yield type(value)(value[len(value) // 2 :])
    elif isinstance(value, str) and len(value) > 40:
        yield value[: len(value) // 2] + ('"' if value[0] == '"' else "")


def _dropped(tree: Tree, spot: Spot) -> bool:
    """Remove the entry of a map or the element of a list that a spot is."""
    holders: list[Tree] = [tree]
    holders += [bare(each.value) for each in spots(tree) if not isinstance(bare(each.value), str)]
    for holder in holders:
        if isinstance(holder, Map):
            for position, pair in enumerate(holder):
                if pair is spot.holder:
                    del holder[position]
                    return True
        elif holder is spot.holder:
            del holder[spot.position]
            return True
    return False
