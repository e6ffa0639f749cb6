"""MPI: workers only, no master. A separate launcher starts all ranks with mpirun, unless the command does so."""

from __future__ import annotations

from phalanx.placeholders import path
from phalanx.plan.frameworks import Framework, ProcessGroup, Value, Wiring, starting

LAUNCHERS = starting("mpirun", "mpiexec", r"mpiexec\.hydra", "orterun", "horovodrun", "srun")

SYMPTOMS = (
    "mpirun (?:detected|noticed) that",
    "MPI_ABORT was invoked",
    "MPI_ERRORS_ARE_FATAL",
    "ORTE has lost communication",
)


def launched_by_mpirun(gang: ProcessGroup) -> Wiring:
    """Wiring for ranks that one launcher starts. Open MPI reads their hosts from the host file."""
    hosts: dict[str, Value] = {
        "OMPI_MCA_orte_default_hostfile": (path("hostfile"),),
        "PHALANX_HOSTS": ("sh ", path("hosts.sh")),  # horovodrun accepts it as --host-discovery-script
    }
    # Open MPI requires two confirmations to run as root, which is normal in a container.
    defaults: dict[str, Value] = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if LAUNCHERS.search(gang.command):
        note = ("run.cmd", "the command starts the ranks itself, so only the first replica runs it")
        return Wiring(hosts, defaults=defaults, launch="own", notes=(note,))
    launcher: tuple[Value, ...] = (
        "mpirun",
        "-np",
        str(gang.size),
        "--hostfile",
        (path("hostfile"),),
    )
    return Wiring(hosts, defaults=defaults, launch="mpirun", launcher=launcher)


def wire(gang: ProcessGroup) -> Wiring:
    return Wiring() if gang.replicas.launcher == "direct" else launched_by_mpirun(gang)


FRAMEWORK = Framework(wire, has_master=False, symptoms=SYMPTOMS)
