"""Polyaxon 1.x and 2.x: `from polyaxon import tracking`. Other modules are those of an installed polyaxon."""

from __future__ import annotations

import os
import sys

__path__ += [
    place
    for place in (os.path.join(entry, "polyaxon") for entry in sys.path)
    if place not in __path__ and os.path.isdir(place)
]
