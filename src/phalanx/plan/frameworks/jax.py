"""JAX: the variables that `jax.distributed.initialize()` needs, with or without arguments.

JAX reads only the coordinator's address from its own variables. It looks for the two numbers in Open MPI's variables,
so those are set as well.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.plan.frameworks import (
    Framework,
    MemberKind,
    ProcessGroup,
    Value,
    Wiring,
    by_kind,
    host,
    own,
    port,
    starting,
)


def wire(gang: ProcessGroup) -> Wiring:
    first, size = gang.first.name, str(gang.size)
    shared: dict[str, Value] = {
        "JAX_COORDINATOR_ADDRESS": (host(first), ":", port(first)),
        "JAX_NUM_PROCESSES": size,
        "OMPI_MCA_orte_hnp_uri": ("0.0;tcp://", host(first), ":", port(first)),  # JAX detects Open MPI by it
        "OMPI_COMM_WORLD_SIZE": size,
    }

    def ranks(kind: MemberKind) -> Mapping[str, Value]:
        rank = (own("rank"),)
        return {
            "JAX_PROCESS_ID": rank,
            "OMPI_COMM_WORLD_RANK": rank,
            "OMPI_COMM_WORLD_LOCAL_RANK": str(kind.local),
        }

    return Wiring(shared, by_kind(ranks), meets=(first,))


FRAMEWORK = Framework(
    wire,
    launchers=starting("mpirun", "mpiexec", "srun"),
    symptoms=(
        "[Cc]oordination ?[Ss]ervice",
        "coordination agent",
        "Connection (?:reset|closed) by peer",
        "Socket closed",
        "gloo",
        "UNAVAILABLE",
    ),
)
