"""The client of Polyaxon 0.x, as far as training code uses it: a script written for it runs unchanged under Phalanx.

Inside of runs the parent folder is on PYTHONPATH, before installed packages. It is not part of the installed top
level, where it would clash with the real distribution. Standard library only, Python 3.8+.
"""

from __future__ import annotations

from . import settings
from .client import PolyaxonClient

__all__ = ["PolyaxonClient", "settings"]
