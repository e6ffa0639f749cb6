"""Finds a site profile: by path, by name, by PHALANX_SITE, or in the home."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from phalanx.errors import CallError, PhalanxError, SpecErrors, path_error
from phalanx.sites.model import Site

VARIABLE = "PHALANX_SITE"
OWN = "site.yml"  # in the home: the profile of this cluster
ADDED = "sites"  # in the home: profiles of other sites
MAX_READ = (1 << 20) + 1  # one byte more than a profile may have, so that the reader detects a larger one
_ENDINGS = (".yml", ".yaml", ".json")


class FoundProfile(NamedTuple):
    """A profile, and whether it is shipped with Phalanx."""

    file: Path
    is_shipped: bool = False

    def read(self) -> Site:
        """Raises SpecErrors for an invalid profile, CallError for an unreadable one."""
        from phalanx.sites.profile_reader import load

        try:
            with self.file.open("rb") as stream:
                return load(str(self.file), stream.read(MAX_READ))
        except OSError as fault:
            raise path_error(f"cannot read the profile {self.file}", fault) from None


def shipped() -> dict[str, FoundProfile]:
    """The profiles shipped with Phalanx, by name."""
    folder = Path(__file__).parent / "profiles"
    return {file.stem: FoundProfile(file, is_shipped=True) for file in sorted(folder.glob("*.yml"))}


def added(home: Path) -> dict[str, FoundProfile]:
    """The profiles that the user added to the home, by name."""
    found = {}
    try:
        for file in sorted((home / ADDED).iterdir()):
            if file.suffix in _ENDINGS:
                found[file.stem] = FoundProfile(file)
    except OSError:
        pass  # there are none
    return found


def locate(name: str | None, home: Path, environ: Mapping[str, str] | None = None) -> FoundProfile | None:
    """The profile of that name; without a name, that of this cluster. None: not configured. Raises CallError."""
    name = name or (os.environ if environ is None else environ).get(VARIABLE) or None
    own = home / OWN
    if name is None:
        return FoundProfile(own) if own.is_file() else None
    if "/" in name or name.endswith(_ENDINGS):
        return FoundProfile(Path(name).expanduser())
    known = {**shipped(), **added(home)}
    if name in known:
        return known[name]
    if own.is_file() and _name_of(own) == name:
        return FoundProfile(own)
    from phalanx.spec.suggestions import did_you_mean

    hint = did_you_mean(name, known) or f"use one of {', '.join(known)}, or the path of a profile file"
    raise CallError(f"unknown site profile `{name}`: {hint}")


def _name_of(file: Path) -> str | None:
    try:
        return FoundProfile(file).read().name
    except PhalanxError:
        return None


def find(name: str | None, home: Path) -> Site | None:
    """The site of that name or path; without one, that of PHALANX_SITE or of the home; None when not configured.
    Raises CallError."""
    found = locate(name, home)
    if found is None:
        return None
    try:
        return found.read()
    except SpecErrors as fault:
        first, more = fault.errors[0], len(fault.errors) - 1
        others = f" (and {more} more: `phalanx site show {found.file}` shows all)" if more else ""
        raise CallError(f"the site profile is invalid: {first}{others}") from None
