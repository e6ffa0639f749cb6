"""MPI: workers only, no master. The first replica starts all ranks by mpirun, unless the command does so itself."""

from __future__ import annotations

from phalanx.placeholders import path
from phalanx.plan.frameworks import Framework, Gang, Value, Wiring, starting

LAUNCHERS = starting("mpirun", "mpiexec", r"mpiexec\.hydra", "orterun", "horovodrun", "srun")


def launched_by_mpirun(gang: Gang) -> Wiring:
    """All ranks started from the first replica; the others are hosts. Open MPI finds them in the host file."""
    hosts: dict[str, Value] = {
        "OMPI_MCA_orte_default_hostfile": (path("hostfile"),),
        "PHALANX_HOSTS": ("sh ", path("hosts.sh")),  # what horovodrun takes as --host-discovery-script
    }
    # Open MPI wants to be told twice: whoever runs as root is in a container, or is root anyway.
    defaults: dict[str, Value] = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if LAUNCHERS.search(gang.command):
        note = ("run.cmd", "the command starts the ranks itself: only the first replica runs it")
        return Wiring(hosts, defaults=defaults, launch="own", notes=(note,))
    launcher: tuple[Value, ...] = (
        "mpirun",
        "-np",
        str(gang.size),
        "--hostfile",
        (path("hostfile"),),
        "--tag-output",
    )
    return Wiring(hosts, defaults=defaults, launch="mpirun", launcher=launcher)


def wire(gang: Gang) -> Wiring:
    return Wiring() if gang.replicas.launcher == "direct" else launched_by_mpirun(gang)


FRAMEWORK = Framework(wire, has_master=False, symptoms=("MPI_ERRORS_ARE_FATAL", "PMIX", "ORTE has lost communication"))
