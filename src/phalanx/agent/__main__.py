"""python -m phalanx.agent PLAN FACTS"""

from __future__ import annotations

import sys

from phalanx.agent.launching import launch, read_tasks


def main() -> int:
    if len(sys.argv) != 3:
        print("usage: phalanx-agent PLAN FACTS", file=sys.stderr)
        return 2
    launch(read_tasks(sys.argv[1], sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
