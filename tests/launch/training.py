# mypy: disable-error-code="no-untyped-def,no-untyped-call"
"""Functions that the tests run as runs. Copied into the working folder of each test's runs."""

import os
import sys
import threading
import time


def add(a, b=1):
    print("adding", a, b, "in rank", os.environ["PHALANX_RANK"])
    return a + b


def rank_of(**_):
    return int(os.environ["PHALANX_RANK"])


def fail_in(rank):
    if rank_of() == rank:
        raise Unlucky(rank, "no luck")
    threading.Event().wait()


class Unlucky(Exception):
    def __init__(self, rank, text):
        super().__init__(rank, text)
        self.rank = rank


def leave(code):
    sys.exit(code)


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.02)
    return "came"


def unpicklable():
    return threading.Lock()


class Counter:
    """Counts to `until`; continues after a checkpoint."""

    def __init__(self):
        self.count = 0
        self.starts = 0

    def __call__(self, until, started):
        self.starts += 1
        while self.count < until:
            self.count += 1
            if self.starts == 1 and self.count == 2:
                with open(started, "w") as stream:
                    stream.write(str(os.getpid()))
                threading.Event().wait(60)
        return self.count, self.starts

    def checkpoint(self, *args):
        from functools import partial

        return partial(self, *args)


def version():
    return sys.version_info[:2]
