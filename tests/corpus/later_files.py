"""The corpus of files of Polyaxon 1.x and 2.x: PHALANX_TEST_CORPUS2. It is never committed to the project.

files/           real files
refs/            files that some of them refer to
expected.json    which releases accepted each of them, and what the newest of these computed
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from phalanx import plan, spec
from phalanx.spec.polyaxon_v1 import ReferenceFault

VARIABLE = "PHALANX_TEST_CORPUS2"
Facts = dict[str, Any]


def corpus() -> Path:
    """The folder of the corpus. Raises KeyError when the variable is not set."""
    return Path(os.environ[VARIABLE]).resolve()


@cache
def expected() -> dict[str, Facts]:
    found: dict[str, Facts] = json.loads((corpus() / "expected.json").read_bytes())
    return found


def is_accepted(facts: Facts) -> bool:
    return bool(facts["checked_by"] or facts.get("check_with_params"))


class StoredReferences:
    """References of a file of the corpus, read from `refs/`."""

    def __init__(self, facts: Facts) -> None:
        self.paths: dict[str, str] = facts.get("path_refs") or {}
        self.urls: dict[str, str] = {url: entry["file"] for url, entry in (facts.get("url_refs") or {}).items()}

    def read_path(self, base: str, path: str) -> tuple[str, bytes]:
        return self._read(self.paths.get(path) or self.paths.get(path.removeprefix("./")), path)

    def read_url(self, base: str, url: str) -> tuple[str, bytes]:
        return self._read(self.urls.get(url), url)

    def _read(self, file: str | None, said: str) -> tuple[str, bytes]:
        if file is None:
            raise ReferenceFault(f"`{said}` is not in the corpus", "add it")
        return file, (corpus() / file).read_bytes()


def load(name: str) -> spec.Spec:
    """Read as `phalanx check` reads, with the params that the corpus gave. Raises SpecErrors."""
    facts = expected()[name]
    given = {key: value if isinstance(value, str) else json.dumps(value) for key, value in _given(facts)}
    data = (corpus() / "files" / name).read_bytes()
    return spec.load([(name, data)], given, inspect=plan.inspect, references=StoredReferences(facts))


def _given(facts: Facts) -> Any:
    return (facts.get("params_given") or {}).items()
