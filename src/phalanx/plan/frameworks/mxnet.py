"""MXNet's key-value store: the master is the scheduler; servers and workers report to it.

Only workers train. Scheduler and servers normally exit after them, but not after workers that exit without cleaning up.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.plan.frameworks import (
    SELF,
    Framework,
    MemberKind,
    ProcessGroup,
    Value,
    Wiring,
    by_kind,
    host,
    own,
    port,
)

_DMLC_ROLES = {"master": "scheduler", "worker": "worker", "server": "server"}


def wire(gang: ProcessGroup) -> Wiring:
    first = gang.first.name
    shared: dict[str, Value] = {
        "DMLC_NUM_WORKER": str(gang.roles["worker"]),
        "DMLC_NUM_SERVER": str(gang.roles["server"]),
        "DMLC_PS_ROOT_URI": (host(first),),
        "DMLC_PS_ROOT_PORT": (port(first),),
    }

    def identity(kind: MemberKind) -> Mapping[str, Value]:
        values: dict[str, Value] = {"DMLC_ROLE": _DMLC_ROLES[kind.role], "DMLC_NODE_HOST": (host(SELF),)}
        if kind.role == "worker":
            values |= {"DMLC_WORKER_ID": (own("index"),), "DMLC_SERVER_ID": "0"}
        elif kind.role == "server":
            values["DMLC_SERVER_ID"] = (own("index"),)
        return values

    notes: tuple[tuple[str, str], ...] = ()
    if not gang.roles["server"]:
        notes = (("environment.replicas", "MXNet's dist key-value stores require at least one server: `n_ps: 1`"),)
    serving = ("master", "server") if gang.roles["worker"] else ("server",)
    return Wiring(shared, by_kind(identity), meets=(first,), serving=serving, notes=notes)


FRAMEWORK = Framework(wire, ps_role="server", symptoms=("ps-lite", r"van\.(?:cc|h)", "Connection reset by peer"))
