"""Runs of plain scripts and notebooks: made by the first call, told truly whatever ends them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from phalanx import tracking
from phalanx.tracking import recorder
from tests.cli.homes import Place, place_fixture, wait_for  # noqa: F401 - the fixture
from tests.tracking.reading import Replica, clean_environment, only_run, runs_of, script

START = (
    "import os, signal, sys, time\nfrom phalanx import tracking\nrun = tracking.start()\nrun.log(loss=0.5, step=1)\n"
)


def ran(place: Place, text: str, *options: str) -> dict[str, Any]:
    """What `ps` says of the one run of a script."""
    script(START + text, *options, PHALANX_HOME=str(place.home))
    return the_run(place)


def the_run(place: Place) -> dict[str, Any]:
    (row,) = place.call("ps", "--json").data["runs"]
    return dict(row)


# how it ends -------------------------------------------------------------------------------------------------------


UNKNOWN = "ended without an uncaught exception; exit code unknown"  # Python tells it to nobody but the parent
ENDS = [
    ("", "succeeded", UNKNOWN),
    ("run.finish()", "succeeded", "finished"),
    ("raise ValueError('boom')", "failed", "ValueError: boom"),
    ("raise KeyboardInterrupt", "stopped", "KeyboardInterrupt"),
    ("os.kill(os.getpid(), 9)", "failed", "its process ended without a word"),
    ("with run: sys.exit(6)", "failed", "exit code 6"),
]  # fmt: skip
FURTHER_ENDS = [
    ("sys.exit(3)", "succeeded", UNKNOWN),
    ("run.finish('failed', 'no data')\nsys.exit(3)", "failed", "no data"),
    ("with run: pass", "succeeded", "finished"),
    ("run.finish('failed', 'it diverged')", "failed", "it diverged"),
    ("with run: raise SystemExit('no data')", "failed", "no data"),
    ("sys.exit(0)", "succeeded", UNKNOWN),
    ("raise SystemExit(3)", "succeeded", UNKNOWN),
    ("exit(4)", "succeeded", UNKNOWN),
    ("with run: exit(4)", "failed", "exit code 4"),
    ("with run: sys.exit(True)", "failed", "exit code 1"),
    ("with run: sys.exit()", "succeeded", "finished"),
    ("def main():\n  with run: sys.exit(7)\ntry: main()\nexcept SystemExit: pass", "failed", "exit code 7"),
    ("class Mute(Exception):\n  def __str__(self): raise OSError\nraise Mute", "failed", "Mute"),
    ("sys.excepthook = lambda *_: None\nraise KeyError('x')", "failed", "KeyError: 'x'"),
    ("try: sys.exit(0)\nexcept SystemExit: pass\nraise ValueError('later')", "failed", "ValueError: later"),
    ("os.kill(os.getpid(), signal.SIGINT); time.sleep(5)", "stopped", "KeyboardInterrupt"),
    ("run.finish()\nraise ValueError('after')", "succeeded", "finished"),
    ("tracking.finish('STOPPED')", "stopped", "stopped"),
    ("run.finish('done')", "failed", "it ended as `done`"),
    ("os._exit(0)", "failed", "its process ended without a word"),
    ("os.kill(os.getpid(), signal.SIGTERM)", "failed", "its process ended without a word"),
    ("os.abort()", "failed", "its process ended without a word"),
    ("import threading as t\nt.excepthook = print\nx = t.Thread(target=lambda: 1/0)\nx.start()\nx.join()",
     "succeeded", UNKNOWN),
    ("import threading as t\nx = t.Thread(target=sys.exit, args=(3,))\nx.start()\nx.join()",
     "succeeded", UNKNOWN),
    ("with run: sys.exit(0)", "succeeded", "finished"),
    ("with run:\n  raise KeyboardInterrupt", "stopped", "KeyboardInterrupt"),
    ("try:\n  with run: 1/0\nexcept ArithmeticError: pass", "failed", "ZeroDivisionError: division by zero"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "status", "reason"), [*ENDS, *(pytest.param(*each, marks=pytest.mark.slow) for each in FURTHER_ENDS)]
)
def test_the_status_is_true_however_it_ends(place: Place, text: str, status: str, reason: str) -> None:
    row = ran(place, text)
    assert row["status"] == status
    assert row["reason"].removeprefix("master-0: ") == reason
    assert row["summary"] == {"loss": 0.5}
    assert row["finished_at"] is not None


def test_nothing_of_the_process_is_patched(place: Place) -> None:
    text = """
        import builtins, signal, sys, threading

        def hooks():
            handlers = [signal.getsignal(number) for number in signal.valid_signals()]
            quitter = type(builtins.exit)
            return [sys.exit, sys.excepthook, sys.unraisablehook, threading.excepthook, quitter.__call__, handlers]

        before = hooks()
        from phalanx import tracking
        tracking.start().log(loss=0.5)
        assert hooks() == before
        tracking.finish()
    """
    assert script(dedent(text), PHALANX_HOME=str(place.home)) == (0, "", "")
    assert the_run(place)["status"] == "succeeded"


@pytest.mark.slow
def test_it_runs_while_it_runs_and_is_over_when_it_was_killed(place: Place) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", START + "print('up', flush=True)\ntime.sleep(60)"],
        env=clean_environment(PHALANX_HOME=str(place.home)),
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert the_run(place)["status"] == "running"
    finally:
        process.kill()
        process.communicate()
    wait_for(lambda: the_run(place)["status"] == "failed")


@pytest.mark.slow
def test_it_can_be_stopped(place: Place) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", START + "print('up', flush=True)\ntime.sleep(60)"],
        env=clean_environment(PHALANX_HOME=str(place.home)),
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert place.call("stop", the_run(place)["id"]).code == 0
        assert process.wait(20) == -signal.SIGTERM
    finally:
        process.kill()
        process.communicate()
    wait_for(lambda: the_run(place)["status"] == "stopped")


@pytest.mark.slow
def test_a_prompt_goes_on_after_a_fault(place: Place) -> None:
    session = "from phalanx import tracking\nrun = tracking.start()\n1/0\nrun.log(loss=0.5)\n"
    subprocess.run(
        [sys.executable, "-i"],
        input=session.encode(),
        env=clean_environment(PHALANX_HOME=str(place.home)),
        capture_output=True,
        check=True,
        timeout=120,
    )
    row = the_run(place)
    assert (row["status"], row["summary"]) == ("succeeded", {"loss": 0.5})


# what it is --------------------------------------------------------------------------------------------------------


def test_everything_that_is_said_of_it_is_shown(place: Place) -> None:
    script(
        """
from phalanx import tracking
with tracking.start("first", project="vision", params={"lr": 0.1}, tags=["a", "b,c"], description="hello") as run:
    run.tags("d")
    run.labels(team="nlp")
    run.params(depth=3)
    run.describe(framework="jax")
    run.log(loss=1.0)
    run.log(loss=0.25)
""",
        PHALANX_HOME=str(place.home),
    )
    row = the_run(place)
    assert (row["name"], row["project"], row["description"], row["framework"]) == ("first", "vision", "hello", "jax")
    assert (row["tags"], row["params"]) == (["a", "b", "c", "d"], {"depth": 3, "lr": 0.1})
    assert (row["summary"], row["status"], row["backend"]) == ({"loss": 0.25}, "succeeded", "outside")
    assert row["user"]


@pytest.mark.parametrize("argv", ["[]", "['']", "None", "['/a/b/train.py', '\\ud800']"])
def test_a_notebook_has_no_script(tmp_path: Path, argv: str) -> None:
    change = "del sys.argv" if argv == "None" else f"sys.argv = {argv}"
    answer = script(
        f"import sys\n{change}\nfrom phalanx import tracking\ntracking.log(loss=1.0)", PHALANX_HOME=str(tmp_path)
    )
    assert answer == (0, "", "")
    run = only_run(tmp_path)
    assert run.values("loss") == [1.0]
    assert json.loads((run.run / "run.json").read_bytes())["reason"].startswith("tracked")


def test_everything_of_it_is_private(tmp_path: Path) -> None:
    os.umask(os.umask(0))
    script(
        "import os\nos.umask(0)\n" + START + "run.params(a=1)\nrun.artifact('/etc/hostname')",
        PHALANX_HOME=str(tmp_path / "h"),
    )
    paths = [tmp_path / "h", *(tmp_path / "h").rglob("*")]
    assert len(paths) > 15
    assert {str(path): oct(path.stat().st_mode & 0o777) for path in paths if path.stat().st_mode & 0o077} == {}


def test_the_first_call_makes_the_run(home: Path) -> None:
    assert tracking.current() is None
    tracking.log(loss=1.0)
    run = tracking.current()
    assert run is not None
    assert (run.is_managed, run.rank, run.project) == (False, 0, "default")
    assert only_run(home).values("loss") == [1.0]
    assert Path(run.outputs) == home / "runs" / run.id / "outputs"
    assert Path(run.outputs).is_dir()


@pytest.mark.parametrize("call", ["params", "tags", "labels", "text", "dataset"])
def test_any_call_makes_the_run(home: Path, call: str) -> None:
    given: dict[str, tuple[Any, ...]] = {"params": ({"a": 1},), "labels": ({"a": 1},), "text": ("a", "b")}
    getattr(tracking, call)(*given.get(call, ("a",)))
    assert len(only_run(home).events({"params": "params", "tags": "tags"}.get(call, call))) == 1


# one after the other -----------------------------------------------------------------------------------------------


def test_another_start_ends_the_run_before_it(home: Path) -> None:
    first = tracking.start(name="one")
    first.log(loss=1.0)
    second = tracking.start(name="two")
    second.log(loss=2.0)
    assert first.is_finished
    assert first.id != second.id
    one, two = runs_of(home)
    assert one.end()["cause"] == "finished"
    assert (one.values("loss"), two.values("loss")) == ([1.0], [2.0])
    assert not (two.folder / "end.json").exists()


@pytest.mark.parametrize("said", [{"params": {"lr": 1}}, {"tags": ["a"]}, {"project": "p"}, {"description": "d"}])
def test_any_argument_describes_another_run(home: Path, said: dict[str, Any]) -> None:
    first = tracking.start()
    assert tracking.start(**said) is not first


def test_a_start_with_nothing_to_say_gives_the_run_that_is_there(home: Path) -> None:
    """So that libraries need not know who began."""
    run = tracking.start(name="mine")
    assert tracking.start() is run
    assert tracking.start(name=None, tags=()) is run
    run.finish()
    assert tracking.start() is not run


def test_ten_runs_in_a_loop(home: Path) -> None:
    for number in range(10):
        with tracking.start(name=f"run-{number}", params={"lr": number}) as run:
            run.log(loss=float(number))
    found = runs_of(home)
    assert [one.values("loss") for one in found] == [[float(number)] for number in range(10)]
    assert {one.end()["cause"] for one in found} == {"finished"}


def test_a_second_finish_and_a_late_value(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tracking.start()
    run.log(loss=1.0)
    run.finish("failed", "first")
    run.finish("succeeded", "second")
    run.log(loss=2.0)
    run.log({"loss": 3, "b": 4.0})
    run.params(late=1)
    run.artifact("/etc/hostname")
    assert only_run(home).end()["message"] == "first"
    assert only_run(home).values("loss") == [1.0]
    assert only_run(home).params() == {}
    assert run.dropped["the run is finished"] == 3
    assert "the run is finished" in capsys.readouterr().err


def test_after_the_modules_finish_a_new_run_begins(home: Path) -> None:
    tracking.log(loss=1.0)
    tracking.finish()
    tracking.finish()
    tracking.log(loss=2.0)
    tracking.finish("failed")
    assert [one.values("loss") for one in runs_of(home)] == [[1.0], [2.0]]
    assert [one.end()["cause"] for one in runs_of(home)] == ["finished", "error"]


def test_the_environment_is_left_as_it_was(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_PROJECT", "vision")
    monkeypatch.setenv("PHALANX_OUTPUTS", "/elsewhere")
    before = dict(os.environ)
    run = tracking.start()
    assert run.project == "vision"
    assert os.environ["PHALANX_TRACK"] == run.folder
    assert os.environ["PHALANX_OUTPUTS"] == run.outputs
    run.finish()
    assert dict(os.environ) == before
    assert tracking.start().project == "vision"


def test_descriptors_are_given_back(home: Path) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    for _ in range(recorder.MOST_AWAY):
        tracking.start(name="warm").log(loss=1.0)
    tracking.finish()
    before = opened()
    for number in range(20):
        run = tracking.start(name=str(number))
        run.log(loss=1.0)
        run.params(a=1)
    tracking.finish()
    assert opened() <= before


# signs of life -----------------------------------------------------------------------------------------------------


def test_it_gives_signs_of_life_before_it_says_anything(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is on another machine sees nothing else of it."""
    monkeypatch.setattr("phalanx.tracking.heartbeat.BEAT_S", 0.1)
    tracking.start()
    beat = only_run(home).folder / "beat"
    wait_for(beat.exists)
    before = beat.stat().st_mtime_ns
    wait_for(lambda: beat.stat().st_mtime_ns > before)


def test_points_are_brought_to_the_disk_within_a_second(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    text = f"""
import os, time
from phalanx import tracking
usual = os.fsync
def fsync(descriptor):
    with open({str(trace)!r}, "a") as stream:
        stream.write(os.readlink(f"/proc/self/fd/{{descriptor}}") + "\\n")
    usual(descriptor)
run = tracking.start()
os.fsync = fsync
run.log(loss=1.0)
deadline = time.monotonic() + 60
while not os.path.exists({str(trace)!r}) and time.monotonic() < deadline:
    time.sleep(0.05)
time.sleep(1.2)  # long enough for another round
os._exit(0)
"""
    script(text, PHALANX_HOME=str(tmp_path / "home"))
    synced = [path for path in trace.read_text().splitlines() if path.endswith(".points")]
    assert len(synced) == 1  # nothing was written after it


# what looks like one of ours ---------------------------------------------------------------------------------------


def test_a_process_without_proc_is_reported_by_its_folder(home: Path) -> None:
    run = tracking.start()
    watcher = json.loads((Path(run.folder) / "agent.json").read_bytes())
    assert watcher["pid"] == os.getpid()
    assert watcher["is_agent"] is False
    assert watcher["patience_s"] > 60
    assert watcher["started"] == int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


@pytest.mark.slow
def test_two_scripts_at_once_are_two_runs(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", START], env=clean_environment(PHALANX_HOME=str(tmp_path)))
        for _ in range(4)
    ]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert [run.values("loss") for run in runs_of(tmp_path)] == [[0.5]] * 4


@pytest.mark.slow
def test_the_start_is_quick(tmp_path: Path) -> None:
    script(START, PHALANX_HOME=str(tmp_path))
    text = "import time\nbefore = time.process_time()\n" + START + "print(time.process_time() - before)"
    taken = min(float(script(text, PHALANX_HOME=str(tmp_path)).out) for _ in range(3))
    assert taken < 0.5


def test_an_old_draft_is_no_run(home: Path) -> None:
    (home / "runs" / ".abc").mkdir(parents=True)
    tracking.log(loss=1.0)
    assert isinstance(only_run(home), Replica)
    assert time.time() - only_run(home).folder.stat().st_mtime < 60


def test_line_breaks_in_names_are_replaced_and_noted(place: Place) -> None:
    text = (
        "from phalanx import tracking\n"
        r"run = tracking.start(name='a\nb', project='p\x1b[2Jq', tags=['t\nu'], group='g\rh')"
        "\nrun.tags('v\\nw')\nrun.labels({'l\\nm': 'two\\nlines'})\nrun.log({'loss\\nx': 1.0})\n"
        "run.log({'loss\\nx': 2.0})\nrun.params({'p\\nq': 1})\n"
        "run.describe(name='c\\nd', description='two\\nlines')\nrun.finish()\n"
    )
    answer = script(text, PHALANX_HOME=str(place.home))
    row = the_run(place)
    assert (row["name"], row["project"], row["group"]) == ("c_d", "p_[2Jq", "g_h")
    assert (row["tags"], row["description"]) == (["t_u", "v_w"], "two\nlines")
    shown = place.call("show", row["id"], "--json").data
    assert shown["labels"]["l_m"] == "two\nlines"
    assert list(shown["summary"]) == ["loss_x"]
    assert shown["params"] == {"p_q": 1}
    assert answer.err.count("line breaks or other control characters") == 9
    assert "\x1b" not in answer.err
