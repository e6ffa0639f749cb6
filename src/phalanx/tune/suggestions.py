"""Decisions in a process of their own, for algorithms that need packages: `python -m phalanx.tune.suggestions`.

It reads one JSON object a line, `{"settings": …, "entries": […], "free": 4}`, and answers each with one line:
`{"actions": […]}`, or `{"missing": "optuna", "error": …}`, or `{"error": …}`. `start` runs it for one decision without
waiting; request and answer are files, so neither side blocks. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from phalanx.tune.decision import decide
from phalanx.tune.history import History
from phalanx.tune.model import (
    Entry,
    SearchAction,
    SearchSettings,
    entries_from_json,
    entry_as_json,
    entry_from_json,
)
from phalanx.tune.surrogates import MissingPackage

_MODULE = "phalanx.tune.suggestions"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # one: small matrices, equal answers


class SuggestionFault(Exception):
    """The process ended without a decision. `package`: the one that is missing, if that is why."""

    def __init__(self, message: str, package: str | None = None) -> None:
        super().__init__(message)
        self.package = package


class SuggestionProcess:
    """One decision under way."""

    def __init__(self, process: subprocess.Popen[bytes], answer: IO[bytes], complaints: IO[bytes]) -> None:
        self._process = process
        self._answer = answer
        self._complaints = complaints

    @property
    def is_done(self) -> bool:
        return self._process.poll() is not None

    def actions(self, timeout_s: float | None = None) -> list[SearchAction]:
        """The decision; waits for it. Raises SuggestionFault, or TimeoutExpired after that many seconds."""
        self._process.wait(timeout_s)
        with self._answer, self._complaints:
            self._answer.seek(0)
            self._complaints.seek(0)
            line = self._answer.readline()
            said = self._complaints.read().decode("utf-8", "replace").strip()
        try:
            found = json.loads(line)
        except ValueError:
            last = said.rpartition("\n")[2]
            raise SuggestionFault(last or f"the search ended with code {self._process.returncode}") from None
        if "error" in found:
            raise SuggestionFault(found["error"], found.get("missing"))
        return [entry_from_json(entry) for entry in found["actions"]]  # type: ignore[misc]

    def stop(self) -> None:
        """End it; nothing is lost, since nothing is decided."""
        self._process.kill()
        self._process.wait()
        self._answer.close()
        self._complaints.close()


def start(
    settings: SearchSettings, entries: Iterable[Entry], free_slots: int, python: str = sys.executable
) -> SuggestionProcess:
    """Ask for a decision in another process, with all entries of the journal."""
    request = {"settings": settings.as_json(), "entries": [*map(entry_as_json, entries)], "free": free_slots}
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, **dict.fromkeys(_THREADS, "1"), "PYTHONPATH": path}
    answer, complaints = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (closed with the answer)
    with tempfile.TemporaryFile() as asked:
        asked.write(json.dumps(request).encode())
        asked.seek(0)
        process = subprocess.Popen(
            [python, "-m", _MODULE], stdin=asked, stdout=answer, stderr=complaints, cwd=os.sep, env=environment
        )
    return SuggestionProcess(process, answer, complaints)


def answer_of(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    settings = SearchSettings.from_json(request["settings"])
    history = History(entries_from_json(request["entries"]))
    try:
        return {"actions": [*map(entry_as_json, decide(settings, history, request["free"]))]}
    except MissingPackage as fault:
        return {"error": f"{settings.algorithm} needs the package `{fault.name}`: {fault}", "missing": fault.name}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answer_of(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
