"""Runs in a container: a real Apptainer, which mounts the image without the rights of root."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.homes import wait_for
from tests.slurm import apptainer
from tests.slurm.places import SlurmPlace
from tests.slurm.programs import folder, job_of, log, over, ran, see, series, submit_with

SMALL: dict[str, Any] = {"resources": {"memory": {"limits": 500}}}
IMAGE = "small.sif"
TWO_NODES: dict[str, Any] = {
    **SMALL,
    "replicas": {"n_workers": 1, "default_worker": SMALL},
    "slurm": {"replicas_per_node": 1},
    "python": {"image": IMAGE},
}
SHOWN = (
    f'cat {apptainer.WORDS}; pwd; echo here >"$PHALANX_OUTPUTS/$RANK"; '
    '/usr/bin/python3 -c "from phalanx import tracking; tracking.log(step=$RANK, loss=0.5)"'
)
# Rank 0 saves; rank 1 knows nothing of it, and goes on.
SAVES = '[ "$RANK" = 1 ] || trap "echo saved" USR1; until [ -e go ]; do echo alive; sleep 0.2; done'
# It reads a file of the image that it has not read before.
READS_AS_IT_ENDS = f'trap "sleep 1; cat {apptainer.WORDS}; exit 0" TERM; echo ready; while :; do sleep 0.1; done'


@pytest.fixture(name="inside")
def inside_fixture(place: SlurmPlace) -> dict[str, str]:
    """The variables of a shell with Apptainer, in a folder with an image."""
    apptainer.write_image(place.folder / IMAGE)
    return apptainer.variables(place.environment()["PATH"])


def test_ranks_on_several_nodes_run_in_the_image(place: SlurmPlace, inside: dict[str, str]) -> None:
    run = submit_with(place, SHOWN, inside, framework="pytorch", environment=TWO_NODES)
    (found,) = over(place, run)
    assert found["status"] == "succeeded", f"{found['reason']}\n{place.call('logs', run).out}"
    for name in ("master-0", "worker-0"):
        assert log(place, run, name).splitlines()[-2:] == ["from the image", str(place.folder)]
    assert {path.name for path in (folder(place, run) / "outputs").iterdir()} >= {"0", "1"}
    assert series(place, run, "loss") == {"master-0": [(1, 0)], "worker-0": [(1, 1)]}


def test_only_programs_in_the_image_that_handle_it_get_the_checkpoint_signal(
    place: SlurmPlace, inside: dict[str, str]
) -> None:
    """Apptainer handles every signal, and passes it on also to programs that it kills."""
    slurm = {"replicas_per_node": 1, "checkpoint": "145s"}
    environment = {
        **TWO_NODES,
        "timeout": "3m",
        "slurm": slurm,
    }  # the job ends 30 s earlier: after 5 s it is time to save
    run = submit_with(place, SAVES, inside, framework="pytorch", environment=environment)

    def lines_since() -> int:
        return log(place, run, "worker-0").count("alive")

    wait_for(lambda: "saved" in log(place, run) or see(place, run)["status"] == "failed")
    before = lines_since()
    wait_for(lambda: lines_since() > before + 10 or see(place, run)["status"] == "failed")
    (place.folder / "go").touch()
    (found,) = over(place, run)
    assert found["status"] == "succeeded", f"{found['reason']}\n{place.call('logs', run).out}"
    assert log(place, run).count("saved") == 1


def test_the_image_stays_until_the_program_has_ended(place: SlurmPlace, inside: dict[str, str]) -> None:
    environment = {**SMALL, "timeout": "5s", "python": {"image": IMAGE}}
    run = submit_with(place, READS_AS_IT_ENDS, inside, environment=environment)
    over(place, run)
    assert log(place, run).splitlines()[-1] == "from the image"
    assert place.until_accounted(job_of(place, run), "COMPLETED", "FAILED")


def test_an_unpacked_image_stays_when_slurm_signals_all_processes(place: SlurmPlace, inside: dict[str, str]) -> None:
    apptainer.write_image(place.folder / "unpacked", is_unpacked=True)
    run = submit_with(place, READS_AS_IT_ENDS, inside, environment={**SMALL, "python": {"image": "unpacked"}})
    wait_for(lambda: "ready" in log(place, run))
    assert place.call("stop", run).code == 0
    assert see(place, run)["status"] == "stopped"
    assert "from the image" in log(place, run).splitlines()


def test_nodes_without_apptainer_and_images_that_are_missing_are_reported(
    place: SlurmPlace, inside: dict[str, str]
) -> None:
    found = ran(place, "true", environment={**SMALL, "python": {"image": IMAGE}})
    assert found["status"] == "failed"
    assert "`environment.python.image` requires apptainer, which is not on this node's PATH" in found["reason"]
    run = submit_with(place, "true", inside, environment={**SMALL, "python": {"image": "other.sif"}})
    (found,) = over(place, run)
    assert f"`environment.python.image`: {place.folder}/other.sif does not exist on this node" in found["reason"]
