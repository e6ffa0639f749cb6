"""Ways to fail, each at its place in a script. The one that fails is worker 1."""

import os
import signal
import sys
import time

HOW = sys.argv[1]
IS_VICTIM = os.environ["PHALANX_REPLICA"] == "worker-1"
STEPS = 8


def at_start() -> None:
    print("begins", flush=True)
    if HOW == "import" and IS_VICTIM:
        import a_module_that_nobody_has  # noqa: F401


def at_arrival() -> None:
    print("arrives", flush=True)
    if HOW == "never" and IS_VICTIM:
        time.sleep(600)
    if HOW == "late" and IS_VICTIM:
        time.sleep(5)


def at_step(step: int) -> None:
    print("step", step, flush=True)
    if step != 3 or not IS_VICTIM:
        return
    if HOW == "raise":
        raise ValueError("a bad batch")
    if HOW == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if HOW == "memory":
        hoard = []
        while True:
            hoard.append(bytearray(64 << 20))
            time.sleep(0.02)
    if HOW == "hang":
        time.sleep(600)
