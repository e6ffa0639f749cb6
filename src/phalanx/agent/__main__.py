"""python -m phalanx.agent PLAN FACTS"""

from __future__ import annotations

import sys

from phalanx.agent.launching import launch, read, serve, tasks_of
from phalanx.agent.meeting import NotMet


def main() -> int:
    if len(sys.argv) != 3:
        print("usage: phalanx-agent PLAN FACTS", file=sys.stderr)
        return 2
    plan, facts = read(sys.argv[1], sys.argv[2])
    try:
        serve(plan, facts)
    except NotMet as fault:
        print(fault, file=sys.stderr)
        return 1
    launch(tasks_of(plan, facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
