"""The server's metrics in the Prometheus text format.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import os
import platform
import resource
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from phalanx import __version__
from phalanx.errors import StoreError
from phalanx.server.context import Here
from phalanx.server.processes.shared_state import Gauge, SharedState
from phalanx.store import Store
from phalanx.store.statuses import Status

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0)  # seconds
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
OTHER = "other"
WAITING = "status:created|resuming|warning"


class Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float
    suffix: str = ""


class Family(NamedTuple):
    """One metric: its name, its Prometheus type, and its values."""

    name: str
    kind: str
    about: str
    samples: list[Sample]


def rendered(families: Iterator[Family]) -> str:
    lines: list[str] = []
    for family in families:
        lines += (f"# HELP {family.name} {family.about}", f"# TYPE {family.name} {family.kind}")
        lines += (f"{family.name}{one.suffix}{_labels(one.labels)} {_number(one.value)}" for one in family.samples)
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    escaped = (value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for value in labels.values())
    pairs = ",".join(f'{name}="{value}"' for name, value in zip(labels, escaped, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


class LatencyHistogram:
    """The numbers of a histogram: a count for each bucket and one for all above, then the sum of the seconds."""

    SIZE = len(BUCKETS) + 2

    @staticmethod
    def amounts(seconds: float) -> dict[int, float]:
        """What one observation adds, by place."""
        return {bisect_left(BUCKETS, seconds): 1, len(BUCKETS) + 1: seconds}

    @staticmethod
    def samples(labels: Mapping[str, str], numbers: Sequence[float]) -> Iterator[Sample]:
        below = 0.0
        for most, count in zip((*map(str, BUCKETS), "+Inf"), numbers, strict=False):
            below += count
            yield Sample({**labels, "le": most}, below, "_bucket")
        yield Sample(labels, numbers[-1], "_sum")
        yield Sample(labels, below, "_count")


class Metrics:
    """Thread-safe counters of this process, and the sums over all processes of the server."""

    REQUESTS, SECONDS, TURNS, DATABASE_ERRORS = "requests", "seconds", "turns", "database errors"

    def __init__(self, shared: SharedState | None = None) -> None:
        self.shared = shared or SharedState()
        self._lock = threading.Lock()

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route`: the path template, of which there are a limited number; raw paths are unbounded."""
        method = method if method in METHODS else OTHER
        self._add(f"{self.REQUESTS} {method} {status // 100}xx {route}", 1, {0: 1})
        self._add(f"{self.SECONDS} {route}", LatencyHistogram.SIZE, LatencyHistogram.amounts(seconds))

    def turn(self, seconds: float, *, is_ours: bool) -> None:
        """One pass of the scheduler, or one check whether another process schedules."""
        self.gauge(Gauge.SCHEDULING, is_ours)
        if is_ours:
            self._add(self.TURNS, LatencyHistogram.SIZE, LatencyHistogram.amounts(seconds))

    def database_error(self) -> None:
        self._add(self.DATABASE_ERRORS, 1, {0: 1})

    def gauge(self, gauge: Gauge, value: float) -> None:
        self.shared.own[gauge] = value

    def _add(self, name: str, size: int, amounts: Mapping[int, float]) -> None:
        with self._lock:
            self.shared.own.add(name, size, amounts)

    def families(self) -> Iterator[Family]:
        totals: dict[str, list[float]] = {}
        for record in self.shared.records:
            for name, numbers in record.counters().items():
                before = totals.get(name)
                totals[name] = [a + b for a, b in zip(before, numbers, strict=True)] if before else numbers
        requests: list[Sample] = []
        seconds: list[Sample] = []
        for name, numbers in totals.items():
            kind, _, rest = name.partition(" ")
            if kind == self.REQUESTS:
                method, status, route = rest.split(" ", 2)
                requests.append(Sample({"method": method, "route": route, "status": status}, numbers[0]))
            elif kind == self.SECONDS:
                seconds += LatencyHistogram.samples({"route": rest}, numbers)
        turns = totals.get(self.TURNS, [0.0] * LatencyHistogram.SIZE)
        errors = totals.get(self.DATABASE_ERRORS, [0.0])[0]
        yield Family("phalanx_requests_total", "counter", "Answered requests.", requests)
        yield Family("phalanx_request_seconds", "histogram", "Request duration.", seconds)
        yield _one("phalanx_requests_under_way", "gauge", "Requests in progress.", self._sum(Gauge.UNDER_WAY))
        yield _one("phalanx_live_listeners", "gauge", "Open live event streams.", self._sum(Gauge.LISTENERS))
        yield _one("phalanx_database_errors_total", "counter", "Database errors.", errors)
        is_scheduling = self._sum(Gauge.SCHEDULING)
        yield _one("phalanx_scheduling", "gauge", "1 if this server schedules the home's runs.", is_scheduling)
        durations = list(LatencyHistogram.samples({}, turns))
        yield Family("phalanx_scheduler_turn_seconds", "histogram", "Duration of scheduler passes.", durations)
        yield from of_processes([int(record[Gauge.PID]) for record in self.shared.records])

    def _sum(self, gauge: Gauge) -> float:
        return sum(record[gauge] for record in self.shared.records)


def _one(name: str, kind: str, about: str, value: float) -> Family:
    return Family(name, kind, about, [Sample({}, value)])


def of_runs(store: Store) -> list[Family]:
    """Raises StoreError."""
    runs = [Sample({"status": status.value}, store.count(f"status:{status.value}")) for status in Status]
    return [
        Family("phalanx_runs", "gauge", "Runs by status.", runs),
        _one("phalanx_queue_length", "gauge", "Queued runs.", store.count(WAITING)),
    ]


def of_processes(pids: Sequence[int]) -> Iterator[Family]:
    """CPU time and memory of all processes of the server, and open files of the one that has most of them: the limit is
    that of each. Memory that processes share counts once."""
    about = {"version": __version__, "python": platform.python_version()}
    yield Family("phalanx_build_info", "gauge", "Version of this server.", [Sample(about, 1)])
    found = [process for pid in pids if pid and (process := ProcessUse.read(pid)) is not None]
    yield _one("phalanx_processes", "gauge", "Processes of this server that answer or schedule.", len(found))
    if not found:
        return
    yield _one("process_cpu_seconds_total", "counter", "CPU time used.", sum(one.cpu_s for one in found))
    yield _one("process_resident_memory_bytes", "gauge", "Memory in use.", sum(one.memory for one in found))
    yield _one("process_open_fds", "gauge", "Open file descriptors.", max(one.descriptors for one in found))
    limit = max(0, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield _one("process_max_fds", "gauge", "Maximum number of open file descriptors.", limit)
    started = min(one.started for one in found)
    yield _one("process_start_time_seconds", "gauge", "Start time, in seconds since the epoch.", started)


class ProcessUse(NamedTuple):
    cpu_s: float
    memory: int  # bytes
    descriptors: int
    started: float  # seconds since the epoch

    @classmethod
    def read(cls, pid: int) -> ProcessUse | None:
        """None if the process is gone, or if this system has no /proc."""
        ticks = os.sysconf("SC_CLK_TCK")
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
                fields = stream.read().rpartition(")")[2].split()
            cpu_s, since_boot = (int(fields[11]) + int(fields[12])) / ticks, int(fields[19]) / ticks
            started = round(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot, 2)
            return cls(cpu_s, _memory_of(pid), len(os.listdir(f"/proc/{pid}/fd")), started)
        except (OSError, ValueError, IndexError):
            return None


def _memory_of(pid: int) -> int:
    """Bytes. What several processes share is divided among them, if the kernel tells."""
    with suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as stream:
        for line in stream:
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    with open(f"/proc/{pid}/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize()


router = APIRouter(include_in_schema=False)


@router.get("/metrics")
def show(request: Request, here: Here) -> Response:
    """The current metrics. When the database does not respond, the metrics from it are omitted."""
    metrics: Metrics = request.app.state.metrics
    runs: list[Family] = []
    try:
        runs = of_runs(here.store)
    except StoreError:
        metrics.database_error()
    text = rendered(iter([*metrics.families(), *runs]))
    return Response(text, 200, {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}, MEDIA)
