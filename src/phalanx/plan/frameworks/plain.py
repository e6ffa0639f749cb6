"""No framework: replicas find each other by PHALANX_* and POLYAXON_CLUSTER alone."""

from __future__ import annotations

from phalanx.plan.frameworks import Framework, ProcessGroup, Wiring


def wire(gang: ProcessGroup) -> Wiring:
    return Wiring(meets=tuple(gang.roles))


FRAMEWORK = Framework(
    wire,
    ps_role="ps",
    symptoms=("Connection(?:Reset|Refused)Error", "BrokenPipeError", "Connection (?:reset|closed|refused) by peer"),
)
