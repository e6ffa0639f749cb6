"""The page for users of a cluster is true: its commands, run there in the order of the page, print what it says.

Of what is printed, numbers, times, ids and places may differ. Blocks to be run stand after `<!-- run -->`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from phalanx import plan, spec
from tests.slurm.places import SlurmPlace

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "clusters" / "slurm.md"
EXAMPLE = ROOT / "examples" / "hpc"
BLOCK = re.compile(r"<!-- run(?:: (?P<when>[^>]*?))? -->\n```console\n(?P<text>.*?)```", re.DOTALL)
FULL = "while others have all nodes"
LOOKING = ("phalanx ps", "phalanx show", "phalanx logs", "phalanx statuses", "cat ")  # may be asked once more
PATIENCE_S = 80.0


class Step(NamedTuple):
    command: str
    said: list[str]
    when: str


def steps() -> Iterator[Step]:
    for block in BLOCK.finditer(PAGE.read_text()):
        for part in block["text"].removeprefix("$ ").split("\n$ "):
            command, *said = part.splitlines()
            yield Step(command, [line for line in said if line.strip() and line != "…"], block["when"] or "")


def essence(line: str) -> str:
    """A line without what differs from run to run."""
    line = re.sub(r"waits: .*", "waits:", line)
    line = re.sub(r"/\S+/", "/", line)
    line = re.sub(r"\b[a-z0-9]{10}\b(?=:|  | \(|$)", "RUN", line)
    line = re.sub(r"[-+]?\d+(\.\d+)?( s\b| min\b| h\b)?", "#", line)
    return re.sub(r"\s+", " ", line).strip()


def missing(said: list[str], printed: str) -> list[str]:
    lines = {essence(line) for line in printed.splitlines()}
    return [line for line in said if essence(line) not in lines]


def shell(place: SlurmPlace, command: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{place.environment()['PATH']}"
    return subprocess.run(
        command,
        shell=True,
        cwd=place.folder,
        env=place.environment(PATH=path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def do(place: SlurmPlace, step: Step) -> None:
    """Once, or until what is looked for is there."""
    until = time.monotonic() + PATIENCE_S
    while True:
        done = shell(place, step.command)
        lacks = missing(step.said, done.stdout)
        if done.returncode == 0 and not lacks:
            return
        details = f"$ {step.command}\n{done.stdout}(code {done.returncode})\nand not:\n" + "\n".join(lacks)
        assert step.command.startswith(LOOKING), details
        assert time.monotonic() < until, details
        time.sleep(0.5)


@pytest.fixture(name="place")
def place_with_the_example(place: SlurmPlace) -> SlurmPlace:
    shutil.copytree(EXAMPLE, place.folder, dirs_exist_ok=True)
    return place


@pytest.mark.smoke
def test_every_command_of_the_page_prints_what_the_page_says(place: SlurmPlace) -> None:
    other = ""
    for step in steps():
        if step.when == FULL and not other:
            other = place.submit("sleep 300", "--exclusive", "-N4", "-t10")
            place.until_job(other, "RUNNING")
        elif step.when != FULL and other:
            place.cluster.ask("scancel", other)
            place.until_job(other, "CANCELLED")
            other = ""
        do(place, step)


def test_the_page_runs_what_it_shows() -> None:
    """Blocks that are not run are few, and known."""
    shown = re.findall(r"```console\n\$ (.*)", PAGE.read_text())
    run = [block["text"].removeprefix("$ ").partition("\n")[0] for block in BLOCK.finditer(PAGE.read_text())]
    assert [command for command in shown if command not in run] == [
        "phalanx size --on slurm --try gpu=0,1 --for 20s -P steps=100000"  # as fast as the machine is quiet
    ]


def test_the_file_of_the_page_is_that_of_the_example() -> None:
    (shown,) = re.findall(r"```yaml\n(version:.*?)```", PAGE.read_text(), re.DOTALL)
    ours = spec.load([("polyaxonfile.yml", shown.encode())])
    assert plan.make(ours, "run") == plan.make(example("polyaxonfile"), "run")


@pytest.mark.parametrize("name", ["four", "long"])
def test_what_the_page_shows_of_a_file_stands_in_it(name: str) -> None:
    blocks = re.findall(r"```yaml\n(environment:.*?)```", PAGE.read_text(), re.DOTALL)
    shown = next(block for block in blocks if {"four": "n_workers", "long": "segment"}[name] in block)
    whole = (EXAMPLE / f"{name}.yml").read_bytes()
    both = spec.load([(f"{name}.yml", whole), ("page.yml", shown.encode())])
    assert plan.make(both, "run") == plan.make(example(name), "run")


def example(name: str) -> spec.Spec:
    return spec.load([(f"{name}.yml", (EXAMPLE / f"{name}.yml").read_bytes())])
