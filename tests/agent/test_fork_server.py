from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from phalanx.agent.fork_server import AgentStart, ForkServer, ForkServerLost, _send
from phalanx.agent.processes import find_marked, read_stat

PATIENCE_S = 60.0
MARK = "PHALANX_TEST_FORK"
PROGRAM = """
import json, os, resource, signal, sys, time
sys.path.insert(0, {sources!r})
from phalanx.agent.fork_server import FORK_SERVER, serve


def look(report=None):
    if sys.argv[2] == "kill the fork server":
        os.kill(os.getppid(), signal.SIGKILL)
        return 1
    if sys.argv[2] == "raise":
        raise ValueError("no such agent")
    if sys.argv[2] == "stay":
        report.send()
        while not os.path.exists(sys.argv[1] + ".go"):
            time.sleep(0.01)
        return 0
    if report is not None:
        report.close()
    found = dict(
        variables=dict(os.environ), argv=sys.argv, folder=os.getcwd(), umask=os.umask(0), pid=os.getpid(),
        is_leader=os.getsid(0) == os.getpid(), open=sorted(map(os.readlink, filter(os.path.exists, (
            "/proc/self/fd/" + name for name in os.listdir("/proc/self/fd"))))),
        blocked=sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), limit=resource.getrlimit(resource.RLIMIT_NOFILE),
        handled=[str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
    )
    with open("/proc/self/environ", "rb") as stream:
        found["shown"] = [item for item in stream.read().decode().split(chr(0)) if item.startswith({mark!r})]
    with open(sys.argv[1], "w") as stream:
        json.dump(found, stream)
    return 0


if sys.argv[1] == FORK_SERVER:
    sys.exit(serve(int(sys.argv[2]), sys.argv[3], look))
sys.exit(look())
"""


class Probe:
    """A program that writes how it was started, started by a fork server or by itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "program.py"
        sources = str(Path(__file__).parents[2] / "src")
        self.file.write_text(PROGRAM.format(sources=sources, mark=MARK))
        self.program = [sys.executable, "-I", "-S", str(self.file)]
        self.answer = folder / "answer.json"
        self.complaints = folder / "complaints"
        self.fork_server = ForkServer()

    def start(self, what: str = "look", *, descriptors: list[int] | None = None, **environment: str) -> dict[str, Any]:
        self.answer.unlink(missing_ok=True)
        with self.complaints.open("wb") as complaints:
            asked = self.asked(complaints.fileno(), what, descriptors or [], environment)
            self.fork_server.start_agent(self.program, asked, PATIENCE_S)
        return self.seen()

    def asked(self, stderr: int, what: str, descriptors: list[int], environment: dict[str, str]) -> AgentStart:
        return AgentStart([str(self.answer), what], environment, (MARK, "k7vq2xw9ab"), stderr, descriptors)

    def start_cold(self, descriptors: list[int], **environment: str) -> dict[str, Any]:
        with self.complaints.open("wb") as complaints:
            subprocess.run(
                [*self.program, str(self.answer), "look"], check=True, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=complaints, env={**environment, MARK: "k7vq2xw9ab"},
                start_new_session=True, pass_fds=descriptors,
            )  # fmt: skip
        return self.seen()

    def seen(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.answer.read_text())
        return found

    @property
    def pid(self) -> int:
        assert self.fork_server.process is not None
        return self.fork_server.process.pid


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[Probe]:
    found = Probe(tmp_path)
    with closing(found.fork_server):
        yield found


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_forked_agent_has_what_a_new_process_has(probe: Probe) -> None:
    reading, writing = os.pipe()
    try:
        cold = probe.start_cold([reading, writing], FIRST="1", LANG="C.UTF-8")
        first = probe.start(descriptors=[reading, writing], FIRST="1", LANG="C.UTF-8")
        again = probe.start(descriptors=[reading, writing], SECOND="2", LANG="C.UTF-8")
    finally:
        os.close(reading)
        os.close(writing)
    assert {"FIRST": "1", "LANG": "C.UTF-8", MARK: "k7vq2xw9ab"}.items() <= cold["variables"].items()
    assert again["variables"] == {"SECOND": "2", "LANG": "C.UTF-8", MARK: "k7vq2xw9ab"}
    assert len({cold.pop("pid"), first.pop("pid"), again["pid"], probe.pid}) == 4
    assert cold["shown"] == [f"{MARK}=k7vq2xw9ab"]
    cold["variables"].pop("LC_CTYPE", None)  # Python itself may set it at its start
    assert first == cold


def test_the_fork_server_itself_has_the_mark_of_no_run(probe: Probe) -> None:
    probe.start()
    assert probe.pid not in find_marked([(MARK, "k7vq2xw9ab")])


def test_one_process_serves_until_it_is_killed_and_then_another_one(probe: Probe) -> None:
    probe.start()
    first = probe.pid
    probe.start()
    assert probe.pid == first
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: (stat := read_stat(first)) is None or stat.state == "Z")
    probe.start()
    assert probe.pid != first


@pytest.mark.parametrize("change", ["another program", "another locale"])
def test_what_a_running_process_cannot_change_needs_a_new_one(probe: Probe, change: str) -> None:
    probe.start(LANG="C")
    first = probe.pid
    if change == "another program":
        new = probe.file.with_name("new.py")
        probe.file.rename(new)
        probe.program = [*probe.program[:-1], str(new)]
        assert probe.start(LANG="C")["argv"][0] == str(new)
    else:
        assert probe.start(LANG="de_DE.ISO-8859-1")["variables"]["LANG"] == "de_DE.ISO-8859-1"
    assert probe.pid != first
    assert read_stat(first) is None


def test_runs_with_other_variables_of_new_processes_share_one(probe: Probe) -> None:
    probe.start(LANG="C")
    first = probe.pid
    for given in (
        probe.start(LC_ALL="en_US.utf8"),
        probe.start(LANG="C.UTF-8", TZ="Asia/Tokyo"),
        probe.start(LD_LIBRARY_PATH="/opt/lib"),
    ):
        assert len(given["variables"].keys() & {"LC_ALL", "TZ", "LD_LIBRARY_PATH"}) == 1
    assert probe.pid == first


def test_a_process_that_was_started_early_serves_the_first_request(probe: Probe) -> None:
    probe.fork_server.start_early(probe.program, {"LANG": "C"}, MARK)
    early = probe.pid
    assert probe.start(LANG="C.UTF-8")["shown"] == [f"{MARK}=k7vq2xw9ab"]
    assert probe.pid == early


def test_the_failure_of_a_process_that_was_started_early_is_not_that_of_a_request(probe: Probe) -> None:
    code = probe.file.read_text()
    probe.file.write_text("import socket, sys; socket.socket(fileno=int(sys.argv[2])).recv(1); sys.exit(3)")
    probe.fork_server.start_early(probe.program, {}, MARK)
    with probe.complaints.open("wb") as complaints:
        number = probe.fork_server.send(probe.program, probe.asked(complaints.fileno(), "look", [], {}), PATIENCE_S)
    assert isinstance(probe.fork_server.answers(PATIENCE_S)[number], ForkServerLost)
    probe.file.write_text(code)
    probe.start()


def test_an_agent_that_fails_reports_its_code_and_its_words(probe: Probe) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        probe.start("raise")
    assert caught.value.returncode == 1
    assert "no such agent" in probe.complaints.read_text()
    probe.start()


def test_a_fork_server_killed_during_a_start_is_reported_until_it_happens_again_and_again(probe: Probe) -> None:
    for _ in range(3):
        with pytest.raises(ForkServerLost):
            probe.start("kill the fork server")
    with pytest.raises(subprocess.CalledProcessError):
        probe.start("kill the fork server")
    probe.start()


def test_a_program_that_cannot_run_is_no_lost_fork_server(probe: Probe) -> None:
    probe.file.write_text("raise SystemExit('this Python is broken')")
    with pytest.raises(subprocess.CalledProcessError):
        probe.start()
    assert "this Python is broken" in probe.complaints.read_text()


def test_a_request_of_an_owner_that_died_is_not_carried_out(probe: Probe) -> None:
    probe.start()
    probe.answer.unlink()
    process, channel = probe.fork_server.process, probe.fork_server.channel
    assert process is not None
    assert channel is not None
    os.kill(process.pid, signal.SIGSTOP)
    with probe.complaints.open("wb") as complaints:
        _send(channel, probe.asked(complaints.fileno(), "look", [], {}), 7)
    channel.close()
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(PATIENCE_S) == 0
    assert not probe.answer.exists()


def test_hundreds_of_descriptors_are_passed_on(probe: Probe) -> None:
    descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(450)]
    try:
        found = probe.start(descriptors=descriptors)
    finally:
        for one in descriptors:
            os.close(one)
    assert len(found["open"]) >= 450
    assert len(probe.start()["open"]) < 10


def test_many_agents_are_requested_before_the_first_answer(probe: Probe) -> None:
    with probe.complaints.open("wb") as complaints:
        numbers = [
            probe.fork_server.send(probe.program, probe.asked(complaints.fileno(), word, [], {}), PATIENCE_S)
            for word in ("look", "raise", "look")
        ]
    found = probe.fork_server.answers(PATIENCE_S)
    assert [type(found[number]) for number in numbers] == [type(None), subprocess.CalledProcessError, type(None)]
    assert probe.fork_server.answers(PATIENCE_S) == {}


def test_all_that_was_requested_is_reported_if_the_fork_server_is_killed(probe: Probe) -> None:
    probe.start()
    os.kill(probe.pid, signal.SIGSTOP)
    with probe.complaints.open("wb") as complaints:
        numbers = [
            probe.fork_server.send(probe.program, probe.asked(complaints.fileno(), "look", [], {}), PATIENCE_S)
            for _ in range(3)
        ]
    os.kill(probe.pid, signal.SIGKILL)
    found = probe.fork_server.answers(PATIENCE_S)
    assert [type(found[number]) for number in numbers] == [ForkServerLost] * 3
    probe.start()


def test_an_agent_reports_its_start_while_it_goes_on_and_its_end_is_noticed(probe: Probe) -> None:
    with probe.complaints.open("wb") as complaints:
        probe.fork_server.start_agent(probe.program, probe.asked(complaints.fileno(), "stay", [], {}), PATIENCE_S)
    assert not probe.fork_server.wait_for_end(0.0)
    Path(f"{probe.answer}.go").touch()
    assert probe.fork_server.wait_for_end(PATIENCE_S)
    assert find_marked([(MARK, "k7vq2xw9ab")]) == set()
