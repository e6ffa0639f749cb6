"""The SQLite file: private, shared by processes, and whole after any of them is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.errors import CallError
from phalanx.store import Store, StoreError
from phalanx.store.schema import REVISION, stored_revision
from tests.store.samples import run, status

WRITER = """
import sys
from pathlib import Path
from phalanx.store import Store
from tests.store.samples import run, status
home, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with Store.open(home) as store:
    for place in range(count):
        run_id = f"{name}{place}"
        with store.transaction():
            store.add(run(run_id, tags=("a", "b"), params={"x": place}, summary={"loss": 0.5}))
            store.record(status(1, "running", run_id=run_id))
        store.record(status(2, "succeeded", 1, run_id=run_id))
        print(run_id, flush=True)
"""
ROOT = Path(__file__).parent.parent.parent


def writer(home: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(home), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_files_are_the_users_alone(tmp_path: Path, umask: int) -> None:
    home = tmp_path / "deep" / "home"
    before = os.umask(umask)
    try:
        with Store.open(home) as store:
            store.add(run())
            found = {path.name: mode(path) for path in home.iterdir()}
    finally:
        os.umask(before)
    assert mode(home) == 0o700
    assert found == {"phalanx.db": 0o600, "phalanx.db-wal": 0o600, "phalanx.db-shm": 0o600}


def test_a_file_that_others_may_read_is_reported(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        (tmp_path / "phalanx.db").chmod(0o644)
        assert store.check() == [f"{tmp_path / 'phalanx.db'} is accessible to other users: run chmod 600 on it"]


def test_the_connection_is_set_up(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        pragmas = ["journal_mode", "synchronous", "foreign_keys", "busy_timeout"]
        assert [store._database.rows(f"PRAGMA {name}")[0][0] for name in pragmas] == ["wal", 1, 1, 30_000]
        assert store.note == ""
        assert store.place == str(tmp_path / "phalanx.db")


@pytest.mark.parametrize("name", ["with space", "quote'\"s", "100%", "ünï🐘", "?mode=memory#", "new\nline"])
def test_a_home_may_have_any_name(tmp_path: Path, name: str) -> None:
    with Store.open(tmp_path / name) as store:
        store.add(run())
    assert (tmp_path / name / "phalanx.db").exists()
    with Store.open(tmp_path / name) as store:
        assert store.ids() == {"a1b2c3"}


def test_two_processes_write_to_one_file(tmp_path: Path) -> None:
    writers = [writer(tmp_path, name, 150) for name in ("left", "right")]
    for process in writers:
        _, said = process.communicate(timeout=120)
        assert (process.returncode, said) == (0, "")
    with Store.open(tmp_path) as store:
        assert store.count("status:succeeded") == 300
        assert store.check() == []


@pytest.mark.slow
def test_many_processes_make_one_file_at_once(tmp_path: Path) -> None:
    writers = [writer(tmp_path, f"p{place}-", 1) for place in range(6)]
    for process in writers:
        _, said = process.communicate(timeout=120)
        assert (process.returncode, said) == (0, "")
    with Store.open(tmp_path) as store:
        assert store.ids() == {f"p{place}-0" for place in range(6)}


@pytest.mark.parametrize("lines", [1, 40, 150])
def test_a_kill_in_the_middle_of_writing_loses_nothing_that_was_written(tmp_path: Path, lines: int) -> None:
    process = writer(tmp_path, "r", 1_000_000)
    assert process.stdout is not None
    seen = [process.stdout.readline().strip() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    seen += process.stdout.read().split()  # `communicate` would miss what `readline` has read ahead
    process.communicate(timeout=120)
    with Store.open(tmp_path) as store:
        assert set(seen) <= store.ids()
        assert len(store.ids() - set(seen)) <= 1
        for run_id in seen:
            assert [change.status for change in store.statuses(run_id)] == ["running", "succeeded"]
        found = store.runs(limit=None)
        assert all(one.tags == ("a", "b") and one.summary and one.status in ("running", "succeeded") for one in found)
        assert store.check() == []
        store.record(status(3, "stopped", 5, run_id=seen[0]))


@pytest.mark.slow
def test_a_kill_while_the_file_is_made_leaves_one_that_opens(tmp_path: Path) -> None:
    for place in range(8):
        process = writer(tmp_path / str(place), "r", 1)
        while process.poll() is None and not (tmp_path / str(place) / "phalanx.db").exists():
            pass
        process.kill()
        process.communicate(timeout=120)
        with Store.open(tmp_path / str(place)) as store:
            assert store.check() == []
            assert stored_revision(store._database) == REVISION


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    (tmp_path / "phalanx.db").touch(mode=0o600)
    with Store.open(tmp_path) as store:
        assert not store.ids()


def test_a_damaged_file_is_reported_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "phalanx.db").write_bytes(b"this is no database " * 100)
    with pytest.raises(StoreError, match=r"phalanx.db: file is not a database. Move it away .*doctor --rebuild"):
        Store.open(tmp_path)


def test_damage_within_is_found(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.add(run(tags=("t",)))
    with sqlite3.connect(tmp_path / "phalanx.db") as bare:
        bare.execute("DELETE FROM runs")
    bare.close()
    with Store.open(tmp_path) as store:
        assert store.check() == ["1 rows belong to missing runs (first in `tags`)"]


def test_a_home_that_cannot_be_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot create .*file/home/phalanx.db: Not a directory"):
        Store.open(tmp_path / "file" / "home")
    (tmp_path / "home" / "phalanx.db").mkdir(parents=True)
    with pytest.raises(StoreError, match="unable to open database file"):
        Store.open(tmp_path / "home")


@pytest.mark.parametrize("url", ["sqlite:///x", "mysql://secret@host/db", "nonsense"])
def test_another_kind_of_url_is_refused_without_showing_it(tmp_path: Path, url: str) -> None:
    with pytest.raises(CallError, match="starts with `postgresql://`, not") as raised:
        Store.open(tmp_path, url)
    assert "secret" not in str(raised.value)


def test_an_unreachable_postgresql_is_reported_without_the_password(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match=r"postgresql://127.0.0.1:1/runs: ") as raised:
        Store.open(tmp_path, "postgresql://ann:secret@127.0.0.1:1/runs")
    assert "secret" not in str(raised.value)


def test_a_full_disk_is_reported_and_harms_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        store.add(run("small"))
        pages = store._database.rows("PRAGMA page_count")[0][0]
        store._database.rows(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StoreError, match="full"):
            store.add(run("big", description="x" * 1_000_000))
        assert store.ids() == {"small"}
        store.record(status(1, "running", run_id="small"))
        assert store.check() == []


def test_the_runs_that_are_not_done_are_found_by_their_own_index(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        statements: list[str] = []
        store._database._connection.set_trace_callback(statements.append)
        store.active()
        (plan,) = store._database.rows(f"EXPLAIN QUERY PLAN {statements[0]}")[:1]
        assert "INDEX runs_active" in plan[-1]
