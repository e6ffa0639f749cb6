"""PyTorch: `init_process_group("env://")`, and whatever else torchrun would have set for the same process."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.plan.frameworks import Framework, Gang, Member, Value, Wiring, host, port


def wire(gang: Gang) -> Wiring:
    first, size = gang.first.name, str(gang.size)
    shared: dict[str, Value] = {
        "MASTER_ADDR": (host(first),),
        "MASTER_PORT": (port(first),),
        "WORLD_SIZE": size,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_WORLD_SIZE": size,
        "ROLE_WORLD_SIZE": size,
        "TORCHELASTIC_RUN_ID": gang.run_id,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # rank 0 serves the store itself: there is no torchrun agent
    }

    def own(member: Member) -> Mapping[str, Value]:
        rank = str(member.rank)
        return {"RANK": rank, "GROUP_RANK": rank, "ROLE_RANK": rank, "NODE_RANK": rank}

    return Wiring(shared, own)


FRAMEWORK = Framework(wire)
