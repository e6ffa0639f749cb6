"""Small programs that runs on a cluster carry along as their code, of the standard library alone."""

from __future__ import annotations

# All ranks meet at the first one, by the names that the wiring gave them, and tell what they were told.
MEET = """
import json, os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("", where[1])) as server:
        others = [server.accept()[0] for _ in range(world - 1)]
        said = sorted(other.makefile("r").readline().strip() for other in others)
        for other in others:
            other.sendall(b"welcome\\n")
    print("met", *said, flush=True)
else:
    deadline = time.time() + 60
    while True:
        try:
            with socket.create_connection(where, timeout=5) as first:
                first.sendall(f"{os.environ['PHALANX_REPLICA']}\\n".encode())
                print("answer", first.makefile("r").readline().strip(), flush=True)
            break
        except OSError:
            if time.time() > deadline:
                raise
            time.sleep(0.1)
"""

# Metrics of every rank.
STEPS = """
import os, sys, time
from phalanx import tracking
until, pause_s = int(sys.argv[1]), float(sys.argv[2])
for step in range(until):
    tracking.log(step=step, loss=1 / (1 + step))
    time.sleep(pause_s)
print("done", flush=True)
"""

# A log that is hard to bring home whole.
NOISE = """
import os, random, sys
dice = random.Random(7)
out = sys.stdout.buffer
for number in range(400):
    kind = number % 5
    if kind == 0:
        out.write(b"::phalanx {not a frame}\\n")
    elif kind == 1:
        out.write(b"long " * dice.randrange(1, 9000) + b"\\n")
    elif kind == 2:
        out.write("ünïcode ✓ \\r\\n".encode())
    elif kind == 3:
        out.write(bytes(dice.randrange(1, 256) for _ in range(60)))
    else:
        out.write(b"line %d\\n" % number)
    out.flush()
out.write(b"no newline at the end")
"""

# Takes far more memory than it has asked for.
HOG = """
held = []
for _ in range(100):
    held.append(bytearray(20_000_000))
"""

TRAP = "trap 'echo asked to end; exit 0' TERM; echo ready; while :; do sleep 0.1; done"

FILES = {"meet.py": MEET, "steps.py": STEPS, "noise.py": NOISE, "hog.py": HOG}


def noise() -> bytes:
    """What `noise.py` says."""
    import io
    import sys

    class Out:
        buffer = io.BytesIO()

    before, sys.stdout = sys.stdout, Out()
    try:
        exec(compile(NOISE, "noise.py", "exec"), {})
    finally:
        sys.stdout = before
    return Out.buffer.getvalue()
