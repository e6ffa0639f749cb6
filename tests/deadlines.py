"""A deadline for every test, as a pytest plugin: a test that hangs fails with its stacks, and its processes are killed.

pytest-timeout interrupts the test and prints the stack of every thread. This plugin adds what it cannot know: processes
that the test started would live on, and keep whoever waits for them, so they are listed in the report and killed
together with their process groups. A test's processes are found by descent, and by the variable that pytest sets in
its own environment (PYTEST_CURRENT_TEST), which also those inherit that left their parents.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest

# Suites on real clusters, browsers and frameworks: their first test also waits for the cluster to come up.
PATIENT = {
    "api": 3600,
    "frameworks": 900,
    "frameworks_tracking": 900,
    "install": 900,
    "kubernetes": 900,
    "slurm": 900,
    "web": 600,
}
HERE = Path(__file__).parent
PROC = Path("/proc")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        limit = _limit_of(item.path)
        if limit is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(limit))


@cache  # there are far more tests than files
def _limit_of(file: Path) -> int | None:
    return PATIENT.get(file.relative_to(HERE).parts[0]) if file.is_relative_to(HERE) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and str(call.excinfo.value).startswith("Timeout"):
        killed = [f"{pid} {command}" for pid, command in kill_processes_of(item.nodeid)]
        report.sections.append(("Processes of the test, killed", "\n".join(killed) or "none were left"))
    return report


def kill_processes_of(test: str) -> list[tuple[int, str]]:
    """Kill what the test left, with their groups. Returns the process ids and command lines."""
    found = [(pid, _command(pid)) for pid in _processes_of(test)]
    own_group = os.getpgrp()
    for pid, _ in found:
        try:
            group = os.getpgid(pid)
            os.kill(pid, signal.SIGKILL) if group == own_group else os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # gone meanwhile
    return found


def _processes_of(test: str) -> Iterator[int]:
    us = os.getpid()
    parents = {int(path.name): _parent(path) for path in PROC.glob("[0-9]*")}
    mark = f"PYTEST_CURRENT_TEST={test} (".encode()
    for pid in parents:
        if pid != us and (_descends(pid, us, parents) or _carries(pid, mark)):
            yield pid


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor


def _carries(pid: int, mark: bytes) -> bool:
    try:
        return any(entry.startswith(mark) for entry in (PROC / str(pid) / "environ").read_bytes().split(b"\0"))
    except OSError:
        return False


def _parent(path: Path) -> int:
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _command(pid: int) -> str:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return "(gone)"
