"""A rank that fails is named, with its own last words; the others are told apart; the run ends.

Each framework in its own way of failing: some ranks die of a lost one, some wait for ever, some ignore SIGTERM.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.frameworks.conftest import Staged
from tests.frameworks.stage import Stage, Trained

SCRIPTS = Path(__file__).parent / "failing"
STALL_S = 25  # longer than an import takes when all ranks do it at once
ENVIRONMENTS = {
    "pytorch": "torch",
    "horovod": "torch",
    "mxnet": "torch",
    "mpi": "torch",
    "tensorflow": "tensorflow",
    "jax": "tensorflow",
}
each = pytest.mark.parametrize("framework", ENVIRONMENTS)


def fail(stage: Staged, framework: str, how: str) -> Trained:
    """A run over a master (MPI has none) and three workers, of which worker 1 fails in that way."""
    place = stage("failing", ENVIRONMENTS[framework], SCRIPTS)
    memory = {"resources": {"cpu": {"requests": 0.1}, "memory": {"limits": 2500}}}
    replicas: dict[str, Any] = {"n_workers": 3, "default_worker": memory}
    if framework == "mxnet":
        replicas |= {"n_ps": 1, "default_ps": memory}
    content = {
        "version": 1,
        "kind": "experiment",
        "framework": framework,
        "environment": {**memory, "replicas": replicas},
        "run": {"cmd": f"python {framework}_ranks.py {how}"},
    }
    if how != "raise" or framework == "mpi":  # whose ranks are busy while they wait: only silence tells
        content["environment"]["stall_timeout"] = STALL_S  # type: ignore[index]
    if framework == "mpi":
        del content["environment"]["resources"]  # type: ignore[attr-defined]
    (place.folder / "polyaxonfile.yml").write_text(yaml.safe_dump(content))
    return place.run()


def blamed(run: Trained) -> dict[str, Any]:
    """What `show` tells of a failure, after what must hold of each."""
    assert run.status == "failed", run.report()
    failure: dict[str, Any] = run.shown["facts"]["failure"]
    assert failure["replica"] == "worker-1", run.report()
    assert run.reason.startswith(f"worker-1: {failure['why']}"[:400]), run.report()
    assert "worker-1 failed first" in run.text()
    for row in run.shown["replicas"]:
        if row["name"] != "worker-1":
            assert "worker-1" in row["reason"], run.report()
    return failure


@each
@pytest.mark.parametrize(
    ("how", "why", "line"),
    [
        pytest.param("raise", "ValueError: a bad batch", "ValueError: a bad batch", marks=pytest.mark.smoke),
        ("kill", "", "step 3"),
        ("import", "ModuleNotFoundError: No module named 'a_module_that_nobody_has'", "a_module_that_nobody_has"),
    ],
)
def test_the_rank_that_fails_is_named(stage: Staged, framework: str, how: str, why: str, line: str) -> None:
    failure = blamed(fail(stage, framework, how))
    assert why in failure["why"]
    assert any(line in said for said in failure["lines"]), failure
    if how == "kill":
        assert "9" in failure["why"], failure
    if how == "import":
        assert "install `a_module_that_nobody_has`" in failure["advice"]


@each
def test_a_rank_that_ran_out_of_memory_says_how_much_to_request(stage: Staged, framework: str) -> None:
    failure = blamed(fail(stage, framework, "memory"))
    assert "of 2500 MiB" in failure["why"]
    assert "`environment.replicas.default_worker.resources.memory`; try" in failure["advice"]


@each
@pytest.mark.parametrize("how", ["never", "hang"])
def test_a_rank_that_others_wait_for_is_named(stage: Staged, framework: str, how: str) -> None:
    run = fail(stage, framework, how)
    failure = blamed(run)
    assert "worker-1 at faults.py" in failure["why"], run.report()


@each
def test_a_rank_that_comes_late_is_waited_for(stage: Staged, framework: str) -> None:
    run = fail(stage, framework, "late")
    assert run.status == "succeeded", run.report()


@pytest.mark.parametrize("framework", ["pytorch", "jax"])
def test_a_world_that_is_too_large_is_reported(stage: Staged, framework: str) -> None:
    run = fail(stage, framework, "world")
    assert run.status == "failed", run.report()
    assert "all wait at the same place: do they expect another rank" in run.reason


def test_a_port_that_is_taken_is_reported(stage: Staged) -> None:
    """By whoever comes between our look at the port and the start of the framework."""
    place = stage("failing", "torch", SCRIPTS)
    _occupy(place)
    run = place.run()
    assert run.status == "failed", run.report()
    assert run.shown["facts"]["failure"]["replica"] == "master-0"
    assert "ddress already in use" in run.reason, run.report()
    assert "run again to get another one" in run.reason


def _occupy(place: Stage) -> None:
    (place.folder / "occupy.py").write_text(
        "import os, socket, subprocess, sys\n"
        "server = socket.create_server((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))\n"
        "sys.exit(subprocess.call([sys.executable, 'pytorch_ranks.py', 'late']))\n"
    )
    script = 'if [ "$RANK" = 0 ]; then python occupy.py; else python pytorch_ranks.py late; fi'
    content = {
        "version": 1,
        "kind": "experiment",
        "framework": "pytorch",
        "environment": {"replicas": {"n_workers": 2}},
        "run": {"cmd": script},
    }
    (place.folder / "polyaxonfile.yml").write_text(yaml.safe_dump(content))
