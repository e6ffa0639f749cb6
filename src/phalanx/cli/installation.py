"""What is installed on this machine and what is missing, for `phalanx --version` and `phalanx doctor`.

Scripts call `--version`, so it must be fast: functions for `doctor` import what they need.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import phalanx
from phalanx.extras import EXTRAS, is_installed

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = sys.version.partition(" ")[0]
PAGE = "server/page/index.html"  # in the folder of the package


def version_line() -> str:
    return f"phalanx {phalanx.__version__} (Python {PYTHON}, {sys.executable})"


def extras_line() -> str:
    """Installed and missing extras, found without importing them."""
    there = [name for name, extra in EXTRAS.items() if is_installed(extra.package)]
    missing = [name for name in EXTRAS if name not in there]
    line = f"extras: {', '.join(there) or 'none'}"
    return line + (f"; not installed: {', '.join(missing)} (see `phalanx doctor`)" if missing else "")


class Part(NamedTuple):
    """An optional dependency. `found`: its version or path, None if missing; `fix`: how to get it; `use`: what needs
    it."""

    kind: str  # page, extra or tool
    name: str
    found: str | None
    fix: str
    use: str

    def as_json(self) -> dict[str, Any]:
        return self._asdict()

    def words(self) -> str:
        return self.found if self.found is not None else f"missing: {self.fix} (needed for {self.use})"


def parts(home: Path) -> Iterator[Part]:
    """All optional dependencies, as seen from this home."""
    import shutil
    from pathlib import Path

    page = Path(phalanx.__file__).parent / PAGE
    yield Part(
        "page",
        "page",
        "built" if page.is_file() else None,
        "run `make page` in a clone, or install the wheel, which includes it",
        "`phalanx ui` and the web page of `phalanx serve`",
    )
    for name, extra in EXTRAS.items():
        version = extra.version()
        yield Part("extra", name, f"{extra.package} {version}" if version else None, extra.install, extra.use)
    yield from _backends(home)
    yield Part("tool", "git", shutil.which("git"), "install git", "recording the commit of a run's code")


def _backends(home: Path) -> Iterator[Part]:
    """What the installed backends use of this machine; and those of other packages that cannot be loaded."""
    from phalanx import backends
    from phalanx.errors import CallError

    for name in backends.names():
        try:
            found = backends.find(name)
        except CallError as fault:
            yield Part("tool", name, None, str(fault), f"runs on {name}")
            continue
        for one in found.requirements(home):
            yield Part("tool", *one)


def as_json(found: list[Part]) -> dict[str, Any]:
    return {
        "phalanx": phalanx.__version__,
        "python": PYTHON,
        "executable": sys.executable,
        "parts": [part.as_json() for part in found],
    }
