"""The example of docs/track/tensorboard.md, and the command that shows it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cli.homes import Place

PAGE = (Path(__file__).parents[2] / "docs" / "track" / "tensorboard.md").read_text()


def _block(kind: str) -> str:
    found = re.search(rf"^```{kind}\n(.*?)^```", PAGE.partition("## Example")[2], re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def write_example(place: Place) -> None:
    """Write its files, and run all its commands but the last."""
    (place.folder / "train.py").write_text(_block("python"))
    (place.folder / "polyaxonfile.yml").write_text(_block("yaml").replace("python3", sys.executable))
    *runs, last = _block("sh").splitlines()
    assert last == "phalanx tensorboard -q tags:rates"
    for line in runs:
        answer = place.call(*shlex.split(line)[1:])
        assert answer.code == 0, answer.err


def shown(
    place: Place, programs: str | Path, *arguments: str, **environment: str
) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """`phalanx tensorboard --json` with a program in the folder `programs`, and what it says. Default: the last command
    of the example."""
    chosen = arguments or ("-q", "tags:rates")
    search = f"{programs}{os.pathsep}{os.environ['PATH']}"
    process = place.start("tensorboard", "--json", *chosen, PATH=search, **environment)
    assert process.stdout is not None
    text = ""
    while True:
        line = process.stdout.readline()
        assert line, process.communicate()
        text += line
        try:
            return process, json.loads(text)
        except ValueError:
            continue  # it is printed over several lines
