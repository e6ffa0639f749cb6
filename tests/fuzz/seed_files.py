"""The files to start from: examples, the corpus of the tests, the documentation, starter files, and other folders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from phalanx.cli import starter_files

ROOT = Path(__file__).parents[2]
OWN = ("examples", "tests/spec/corpus", "tests/fuzz/cases")
_BLOCK = re.compile(r"^```ya?ml\n(.*?)^```", re.DOTALL | re.MULTILINE)
MOST_BYTES = 20_000


def seed_texts(others: Sequence[Path] = ()) -> Iterator[str]:
    """The texts of all seed files in a fixed order: those of the project, then those of other folders."""
    for folder in (*(ROOT / name for name in OWN), *others):
        for path in sorted(folder.rglob("*.y*ml")):
            if path.is_file() and path.stat().st_size <= MOST_BYTES:
                yield path.read_bytes().decode("utf-8", "replace")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        yield from _BLOCK.findall(page.read_text(encoding="utf-8"))
    yield from (value for value in vars(starter_files).values() if isinstance(value, str) and "\nkind:" in value)
