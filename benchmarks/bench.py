"""Runs benchmarks, prints one table of all their rows and writes it as JSON.

    python benchmarks/bench.py [SCRIPT[:PART]]... [--json FILE] [--against FILE]

Without names: all that need neither a cluster nor a peer. --against shows the difference to the JSON of another run,
for example of another commit. Every script has `PARTS`: names, and functions that yield rows.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from table import Row, table_text, write_json

BY_DEFAULT = tuple(
    f"{about}_cost"
    for about in ("check", "plan", "run", "ps", "tracking", "series", "ranks", "folder", "agent", "pipeline")
)

Part = Callable[[], Iterable[Row]]


def parts_of(script: str) -> Mapping[str, Part]:
    if not script.isidentifier() or not Path(__file__).with_name(f"{script}.py").is_file():
        raise SystemExit(f"there is no benchmarks/{script}.py")
    parts: Mapping[str, Part] = importlib.import_module(script).PARTS
    return parts


def chosen(names: Sequence[str]) -> list[tuple[str, str, Part]]:
    """Script, part and function of each name."""
    found = []
    for name in names:
        script, _, wanted = name.partition(":")
        parts = parts_of(script)
        if wanted and wanted not in parts:
            raise SystemExit(f"{script} has no part {wanted}: it has {', '.join(parts)}")
        found += [(script, part, act) for part, act in parts.items() if wanted in ("", part)]
    return found


def measured(parts: Iterable[tuple[str, str, Part]]) -> Iterator[tuple[str, Row | None]]:
    """All rows. None stands for a part that failed: the others go on."""
    for script, part, act in parts:
        print(f"{script}: {part}", file=sys.stderr, flush=True)
        try:
            for row in act():
                yield script, row
        except Exception:  # noqa: BLE001 - one failing benchmark does not take the table of the others away
            traceback.print_exc()
            yield script, None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=BY_DEFAULT, metavar="SCRIPT[:PART]")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--against", type=Path, help="the JSON of an earlier run")
    given = parser.parse_args(arguments)
    against = json.loads(given.against.read_text()) if given.against else None
    found = list(measured(chosen(given.names)))
    rows = [(script, row) for script, row in found if row is not None]
    print(table_text(rows, against))
    if given.json:
        write_json(given.json, rows)
    return int(len(rows) < len(found))


if __name__ == "__main__":
    sys.exit(main())
