"""JAX: what `jax.distributed.initialize()` needs, with arguments or without.

Of its own variables JAX reads only the coordinator's address. The two numbers it looks for where Open MPI has them, so
that is where they are, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.plan.frameworks import Framework, Member, ProcessGroup, Value, Wiring, host, port, starting


def wire(gang: ProcessGroup) -> Wiring:
    first, size = gang.first.name, str(gang.size)
    shared: dict[str, Value] = {
        "JAX_COORDINATOR_ADDRESS": (host(first), ":", port(first)),
        "JAX_NUM_PROCESSES": size,
        "OMPI_MCA_orte_hnp_uri": ("0.0;tcp://", host(first), ":", port(first)),  # the sign by which JAX knows it
        "OMPI_COMM_WORLD_SIZE": size,
    }

    def own(member: Member) -> Mapping[str, Value]:
        rank = str(member.rank)
        return {
            "JAX_PROCESS_ID": rank,
            "OMPI_COMM_WORLD_RANK": rank,
            "OMPI_COMM_WORLD_LOCAL_RANK": str(member.local),
        }

    return Wiring(shared, own, meets=(first,))


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
