"""Prime numbers, counted by as many processes as there are cores for it. The standard library alone.

A step is the same work whatever the cores: one part of it can be shared out, the other cannot. So a second core helps,
and each further one helps less; how much less is for `phalanx size` to find out.
"""

import argparse
import os
from multiprocessing import Pool

from phalanx import tracking

PARTS = 16
ALONE = 2  # parts that only the first process can do


def count(part: int) -> int:
    """How many primes there are below 1000, found the slow way; the part only tells one call from another."""
    return sum(all(number % divisor for divisor in range(2, number)) for number in range(2, 1000 + part % 2))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=800)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))  # those that it may use, not all that the machine has
    primes = 0
    with Pool(cores) as pool:
        for step in range(options.steps):
            primes += sum(pool.map(count, range(PARTS), chunksize=1)) + sum(count(part) for part in range(ALONE))
            tracking.log(primes=primes, step=step)
    print(f"{options.steps} steps with {cores} processes", flush=True)


if __name__ == "__main__":
    main()
