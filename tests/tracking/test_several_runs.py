"""Several runs in one process: in threads, in tasks, inside of each other, one after another."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx import tracking
from phalanx.naming import PARENT
from phalanx.tracking import TrackedRun
from tests.cli.homes import Place, place_fixture  # noqa: F401 - the fixture
from tests.tracking.reading import Replica, clean_environment, only_run, runs_of, script


def described(home: Path) -> dict[str, Replica]:
    """The runs by name."""
    return {json.loads((run.run / "run.json").read_bytes())["name"]: run for run in runs_of(home)}


def parent_of(run: Replica) -> str | None:
    return next((event["values"][PARENT] for event in run.events("labels") if PARENT in event["values"]), None)


def in_threads(count: int, work: Any) -> None:
    begin = threading.Barrier(count)

    def each(number: int) -> None:
        begin.wait()
        work(number)

    threads = [threading.Thread(target=each, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# threads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
def test_concurrent_trials_are_separate_runs(home: Path, named: bool) -> None:
    together = threading.Barrier(4)

    def trial(number: int) -> None:
        run = tracking.start(name=f"trial-{number}") if named else tracking.start()
        together.wait()
        for step in range(26):
            tracking.log(loss=float(number), step=step)
        assert tracking.current() is run
        together.wait()
        tracking.finish()

    in_threads(4, trial)
    runs = runs_of(home)
    assert sorted(run.values("loss")[0] for run in runs) == [0.0, 1.0, 2.0, 3.0]
    assert all(len(run.values("loss")) == 26 and len(set(run.values("loss"))) == 1 for run in runs)
    assert {run.end()["cause"] for run in runs} == {"finished"}


def test_a_thread_that_started_no_run_logs_to_that_of_the_process(home: Path) -> None:
    run = tracking.start(name="main")
    in_threads(3, lambda number: tracking.log(worker=float(number)))
    in_threads(2, lambda _: tracking.start().log(found=1.0))
    assert sorted(only_run(home).values("worker")) == [0.0, 1.0, 2.0]
    assert only_run(home).values("found") == [1.0, 1.0]
    assert not run.is_finished


def test_threads_that_only_log_share_one_new_run(home: Path) -> None:
    in_threads(8, lambda number: tracking.log(loss=float(number)))
    assert sorted(only_run(home).values("loss")) == [float(number) for number in range(8)]


def test_a_pools_thread_goes_back_to_the_process_after_a_trial(home: Path) -> None:
    tracking.start(name="main")
    with ThreadPoolExecutor(1) as pool:

        def trial(number: int) -> None:
            with tracking.start(name=f"trial-{number}"):
                tracking.log(loss=float(number))

        pool.submit(trial, 1).result()
        pool.submit(tracking.log, between=1.0).result()
        pool.submit(trial, 2).result()
    found = described(home)
    assert {name: run.values("loss") for name, run in found.items()} == {"main": [], "trial-1": [1.0], "trial-2": [2.0]}
    assert found["main"].values("between") == [1.0]
    assert [parent_of(run) for run in found.values()] == [None] * 3


def test_a_trial_in_a_thread_leaves_the_environment_to_the_run_of_the_process(home: Path) -> None:
    before = dict(os.environ)
    run = tracking.start(name="main")
    in_threads(2, lambda number: tracking.start(name=f"trial-{number}"))
    assert os.environ["PHALANX_TRACK"] == run.folder
    run.finish()
    assert dict(os.environ) == before


def test_runs_that_end_in_any_order_restore_the_environment(home: Path) -> None:
    before = dict(os.environ)
    first = tracking.start(name="first")
    second = tracking.start(name="second", nested=True)
    assert os.environ["PHALANX_RUN_ID"] == second.id
    first.finish()
    assert os.environ["PHALANX_RUN_ID"] == second.id
    second.finish()
    assert dict(os.environ) == before


def test_a_process_that_ends_finishes_all_its_runs(tmp_path: Path) -> None:
    text = """
import threading
from phalanx import tracking
tracking.start(name="main").log(loss=0.0)
for number in (1, 2):
    thread = threading.Thread(target=lambda: tracking.start(name=f"t{number}").log(loss=float(number)))
    thread.start(); thread.join()
tracking.start(name="child", nested=True).log(loss=3.0)
"""
    assert script(text, PHALANX_HOME=str(tmp_path)) == (0, "", "")
    assert {name: run.end()["cause"] for name, run in described(tmp_path).items()} == dict.fromkeys(
        ("main", "t1", "t2", "child"), "finished"
    )


def test_a_fork_in_a_thread_goes_on_with_the_run_of_that_thread(home: Path) -> None:
    tracking.start(name="main")

    def trial(_: int) -> None:
        tracking.start(name="trial").log(loss=1.0)
        child = os.fork()
        if child == 0:
            tracking.log(loss=2.0)
            os._exit(0)
        os.waitpid(child, 0)
        tracking.finish()

    in_threads(1, trial)
    assert sorted(described(home)["trial"].values("loss")) == [1.0, 2.0]
    assert described(home)["main"].values("loss") == []


# tasks -------------------------------------------------------------------------------------------------------------


def test_tasks_have_runs_of_their_own(home: Path) -> None:
    async def trial(number: int) -> None:
        run = tracking.start(name=f"trial-{number}")
        for step in range(5):
            tracking.log(loss=float(number), step=step)
            await asyncio.sleep(0)
        assert tracking.current() is run
        tracking.finish()

    async def main() -> None:
        await asyncio.gather(*map(trial, range(3)))

    asyncio.run(main())
    assert sorted(run.values("loss") for run in runs_of(home)) == [[float(number)] * 5 for number in range(3)]


def test_tasks_that_start_no_run_share_the_one_around_them(home: Path) -> None:
    async def main() -> None:
        with tracking.start(name="main"):
            await asyncio.gather(*(asyncio.to_thread(tracking.log, loss=float(number)) for number in range(3)))

    asyncio.run(main())
    assert sorted(only_run(home).values("loss")) == [0.0, 1.0, 2.0]


def test_a_notebook_whose_cells_are_tasks_has_one_run_after_another(home: Path) -> None:
    async def cell(name: str | None) -> TrackedRun:
        run = tracking.start(name=name)
        tracking.log(loss=1.0)
        return run

    async def notebook() -> list[TrackedRun]:
        return [await asyncio.ensure_future(cell(name)) for name in ("a", None, "b")]

    first, again, second = asyncio.run(notebook())
    assert first is again
    assert first.is_finished
    assert not second.is_finished
    assert [run.values("loss") for run in runs_of(home)] == [[1.0, 1.0], [1.0]]


# nested ------------------------------------------------------------------------------------------------------------


def test_a_run_inside_the_block_of_another_is_its_child(place: Place) -> None:
    text = """
from phalanx import tracking
with tracking.start(name="cv", project="vision", group="g1") as parent:
    for fold in range(3):
        with tracking.start(name=f"fold-{fold}", params={"fold": fold}) as child:
            tracking.log(accuracy=0.5 + fold)
            assert tracking.current() is child
        assert tracking.current() is parent
    tracking.log(mean=1.5)
print(parent.id)
"""
    parent_id = script(text, PHALANX_HOME=str(place.home)).out.strip()
    rows = place.call("ps", "-q", f"parent:{parent_id}", "-s", "name", "--json").data["runs"]
    assert [(row["name"], row["project"], row["summary"], row["status"]) for row in rows] == [
        (f"fold-{fold}", "vision", {"accuracy": 0.5 + fold}, "succeeded") for fold in range(3)
    ]
    (row,) = place.call("ps", "-q", "group:g1", "--json").data["runs"]
    assert (row["name"], row["summary"]) == ("cv", {"mean": 1.5})
    assert f"parent     {parent_id}" in place.call("show", "fold-0").out


def test_nested_runs_of_threads_are_children_of_the_run_of_the_process(home: Path) -> None:
    parent = tracking.start(name="search")
    in_threads(3, lambda number: tracking.start(name=f"trial-{number}", nested=True).finish())
    found = described(home)
    assert {name: parent_of(run) for name, run in found.items()} == {
        "search": None,
        **{f"trial-{number}": parent.id for number in range(3)},
    }


def test_a_child_of_a_started_run_is_stored_beside_it(run: TrackedRun, replica: Replica) -> None:
    (replica.run / "run.json").write_text("{}")
    with tracking.start(name="fold", nested=True) as child:
        tracking.log(loss=1.0)
    tracking.log(loss=2.0)
    assert tracking.start() is run
    assert Replica(replica.run.parent / child.id).values("loss") == [1.0]
    assert parent_of(Replica(replica.run.parent / child.id)) == run.id
    assert replica.values("loss") == [2.0]


def test_a_nested_run_that_is_the_first_of_all_is_a_child_of_the_started_run(replica: Replica) -> None:
    (replica.run / "run.json").write_text("{}")
    with tracking.start(name="fold", nested=True) as child:
        assert child.parent is not None
        assert child.parent.id == replica.run.name
    assert replica.events("describe") == []


def test_threads_of_a_started_run_share_it(replica: Replica) -> None:
    handles = []
    in_threads(4, lambda number: handles.append(tracking.start(name=f"t{number}")))
    tracking.log(loss=1.0)
    assert len(set(map(id, handles))) == 1
    assert replica.values("loss") == [1.0]


def test_processes_that_a_nested_run_starts_join_it(tmp_path: Path) -> None:
    text = """
import subprocess, sys
from phalanx import tracking
child = [sys.executable, "-c", "from phalanx import tracking; tracking.log(sub=1.0)"]
with tracking.start(name="outer"):
    with tracking.start(name="inner"):
        subprocess.run(child, check=True)
    subprocess.run(child, check=True)
"""
    assert script(text, PHALANX_HOME=str(tmp_path)) == (0, "", "")
    assert {name: run.values("sub") for name, run in described(tmp_path).items()} == {"outer": [1.0], "inner": [1.0]}


LAUNCHED = """
import os, subprocess, sys
from phalanx import tracking
run = tracking.start()
assert run.config.lr == 0.5 and run.name == "cv"
for fold in range(2):
    with tracking.start(name=f"fold-{fold}", nested=True) as child:
        tracking.log(loss=float(fold))
        code = "from phalanx import tracking; tracking.log(sub=1.0); print(tracking.current().id)"
        found = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
        assert found == child.id, found
        assert os.environ["PHALANX_RUN_ID"] == run.id
tracking.log(mean=0.5)
"""


@pytest.mark.slow
def test_a_run_of_the_command_line_has_children(place: Place) -> None:
    (place.folder / "cv.py").write_text(LAUNCHED)
    run_id = place.ran("python3 cv.py", "--name", "cv", params={"lr": 0.5})
    rows = {row["name"]: row for row in place.quick("ps", "--json").data["runs"]}
    assert {name: (row["status"], row["summary"]) for name, row in rows.items()} == {
        "cv": ("succeeded", {"mean": 0.5}),
        "fold-0": ("succeeded", {"loss": 0.0, "sub": 1.0}),
        "fold-1": ("succeeded", {"loss": 1.0, "sub": 1.0}),
    }, place.attempt(run_id).joinpath("log").read_text()
    assert len(place.quick("ps", "-q", f"parent:{run_id}", "--json").data["runs"]) == 2


# functions ---------------------------------------------------------------------------------------------------------


def test_each_call_of_a_tracked_function_is_a_run(home: Path) -> None:
    @tracking.track(project="vision", tags=["demo"])
    def train(lr: float, depth: int = 3, *, data: Any = None, **more: Any) -> dict[str, float]:
        tracking.log(loss=lr)
        return {"accuracy": depth / 10}

    assert train(0.1, data=object(), width=5) == {"accuracy": 0.3}
    assert train(0.2, 4) == {"accuracy": 0.4}
    one, two = runs_of(home)
    assert one.params() == {"lr": 0.1, "depth": 3, "data": "object", "width": 5}
    assert (one.points(), two.values("accuracy")) == ({"loss": [(None, 0.1)], "accuracy": [(None, 0.3)]}, [0.4])
    document = json.loads((one.run / "run.json").read_bytes())
    assert (document["name"], document["project"], document["tags"]) == ("train", "vision", ["demo"])


def test_a_tracked_function_that_raises_has_failed(home: Path) -> None:
    @tracking.track
    def train(lr: float) -> None:
        raise ValueError("diverged")

    with pytest.raises(ValueError, match="diverged"):
        train(1.0)
    with pytest.raises(TypeError, match="lr"):
        train()  # type: ignore[call-arg]
    assert runs_of(home)[0].end()["message"] == "ValueError: diverged"
    assert train.__name__ == "train"


def test_tracked_functions_inside_of_each_other_are_nested(home: Path) -> None:
    @tracking.track
    def fold(number: int) -> dict[str, float]:
        return {"accuracy": float(number)}

    @tracking.track
    async def validate() -> dict[str, float]:
        return {"mean": sum(fold(number)["accuracy"] for number in (1, 3)) / 2}

    assert asyncio.run(validate()) == {"mean": 2.0}
    runs = runs_of(home)
    assert [run.values("mean") for run in runs] == [[2.0], [], []]
    assert [parent_of(run) for run in runs] == [None, runs[0].run.name, runs[0].run.name]


def test_the_first_tracked_call_of_a_started_run_is_that_run(replica: Replica) -> None:
    (replica.run / "run.json").write_text("{}")

    @tracking.track
    def train(lr: float) -> dict[str, float]:
        return {"accuracy": lr}

    train(0.5)
    train(0.25)
    assert (replica.values("accuracy"), replica.params()) == ([0.5], {"lr": 0.5})
    (child,) = [Replica(path) for path in replica.run.parent.iterdir() if path != replica.run]
    assert child.values("accuracy") == [0.25]


# as the page tells it ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_examples_of_the_page_run(place: Place) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "track" / "tracking.md").read_text()
    part = page[page.index("## Several runs in one process") : page.index("## If you know W&B or MLflow")]
    blocks = re.findall(r"```python\n(.+?)```", part, re.DOTALL)
    assert len(blocks) == 4
    assert script("\n".join([*blocks, blocks[-1]]), PHALANX_HOME=str(place.home)) == (0, "", "")
    rows = place.call("ps", "-n", "50", "--json").data["runs"]
    assert {row["status"] for row in rows} == {"succeeded"}
    names = Counter(row["name"] for row in rows)
    assert names == {
        **dict.fromkeys((f"lr-{lr}" for lr in (0.1, 0.2, 0.4, 0.8)), 1),
        **dict.fromkeys((f"fold-{fold}" for fold in range(5)), 1),
        "cross-validation": 1,
        "train": 2,
        "resnet": 1,
    }
    (resumed,) = [row for row in rows if row["id"] == "resnet-7"]
    assert (resumed["attempt"], resumed["summary"]["loss"]) == (2, 1 / 200)
    (parent,) = [row for row in rows if row["name"] == "cross-validation"]
    assert len(place.call("ps", "-q", f"parent:{parent['id']}", "--json").data["runs"]) == 5
    assert len(place.call("ps", "-q", "group:search", "-s", "metric.loss", "--json").data["runs"]) == 4
    with phalanx.open(place.home) as home:
        assert len(home.run(parent["id"]).children()) == 5


# python 3.8 --------------------------------------------------------------------------------------------------------

OLD = sorted(Path("~/.pyenv/versions").expanduser().glob("3.8*/bin/python"))


@pytest.mark.skipif(not OLD, reason="there is no Python 3.8 on this machine")
def test_all_of_it_works_in_the_oldest_python(tmp_path: Path) -> None:
    text = """
import threading, asyncio
from phalanx import tracking
def trial(number):
    with tracking.start(name=f"trial-{number}", config={"n": number}) as run:
        tracking.log(loss=float(number))
        run.config.lr = 0.1
        run.summary["best"] = 1.0
        run.alert("look", "here", level="WARN")
        run.image("i", [[0, 255], [255, 0]])
        run.audio("a", [0.0, 0.5], sample_rate=8000)
        run.points("p", [[1, 2]])
        run.table("t", {"a": [1], "b": [2]})
        assert run.summary["loss"] == float(number) and run.config["n"] == number
threads = [threading.Thread(target=trial, args=(number,)) for number in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
@tracking.track
def train(lr=0.1): return {"x": lr}
train()
with tracking.start(id="resumed-run") as run: run.log(loss=1.0)
with tracking.start(id="resumed-run", resume="must") as run: assert run.resumed
"""
    done = subprocess.run(
        [str(OLD[0]), "-W", "error", "-c", text],
        env=clean_environment(PHALANX_HOME=str(tmp_path)),
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), done.stderr.decode()
    assert len(runs_of(tmp_path)) == 5
    assert sys.version_info >= (3, 9)
