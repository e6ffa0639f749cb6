"""What the start of verbs costs beside a bare `python -c pass`, the floor of any Python tool: CPU of whole commands."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping

from measuring import PHALANX, PYTHON, ROOT, interleaved
from table import Beside, Of, Row, at_most

ROUNDS = 15
MOST = 4.0
JOB = b"version: 1\nkind: job\nrun: {cmd: 'true'}\n"


def beside_python(verbs: Mapping[str, list[str]]) -> Iterator[Row]:
    floor = [*PYTHON, "-c", "pass"]
    found = interleaved({"": floor, **{name: [*PHALANX, *words] for name, words in verbs.items()}}, ROUNDS)
    beside = Beside("python -c pass", found.pop("").cpu_s)
    for name, cost in found.items():
        yield Row(f"phalanx {name}, cold, CPU", cost.cpu_s, "s", beside, aim=at_most(MOST, Of.FLOOR))


def helps() -> Iterator[Row]:
    return beside_python({"--help": ["--help"]})


def checks() -> Iterator[Row]:
    ordinary = str(ROOT / "examples/quickstart/polyaxonfile.yml")
    return beside_python({"check": ["check", "-f", ordinary], "check --json": ["check", "--json", "-f", ordinary]})


def lists() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        os.environ["PHALANX_HOME"] = home
        subprocess.run([*PHALANX, "run", "--json", "-f", "-"], check=True, input=JOB, stdout=subprocess.DEVNULL)
        yield from beside_python({"ps, one run": ["ps"], "ps --json, one run": ["ps", "--json"]})


PARTS = {"help": helps, "check": checks, "ps": lists}
