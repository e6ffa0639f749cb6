"""Takes ever more memory: hog.py MIB. Every page is written to, and counts."""

from __future__ import annotations

import sys
import time

held = []
for number in range(int(sys.argv[1]) // 10):
    held.append(bytearray(b"x") * (10 * 1024 * 1024))
    print(f"holds {10 * (number + 1)} MiB", flush=True)
    time.sleep(0.02)
time.sleep(60)
