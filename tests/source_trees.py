"""The modules of Phalanx as syntax trees: parsed when a test needs them, once per process.

Every worker of a test run imports every test module, so nothing here may parse sources at import.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src"
PACKAGE = "phalanx"


def module_name(file: Path) -> str:
    steps = file.relative_to(SOURCES).with_suffix("").parts
    return ".".join(steps[:-1] if steps[-1] == "__init__" else steps)


FILES = {module_name(file): file for file in sorted((SOURCES / PACKAGE).rglob("*.py"))}


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_bytes())


def modules_with(pattern: str) -> list[str]:
    """The modules whose text has a match: a cheap choice of those that a rule has to parse."""
    return [module for module, file in FILES.items() if re.search(pattern, file.read_text(encoding="utf-8"))]
