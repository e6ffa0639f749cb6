"""Requirements that a wheelhouse does not have, found before submission instead of on the nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from phalanx.sites.findings import ADVICE, ERROR, SiteFinding, join_names
from phalanx.sites.model import Site
from phalanx.sites.profile_reader import WHEELHOUSE_JOINT
from phalanx.sites.wheels import ENDING, normal, paths_in
from phalanx.spec.model import PythonOptions
from phalanx.spec.suggestions import did_you_mean

if TYPE_CHECKING:
    from packaging.requirements import Requirement

SOURCES = (".tar.gz", ".zip")  # pip builds these
_PATH = "environment.python.requirements"


def wheelhouse_findings(
    python: PythonOptions, named: Sequence[str], site: Site | None, environment: Mapping[str, str]
) -> list[SiteFinding]:
    """All requirements without a matching file in the wheel folders. `named`: the folders of `python.wheelhouse`, as
    paths. Folders that only the site or pip names may be incomplete: then it is advice."""
    if not python.requirements or not (named or python.no_index):
        return []
    for text, folder in zip(python.wheelhouse, named, strict=True):
        if not os.path.isdir(folder):
            severity = ERROR if text.startswith(("/", "~")) else ADVICE  # other paths may mean another place on nodes
            hint = "name an existing folder of wheels, or write `no_index: true` for the site's"
            return [SiteFinding(severity, "environment.python.wheelhouse", f"there is no wheelhouse {folder}", hint)]
    folders = list(named) or _usual(site, environment)
    if not all(map(os.path.isdir, folders)) or not folders:
        return []
    versions = _versions(folders)
    faults = [fault for one in _wanted(python.requirements) if (fault := _fault(one, versions)) is not None]
    if not faults:
        return []
    hint = "`phalanx wheels NAME` lists what is there; `build_on: login` installs where the internet is"
    words = f"not in the wheelhouse: {', '.join(faults)} (in {join_names(folders)})"
    return [SiteFinding(ERROR if named else ADVICE, _PATH, words, hint)]


def _usual(site: Site | None, environment: Mapping[str, str]) -> list[str]:
    of_site = site.wheelhouse.split(WHEELHOUSE_JOINT) if site is not None and site.wheelhouse else []
    return [*of_site, *paths_in(environment.get("PIP_FIND_LINKS", ""))]


def _versions(folders: Iterable[str]) -> dict[str, set[str]]:
    """The versions in the folders, by normalised name. As pip does, folders below them are not searched."""
    found: dict[str, set[str]] = {}
    for folder in folders:
        for file in os.listdir(folder):
            ending = next((one for one in (ENDING, *SOURCES) if file.endswith(one)), None)
            if ending is None:
                continue
            stem = file[: -len(ending)]
            name, version = stem.split("-")[:2] if ending == ENDING and "-" in stem else stem.rpartition("-")[::2]
            found.setdefault(normal(name), set()).add(version)
    return found


def _wanted(requirements: Iterable[str]) -> Iterator[Requirement]:
    """The requirements that name a package: not addresses, paths and options, which pip alone understands."""
    from packaging.requirements import InvalidRequirement, Requirement

    for item in requirements:
        for line in _lines(item) if item.endswith(".txt") else [item]:
            try:
                found = Requirement(line)
            except InvalidRequirement:
                continue
            if found.url is None and (found.marker is None or found.marker.evaluate()):
                yield found


def _lines(path: str) -> list[str]:
    """The lines of a requirements file without comments; none of one that names its own places."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in stream]
    except OSError:
        return []  # pip reports it
    own_places = ("-f", "--find-links", "-i", "--index-url", "--extra-index-url")
    return [] if any(line.startswith(own_places) for line in lines) else [line for line in lines if line]


def _fault(wanted: Requirement, versions: Mapping[str, set[str]]) -> str | None:
    """What is missing, in words; None if there is a file of a matching version."""
    from packaging.version import InvalidVersion, Version

    there = versions.get(normal(wanted.name))
    if there is None:
        near = did_you_mean(normal(wanted.name), versions)
        return f"`{wanted.name}`" + (f" ({near})" if near else "")
    for text in there:
        try:
            if wanted.specifier.contains(Version(text), prereleases=True):
                return None
        except InvalidVersion:
            return None
    return f"`{wanted.name}{wanted.specifier}` (only {', '.join(sorted(there)[:4])})"
