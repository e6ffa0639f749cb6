"""The coordinator of a Slurm job: one process beside its script, from its first moment to its end.

The script starts it and reads from it; its input is the output of the step with the ranks, and the step reads its
output. It claims the attempt and says which it is, writes the facts when all ranks have reported, says that they may
start, and waits for the end of the script's steps. Its exit code is that of the job. What it needs later is imported
after the claim, while the ranks start. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TextIO

from phalanx import run_paths
from phalanx.agent.claims import ClaimRefused, claim_next, claim_unclaimed, job_here, owner_of

BY_HAND = "by-hand"


def main(given: list[str]) -> int:
    """FOLDER ATTEMPT|by-hand FIRST: the folder of the run, the attempt that was submitted, and the one from which the
    run's time counts. A job that a person submitted (`by-hand`) takes the next free attempt."""
    folder, submitted, first = os.path.abspath(given[0]), given[1], int(given[2])
    try:
        attempt = _claimed(folder, first if submitted == BY_HAND else int(submitted), by_hand=submitted == BY_HAND)
        for name in (run_paths.OUTPUTS, run_paths.REPLICAS):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
    except ClaimRefused as refusal:
        print(f"nothing to do: {refusal}", file=sys.stderr)
        _say("")
        sys.stdin.read()
        return 0
    except OSError as fault:
        print(f"phalanx: cannot write in {folder}: {fault}", file=sys.stderr)
        return 1
    _say(str(attempt))
    from phalanx.agent import allocation
    from phalanx.stored_plan import read_plan_file

    plan, facts_file = read_plan_file(os.path.join(folder, run_paths.PLAN)), _facts_file(folder, attempt)
    lines = _lines(sys.stdin)
    if allocation.gather(plan, facts_file, first, lines) != 0:
        return 1
    _say(allocation.GO)
    for line in lines:
        sys.stderr.write(line)
    return allocation.conclude(plan, facts_file)


def _claimed(folder: str, first: int, *, by_hand: bool) -> int:
    """The attempt that this job runs, from the first one on. Raises ClaimRefused, OSError."""
    job = job_here()
    attempt = (claim_unclaimed if by_hand else claim_next)(folder, first, job)
    if owner_of(folder, attempt - 1) == job:
        from phalanx.agent.allocation import conclude
        from phalanx.stored_plan import read_plan_file

        before = _facts_file(folder, attempt - 1)
        if conclude(read_plan_file(os.path.join(folder, run_paths.PLAN)), before) == 0:
            raise ClaimRefused("the run had just finished when the job was started again")
    return attempt


def _facts_file(folder: str, attempt: int) -> str:
    return os.path.join(folder, run_paths.facts_file(attempt))


def _lines(stream: TextIO) -> Iterator[str]:
    """Each line as soon as it is there, to the end of the input."""
    return iter(stream.readline, "")


def _say(line: str) -> None:
    try:
        os.write(1, f"{line}\n".encode())
    except BrokenPipeError:
        pass  # the step that would read it has ended, and the script ends with its code
