"""No framework: replicas find each other by PHALANX_* and POLYAXON_CLUSTER alone."""

from __future__ import annotations

from phalanx.plan.frameworks import Framework, Gang, Wiring


def wire(_: Gang) -> Wiring:
    return Wiring()


FRAMEWORK = Framework(wire, ps_role="ps")
