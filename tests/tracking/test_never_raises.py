"""Training is never hurt, whatever it gives us and whatever becomes of the disk."""

from __future__ import annotations

import inspect
import math
import os
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from phalanx import tracking
from phalanx.tracking import TrackedRun
from tests.examples import examples
from tests.tracking.reading import Replica, clean_environment, only_run, script

METHODS = (
    "log", "params", "tags", "labels", "describe", "progress", "artifact", "artifacts", "model", "dataset", "text",
    "image", "histogram", "table",
)  # fmt: skip


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise LookupError("not for you")


class Rude:
    """Whatever is asked of it is refused, and what it refuses with cannot be told either."""

    class Untold(Exception):
        def __str__(self) -> str:
            raise OSError("nor this")

    def _refuse(self, *_: Any) -> NoReturn:
        raise Rude.Untold

    __str__ = __repr__ = __float__ = __int__ = __index__ = __bool__ = __len__ = __iter__ = __getitem__ = _refuse
    __fspath__ = __eq__ = __ne__ = __lt__ = __gt__ = __add__ = __call__ = __contains__ = _refuse
    __hash__ = object.__hash__


class Curious(Rude):
    """Even a look at its attributes is refused."""

    def __getattr__(self, name: str) -> Any:
        raise Rude.Untold


class Posing:
    """Says that it is something else, and fails as such."""

    is_cpu = False
    device = "GPU:0"
    keys = items = values = tolist = ravel = cpu = detach = clone = item = numel = is_ready = save = refuse


class Liar(dict[str, Any]):
    keys = items = values = __iter__ = __len__ = __getitem__ = refuse


def dead_proxy() -> Any:
    class Gone:
        pass

    return weakref.proxy(Gone())


def endless() -> Iterator[int]:
    yield from range(10)
    raise RuntimeError("that was all")


KNOT: dict[str, Any] = {"x": 1}
KNOT["knot"] = [KNOT]
ODD: list[Any] = [
    None, True, 0, -1, 2**63, -(2**64), 10**400, 0.5, math.nan, math.inf, 1j, "", "x", "a/b", "../x", "\0", "\ud800",
    "x" * 1000, b"", b"x", bytearray(b"x"), [], [1], [[]], [None], (), {}, {"a": 1}, {1: {2: 3}}, set(), frozenset([1]),
    object, object(), int, len, Rude, Rude(), Curious(), Posing(), Liar(a=1), KNOT, dead_proxy, sys, sys.stdout,
    lambda: 1, ..., NotImplemented, range(3), memoryview(b"x"), Exception("x"), threading.Lock(), "/dev/null", ".",
    slice(1), type("T", (), {"__slots__": ()})(), inspect.currentframe(), print, 5.5,
]  # fmt: skip
MADE: list[Callable[[], Any]] = [endless, dead_proxy, lambda: iter([]), lambda: (x for x in [Rude()]), object]
anything = st.integers(0, len(ODD) + len(MADE) - 1).map(lambda n: ODD[n] if n < len(ODD) else MADE[n - len(ODD)]())
nested = st.recursive(anything, lambda inner: st.one_of(
    st.lists(inner, max_size=3),
    st.dictionaries(st.one_of(st.text(max_size=5), st.integers(), st.none()), inner, max_size=3),
    st.tuples(inner, inner),
), max_leaves=5)  # fmt: skip


class Given:
    """What hypothesis may show without asking it for its text."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __repr__(self) -> str:
        return "something odd"


def arguments(method: str) -> st.SearchStrategy[Given]:
    """As many as the method takes, or any number of them, by place and by name."""
    taken = list(inspect.signature(getattr(TrackedRun, method)).parameters.values())[1:]
    by_place = [one for one in taken if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = sum(one.default is one.empty for one in by_place)
    is_open = any(one.kind is one.VAR_POSITIONAL for one in taken)
    places = st.lists(nested, min_size=needed, max_size=4 if is_open else len(by_place))
    names = st.dictionaries(st.sampled_from(["a", "loss", "x y", "1", "ü"]), nested, max_size=3)
    has_names = any(one.kind is one.VAR_KEYWORD for one in taken)
    return st.tuples(places, names if has_names else st.just({})).map(Given)


@pytest.fixture(name="elsewhere")
def elsewhere_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is copied by accident is small."""
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "x").write_text("x")
    monkeypatch.chdir(tmp_path / "small")


@pytest.mark.parametrize("method", METHODS)
@examples(60, HealthCheck.function_scoped_fixture)
@given(data=st.data())
def test_no_argument_makes_a_call_raise(
    run: TrackedRun, replica: Replica, elsewhere: None, method: str, data: st.DataObject
) -> None:
    by_place, by_name = data.draw(arguments(method)).content
    for form in (getattr(run, method), getattr(tracking, method)):
        assert form(*by_place, **by_name) is None
    before = replica.count()
    run.log(sound=1.0)
    assert replica.count() == before + 1


@examples(60, HealthCheck.function_scoped_fixture)
@given(words=st.tuples(nested, nested, nested).map(Given))
def test_no_step_name_or_value_makes_log_raise(run: TrackedRun, words: Given) -> None:
    step, name, value = words.content
    run.log(loss=value, step=step)
    run.log({"a": value, "b": 1.0}, step)
    run.text(name, value, step)
    run.histogram(name, value, step, edges=value, counts=step)
    run.image(name, value, step, name)
    run.progress(value, step, name)


@examples(80, HealthCheck.function_scoped_fixture)
@given(words=st.lists(nested, min_size=7, max_size=7).map(Given))
def test_no_argument_makes_a_start_or_a_finish_raise(home: Path, words: Given) -> None:
    run = tracking.start(*words.content[:5])
    assert isinstance(run, TrackedRun)
    run.log(loss=1.0)
    run.finish(*words.content[5:])
    assert run.is_finished
    assert Replica(Path(run.folder).parents[2]).end()["cause"] in ("finished", "stopped", "error")


@pytest.mark.parametrize("server", [5, Rude(), "ftp://x", "http://[", "http://no such host", "nonsense", "\0"])
def test_no_server_makes_a_start_raise(home: Path, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.tracking.folder_upload.LAST_S", 0.0)
    run = tracking.start(server=server)
    run.log(loss=1.0)
    run.finish()


@pytest.mark.parametrize("fault", [Rude.Untold(), Curious, KeyError(), ValueError("x\n" * 1000), BaseException()])
def test_what_ends_a_block_is_passed_on(home: Path, fault: Any) -> None:
    with pytest.raises(BaseException) as caught, tracking.start():  # noqa: PT011
        raise fault if isinstance(fault, BaseException) else Rude.Untold
    assert isinstance(caught.value, type(fault)) or fault is Curious
    assert only_run(home).end()["cause"] == "error"
    assert len(only_run(home).end()["message"]) < 300


# What becomes of the disk ------------------------------------------------------------------------------------------

ALL_OF_IT = """
import os, sys
from phalanx import tracking
run = tracking.start()
def use_everything(step):
    tracking.log(loss=1.0, step=step)
    tracking.log({"a": 1.0, "b": 2}, step=step)
    tracking.params(lr=0.1)
    tracking.tags("a")
    tracking.labels(a="b")
    tracking.describe(name="x")
    tracking.progress(step, 10)
    tracking.artifact(sys.executable + "-missing")
    tracking.text("t", "text", step)
    tracking.histogram("h", [1.0, 2.0], step)
    tracking.table("t", ["a"], [[1]], step)
    tracking.dataset("d", uri="x")
"""


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    answer = script(ALL_OF_IT + "use_everything(0)\nprint('trained')", PHALANX_HOME=str(tmp_path / "file" / "home"))
    assert (answer.code, answer.out) == (0, "trained\n")
    assert answer.err == "phalanx: this run is not tracked: Not a directory\n"


def test_a_replicas_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    replica = Replica(tmp_path / "file" / "run")
    answer = script(ALL_OF_IT + "use_everything(0)\nprint('trained')", **replica.environment())
    assert (answer.code, answer.out) == (0, "trained\n")
    assert "Not a directory" in answer.err
    assert "Traceback" not in answer.err
    assert answer.err.count("\n") == 6  # five reasons, and the sum


def test_a_folder_that_is_removed_while_it_runs(tmp_path: Path) -> None:
    text = f"""{ALL_OF_IT}
import shutil
use_everything(0)
shutil.rmtree({str(tmp_path)!r})
use_everything(1)
run.artifact(__import__("os").__file__)
run.finish()
print("trained")
"""
    answer = script(text, PHALANX_HOME=str(tmp_path / "home"))
    assert (answer.code, answer.out) == (0, "trained\n")
    assert "the files of the run were removed while it ran" in answer.err
    assert "the end of the run could not be recorded" in answer.err
    assert "Traceback" not in answer.err


@pytest.fixture(name="small_disk")
def small_disk_fixture(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    text = f"""{ALL_OF_IT}
use_everything(0)
filler = open({str(small_disk / "filler")!r}, "wb", buffering=0)
kept = 0
while kept < 3000:
    tracking.log(loss=float(kept), step=kept)
    kept += 1
try:
    while True:
        filler.write(b"x" * 100)
except OSError:
    pass
for step in range(100_000, 120_000):
    tracking.log(loss=1.0, step=step)
use_everything(1)
os.unlink(filler.name)
filler.close()
for step in range(200_000, 200_010):
    tracking.log(loss=2.0, step=step)
print("trained")
"""
    answer = script(text, PHALANX_HOME=str(small_disk / "home"))
    assert (answer.code, answer.out) == (0, "trained\n"), answer.err
    run = only_run(small_disk / "home")
    points = run.points()["loss"]
    assert [point for point in points if point[0] is not None and point[0] < 3000][1:] == [
        (n, float(n)) for n in range(3000)
    ]
    assert points[-10:] == [(step, 2.0) for step in range(200_000, 200_010)]  # it goes on where there is room again
    event = run.event("dropped")
    lost = 20_000 - sum(100_000 <= (step or 0) < 120_000 for step, _ in points)
    assert lost > 1000
    assert event["count"] >= lost
    assert (
        event["why"]["No space left on device"] + event["why"].get("a record was only partly written to disk", 0)
        >= lost
    )
    assert "No space left on device" in answer.err
    assert answer.err.count("\n") <= 6
    assert run.end()["cause"] == "finished"


def test_a_limit_of_the_files_size(tmp_path: Path) -> None:
    """What a quota looks like where nobody may mount anything."""
    text = f"""{ALL_OF_IT}
import resource, signal
use_everything(0)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
for step in range(10_000):
    tracking.log(loss=float(step), accuracy=0.5, step=step)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
tracking.log(loss=-1.0, step=10_000)
print("trained")
"""
    answer = script(text, PHALANX_HOME=str(tmp_path))
    assert (answer.code, answer.out) == (0, "trained\n"), answer.err
    run = only_run(tmp_path)
    losses = run.points()["loss"]
    assert losses[1:-1] == [(step, float(step)) for step in range(len(losses) - 2)]  # without a hole
    assert losses[-1] == (10_000, -1.0)
    assert 1000 < len(losses) < 5000
    event = run.event("dropped")
    assert event["why"].get("File too large", 0) + event["why"].get(
        "a record was only partly written to disk", 0
    ) == 2 * (10_000 - (len(losses) - 2))
    assert f"{event['count']} values could not be recorded" in answer.err


# What becomes of the process ---------------------------------------------------------------------------------------


def test_a_closed_standard_error(tmp_path: Path) -> None:
    text = ALL_OF_IT + "\nsys.stderr.close()\ntracking.log(bad=None)\nuse_everything(0)\nprint('trained')"
    answer = script(text, PHALANX_HOME=str(tmp_path))
    assert (answer.code, answer.out, answer.err) == (0, "trained\n", "")
    assert only_run(tmp_path).event("dropped")["count"] == 2


def test_no_standard_error_at_all(tmp_path: Path) -> None:
    text = ALL_OF_IT + "\nsys.stderr = None\nos.close(2)\ntracking.log(bad=None)\nuse_everything(0)\nprint('trained')"
    assert script(text, PHALANX_HOME=str(tmp_path))[:2] == (0, "trained\n")
    assert only_run(tmp_path).event("dropped")["count"] == 2


def test_a_standard_error_that_no_one_reads(tmp_path: Path) -> None:
    """A pipe whose reader is gone."""
    text = ALL_OF_IT + "\nfor n in range(3): tracking.log({f'bad{n}': None})\nuse_everything(0)\nprint('trained')"
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=clean_environment(PHALANX_HOME=str(tmp_path)),
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=False,
        timeout=120,
    )
    os.close(theirs)
    assert done.stdout == b"trained\n"
    assert only_run(tmp_path).end()["cause"] == "finished"


def test_no_more_open_files(tmp_path: Path) -> None:
    text = f"""{ALL_OF_IT}
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(open(os.devnull))
except OSError:
    pass
use_everything(0)
for file in held:
    file.close()
use_everything(1)
print("trained")
"""
    answer = script(text, PHALANX_HOME=str(tmp_path))
    assert (answer.code, answer.out) == (0, "trained\n"), answer.err
    run = only_run(tmp_path)
    assert run.points() == {"loss": [(1, 1.0)], "a": [(1, 1.0)], "b": [(1, 2.0)]}
    assert run.dropped()["Too many open files"] == 3
    assert run.params() == {"lr": 0.1}


def test_an_environment_that_is_cleared(tmp_path: Path) -> None:
    text = ALL_OF_IT + "\nos.environ.clear()\nuse_everything(0)\nassert tracking.start() is run\nprint('trained')"
    answer = script(text, PHALANX_HOME=str(tmp_path))
    assert (answer.code, answer.out) == (0, "trained\n")
    assert only_run(tmp_path).values("loss") == [1.0]


def test_a_working_folder_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    text = f"import os, shutil\nos.chdir({str(tmp_path / 'gone')!r})\nshutil.rmtree(os.getcwd())\n"
    text += ALL_OF_IT + "\nuse_everything(0)\nrun.artifact('x')\nrun.artifact('/etc/hostname', 'h')\nprint('trained')"
    answer = script(text, PHALANX_HOME=str(tmp_path / "home"))
    assert (answer.code, answer.out) == (0, "trained\n")
    assert only_run(tmp_path / "home").values("loss") == [1.0]
    assert len(only_run(tmp_path / "home").events("artifact")) == 1


def test_a_handler_of_a_signal_may_log(tmp_path: Path) -> None:
    text = """
import signal
from phalanx import tracking
run = tracking.start()
count = 0
def handler(*_):
    global count
    count += 1
    run.log({f"in-handler-{count % 50}": 1.0}, step=count)
    run.params({f"p{count % 5}": count})
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
step = 0
while step < 5000 or count < 50:
    run.log({f"m{step % 100}": step}, step=step)
    step += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(step, count)
"""
    answer = script(text, PHALANX_HOME=str(tmp_path))
    assert answer.code == 0, answer.err
    run = only_run(tmp_path)
    steps, count = map(int, answer.out.split())
    assert sum(len(points) for name, points in run.points().items() if name.startswith("m")) == steps
    assert sum(len(points) for name, points in run.points().items() if name.startswith("in-h")) == count
    assert not any(name.startswith("unnamed") for name in run.points())


def test_nothing_is_tracked_when_it_is_off(tmp_path: Path) -> None:
    for word in ("off", "OFF", "0", "false", "no"):
        text = ALL_OF_IT + "\nuse_everything(0)\nrun.artifacts('/missing')\nrun.log(bad=None)\nprint(repr(run.folder))"
        answer = script(text, PHALANX_HOME=str(tmp_path / "home"), PHALANX_TRACKING=word)
        assert answer == (0, "''\n", "")
    assert not (tmp_path / "home").exists()


def test_the_disk_that_is_full_costs_no_time(small_disk: Path) -> None:
    """Each call that fails is two tries, not a wait."""
    shutil.copyfile("/dev/null", small_disk / "x")
    text = f"""
import time
from phalanx import tracking
tracking.log(loss=1.0)
try:
    with open({str(small_disk / "filler")!r}, "wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 64)
except OSError:
    pass
before = time.process_time()
for step in range(10_000):
    tracking.log(loss=1.0, step=step)
print(time.process_time() - before)
"""
    answer = script(text, PHALANX_HOME=str(small_disk / "home"))
    assert float(answer.out) < 5.0
