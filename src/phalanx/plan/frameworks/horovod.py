"""Horovod: ranks meet over Gloo, each started by itself; or mpirun starts them, where the file or command says so."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.plan.frameworks import Framework, Gang, Member, Value, Wiring, host, port
from phalanx.plan.frameworks.mpi import launched_by_mpirun, starts_ranks_itself


def wire(gang: Gang) -> Wiring:
    if gang.replicas.launcher == "mpirun" or starts_ranks_itself(gang.command):
        return launched_by_mpirun(gang)
    first, size = gang.first.name, str(gang.size)
    shared: dict[str, Value] = {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": (host(first),),
        "HOROVOD_GLOO_RENDEZVOUS_PORT": (port(first),),
        "HOROVOD_SIZE": size,
        # one rank per replica, each on a host of its own as far as Horovod is concerned
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_SIZE": size,
    }

    def own(member: Member) -> Mapping[str, Value]:
        rank = str(member.rank)
        return {"HOROVOD_RANK": rank, "HOROVOD_CROSS_RANK": rank, "HOROVOD_HOSTNAME": (host(member.name),)}

    return Wiring(shared, own)


FRAMEWORK = Framework(wire)
