"""`phalanx run job.sh --on slurm`: a script for sbatch runs as it is, with its own directives, and is tracked."""

from __future__ import annotations

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
