"""One rank fails, the others would go on for ever: faltering.py RANK [CODE]. Without a code it raises."""

from __future__ import annotations

import os
import sys
import time

print(f"rank {os.environ['PHALANX_RANK']} begins", flush=True)
time.sleep(1)
if os.environ["PHALANX_RANK"] == sys.argv[1]:
    if len(sys.argv) > 2:
        sys.exit(int(sys.argv[2]))
    raise RuntimeError("the loss is not a number")
while True:
    time.sleep(1)
