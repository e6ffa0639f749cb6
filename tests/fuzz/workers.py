"""Examines cases in forked processes with limits: a file that kills or hangs its process costs that process alone.

The parent imports everything once. Each child makes the cases of a range of numbers itself, so only failures and
counts come back, as lines of JSON.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import selectors
import shutil
import signal
import struct
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from tests.fuzz.cases import Case
from tests.fuzz.doors import Door, Examiner, Failure, choose
from tests.fuzz.mutations import Seeds, make_case

ADDRESS_SPACE = 1 << 30  # more than the parent has
CPU_S = 90  # for all calls with one file; the clock of a call ends earlier
HANGS_S = 300.0  # for a batch


@dataclass(frozen=True, slots=True)
class Found:
    """A failure and the number of its case."""

    number: int
    failure: Failure


@dataclass(slots=True)
class Batch:
    """What came of a range of numbers."""

    files: int = 0
    cpu_s: float = 0.0
    found: list[Found] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)


def case_of(seed: int, number: int, seeds: Seeds) -> tuple[Case, list[Door], Random]:
    """The case of a number and the doors it goes through: always the same ones for the same seeds."""
    rng = Random(f"{seed}:{number}")
    case = make_case(rng, seeds)
    return case, choose(rng), rng


class Child:
    """A forked process, seen from both sides: it sends messages, and says which number it works on."""

    def __init__(self, work: Callable[[Child], None]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="phalanx-fuzz-", dir=_scratch()))
        self._number = mmap.mmap(-1, 8)
        self._began = time.monotonic()
        self._received = b""
        self.reader, self._writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(work)
        os.close(self._writer)

    def _run(self, work: Callable[[Child], None]) -> NoReturn:
        code = 1
        try:
            os.close(self.reader)
            os.environ["PHALANX_HOME"] = str(self.folder / "home")  # not that of who runs the fuzzer
            _limit()
            work(self)
            code = 0
        except BaseException:  # noqa: BLE001 - nothing of the parent may run in the child
            traceback.print_exc()
        finally:
            os._exit(code)

    # in the child

    def send(self, message: object) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._writer, data) :]

    def begin(self, number: int) -> None:
        self._number[:] = struct.pack("q", number)
        used = resource.getrusage(resource.RUSAGE_SELF)
        most = int(used.ru_utime + used.ru_stime) + CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))

    # in the parent

    def receive(self) -> bool:
        """Take what has arrived; False at the end."""
        chunk = os.read(self.reader, 1 << 16)
        self._received += chunk
        return bool(chunk)

    def end(self) -> tuple[list[Any], int]:
        """Its messages and its exit status, negative for a signal."""
        os.close(self.reader)
        _, status = os.waitpid(self.pid, 0)
        shutil.rmtree(self.folder, ignore_errors=True)
        return [json.loads(line) for line in self._received.split(b"\n")[:-1]], os.waitstatus_to_exitcode(status)

    def kill_if_it_hangs(self) -> None:
        if time.monotonic() - self._began > HANGS_S:
            os.kill(self.pid, signal.SIGKILL)

    @property
    def number(self) -> int:
        return int(struct.unpack("q", self._number[:])[0])


def _scratch() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _limit() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def examine_alone(case: Case, doors: Sequence[Door]) -> list[Failure]:
    """The failures of one case, in a process of its own."""

    def work(child: Child) -> None:
        child.begin(0)
        for failure in Examiner(child.folder).examine(case, doors, Random(0))[0]:
            child.send(asdict(failure))

    child = Child(work)
    while child.receive():
        pass
    messages, status = child.end()
    failures = [Failure(message["kind"], tuple(message["door"]), message["detail"]) for message in messages]
    return failures if status == 0 else [*failures, _death(status, doors)]


def _death(status: int, doors: Sequence[Door]) -> Failure:
    kind = f"killed by signal {-status}" if status < 0 else f"the process ended with {status}"
    return Failure(kind, doors[0] if doors else (), "the process did not survive the file")


class Pool:
    """Examines ranges of numbers in several children at once."""

    def __init__(self, seed: int, seeds: Seeds, jobs: int) -> None:
        self.seed = seed
        self.seeds = seeds
        self.jobs = jobs

    def run(self, batches: Iterator[range]) -> Iterator[Batch]:
        """The results of all batches, in the order in which they end."""
        rests: list[range] = []
        active: dict[int, tuple[Child, range]] = {}
        with selectors.DefaultSelector() as selector:
            while True:
                while len(active) < self.jobs and (numbers := rests.pop() if rests else next(batches, None)):
                    child = Child(self._work(numbers))
                    active[child.reader] = child, numbers
                    selector.register(child.reader, selectors.EVENT_READ)
                if not active:
                    return
                for key, _ in selector.select(timeout=1.0):
                    child, numbers = active[key.fd]
                    if not child.receive():
                        selector.unregister(key.fd)
                        del active[key.fd]
                        batch = self._result(child, numbers)
                        rests += [numbers[batch.files :]] if batch.files < len(numbers) else []
                        yield batch
                for child, _ in active.values():
                    child.kill_if_it_hangs()

    def _work(self, numbers: range) -> Callable[[Child], None]:
        def work(child: Child) -> None:
            examiner = Examiner(child.folder)
            began, files = time.process_time(), 0
            codes: Counter[str] = Counter()
            for number in numbers:
                child.begin(number)
                case, doors, rng = case_of(self.seed, number, self.seeds)
                failures, answered = examiner.examine(case, doors, rng)
                files += 1
                codes.update(f"{door}: {code}" for door, code in answered.items())
                for failure in failures:
                    child.send({"number": number, **asdict(failure)})
                if any(failure.kind == "memory" for failure in failures):
                    break  # the peak of a process never falls
            child.send({"files": files, "cpu_s": time.process_time() - began, "codes": codes})

        return work

    def _result(self, child: Child, numbers: range) -> Batch:
        messages, status = child.end()
        batch = Batch()
        for message in messages:
            if "kind" in message:
                failure = Failure(message["kind"], tuple(message["door"]), message["detail"])
                batch.found.append(Found(message["number"], failure))
            else:
                batch.files, batch.cpu_s, batch.codes = message["files"], message["cpu_s"], Counter(message["codes"])
        if status != 0:
            _, doors, _ = case_of(self.seed, max(child.number, numbers.start), self.seeds)
            batch.found.append(Found(child.number, _death(status, doors)))
            batch.files = max(1, child.number - numbers.start + 1)
        return batch
