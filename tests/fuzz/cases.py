"""A case: the files and params of one call of the command line, and how it is kept as small files.

`NAME.yml` is a case of one file. `NAME.1.yml`, `NAME.2.yml` and so on are the files of one call, later ones merged over
earlier ones. `NAME.params` holds the values of `-P` as a JSON list.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

PARAMS = ".params"


@dataclass(frozen=True, slots=True)
class Case:
    """What the user gives to the command line: texts with the endings of their files, and the values of -P."""

    files: tuple[tuple[str, bytes], ...]
    params: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(len(text) for _, text in self.files) + sum(map(len, self.params))

    def write(self, folder: Path, name: str) -> list[Path]:
        """Write the files of the case; returns those that -f names."""
        single = len(self.files) == 1
        paths = []
        for number, (ending, text) in enumerate(self.files, 1):
            path = folder / (f"{name}.{ending}" if single else f"{name}.{number}.{ending}")
            path.write_bytes(text)
            paths.append(path)
        if self.params:
            (folder / (name + PARAMS)).write_text(json.dumps(self.params) + "\n", encoding="ascii")
        return paths


def read_cases(folder: Path) -> dict[str, Case]:
    """The cases kept in a folder, by name."""
    files: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    for path in sorted(folder.iterdir()):
        if path.suffix in (".yml", ".json"):
            files[path.name.split(".")[0]].append((path.suffix[1:], path.read_bytes()))
    cases = {}
    for name, texts in files.items():
        params = folder / (name + PARAMS)
        given = json.loads(params.read_bytes()) if params.is_file() else []
        cases[name] = Case(tuple(texts), tuple(given))
    return cases
