"""Lists the wheels in folders, and which of them a Python can use.

pip itself uses `packaging`. Its tags are those of this interpreter, so that a site that discards
manylinux wheels (with the module `_manylinux`) gets the same result as with pip.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from phalanx.errors import CallError

if TYPE_CHECKING:
    from packaging.tags import Tag

ENDING = ".whl"
LONGEST_NAME = 1000  # longest file name considered, in characters


class Wheel(NamedTuple):
    """`why_not`: why it cannot be used here; None if it can. `version`: as in the file name."""

    name: str
    version: str
    build: str
    python: str
    abi: str
    platform: str
    folder: str
    file: str
    why_not: str | None = None


class SupportedTags(NamedTuple):
    """The tags that one Python supports, best first."""

    words: str
    ranks: dict[Tag, int]
    abis: frozenset[tuple[str, str]]  # pairs of interpreter and ABI
    platforms: frozenset[str]


def normal(name: str) -> str:
    """Normalised package name: Torch_Geometric and torch-geometric are the same."""
    return re.sub(r"[-_.]+", "-", name).lower()


def supported(python: str | None = None) -> SupportedTags:
    """The tags of this Python, or of another version of it on this machine. Raises CallError."""
    from packaging import tags

    if python is None:
        version, every = sys.version_info[:2], list(tags.sys_tags())
    else:
        version = _version(python)
        platforms = list(tags.platform_tags())
        short = f"cp{version[0]}{version[1]}"
        every = [
            *tags.cpython_tags(version, abis=[short], platforms=platforms),
            *tags.compatible_tags(version, interpreter=short, platforms=platforms),
        ]
    return SupportedTags(
        words=f"Python {version[0]}.{version[1]}",
        ranks={tag: rank for rank, tag in reversed(list(enumerate(every)))},
        abis=frozenset((tag.interpreter, tag.abi) for tag in every),
        platforms=frozenset(tag.platform for tag in every),
    )


def _version(text: str) -> tuple[int, int]:
    match = re.match(r"(\d{1,3})\.(\d{1,3})(?:\.\d+)?\Z", text)
    if match is None:
        raise CallError(f"--python {text!r}: write a version, such as 3.11")
    return int(match[1]), int(match[2])


def files_in(folders: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Folder and name of every wheel below the folders, each once. Raises CallError for a missing folder."""
    seen: set[str] = set()
    for top in folders:
        if not os.path.isdir(top):
            raise CallError(f"the wheel folder {top} does not exist")
        for folder, inner, names in os.walk(top):
            real = os.path.realpath(folder)
            if real in seen:
                inner.clear()
                continue
            seen.add(real)
            inner.sort()
            yield from ((folder, name) for name in names if name.endswith(ENDING))


def listed(
    files: Iterable[tuple[str, str]], patterns: Sequence[str], python: SupportedTags
) -> tuple[list[Wheel], set[str]]:
    """The wheels whose names match one of the patterns (all if there are none), newest and best first, and the names of
    all wheels."""
    wanted = [normal_pattern(pattern) for pattern in patterns]
    known: set[str] = set()
    found: list[tuple[Any, Wheel]] = []
    for folder, file in files:
        name = normal(file[:LONGEST_NAME].split("-", 1)[0])
        known.add(name)
        if not wanted or any(fnmatchcase(name, pattern) for pattern in wanted):
            found.append(_read(folder, file, name, python))
    found.sort(key=lambda pair: pair[0], reverse=True)
    found.sort(key=lambda pair: pair[1].name)
    return [wheel for _, wheel in found], known


def normal_pattern(pattern: str) -> str:
    """A normalised name or glob: `Torch_*` is `torch-*`."""
    return re.sub(r"[-_.]+", "-", pattern).lower()


def _read(folder: str, file: str, name: str, python: SupportedTags) -> tuple[Any, Wheel]:
    """A wheel and its sort key: version, then whether it can be used, then how well."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename
    from packaging.version import InvalidVersion, Version

    try:
        _, version, build, tags = parse_wheel_filename(file)
    except (InvalidWheelFilename, InvalidVersion, ValueError):
        wheel = Wheel(name, "", "", "", "", "", folder, file, "not a wheel name")
        return (0, Version("0"), 0, 0, ()), wheel
    written = file.removesuffix(ENDING).split("-")
    rank = min((python.ranks[tag] for tag in tags if tag in python.ranks), default=None)
    wheel = Wheel(
        name=name,
        version=str(version),
        build=written[2] if build else "",
        python=written[-3],
        abi=written[-2],
        platform=written[-1],
        folder=folder,
        file=file,
        why_not=None if rank is not None else _why_not(tags, python),
    )
    return (1, version, rank is not None, -(rank or 0), build), wheel


def _why_not(tags: Iterable[Tag], python: SupportedTags) -> str:
    every = list(tags)
    if any((tag.interpreter, tag.abi) in python.abis for tag in every):
        return f"for {_words(tag.platform for tag in every)}, not this machine"
    mine = {interpreter for interpreter, abi in python.abis if interpreter == abi}
    is_mine = any(tag.interpreter in mine for tag in every)
    names = (f"{tag.interpreter}-{tag.abi}" if is_mine else tag.interpreter for tag in every)
    return f"for {_words(names)}, not {python.words}"


def _words(names: Iterable[str]) -> str:
    every = sorted(set(names))
    return ", ".join(every[:3]) + (f" and {len(every) - 3} more" if len(every) > 3 else "")


def newest(wheels: Iterable[Wheel]) -> list[Wheel]:
    """For each name, the usable wheels of its newest version."""
    best: dict[str, str] = {}
    return [
        wheel
        for wheel in wheels
        if wheel.why_not is None and best.setdefault(wheel.name, wheel.version) == wheel.version
    ]


def paths_in(text: str) -> list[str]:
    """The folders in a value of pip's `find-links`; URLs are skipped."""
    found = []
    for word in text.split():
        path = word.removeprefix("file://")
        if "://" not in path:
            found.append(str(Path(path).expanduser()))
    return found
