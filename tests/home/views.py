"""What the command line and the server show of a home from an earlier version, and what they are expected to show.

    python -m tests.home.views tests/fixtures/home-VERSION

writes `expected.json` of a fixture with the version of Phalanx that wrote its home.
"""

from __future__ import annotations

import fcntl
import json
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.cli.homes import Place, ended

# Sentences made when a run is shown: their wording may change. Sentences that are stored in a run's history may not.
WORDING = {"text", "why", "advice", "consequences"}
OF_A_RUN = (
    ("show", "--json"),
    ("statuses", "--json"),
    ("events", "--json"),
    ("logs", "--json"),
    ("metrics", "--json"),
    ("metrics", "--csv"),
    ("outputs", "--json"),
    ("artifacts", "--json"),
)
OF_THE_HOME = (
    ("models", "--json"),
    ("models", "show", "digits", "--json"),
    ("models", "show", "digits@champion", "--json"),
    ("models", "compare", "digits/1", "digits/2", "--json"),
    ("compare", "distributed", "script", "--json"),
    ("ps", "-q", "metric.loss:<0.1", "--json"),
    ("ps", "--project", "vision", "-q", "status:failed", "--json"),
    ("users", "list", "--json"),
    ("token", "list", "--json"),
)
BY_REST = (
    "/api/v1/runs?limit=100",
    "/api/v1/projects",
    "/api/v1/models",
    "/api/v1/models/digits",
    "/api/2.0/mlflow/experiments/search?max_results=100",
    "/api/2.0/mlflow/registered-models/get?name=digits",
)


def unpack(fixture: Path, place: Place) -> None:
    """Put the fixture's home there, as somebody restores a backup on another machine."""
    with tarfile.open(fixture / "home.tar.gz") as packed:
        packed.extractall(place.home.parent, filter="tar")


@contextmanager
def without_scheduler(place: Place) -> Iterator[None]:
    """Hold the right to schedule, so that commands only read."""
    with (place.home / "scheduler.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def views(place: Place) -> dict[str, Any]:
    """The output of every command that reads, by its arguments; wherever the home is."""
    runs = _output(place, "ps", "-n", "100", "--json")
    found = {"ps": runs}
    for arguments in OF_THE_HOME:
        found[" ".join(arguments)] = _output(place, *arguments)
    for run in runs["runs"]:
        for verb, *options in OF_A_RUN:
            found[" ".join((verb, run["id"], *options))] = _output(place, verb, run["id"], *options)
    return found


@contextmanager
def serving(place: Place) -> Iterator[str]:
    """The address of a server for the home."""
    server = place.start("serve", "--port", "0", "--json")
    assert server.stdout is not None
    yield json.loads(server.stdout.readline())["url"]
    server.terminate()
    assert ended(server).code == 0


def views_by_rest(url: str, token: str) -> dict[str, Any]:
    """What the server answers, by address."""
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, timeout=30.0, trust_env=False) as client:
        return {address: stable(client.get(address).raise_for_status().json()) for address in BY_REST}


def _output(place: Place, *arguments: str) -> Any:
    answer = place.quick(*arguments)
    assert answer.code == 0, f"phalanx {' '.join(arguments)}: {answer.err or answer.out}"
    text = answer.out.replace(str(place.home), "HOME")
    if arguments[-1] != "--json":
        return text.splitlines()
    lines = [stable(json.loads(line)) for line in text.splitlines()]
    return lines if arguments[0] == "logs" else lines[0]


def stable(value: Any) -> Any:
    """Without wording that may change."""
    if isinstance(value, list):
        return [stable(item) for item in value]
    if not isinstance(value, dict):
        return value
    wording = WORDING | ({"reason"} if "rank" in value else set())  # a replica's is made again with the database
    return {name: stable(item) for name, item in value.items() if name not in wording}


# Version 0.2 spelled these in the JSON of commands as Python does, and in REST as now.
RESPELLED = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def differences(expected: Any, found: Any, path: str = "") -> Iterator[str]:
    """Where something expected is missing or has changed. New fields are fine, and reasons that were not told."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name, value in expected.items():
            if name in found:
                yield from differences(value, found[name], f"{path}/{name}")
            else:
                yield f"{path}/{name} is missing"
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, (value, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(value, other, f"{path}/{number}")
    elif not _is_same(expected, found) and not (expected is None and path.endswith("/waits_for")):
        yield f"{path} was {expected!r}, is {found!r}"


def _is_same(expected: Any, found: Any) -> bool:
    """Times of points had more digits than microseconds, also in lines of CSV."""
    if isinstance(expected, float) and isinstance(found, float) and expected > 1e9:
        return abs(expected - found) < 1e-6
    if isinstance(expected, str) and isinstance(found, str) and expected != found:
        pairs = list(zip(expected.split(","), found.split(","), strict=False))
        is_time = [re.fullmatch(r"1\d{9}\.\d+", one) is not None for one, _ in pairs]
        if any(is_time) and expected.count(",") == found.count(","):
            return all(
                _is_same(float(one), float(other)) if time else one == other
                for (one, other), time in zip(pairs, is_time, strict=True)
            )
        return bool(RESPELLED.get(expected) == found)
    return bool(expected == found)


def write_expected(fixture: Path) -> None:
    token = json.loads((fixture / "access.json").read_bytes())["token"]
    with tempfile.TemporaryDirectory() as base:
        place = Place(Path(base))
        unpack(fixture, place)
        with without_scheduler(place), serving(place) as url:
            expected = {"commands": views(place), "rest": views_by_rest(url, token)}
    (fixture / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write_expected(Path(sys.argv[1]))
