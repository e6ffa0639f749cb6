"""The script of an array: alike jobs of many runs, submitted as one. Task N runs the job of line N of the table."""

from __future__ import annotations

SCRIPT = "run.sh"
_OWN = ("#SBATCH --job-name=", "#SBATCH --comment=")  # directives of one run
_HETEROGENEOUS = "#SBATCH hetjob"  # Slurm has no arrays of these
_SCRIPT = """\
#!/bin/bash
{directives}
# An array of {count} runs: task N runs line N of the file `tasks` beside this script.
fail() {{
  echo "phalanx: $*" >&2
  exit 1
}}
here=$1
line=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" "$here/tasks")
IFS=$'\\t' read -r folder attempt first working <<<"$line"
[ -n "$working" ] || fail "task $SLURM_ARRAY_TASK_ID is missing in '$here/tasks'"
ln "$here/$SLURM_ARRAY_TASK_ID.out" "$folder/job/slurm-${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID.out" 2>/dev/null
cd "$working" || fail "the working folder does not exist: '$working'"
exec /bin/bash "$folder/run.sh" "$folder" "$attempt" "$first"
"""


def directives_of(script: str) -> str | None:
    """The directives that the jobs of all tasks share, from the script of a run; None if it cannot be a task."""
    lines = [line for line in script.splitlines() if line.startswith("#SBATCH") and not line.startswith(_OWN)]
    return None if _HETEROGENEOUS in lines else "\n".join(lines)


def array_script(directives: str, count: int) -> str:
    return _SCRIPT.format(directives=directives, count=count)
