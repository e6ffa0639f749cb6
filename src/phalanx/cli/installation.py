"""What is installed on this machine and what is missing, for `phalanx --version` and `phalanx doctor`.

`--version` is called by scripts and must be quick: what only `doctor` needs is imported by it.
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
    """Which extras are there; nothing is imported for it."""
    there = [name for name, extra in EXTRAS.items() if is_installed(extra.package)]
    missing = [name for name in EXTRAS if name not in there]
    told = f"extras: {', '.join(there) or 'none'}"
    return told + (f"; not installed: {', '.join(missing)} (see `phalanx doctor`)" if missing else "")


class Part(NamedTuple):
    """Something that Phalanx uses where it is there. `found`: its version or place, None where it is missing; `fix`:
    how to get it; `use`: what needs it."""

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
    """All of them, for this home."""
    import shutil
    from pathlib import Path

    page = Path(phalanx.__file__).parent / PAGE
    yield Part(
        "page",
        "page",
        "built" if page.is_file() else None,
        "`make page` in a clone builds it, the wheel has it",
        "`phalanx ui` and the page of `phalanx serve`",
    )
    for name, extra in EXTRAS.items():
        version = extra.version()
        yield Part("extra", name, f"{extra.package} {version}" if version else None, extra.install, extra.use)
    yield Part("tool", "sbatch", shutil.which("sbatch"), "work on a login node of the cluster", "runs on Slurm")
    yield Part(
        "tool",
        "kubeconfig",
        _kubeconfig(home),
        "set $KUBECONFIG, or name a file with --kubeconfig",
        "runs on Kubernetes and Kubeflow",
    )
    yield Part("tool", "git", shutil.which("git"), "install git", "recording the commit of a run's code")


def _kubeconfig(home: Path) -> str | None:
    """The files that a run on Kubernetes would read."""
    from phalanx.backends.kubernetes.cluster.credentials import config_files
    from phalanx.backends.kubernetes.cluster.settings import find
    from phalanx.errors import PhalanxError

    try:
        return ", ".join(config_files(find(home))) or "the service account of this pod"
    except PhalanxError:
        return None


def as_json(found: list[Part]) -> dict[str, Any]:
    return {
        "phalanx": phalanx.__version__,
        "python": PYTHON,
        "executable": sys.executable,
        "parts": [part.as_json() for part in found],
    }
