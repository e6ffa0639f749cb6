"""Inside a run: the client comes along, on whatever Python the training has, and every replica finds its own place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx import tracking
from phalanx.backends.agent_zip import client_paths
from phalanx.home.home import Home
from phalanx.scheduler import post_run
from phalanx.store import Store
from phalanx.tracking import TrackedRun
from tests.agent.running import Agents
from tests.cli.homes import Place, place_fixture  # noqa: F401 - the fixture
from tests.tracking.reading import SOURCES, Replica, clean_environment

PYTHONS = sorted(Path("~/.pyenv/versions").expanduser().glob("3.[89]*/bin/python")) + sorted(
    Path("~/.pyenv/versions").expanduser().glob("3.1[0-9]*/bin/python")
)
EVERYTHING = """
import argparse, math, os, sys, threading
from dataclasses import dataclass
from phalanx import tracking

@dataclass
class Config:
    lr: float = 0.1

class Tensor:
    is_cpu = False
    def detach(self): return self
    def clone(self): return self
    def item(self): return 0.125

run = tracking.start(params=Config(), tags=["a"], description="all of it")
assert tracking.current() is run and run.is_managed and run.rank == 0 and run.id and run.folder and run.outputs
for step in range(100):
    run.log(loss=1.0 / (step + 1), step=step)
    run.log({"train": {"accuracy": step}}, step=step, extra=True)
tracking.log(gpu=Tensor(), nan=math.nan)
tracking.log(bad=object())
tracking.params(argparse.Namespace(depth=3), width=4)
tracking.tags("b", ["c"])
tracking.labels({"team": "nlp"})
tracking.describe(name="named", framework="none")
tracking.progress(1, 10, "steps")
with open("note.txt", "w") as stream:
    stream.write("note")
os.makedirs("folder/inner", exist_ok=True)
with open("folder/inner/x", "w") as stream:
    stream.write("x")
tracking.artifact("note.txt")
tracking.artifacts("folder", "kept")
tracking.model("folder", "net", metrics={"loss": 0.5})
tracking.dataset("data", path="folder", uri="file:x", digest="d", rows=3)
tracking.text("sample", "hello", 1)
tracking.image("picture", "note.txt", 1, "caption")
tracking.histogram("h", [1.0, 2.0, 3.0], 1)
tracking.table("t", ["a", "b"], [[1, 2], [3, None]], 1)
threads = [threading.Thread(target=tracking.log, kwargs={"threads": 1.0}) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
child = os.fork()
if child == 0:
    tracking.log(child=1.0)
    os._exit(0)
os.waitpid(child, 0)
print(sys.version_info[:2], tracking.__file__)
"""
KINDS = {
    "open", "params", "tags", "labels", "describe", "progress", "artifact", "model", "dataset", "text", "image",
    "histogram", "table", "dropped",
}  # fmt: skip


def check(replica: Replica) -> None:
    """That everything of the script above is there."""
    points = replica.points()
    assert points["loss"] == [(step, 1.0 / (step + 1)) for step in range(100)]
    assert points["train/accuracy"] == [(step, float(step)) for step in range(100)]
    assert replica.values("extra") == [1.0] * 100
    assert (replica.values("gpu"), replica.values("child"), replica.values("threads")) == ([0.125], [1.0], [1.0] * 4)
    assert replica.params() == {"lr": 0.1, "depth": 3, "width": 4}
    assert {event["kind"] for event in replica.all_events()} == KINDS
    assert (replica.run / "artifacts" / "kept" / "inner" / "x").read_text() == "x"
    assert (replica.run / "artifacts" / "note.txt").read_text() == "note"
    assert (replica.run / replica.event("model")["path"] / "inner" / "x").exists()
    assert replica.event("dropped")["count"] == 1


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3])
def test_everything_works_in_every_python(tmp_path: Path, python: Path) -> None:
    paths = client_paths(tmp_path / "agents")
    replica = Replica(tmp_path / "runs" / "abc").make()
    (tmp_path / "work").mkdir()
    done = subprocess.run(
        [str(python), "-W", "error", "-W", "ignore::DeprecationWarning", "-c", EVERYTHING],
        cwd=tmp_path / "work",
        env={**clean_environment(**replica.environment()), "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if "No module named" in done.stderr and "phalanx" not in done.stderr:
        pytest.skip("this Python is not whole")
    assert done.returncode == 0, done.stderr
    version = tuple(int(part) for part in python.parts[-3].split(".")[:2])
    assert done.stdout.startswith(f"{version} {paths[0]}/phalanx/tracking/__init__.py")
    assert done.stderr.count("\n") == 2  # the value that is none, and the sum
    check(replica)


# under an agent ----------------------------------------------------------------------------------------------------


def bare_python() -> str:
    """One that has no Phalanx of its own."""
    found = [path for path in PYTHONS if path.parts[-3].startswith("3.1")]
    if not found:
        pytest.skip("there is no other Python on this machine")
    return str(found[0])


def test_every_replica_finds_its_own_place(tmp_path: Path) -> None:
    program = "import os; from phalanx import tracking; tracking.log(rank=int(os.environ['RANK']), step=5)"
    agents = Agents(
        tmp_path,
        f'{bare_python()} -c "{program}"',
        environment={"replicas": {"n_workers": 2}},
        client=client_paths(tmp_path / "agents"),
    )
    agents.start(PYTHONPATH=str(SOURCES))
    for rank, name in enumerate(agents.names):
        assert agents.end(name)["cause"] == "finished", agents.log(name)
        replica = Replica(tmp_path, name)
        assert replica.points() == {"rank": [(5, float(rank))]}
        assert agents.log(name) == b""


@pytest.mark.parametrize("option", ["", "-S ", "-s ", "-O ", "-X utf8 "])
def test_the_client_needs_nothing_of_the_python(tmp_path: Path, option: str) -> None:
    program = "from phalanx import tracking; print(tracking.__file__); tracking.log(loss=1.0)"
    command = f'{sys.executable} {option}-c "{program}"'
    agents = Agents(tmp_path, command, client=client_paths(tmp_path / "agents")).start()
    assert agents.end()["cause"] == "finished", agents.log()
    assert "tracking-" in agents.log().decode()
    assert Replica(tmp_path).values("loss") == [1.0]


def test_the_users_own_path_comes_first(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "polyaxon_client").mkdir(parents=True)
    (mine / "polyaxon_client" / "__init__.py").write_text("whose = 'mine'")
    (mine / "helper.py").write_text("")
    program = (
        "import helper, os, polyaxon_client; from phalanx import tracking; tracking.log(loss=1.0);"
        "print(polyaxon_client.whose, os.environ['PYTHONPATH'])"
    )
    agents = Agents(tmp_path, f'{bare_python()} -c "{program}"', client=client_paths(tmp_path / "agents"))
    agents.start(PYTHONPATH=f"{mine}{os.pathsep}{SOURCES}")
    assert agents.end()["cause"] == "finished", agents.log()
    whose, path = agents.log().decode().split()
    assert whose == "mine"
    assert path.split(os.pathsep)[0] == str(mine)
    assert Replica(tmp_path).values("loss") == [1.0]


def test_phalanx_itself_may_be_installed_beside_the_client(tmp_path: Path) -> None:
    """Its other rooms are found through the client's package."""
    program = (
        "import phalanx.spool, phalanx.store.series.points, phalanx.tracking as t; print(t.__file__);"
        "print(phalanx.store.series.points.__file__); t.log(loss=1.0)"
    )
    agents = Agents(tmp_path, f'{sys.executable} -c "{program}"', client=client_paths(tmp_path / "agents")).start()
    assert agents.end()["cause"] == "finished", agents.log()
    ours, installed = agents.log().decode().split()
    assert ours.startswith(str(tmp_path))
    assert installed == str(SOURCES / "phalanx" / "store" / "series" / "points.py")


def test_a_folder_of_the_users_that_is_called_phalanx(tmp_path: Path) -> None:
    (tmp_path / "phalanx").mkdir()
    (tmp_path / "phalanx" / "notes.txt").write_text("mine")
    program = "from phalanx import tracking; tracking.log(loss=1.0)"
    agents = Agents(tmp_path, f'{bare_python()} -c "{program}"', client=client_paths(tmp_path / "agents"))
    agents.start(PYTHONPATH=str(SOURCES))
    assert agents.end()["cause"] == "finished", agents.log()
    assert Replica(tmp_path).values("loss") == [1.0]


def test_a_training_that_fails_is_the_agents_to_say(tmp_path: Path) -> None:
    program = "from phalanx import tracking; tracking.log(loss=1.0); tracking.finish(); tracking.log(loss=2.0); 1/0"
    agents = Agents(tmp_path, f'{sys.executable} -c "{program}"', client=client_paths(tmp_path / "agents")).start()
    assert (agents.end()["cause"], agents.end()["code"]) == ("error", 1)
    assert sorted(Replica(tmp_path).values("loss")) == [1.0, 2.0]
    assert Replica(tmp_path).events("finish") == []


# by the real command -------------------------------------------------------------------------------------------------


def test_a_run_of_the_command_line_is_tracked_from_start_to_end(place: Place) -> None:
    (place.folder / "train.py").write_text(EVERYTHING)
    with post_run._alone(Home(place.home)):  # the files of its points stay as they are
        run_id = place.ran(f"{bare_python()} train.py")
        check(Replica(place.home / "runs" / run_id))
    (row,) = place.quick("ps", "--json").data["runs"]
    assert row["status"] == "succeeded", place.attempt(run_id).joinpath("log").read_text()
    assert row["summary"]["loss"] == 0.01
    assert (row["params"], row["tags"]) == ({"lr": 0.1, "depth": 3, "width": 4}, ["a", "b", "c"])
    assert (row["name"], row["description"], row["framework"]) == ("named", "all of it", "none")
    with Store.open(place.home) as store:
        facts = store.facts(run_id)
        assert (facts["progress"]["done"], facts["dropped master-0"]["count"]) == (1.0, 1)
        assert facts["dataset data"]["uri"] == "file:x"
        assert store.labels(run_id) == {"team": "nlp"}
        assert [one.path for one in store.artifacts(run_id) if one.type == "file"][:1] == ["artifacts/kept/inner"]
        summary = store.summaries(run_id)["loss"]
        assert (summary.min, summary.max, summary.count, summary.step) == (0.01, 1.0, 100, 99)


@pytest.mark.slow
def test_a_run_of_three_replicas(place: Place) -> None:
    (place.folder / "train.py").write_text(
        "from phalanx import tracking\nrun = tracking.start()\nrun.log(rank=run.rank, step=1)\nrun.params(lr=0.1)"
    )
    run_id = place.ran(f"{bare_python()} train.py", framework="pytorch", environment={"replicas": {"n_workers": 2}})
    folder = place.home / "runs" / run_id
    found = {name.name: Replica(folder, name.name).values("rank") for name in (folder / "replicas").iterdir()}
    assert found == {"master-0": [0.0], "worker-0": [1.0], "worker-1": [2.0]}
    (row,) = place.quick("ps", "--json").data["runs"]
    assert row["summary"] == {"rank": 0.0}  # the first replica stands for the run


# in this process -----------------------------------------------------------------------------------------------------


def test_a_start_gives_the_run_that_we_are_in(run: TrackedRun, replica: Replica) -> None:
    assert tracking.start() is run
    again = tracking.start(name="named", params={"lr": 1}, tags="a,b", description="said")
    assert again is run
    assert (run.id, run.project, run.is_managed, run.folder) == ("abc", "vision", True, str(replica.folder))
    assert replica.event("describe")["name"] == "named"
    assert replica.event("tags")["add"] == ["a", "b"]
    assert replica.params() == {"lr": 1}


def test_a_run_that_we_are_in_is_not_ours_to_end(run: TrackedRun, replica: Replica) -> None:
    run.log(loss=1.0)
    with run:
        run.log(loss=2.0)
    assert run.is_finished
    tracking.start().log(loss=3.0)
    assert sorted(replica.values("loss")) == [1.0, 2.0, 3.0]
    assert not (replica.folder / "end.json").exists()
    assert replica.events("finish") == []


@pytest.mark.parametrize("rank", ["", "x", "-1", "3"])
def test_a_rank_that_is_none_is_the_first(replica: Replica, monkeypatch: pytest.MonkeyPatch, rank: str) -> None:
    monkeypatch.setenv("PHALANX_RANK", rank)
    run = tracking.start()
    assert run.rank == {"3": 3}.get(rank, 0)
    run.params(a=1)
    assert replica.event("open")["rank"] == run.rank


def test_without_threads_nothing_of_them_is_loaded(tmp_path: Path) -> None:
    """Inside a run the agent does what the thread would."""
    replica = Replica(tmp_path / "runs" / "abc").make()
    text = """
import sys
from phalanx import tracking
tracking.log(loss=1.0)
tracking.params(a=1)
print("threading" in sys.modules, "phalanx.tracking.heartbeat" in sys.modules, "urllib.request" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", f"import sys; sys.path.append({str(SOURCES)!r})\n{text}"],
        env=clean_environment(**replica.environment()),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False False False\n"
