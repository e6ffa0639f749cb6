"""What only a server does, by the door of its users: schedules that tick, and notices of runs that end elsewhere."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.homes import Place, wait_for
from tests.notifications.sinks import HttpSink, Posted, http_sink


class Served(Place):
    """A home with a running `phalanx serve`."""

    def serve(self) -> None:
        process = self.start("serve", "--port", "0", "--json")
        assert process.stdout is not None
        self.url = str(json.loads(process.stdout.readline())["url"])

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def remote(self, *arguments: str) -> Any:
        """A call of somebody who has no home, but an address and a token."""
        return self.call(*arguments, PHALANX_HOME="", PHALANX_SERVER=self.url, PHALANX_TOKEN=self.token)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        headers, url = {"Authorization": f"Bearer {self.token}"}, f"{self.url}/api/v1{path}"
        answer = httpx.request(method, url, json=body, headers=headers, timeout=30, trust_env=False)
        assert answer.is_success, answer.text
        return answer.json()


@pytest.fixture(name="served")
def served_fixture(tmp_path: Path) -> Iterator[Served]:
    place = Served(tmp_path)
    yield place
    place.close()


@pytest.mark.slow
def test_an_op_has_as_many_runs_as_its_concurrency_allows_over_all_ticks(served: Served) -> None:
    place = served
    place.serve()
    marks, gate = place.folder / "marks", place.folder / "gate"
    command = f"echo begin >>{marks}; while [ ! -e {gate} ]; do sleep 0.05; done; echo end >>{marks}"
    small = {"environment": {"resources": {"cpu": {"requests": 0.01}}}}
    file = place.file(
        None,
        kind="pipeline",
        name="often",
        schedule={"kind": "interval", "frequency": 3},
        ops=[
            {"name": "narrow", "template": {"name": "narrow"}, "concurrency": 1},
            {"name": "wide", "template": {"name": "wide"}},
        ],
        templates=[
            {"kind": "job", "name": "narrow", "run": {"cmd": command}, **small},
            {"kind": "job", "name": "wide", "run": {"cmd": "true"}, **small},
        ],
    )
    submitted = place.remote("run", "-f", file, "-d")
    assert submitted.code == 0, submitted.err
    schedule = submitted.out.strip()

    def ticks() -> list[dict[str, Any]]:
        """The ops of the first ticks, by name."""
        found = place.ask("GET", f"/pipelines/{schedule}")["ticks"][::-1][:3]
        shown = [place.ask("GET", f"/pipelines/{tick['run_id']}") for tick in found]
        return [{op["name"]: op for op in one["ops"]} | {"id": one["id"]} for one in shown]

    def is_full() -> list[dict[str, Any]]:
        found = ticks()
        statuses = sorted(ops["narrow"]["status"] for ops in found)
        is_wide = all(ops["wide"]["status"] == "succeeded" for ops in found)
        return found if is_wide and statuses == ["running", "waiting", "waiting"] else []

    waits = next(ops["id"] for ops in wait_for(is_full) if ops["narrow"]["status"] == "waiting")
    assert "waits for another run of it to end: its `concurrency` is 1" in place.remote("show", waits).out
    assert marks.read_text() == "begin\n"
    gate.touch()
    wait_for(lambda: marks.read_text().count("end") >= 2)
    stopped = place.remote("stop", schedule)
    assert stopped.code == 0, stopped.err
    wait_for(lambda: place.ask("GET", f"/runs/{schedule}")["status"] == "stopped")
    lines = marks.read_text().split()
    assert lines[: 2 * (len(lines) // 2)] == ["begin", "end"] * (len(lines) // 2), "two ran at the same time"


SCRIPT = """
import sys
from phalanx import tracking
run = tracking.start(name=sys.argv[1])
tracking.log(loss=0.5)
print("ready", flush=True)
sys.stdin.readline()
if sys.argv[2] == "fails":
    raise ValueError("out of luck")
"""


def is_signed(posted: Posted, key: str) -> bool:
    moment, _, given = posted.headers["X-Phalanx-Signature"].removeprefix("t=").partition(",v1=")
    expected = hmac.new(key.encode(), f"{moment}.".encode() + posted.body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(given, expected)


def track(place: Served, name: str, how: str, **variables: str) -> subprocess.Popen[str]:
    """A script that was not launched by Phalanx, and has tracked a value."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, name, how],
        env={**place.environment(), **variables},
        cwd=place.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture(name="sink")
def sink_fixture() -> Iterator[HttpSink]:
    with http_sink() as sink:
        yield sink


def test_the_ends_of_runs_that_a_server_only_hears_of_are_told(served: Served, sink: HttpSink) -> None:
    place, told = served, served.folder / "told"
    place.home.mkdir()
    rules = [
        {"command": ["sh", "-c", f"cat >>{told}; echo >>{told}"]},
        {"webhook": f"http://127.0.0.1:{sink.port}/hook"},
    ]
    settings = {"notify": rules, "webhooks": {"127.0.0.1": {"private": True, "key_file": str(place.folder / "key")}}}
    (place.folder / "key").write_text("a key of forty characters, nothing but it")
    (place.home / "config.yml").write_text(json.dumps(settings))
    place.serve()

    reported = place.ask("POST", "/runs", {"name": "reported"})["id"]
    place.ask("POST", f"/runs/{reported}/finish", {"status": "failed", "reason": "the loss is not a number"})
    for name, how, variables in (
        ("sent", "works", {"PHALANX_HOME": "", "PHALANX_SERVER": place.url, "PHALANX_TOKEN": place.token}),
        ("beside", "fails", {}),
    ):
        track(place, name, how, **variables).communicate("go on\n", timeout=60)
    killed = track(place, "killed", "works")
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=60)

    wanted = {"reported": "failed", "sent": "succeeded", "beside": "failed", "killed": "failed"}

    def by_webhook() -> dict[str, str]:
        return {data["run"]["name"]: data["event"] for data in (json.loads(one.body) for one in list(sink.got))}

    def by_command() -> dict[str, str]:
        lines = told.read_text().splitlines() if told.exists() else []
        return {data["run"]["name"]: data["event"] for data in map(json.loads, filter(None, lines))}

    wait_for(lambda: (by_webhook(), by_command()) == (wanted, wanted))
    assert all(is_signed(one, (place.folder / "key").read_text()) for one in sink.got)
    assert len(sink.got) == len(wanted)  # each once
    (message,) = (data for data in (json.loads(one.body) for one in sink.got) if data["run"]["id"] == reported)
    assert message["failure"]["why"] == "the loss is not a number"
    shown = place.remote("notify", reported, "--json").data["notifications"]
    assert [(row["channel"], row["state"]) for row in shown] == [("command", "sent"), ("webhook", "sent")]
