"""An attempt on a cluster: where every rank is, and what became of them. Slurm itself is in tests/slurm."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from phalanx import plan, spec
from phalanx.agent import allocation
from phalanx.backends import find
from phalanx.stored_plan import read_plan
from tests.agent.running import wait_for

LINES: dict[str, dict[str, Any]] = {
    "master-0": {"place": 0, "host": "n1", "address": "10.0.0.1", "port": 20001, "interface": "eth0", "gpus": []},
    "worker-0": {
        "place": 0,
        "host": "n2",
        "address": "10.0.0.2",
        "port": 20001,
        "interface": "eth0",
        "gpus": ["0", "1"],
    },
    "worker-1": {
        "place": 1,
        "host": "n2",
        "address": "10.0.0.2",
        "port": 20002,
        "interface": "eth0",
        "gpus": ["0", "1"],
    },
}
NOTHING_MADE = {"variables": {}, "path": "", "before": [], "packages": []}


def reported(reports: dict[str, dict[str, Any]]) -> list[str]:
    """The lines that ranks print."""
    return [
        f"{line}\n"
        for rank, (name, report) in enumerate(reports.items())
        for line in allocation.report_lines(rank, {"name": name, **report})
    ]


class Placed:
    """A run's folder as its job finds it."""

    def __init__(self, folder: Path, command: str = "true", **environment: Any) -> None:
        worker = {"resources": {"gpu": {"requests": 1}}}
        replicas = {"n_workers": 2, "default_worker": worker}
        file = {
            "version": 1,
            "kind": "experiment",
            "framework": environment.pop("framework", "pytorch"),
            "environment": {"replicas": {**replicas, **environment.pop("replicas", {})}, **environment},
            "run": {"cmd": command},
        }
        made = plan.make(spec.load_document("p.yml", file), "r-1")
        self.folder = folder
        (folder / "job").mkdir()
        self.plan_file = folder / "plan.json"
        self.plan_file.write_text(find("slurm").render(made).files["plan.json"])
        self.plan = read_plan(folder)

    def facts_file(self, attempt: int = 1) -> str:
        return str(self.folder / "job" / f"attempt-{attempt}.json")

    def gather(self, lines: dict[str, dict[str, Any]], attempt: int = 1, first: int = 1) -> int:
        said = reported({name: {**NOTHING_MADE, **line} for name, line in lines.items()})
        return allocation.gather(self.plan, self.facts_file(attempt), first, ["srun: a warning\n", *said, "prepared\n"])

    def facts(self, attempt: int = 1) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(self.facts_file(attempt)).read_text())
        return found

    def end(self, name: str, cause: str, attempt: int = 1, **more: Any) -> None:
        folder = self.folder / "replicas" / name / f"attempt-{attempt}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "end.json").write_text(json.dumps({"cause": cause, "ended_at": time.time(), **more}))


def test_facts_are_made_of_what_the_ranks_say(tmp_path: Path) -> None:
    placed = Placed(tmp_path)
    assert placed.gather(LINES) == 0
    facts = placed.facts()
    assert facts["host"] == {"master-0": "10.0.0.1", "worker-0": "10.0.0.2", "worker-1": "10.0.0.2", "*": "10.0.0.1"}
    assert facts["node"] == {"master-0": "n1", "worker-0": "n2", "worker-1": "n2"}
    assert facts["port"] == {"master-0": 20001, "worker-0": 20001, "worker-1": 20002}
    assert facts["interface"] == {"*": "eth0"}
    assert facts["gpus"] == {"worker-0": ["0"], "worker-1": ["1"]}
    assert (tmp_path / "job" / "hostfile").read_text() == "n1 slots=1\nn2 slots=2\n"
    assert facts["folders"]["worker-1"] == str(tmp_path / "replicas" / "worker-1" / "attempt-1")


def test_an_interface_that_not_all_have_is_no_ones(tmp_path: Path) -> None:
    placed = Placed(tmp_path)
    placed.gather({**LINES, "worker-0": {**LINES["worker-0"], "interface": "ib0"}})
    assert placed.facts()["interface"] == {"*": ""}


def test_no_facts_are_written_if_a_node_could_not_be_prepared(tmp_path: Path) -> None:
    placed = Placed(tmp_path)
    texts = reported({name: line for name, line in LINES.items() if name != "worker-1"})
    assert allocation.gather(placed.plan, placed.facts_file(1), 1, texts) == 1
    assert allocation.gather(placed.plan, placed.facts_file(1), 1, []) == 1
    assert not Path(placed.facts_file(1)).exists()


def test_a_rank_of_which_nothing_was_heard_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    placed = Placed(tmp_path)
    assert placed.gather({"master-0": LINES["master-0"]}) == 1
    assert "worker-0, worker-1" in capsys.readouterr().err
    assert not Path(placed.facts_file()).exists()


def test_reports_in_many_lines_that_arrive_mixed_are_put_together(tmp_path: Path) -> None:
    """srun keeps lines whole only up to about 1,000 letters, and packages are hundreds."""
    placed = Placed(tmp_path)
    packages = [f"package-{number}==1.{number}" for number in range(300)]
    each = [reported({name: {**NOTHING_MADE, **line, "packages": packages}}) for name, line in LINES.items()]
    each = [[line.replace(" 0 ", f" {rank} ", 1) for line in lines] for rank, lines in enumerate(each)]
    mixed = [line for lines in zip(*each, strict=True) for line in lines]
    assert len(mixed) > 3 * 5
    assert max(map(len, mixed)) < 1000
    assert allocation.gather(placed.plan, placed.facts_file(), 1, mixed) == 0
    found = json.loads((tmp_path / "job" / "attempt-1.packages.json").read_text())
    assert found == {"n1": packages, "n2": packages}


def test_the_time_of_earlier_segments_is_added_up(tmp_path: Path) -> None:
    placed = Placed(tmp_path, timeout="5d", slurm={"segment": "24h"})
    placed.gather(LINES)
    began = placed.facts()["began_at"]
    placed.end("worker-0", "segment", ended_at=began + 100.0)
    placed.end("worker-1", "lost", ended_at=began + 9000.0)  # nobody knows when that was
    placed.gather(LINES, attempt=2)
    assert placed.facts(2)["spent_s"] == pytest.approx(100.0, abs=1)
    placed.gather(LINES, attempt=3, first=3)
    assert placed.facts(3)["spent_s"] == 0.0


@pytest.mark.parametrize(
    ("causes", "code"),
    [
        (("finished", "finished", "finished"), 0),
        (("segment", "segment", "segment"), 85),
        (("segment", "finished", "stopped"), 85),
        (("segment", "error", "segment"), 1),
        (("finished", "error", "stopped"), 1),
        (("stopped", "stopped", "stopped"), 1),
        (("finished", "finished", None), 1),
    ],
)
def test_a_job_ends_as_its_ranks_did(tmp_path: Path, causes: tuple[str | None, ...], code: int) -> None:
    placed = Placed(tmp_path, slurm={"segment": "24h"})
    placed.gather(LINES)
    for name, cause in zip(LINES, causes, strict=True):
        if cause is not None:
            placed.end(name, cause)
    assert allocation.conclude(placed.plan, placed.facts_file()) == code


def test_no_segment_follows_when_the_time_of_the_run_is_over(tmp_path: Path) -> None:
    placed = Placed(tmp_path, timeout="10m", slurm={"segment": "5m", "checkpoint": "1m"})
    placed.gather(LINES)
    facts = placed.facts()
    Path(placed.facts_file()).write_text(json.dumps({**facts, "spent_s": 590.0}))
    for name in LINES:
        placed.end(name, "segment")
    assert allocation.conclude(placed.plan, placed.facts_file()) == 1


def test_a_run_is_over_without_its_servers(tmp_path: Path) -> None:
    placed = Placed(tmp_path, framework="tensorflow", replicas={"n_workers": 1, "n_ps": 1})
    placed.gather(dict.fromkeys(placed.plan.order, LINES["master-0"]))
    placed.end("master-0", "finished")
    placed.end("worker-0", "finished")
    assert allocation.conclude(placed.plan, placed.facts_file()) == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", 93784.0), ("2:03:04", 7384.0), ("3:04", 184.0), ("59", 59.0),
        ("UNLIMITED", None), ("INVALID", None), ("", None), ("NOT_SET", None),
    ],
)  # fmt: skip
def test_the_time_that_is_left_is_read(text: str, seconds: float | None) -> None:
    assert allocation.seconds_left(text) == seconds


def test_ranks_of_a_node_never_choose_the_same_port() -> None:
    ports = {allocation.free_port(1234, place) for place in range(64)}
    assert len(ports) == 64


def test_a_port_that_is_taken_is_passed_over() -> None:
    port = allocation.free_port(7, 3)
    with socket.create_server(("", port)):
        assert allocation.free_port(7, 3) != port


def test_an_interface_is_that_of_the_address() -> None:
    assert allocation.interface_of("127.0.0.1") == "lo"
    assert allocation.interface_of("203.0.113.7") == ""


def test_a_node_whose_name_means_only_itself_is_found_by_its_network() -> None:
    assert allocation.address_of("192.0.2.7") == "192.0.2.7"
    networks = [address for _, address in allocation._interfaces() if not address.startswith("127.")]
    assert allocation.address_of("localhost") == (networks[0] if networks else "127.0.0.1")
    assert allocation.address_of("no.such.host.invalid") == allocation.address_of("localhost")


def call(placed: Placed, *mode: str) -> list[str]:
    return [sys.executable, "-m", "phalanx.agent", str(placed.plan_file), placed.facts_file(), *mode]


def surroundings(environment: dict[str, str]) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), **environment}


def agent(placed: Placed, *mode: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        call(placed, *mode),
        env=surroundings(environment),
        cwd=placed.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


HERE = {"host": "here", "address": "127.0.0.1", "interface": "lo", "gpus": [], "place": 0}


def test_every_rank_finds_its_replica_by_its_place_in_the_order(tmp_path: Path) -> None:
    """Slurm numbers ranks component by component: worker 1, which asks for something else, comes last."""
    other = {"n_workers": 3, "worker": [{"index": 1, "resources": {"cpu": {"requests": 4}}}]}
    placed = Placed(tmp_path, "echo $PHALANX_REPLICA $RANK", replicas=other)
    assert placed.plan.order == ("master-0", "worker-0", "worker-2", "worker-1")
    placed.gather({name: {**HERE, "port": 21500 + n} for n, name in enumerate(placed.plan.order)})
    ranks = [agent(placed, "--as-rank", SLURM_PROCID=str(number)) for number in range(4)]
    assert [rank.wait(60) for rank in ranks] == [0, 0, 0, 0]
    for name, rank in (("master-0", 0), ("worker-0", 1), ("worker-1", 2), ("worker-2", 3)):
        assert (tmp_path / "replicas" / name / "attempt-1" / "log").read_text() == f"{name} {rank}\n"


@pytest.mark.parametrize(
    ("environment", "threads"),
    [({}, "6"), ({"resources": {"cpu": {"requests": 3}}}, "3"), ({"env_vars": {"OMP_NUM_THREADS": "2"}}, "2")],
)
def test_threads_follow_the_allocation_unless_the_file_says_more(
    tmp_path: Path, environment: dict[str, Any], threads: str
) -> None:
    placed = Placed(tmp_path, "echo $OMP_NUM_THREADS", replicas={"n_workers": 0}, **environment)
    placed.gather({"master-0": {**HERE, "port": 21800}})
    rank = agent(placed, "--as-rank", SLURM_PROCID="0", SLURM_CPUS_PER_TASK="6")
    assert rank.wait(60) == 0
    assert (tmp_path / "replicas" / "master-0" / "attempt-1" / "log").read_text() == f"{threads}\n"


@pytest.mark.parametrize(
    ("answer", "times"),
    [("9:30|10:00", (570.0, 600.0)), ("UNLIMITED|UNLIMITED", (None, None)), ("1:00", (60.0, None)), ("", (None, None))],
)
def test_the_time_of_a_job_is_what_slurm_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, times: tuple[float | None, float | None]
) -> None:
    (tmp_path / "squeue").write_text(f"#!/bin/sh\necho '{answer}'\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert allocation.time_left() == times


def test_servers_end_when_those_they_serve_have(tmp_path: Path) -> None:
    command = "[ $PHALANX_ROLE = ps ] && sleep 1000; echo done"
    placed = Placed(tmp_path, command, framework="plain", replicas={"n_workers": 0, "n_ps": 1})
    placed.gather({name: {**HERE, "port": 21600 + n} for n, name in enumerate(placed.plan.order)})
    ranks = [agent(placed, "--as-rank", SLURM_PROCID=str(number)) for number in range(2)]
    assert [rank.wait(60) for rank in ranks] == [0, 0]
    end = json.loads((tmp_path / "replicas" / "ps-0" / "attempt-1" / "end.json").read_text())
    assert end["cause"] == "stopped"


def test_workers_that_only_serve_end_with_their_chief(tmp_path: Path) -> None:
    command = "[ $PHALANX_ROLE = master ] || sleep 1000; echo done"
    placed = Placed(tmp_path, command, framework="tensorflow", replicas={"n_workers": 1, "n_ps": 1})
    placed.gather({name: {**HERE, "port": 21620 + n} for n, name in enumerate(placed.plan.order)})
    ranks = [agent(placed, "--as-rank", SLURM_PROCID=str(number)) for number in range(3)]
    assert [rank.wait(60) for rank in ranks] == [0, 0, 0]
    causes = {
        name: json.loads((tmp_path / "replicas" / name / "attempt-1" / "end.json").read_text())["cause"]
        for name in placed.plan.order
    }
    assert causes == {"master-0": "finished", "worker-0": "stopped", "ps-0": "stopped"}
    assert allocation.conclude(placed.plan, placed.facts_file()) == 0


def test_a_job_on_one_machine_succeeds_without_its_servers(tmp_path: Path) -> None:
    command = "[ $PHALANX_ROLE = master ] || sleep 1000; echo done"
    placed = Placed(tmp_path, command, framework="tensorflow", replicas={"n_workers": 1, "n_ps": 1})
    assert agent(placed, "--all-here", "shell:1").wait(60) == 0


@pytest.mark.parametrize(("word", "cause"), [("asked-to-end", "stopped"), ("asked-to-abort", "stalled")])
def test_an_agent_that_no_signal_reaches_finds_word_in_its_folder(tmp_path: Path, word: str, cause: str) -> None:
    placed = Placed(tmp_path, "python3 -c 'import time; time.sleep(1000)'", replicas={"n_workers": 0})
    placed.gather({"master-0": {**HERE, "port": 21700}})
    rank = agent(placed, "--as-rank", SLURM_PROCID="0")
    folder = tmp_path / "replicas" / "master-0" / "attempt-1"
    wait_for((folder / "log").exists)
    (folder / word).touch()
    rank.wait(60)
    assert json.loads((folder / "end.json").read_text())["cause"] == cause


@pytest.mark.slow
def test_a_node_that_cannot_be_prepared_says_so_in_the_end_of_its_rank(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    python = {"requirements": ["no-such-package"], "wheelhouse": str(tmp_path / "wheels")}
    placed = Placed(tmp_path, replicas={"n_workers": 0}, python=python)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    here = agent(placed, "--here", SLURM_PROCID="0", SLURM_TMPDIR=str(scratch), SLURMD_NODENAME="localhost")
    assert here.wait(120) == 1
    end = json.loads((tmp_path / "replicas" / "master-0" / "attempt-1" / "end.json").read_text())
    assert end["cause"] == "setup"
    assert end["message"] == "localhost could not be prepared: `pip install no-such-package` failed with code 1"
    assert any("no-such-package" in line for line in end["last_lines"])
    again = agent(placed, "--here", SLURM_PROCID="0", SLURM_TMPDIR=str(scratch), SLURMD_NODENAME="localhost")
    assert again.wait(120) == 1  # who waited for it says the same, and tries nothing
    assert (
        json.loads((tmp_path / "replicas" / "master-0" / "attempt-1" / "end.json").read_text())["message"]
        == end["message"]
    )
    assert list(scratch.glob("*/venv")) == []


def test_a_rank_says_where_it_is_in_one_line(tmp_path: Path) -> None:
    placed = Placed(tmp_path, replicas={"n_workers": 0})
    variables = {"SLURM_PROCID": "0", "SLURMD_NODENAME": "localhost", "CUDA_VISIBLE_DEVICES": "2,3"}
    here = subprocess.run(
        call(placed, "--here"), env=surroundings(variables), capture_output=True, timeout=120, check=True
    )
    word, rank, left, text = here.stdout.decode().split(" ", 3)
    assert (word, rank, left) == ("phalanx-report", "0", "0")
    line = json.loads(text)
    assert (line["name"], line["host"], line["gpus"]) == ("master-0", "localhost", ["2", "3"])
    assert line["interface"] == allocation.interface_of(line["address"])
    assert line["port"] in allocation.PORTS
