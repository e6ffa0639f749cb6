"""Horovod: ranks connect over Gloo, each started separately; or mpirun starts them, if the file or command says so.

Over Gloo the ranks exchange their addresses through a key-value server, normally horovodrun. Here the
agent of the first replica is the server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from phalanx.plan.frameworks import (
    Framework,
    MemberKind,
    ProcessGroup,
    Value,
    Wiring,
    by_kind,
    host,
    interface,
    own,
    port,
)
from phalanx.plan.frameworks.mpi import LAUNCHERS, SYMPTOMS, launched_by_mpirun


def wire(gang: ProcessGroup) -> Wiring:
    if gang.replicas.launcher == "mpirun" or LAUNCHERS.search(gang.command):
        return launched_by_mpirun(gang)
    first, size = gang.first.name, str(gang.size)
    shared: dict[str, Value] = {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": (host(first),),
        "HOROVOD_GLOO_RENDEZVOUS_PORT": (port(first),),
        "HOROVOD_SIZE": size,
    }
    peers = Counter(member.local for member in gang.members)  # number of replicas with such a process

    def ranks(kind: MemberKind) -> Mapping[str, Value]:
        return {
            "HOROVOD_RANK": (own("rank"),),
            "HOROVOD_LOCAL_RANK": str(kind.local),
            "HOROVOD_LOCAL_SIZE": str(kind.local_size),
            "HOROVOD_CROSS_RANK": (own("cross"),),
            "HOROVOD_CROSS_SIZE": str(peers[kind.local]),
            # For Horovod every replica is a separate host, even on one machine. This is a name, never an address.
            "HOROVOD_HOSTNAME": (f"{kind.role}-", own("index")),
        }

    scopes = {"global": gang.size, **{f"cross_{local}": count for local, count in peers.items()}}
    scopes |= {f"local_{member.name}": member.local_size for member in gang.members if not member.local}
    defaults: dict[str, Value] = {"HOROVOD_GLOO_IFACE": (interface(),)}
    return Wiring(shared, by_kind(ranks), defaults, meets=(first,), service=scopes)


FRAMEWORK = Framework(
    wire,
    launchers=LAUNCHERS,
    symptoms=(
        *SYMPTOMS,
        "HorovodInternalError",
        "gloo",
        "Connection (?:reset|closed) by peer",
        "Horovod has been shut down",
    ),
)
