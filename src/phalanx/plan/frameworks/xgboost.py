"""XGBoost: the address of the tracker, which the code of the first rank starts.

Sets the variables of Kubeflow's XGBoostJob, and those that XGBoost itself reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.plan.frameworks import Framework, MemberKind, ProcessGroup, Value, Wiring, by_kind, host, own, port


def wire(gang: ProcessGroup) -> Wiring:
    first, size = gang.first.name, str(gang.size)
    shared: dict[str, Value] = {
        "MASTER_ADDR": (host(first),),
        "MASTER_PORT": (port(first),),
        "WORLD_SIZE": size,
        "DMLC_TRACKER_URI": (host(first),),
        "DMLC_TRACKER_PORT": (port(first),),
        "DMLC_NUM_WORKER": size,
    }

    def ranks(_: MemberKind) -> Mapping[str, Value]:
        return {"RANK": (own("rank"),), "DMLC_TASK_ID": (own("rank"),)}

    return Wiring(shared, by_kind(ranks), meets=(first,))


FRAMEWORK = Framework(
    wire,
    symptoms=(
        r"system error:\s*(?:Connection|Broken pipe)",
        "Connection (?:reset|refused|closed)",
        r"Failed to (?:recv|send|connect)",
    ),
)
