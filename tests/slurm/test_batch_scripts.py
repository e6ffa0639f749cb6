"""`phalanx run job.sh --on slurm`: a script for sbatch runs as it is, with its own directives, and is tracked."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.slurm.places import SlurmPlace
from tests.slurm.programs import folder, job_of, log, see

SCRIPT = """\
#!/bin/bash
#SBATCH -J plain-script
#SBATCH --nodes=2 --ntasks-per-node=2
#SBATCH -t 5
#SBATCH --output=mine-%j.out
names=(a b c)
echo "count=${#names[@]} tasks=$SLURM_NTASKS per-node=$SLURM_NTASKS_PER_NODE args=$*"
srun bash -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS"'
echo result > "$PHALANX_OUTPUTS/result.txt"
"""


@pytest.mark.smoke
def test_a_script_for_sbatch_runs_as_it_is_and_is_tracked(place: SlurmPlace) -> None:
    place.script(SCRIPT, "job.sh")
    answer = place.call("run", "-d", "--on", "slurm", "job.sh", "x y")
    assert answer.code == 0, answer.err
    run = answer.out.strip()
    assert place.until(run, "succeeded", "failed") == "succeeded"
    lines = log(place, run).splitlines()
    assert "count=3 tasks=4 per-node=2 args=x y" in lines
    assert sorted(line for line in lines if line.startswith("task ")) == [f"task {rank} of 4" for rank in range(4)]
    assert (folder(place, run) / "outputs" / "result.txt").read_text() == "result\n"
    assert place.accounted(job_of(place, run), "NNodes")[0] == ["2"]
    assert see(place, run)["name"] == "plain-script"


STEPS = """\
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2 -t 5
{option}
{python} -c 'from phalanx import tracking; tracking.log(script=1.0)'
srun {python} log.py
"""
LOG = """\
import os
from phalanx import tracking
rank = int(os.environ["SLURM_PROCID"])
for step in range(3):
    tracking.log(loss=float(10 * rank + step), step=step)
"""


@pytest.mark.parametrize("option", ["", "#SBATCH --export=NONE", "#SBATCH --export=HOME,PATH"])
def test_metrics_of_the_tasks_of_a_step_are_recorded_for_each_rank(place: SlurmPlace, option: str) -> None:
    place.script(STEPS.format(option=option, python=shutil.which("python3")), "job.sh")
    place.script(LOG, "log.py")
    answer = place.call("run", "-d", "--on", "slurm", "job.sh")
    assert answer.code == 0, answer.err
    run = answer.out.strip()
    assert place.until(run, "succeeded", "failed") == "succeeded"
    rows = {row["name"]: row for row in place.call("metrics", run, "loss", "script", "--json").data["metrics"]}
    found = {line["rank"]: line["values"] for line in rows["loss"]["series"]}
    assert found == {rank: [10.0 * rank, 10.0 * rank + 1, 10.0 * rank + 2] for rank in range(4)}
    assert [line["values"] for line in rows["script"]["series"]] == [[1.0]]


CONVERTED = """\
#SBATCH -J converted
#SBATCH --nodes=2 --ntasks-per-node=2 --cpus-per-task=1
#SBATCH -t 5
export GREETING=hello
srun python3 log.py
"""


def test_a_converted_script_runs_with_the_same_ranks(place: SlurmPlace) -> None:
    place.script(CONVERTED, "job.sh")
    place.script(LOG + 'print(os.environ["GREETING"], rank)\n', "log.py")
    converted = place.call("convert", "job.sh")
    assert converted.code == 0, converted.err
    (place.folder / "polyaxonfile.yml").write_text(converted.out)
    answer = place.call("run", "-d", "--on", "slurm")
    assert answer.code == 0, answer.err
    run = answer.out.strip()
    assert place.until(run, "succeeded", "failed") == "succeeded", place.call("logs", run).out
    said = [row["line"] for row in map(json.loads, place.call("logs", run, "--json").out.splitlines())]
    assert sorted(said) == [f"hello {rank}" for rank in range(4)]
    (row,) = place.call("metrics", run, "loss", "--json").data["metrics"]
    assert {line["rank"] for line in row["series"]} == {0, 1, 2, 3}
