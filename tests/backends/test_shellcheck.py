"""Rendered scripts are clean by shellcheck, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from phalanx import backends, plan
from phalanx.plan import framework_checks
from phalanx.spec import Kind
from phalanx.spec.groups import first_suggestion

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = [
    *sorted(path.relative_to(EXAMPLES) for path in EXAMPLES.glob("*/polyaxonfile.yml")),
    Path("hpc/long.yml"),
    Path("mpi/own.yml"),
]

pytestmark = [
    pytest.mark.slow,  # `make test` needs nothing but Python
    pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs the Debian package shellcheck"),
]


def _plan(path: Path) -> plan.Plan:
    loaded = framework_checks.load([(path.name, (EXAMPLES / path).read_bytes())], {})[0]
    return plan.make(first_suggestion(loaded) if loaded.kind is Kind.GROUP else loaded, "run1")


def _complaints(script: str, folder: Path) -> str:
    path = folder / "script.sh"
    path.write_text(script, encoding="utf-8")
    done = subprocess.run(["shellcheck", "--format=gcc", path], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_there_are_examples() -> None:
    assert len(FILES) > 5


@pytest.mark.parametrize("path", FILES, ids=str)
def test_the_script_of_a_slurm_job_is_clean(path: Path, tmp_path: Path) -> None:
    script = backends.find("slurm").render(_plan(path)).files["run.sh"]
    assert script.startswith("#!/bin/bash\n")
    assert _complaints(script, tmp_path) == ""


def test_the_script_with_modules_is_clean(tmp_path: Path) -> None:
    text = "version: 1\nkind: job\nenvironment: {python: {modules: [python/3.11, cuda]}}\nrun: {cmd: python a.py}\n"
    made = plan.make(framework_checks.load([("polyaxonfile.yml", text.encode())], {})[0], "run1")
    assert _complaints(backends.find("slurm").render(made).files["run.sh"], tmp_path) == ""
