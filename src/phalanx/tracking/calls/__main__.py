"""Runs the function of a call file in this rank: `python -m phalanx.tracking.calls DIGEST [NUMBER]`.

The result, or the exception, goes to the outputs of the run as a sealed file. Standard library only, Python 3.8+.
"""

from __future__ import annotations

import os
import sys

from phalanx.tracking.calls.rank_call import RankCall
from phalanx.tracking.calls.sealed_files import UntrustedFile


def main() -> int:
    digest, number = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    try:
        call = RankCall.find(digest, number, os.environ)
    except (UntrustedFile, OSError) as fault:
        print(f"phalanx: the call of this run cannot be read: {fault}", file=sys.stderr)
        return 1
    return call.run()


if __name__ == "__main__":
    sys.exit(main())
