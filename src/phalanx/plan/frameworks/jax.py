"""JAX: the coordinator that `jax.distributed.initialize()` reads, and the numbers it must be given."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.plan.frameworks import Framework, Gang, Member, Value, Wiring, host, port


def wire(gang: Gang) -> Wiring:
    first = gang.first.name
    shared: dict[str, Value] = {
        "JAX_COORDINATOR_ADDRESS": (host(first), ":", port(first)),
        "JAX_NUM_PROCESSES": str(gang.size),
    }

    def own(member: Member) -> Mapping[str, Value]:
        return {"JAX_PROCESS_ID": str(member.rank)}

    return Wiring(shared, own)


FRAMEWORK = Framework(wire)
