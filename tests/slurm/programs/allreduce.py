"""Every rank brings a number at each step, and all learn the same sum, over TCP, where MASTER_ADDR and MASTER_PORT say.

allreduce.py STEPS [PAUSE_S]
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import IO, Any

from phalanx import tracking

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))

PATIENCE_S = 60.0


def say(stream: IO[Any], value: Any) -> None:
    stream.write(json.dumps(value) + "\n")
    stream.flush()


def connected() -> dict[int, IO[Any]]:
    """Rank 0 has a stream to each of the others; they have one to it."""
    if RANK:
        link = called().makefile("rw")
        say(link, RANK)
        return {0: link}
    listener = socket.create_server(("", ADDRESS[1]))
    links = [listener.accept()[0].makefile("rw") for _ in range(SIZE - 1)]
    return {int(link.readline()): link for link in links}


def called() -> socket.socket:
    """Rank 0, which may come later."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(ADDRESS, PATIENCE_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def summed(links: dict[int, IO[Any]], mine: int) -> int:
    if RANK:
        say(links[0], mine)
        return int(links[0].readline())
    total = mine + sum(int(links[rank].readline()) for rank in range(1, SIZE))
    for link in links.values():
        say(link, total)
    return total


def main() -> None:
    steps, pause_s = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    links, sums = connected(), []
    for step in range(steps):
        sums.append(summed(links, (RANK + 1) * (step + 1)))
        tracking.log(total=sums[-1], step=step)
        print(f"rank {RANK} at step {step}: {sums[-1]}", flush=True)
        time.sleep(pause_s)
    fields = {"sums": sums, "host": socket.gethostname(), "environment": dict(os.environ)}
    (Path(os.environ["PHALANX_OUTPUTS"]) / f"{RANK}.json").write_text(json.dumps(fields))


main()
