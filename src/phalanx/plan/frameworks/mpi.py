"""MPI: workers only, no master. The first replica starts all ranks by mpirun, unless the command does so itself."""

from __future__ import annotations

import re

from phalanx.placeholders import path
from phalanx.plan.frameworks import Framework, Gang, Value, Wiring

_LAUNCHERS = "mpirun|mpiexec|mpiexec.hydra|orterun|horovodrun|srun"
_OWN_LAUNCHER = re.compile(
    rf"(?:\A|&&|\|\||;)\s*"  # at the start of the line, or of a later command in it
    rf"(?:\w+=\S*\s+)*(?:\S*/)?(?:{_LAUNCHERS})(?:\s|\Z)"
)


def starts_ranks_itself(command: str) -> bool:
    return _OWN_LAUNCHER.search(command) is not None


def launched_by_mpirun(gang: Gang) -> Wiring:
    """All ranks started from the first replica; the others are hosts. Open MPI finds them in the host file."""
    hosts: dict[str, Value] = {"OMPI_MCA_orte_default_hostfile": (path("hostfile"),)}
    if starts_ranks_itself(gang.command):
        note = ("run.cmd", "the command starts the ranks itself: only the first replica runs it")
        return Wiring(hosts, launch="own", notes=(note,))
    launcher: tuple[Value, ...] = (
        "mpirun",
        "-np",
        str(gang.size),
        "--hostfile",
        (path("hostfile"),),
        "--tag-output",
    )
    return Wiring(hosts, launch="mpirun", launcher=launcher)


def wire(gang: Gang) -> Wiring:
    return Wiring() if gang.replicas.launcher == "direct" else launched_by_mpirun(gang)


FRAMEWORK = Framework(wire, has_master=False)
