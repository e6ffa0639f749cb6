"""Tracking of Polyaxon 1.x and 2.x: `from traceml import tracking`. Other modules are those of an installed traceml."""

from __future__ import annotations

import os
import sys

__path__ += [
    place
    for place in (os.path.join(entry, "traceml") for entry in sys.path)
    if place not in __path__ and os.path.isdir(place)
]
