"""python -m phalanx.agent PLAN FACTS [--as-rank]"""

from __future__ import annotations

import sys

from phalanx.agent.launching import AS_RANK, launch, launched_rank, read, serve, stay_with, tasks_of
from phalanx.agent.meeting import NotMet


def main() -> int:
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], [AS_RANK]):
        print(f"usage: phalanx-agent PLAN FACTS [{AS_RANK}]", file=sys.stderr)
        return 2
    plan, facts = read(sys.argv[1], sys.argv[2])
    if sys.argv[3:]:
        (task,) = tasks_of(plan, facts, launched_rank())
        return stay_with(task)
    try:
        serve(plan, facts)
    except NotMet as fault:
        print(fault, file=sys.stderr)
        return 1
    launch(tasks_of(plan, facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
