"""PyTorch: the variables of `init_process_group("env://")`, and the others that torchrun sets.

A replica with several GPUs has one process per GPU, as with torchrun; unless the command is a launcher
itself: that one gets the number of nodes and its node rank.
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

LAUNCHERS = starting(
    "torchrun",
    r"python[\d.]*\s+(?:-\w\s+)*-m\s+(?:torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch)",
    r"accelerate\s+launch",
    "deepspeed",
)
SYMPTOMS = (
    r"Connection (?:reset|closed) by (?:remote )?peer",
    r"gloo/transport",
    "Broken pipe",
    "Connection was likely closed",  # the store of rank 0 is gone
    r"DistNetworkError|DistStoreError",
    "remote process exited or there was a network error",  # NCCL
    "Watchdog caught collective operation timeout",
)


def wire(gang: ProcessGroup) -> Wiring:
    first, size = gang.first.name, str(gang.size)
    shared: dict[str, Value] = {
        "MASTER_ADDR": (host(first),),
        "MASTER_PORT": (port(first),),
        "WORLD_SIZE": size,
        "GROUP_WORLD_SIZE": str(gang.nodes),
        "ROLE_WORLD_SIZE": size,
        "TORCHELASTIC_RUN_ID": gang.run_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # rank 0 serves the store itself: there is no torchrun agent
    }
    starts_processes = LAUNCHERS.search(gang.command) is not None
    if starts_processes:  # torchrun reads its options from these
        shared |= {
            "PET_NNODES": str(gang.nodes),
            "PET_MASTER_ADDR": (host(first),),
            "PET_MASTER_PORT": (port(first),),
        }

    def ranks(kind: MemberKind) -> Mapping[str, Value]:
        rank, node = (own("rank"),), (own("node"),)
        values: dict[str, Value] = {
            "RANK": rank,
            "LOCAL_RANK": str(kind.local),
            "LOCAL_WORLD_SIZE": str(kind.local_size),
            "GROUP_RANK": node,
            "NODE_RANK": node,
            "ROLE_RANK": rank,
        }
        if starts_processes:
            values |= {"PET_NODE_RANK": node, "PET_NPROC_PER_NODE": str(max(1, kind.gpus))}
        return values

    return Wiring(shared, by_kind(ranks), meets=(first,))


FRAMEWORK = Framework(wire, launchers=LAUNCHERS, symptoms=SYMPTOMS)
