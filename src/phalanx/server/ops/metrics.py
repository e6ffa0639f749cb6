"""The server's metrics in the Prometheus text format.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import os
import platform
import resource
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from phalanx import __version__
from phalanx.agent import processes
from phalanx.errors import StoreError
from phalanx.server.context import Here
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
    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        place = next((place for place, most in enumerate(BUCKETS) if seconds <= most), len(BUCKETS))
        self.counts[place] += 1
        self.total_s += seconds

    def samples(self, labels: Mapping[str, str]) -> Iterator[Sample]:
        below = 0
        for most, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            below += count
            yield Sample({**labels, "le": most}, below, "_bucket")
        yield Sample(labels, self.total_s, "_sum")
        yield Sample(labels, below, "_count")


class Metrics:
    """Thread-safe counters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._seconds: dict[str, LatencyHistogram] = {}
        self._turns = LatencyHistogram()
        self._database_errors = 0
        self.under_way = 0  # active requests
        self.listeners = 0  # open live streams
        self.is_scheduling = False

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route`: the path template, of which there are a limited number; raw paths are unbounded."""
        with self._lock:
            self._requests[method if method in METHODS else OTHER, route, f"{status // 100}xx"] += 1
            self._seconds.setdefault(route, LatencyHistogram()).add(seconds)

    def turn(self, seconds: float, *, is_ours: bool) -> None:
        """One pass of the scheduler, or one check whether another process schedules."""
        with self._lock:
            self.is_scheduling = is_ours
            if is_ours:
                self._turns.add(seconds)

    def database_error(self) -> None:
        with self._lock:
            self._database_errors += 1

    def families(self) -> Iterator[Family]:
        with self._lock:
            requests, turns = dict(self._requests), list(self._turns.samples({}))
            seconds = [sample for route, one in self._seconds.items() for sample in one.samples({"route": route})]
        counted = [
            Sample({"method": method, "route": route, "status": status}, count)
            for (method, route, status), count in requests.items()
        ]
        yield Family("phalanx_requests_total", "counter", "Answered requests.", counted)
        yield Family("phalanx_request_seconds", "histogram", "Request duration.", seconds)
        yield _one("phalanx_requests_under_way", "gauge", "Requests in progress.", self.under_way)
        yield _one("phalanx_live_listeners", "gauge", "Open live event streams.", self.listeners)
        yield _one("phalanx_database_errors_total", "counter", "Database errors.", self._database_errors)
        yield _one("phalanx_scheduling", "gauge", "1 if this server schedules the home's runs.", self.is_scheduling)
        yield Family("phalanx_scheduler_turn_seconds", "histogram", "Duration of scheduler passes.", turns)


def _one(name: str, kind: str, about: str, value: float) -> Family:
    return Family(name, kind, about, [Sample({}, value)])


def of_runs(store: Store) -> list[Family]:
    """Raises StoreError."""
    runs = [Sample({"status": status.value}, store.count(f"status:{status.value}")) for status in Status]
    return [
        Family("phalanx_runs", "gauge", "Runs by status.", runs),
        _one("phalanx_queue_length", "gauge", "Queued runs.", store.count(WAITING)),
    ]


def of_process() -> Iterator[Family]:
    about = {"version": __version__, "python": platform.python_version()}
    yield Family("phalanx_build_info", "gauge", "Version of this server.", [Sample(about, 1)])
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield _one("process_cpu_seconds_total", "counter", "CPU time used.", used.ru_utime + used.ru_stime)
    with suppress(OSError, ValueError, IndexError):
        with open("/proc/self/statm", encoding="ascii") as stream:
            pages = int(stream.read().split()[1])
        memory = pages * resource.getpagesize()
        yield _one("process_resident_memory_bytes", "gauge", "Memory in use.", memory)
        yield _one("process_open_fds", "gauge", "Open file descriptors.", len(os.listdir("/proc/self/fd")))
    yield _one(
        "process_max_fds",
        "gauge",
        "Maximum number of open file descriptors.",
        max(0, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    )
    stat = processes.read_stat(os.getpid())
    if stat is not None:
        since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        started = time.time() - since_boot + stat.started / os.sysconf("SC_CLK_TCK")
        yield _one("process_start_time_seconds", "gauge", "Start time, in seconds since the epoch.", round(started, 2))


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
    text = rendered(iter([*metrics.families(), *runs, *of_process()]))
    return Response(text, 200, {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}, MEDIA)
