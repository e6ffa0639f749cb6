from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from phalanx.errors import CallError, SystemFault
from phalanx.home.home import Home, default_home
from phalanx.home.lease import Lease
from phalanx.home.run_folder import decode_run, encode_run
from phalanx.spool import Writer
from phalanx.store import Run, StatusChange
from phalanx.tracking.external_folder import new_id
from tests.scheduler.working import Works

NOW = datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)


def run(run_id: str = "abc") -> Run:
    return Run(
        id=run_id, project="default", kind="experiment", name="ünïcode", description=None, framework="pytorch",
        backend="local", user="me", status="created", reason="submitted", attempt=0, priority=3, created_at=NOW,
        updated_at=NOW, started_at=None, finished_at=None, original=None, cloning=None, group=None, commit="0af1",
        tags=("a", "b"), params={"lr": 0.1, "deep": {"er": [1, None]}}, summary={},
    )  # fmt: skip


def change(number: int, status: str = "scheduled") -> StatusChange:
    return StatusChange("abc", number, 1, status, "why", NOW + timedelta(seconds=number))


def open_to_others(folder: Path) -> list[str]:
    found = [folder, *folder.rglob("*")]
    return [f"{path} {stat.filemode(path.lstat().st_mode)}" for path in found if path.lstat().st_mode & 0o077]


def test_a_run_is_the_same_after_writing_and_reading() -> None:
    assert decode_run(json.loads(encode_run(run()))) == run()


def test_a_new_run_has_its_files_and_the_beginning_of_its_history(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    folder = home.add(run(), {"plan.json": b"{}", "job/x/y": b"z"}, {"A": "b"})
    assert folder.read() == run()
    assert (folder.path / "job/x/y").read_bytes() == b"z"
    assert [(c.number, c.status) for c in folder.history()] == [(1, "created")]
    assert home.environment("abc") == {"A": "b"}


def test_a_folder_that_cannot_be_finished_is_not_there_at_all(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with pytest.raises(SystemFault, match="cannot be kept"):
        home.add(run(), {"plan.json": b"{}", "plan.json/impossible": b""}, {"SECRET": "x"})
    assert home.run_ids() == []
    assert list(home.runs.iterdir()) == list(home.environments.iterdir()) == []


def test_a_submitter_that_is_killed_leaves_a_draft_that_no_one_believes(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    program = f"""
import os, signal
from pathlib import Path
from phalanx.home.home import Home
from tests.home.test_home import run
Home(Path({str(home.path)!r})).add(run(), {{}}, {{}}, lambda folder: os.kill(os.getpid(), signal.SIGKILL))
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    assert [path.name for path in home.runs.iterdir()] == [".abc"]
    assert home.run_ids() == []
    home.tidy()
    assert (home.runs / ".abc").exists()  # its submitter might still be at work
    for path in (home.runs / ".abc", home.environments / "abc.json"):
        os.utime(path, (1, 1))
    home.tidy()
    assert list(home.runs.iterdir()) == list(home.environments.iterdir()) == []


def test_all_of_a_home_is_private_with_any_umask(works: Works) -> None:
    before = os.umask(0)
    try:
        run_id = works.submit("echo hello", workers=1)
        works.settle(run_id)
    finally:
        os.umask(before)
    found = open_to_others(works.home.path)
    assert [line for line in found if "/agents/" not in line] == []  # the agent itself is no secret


def test_a_history_survives_a_torn_tail(tmp_path: Path) -> None:
    folder = Home(tmp_path / "home").add(run(), {}, {})
    folder.append(change(2))
    whole = (folder.path / "history").read_bytes()
    with (folder.path / "history").open("ab") as stream:
        stream.write(whole[-30:-10])
    assert [c.number for c in folder.history()] == [1, 2]
    folder.append(change(3, "starting"))
    assert [(c.number, c.status) for c in folder.history()] == [(1, "created"), (2, "scheduled"), (3, "starting")]
    found = folder.read()
    assert found is not None
    assert (found.status, found.attempt, found.updated_at) == ("starting", 1, change(3).at)


@pytest.mark.parametrize("kept", range(0, 200, 17))
def test_a_history_cut_anywhere_still_reads(tmp_path: Path, kept: int) -> None:
    folder = Home(tmp_path / "home").add(run(), {}, {})
    folder.append(change(2))
    path = folder.path / "history"
    path.write_bytes(path.read_bytes()[:kept])
    assert [c.number for c in folder.history()] == [1, 2][: len(folder.history())]
    assert folder.read() is not None


def test_of_two_that_wrote_the_same_step_the_first_one_counts(tmp_path: Path) -> None:
    folder = Home(tmp_path / "home").add(run(), {}, {})
    folder.append(change(2, "scheduled"))
    folder.append(change(1, "created"))
    folder.append(change(3, "starting"))
    assert [c.status for c in folder.history()] == ["created", "scheduled", "starting"]


def test_junk_between_records_is_passed_over(tmp_path: Path) -> None:
    folder = Home(tmp_path / "home").add(run(), {}, {})
    writer = Writer(folder.path / "history")
    os.write(writer.descriptor, os.urandom(500))
    writer.close()
    folder.append(change(2))
    assert [c.number for c in folder.history()] == [1, 2]


def test_the_first_word_to_stop_counts(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    folder = home.add(run(), {}, {})
    assert folder.stop_reason() is None
    folder.ask_to_stop("first")
    folder.ask_to_stop("second")
    assert folder.stop_reason() == "first"
    assert home.asked_to_stop() == ["abc"]
    home.forget_stop("abc")
    assert home.asked_to_stop() == []


def test_a_folder_that_is_not_a_run_is_none(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    (home.runs / "junk").mkdir()
    assert home.run("junk").read() is None
    (home.runs / "junk" / "run.json").write_text('{"id": 3}')
    assert home.run("junk").read() is None


def test_ids_are_short_and_do_not_repeat() -> None:
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert {len(run_id) for run_id in ids} == {10}


def test_the_home_is_where_phalanx_home_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path))
    assert default_home() == tmp_path
    monkeypatch.delenv("PHALANX_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_home() == Path("/home/someone/.phalanx")


# the lease ---------------------------------------------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from phalanx.home.home import Home
from phalanx.home.lease import Lease
lease = Lease(Home(Path(sys.argv[1])))
print(lease.take(), flush=True)
time.sleep(60)
"""


def test_a_lease_has_one_holder(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    first, second = Lease(home), Lease(home)
    assert first.take()
    assert first.take()
    assert not second.take()
    first.release()
    assert second.take()
    assert not first.take()
    second.close()
    assert first.take()
    first.close()


def test_a_lease_is_taken_back_from_a_holder_that_is_killed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    lease = Lease(home)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(home.path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        assert not lease.take()
        holder.kill()
    assert lease.take()
    lease.close()


def test_nothing_that_a_holder_starts_inherits_the_lease(works: Works) -> None:
    lease = Lease(works.home)
    assert lease.take()
    run_id = works.submit("echo up; sleep 60")
    works.says(run_id, "up")
    lease.close()
    other = Lease(works.home)
    assert other.take()
    other.close()


# homes that cannot be used -----------------------------------------------------------------------------------------


def test_a_home_below_a_file_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CallError, match=r"cannot use .*/file/home as home: not a directory; set PHALANX_HOME to"):
        Home(tmp_path / "file" / "home")


def test_a_home_that_may_not_be_written_is_refused_with_its_reason(tmp_path: Path) -> None:
    Home(tmp_path / "home")
    program = f"""
import os, sys
from pathlib import Path
from phalanx.home.home import Home
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
try:
    Home(Path({str(tmp_path / "home")!r}))
except Exception as fault:
    print(type(fault).__name__, fault)
"""
    (tmp_path / "home").chmod(0o500)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    try:
        said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    finally:
        (tmp_path / "home").chmod(0o700)
    assert said.startswith("CallError cannot use")
    assert "set PHALANX_HOME to another folder" in said


def test_drafts_that_vanish_while_a_home_is_tidied_are_no_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    gone = [".d5hy6eyts5.json.13645"]
    usual = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: [*usual(path), *gone])
    home.tidy()
