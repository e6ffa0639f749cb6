"""python -m phalanx.scheduler.packed HOME GROUP: a node of the allocation of a packed group."""

from __future__ import annotations

import sys
from pathlib import Path

from phalanx.scheduler.packed import job

if __name__ == "__main__":
    sys.exit(job.main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
