"""examples/snakemake under the real Snakemake."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "snakemake"


@pytest.fixture(name="workflow")
def workflow_fixture(place: Place) -> Place:
    shutil.copytree(EXAMPLE, place.folder, dirs_exist_ok=True)
    return place


def snakemake(workflow: Place, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Called with Phalanx and its Python first on the path, as in an activated environment."""
    program = Path(os.environ["PHALANX_TEST_SNAKEMAKE"]) / "snakemake"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(program), "--cores", "2", "--nocolor", *arguments],
        cwd=workflow.folder,
        env=workflow.environment(PATH=path),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_the_example_trains_and_what_is_there_is_not_run_again(workflow: Place) -> None:
    done = snakemake(workflow)
    assert done.returncode == 0, done.stderr
    runs = {run["id"]: run for run in workflow.call("ps", "--json").data["runs"]}
    assert {(run["params"]["lr"], run["status"]) for run in runs.values()} == {
        (rate, "succeeded") for rate in (0.05, 0.2, 0.8)
    }
    best = json.loads((workflow.folder / "best.json").read_text())
    assert best["lr"] == 0.2
    assert best["loss"] == runs[best["run"]]["summary"]["loss"]
    for made in ("runs/0.8.json", "best.json"):
        (workflow.folder / made).unlink()
    done = snakemake(workflow)
    assert done.returncode == 0, done.stderr
    again = workflow.call("ps", "--json").data["runs"]
    assert sorted(run["params"]["lr"] for run in again) == [0.05, 0.2, 0.8, 0.8]


def test_a_run_that_fails_fails_its_rule_and_the_others_are_kept(workflow: Place) -> None:
    is_broken = workflow.folder / "broken"
    is_broken.touch()
    with (workflow.folder / "train.py").open("a") as program:
        program.write(f"\nimport os\nif rate > 0.5 and os.path.exists({str(is_broken)!r}):\n    raise SystemExit(7)\n")
    failed = snakemake(workflow, "--keep-going")
    assert failed.returncode == 1
    assert "runs/0.8.json" in failed.stderr
    (broken,) = (run for run in workflow.call("ps", "--json").data["runs"] if run["status"] == "failed")
    assert "exit code 7" in broken["reason"]
    made = workflow.folder / "runs"
    assert sorted(file.name for file in made.iterdir()) == ["0.05.json", "0.2.json"]
    assert not (workflow.folder / "best.json").exists()
    is_broken.unlink()
    done = snakemake(workflow)
    assert done.returncode == 0, done.stderr
    runs = workflow.call("ps", "--json").data["runs"]
    assert sorted((run["params"]["lr"], run["status"]) for run in runs) == [
        (0.05, "succeeded"),
        (0.2, "succeeded"),
        (0.8, "failed"),
        (0.8, "succeeded"),
    ]
