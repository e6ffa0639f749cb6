"""The schema: a new database and an upgraded one are the same, and upgrades keep every row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.store import Store, StoreError
from phalanx.store.database import Database, PostgresDatabase, SqliteDatabase
from phalanx.store.migrations.revision import Revision
from phalanx.store.schema import REVISION, REVISIONS, prepare, stored_revision
from phalanx.store.store import TABLES
from tests.store.conftest import Address
from tests.store.samples import replica, run, status

ROOT = Path(__file__).parent.parent.parent
WRITTEN = Path(__file__).parent / "written"  # the statements by which Alembic made databases up to revision 0003
NEXT, AFTER = (f"{int(REVISION) + more:04}" for more in (1, 2))  # of a later version of Phalanx
COLOUR = Revision(
    NEXT,
    """
ALTER TABLE runs ADD COLUMN colour TEXT;
CREATE TABLE extras (run_key BIGINT REFERENCES runs (key) ON DELETE CASCADE);
UPDATE runs SET colour = 'blue';
""",
)
BROKEN = Revision(AFTER, "CREATE TABLE half (x BIGINT); SELECT * FROM nothing;")
LATER = (*REVISIONS, COLOUR)  # the revisions of a later version of Phalanx


def database_of(address: Address) -> Database:
    if address.url:
        return PostgresDatabase(address.url)
    address.home.mkdir(exist_ok=True)
    return SqliteDatabase(address.home / "phalanx.db")


def described(database: Database) -> list[tuple[Any, ...]]:
    if database.dialect == "sqlite":
        found = database.rows("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name")
        return [(*row[:3], " ".join(str(row[3]).split())) for row in found]
    columns = database.rows(
        """SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default, collation_name,
            is_identity
        FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY 1, 3"""
    )
    indexes = database.rows(
        """SELECT tablename, indexname, replace(indexdef, current_schema(), '') FROM pg_indexes
        WHERE schemaname = current_schema() ORDER BY 2"""
    )
    keys = database.rows(
        """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = current_schema()::regnamespace ORDER BY 1, 2"""
    )
    return [*columns, *indexes, *keys]


def old_database(address: Address, revision: str) -> Database:
    """A database as Alembic made it, with a run and a replica in it."""
    database = database_of(address)
    for statement in (WRITTEN / f"{database.dialect}.sql").read_text(encoding="utf-8").split(";\n"):
        database.change(statement)
        if "alembic_version" in statement and f"'{revision}'" in statement:
            break
    assert stored_revision(database) == revision
    database.change(
        """INSERT INTO runs (id, project, status, created_at, updated_at, attempt, priority, kind, backend, "user",
        reason) VALUES ('abc', 'p', 'running', 1, 1, 1, 0, 'experiment', 'native', 'me', '')"""
    )
    local = ("local,", "0,") if revision >= "0003" else ("", "")
    database.change(
        f"""INSERT INTO replicas (run_key, attempt, role, number, {local[0]} rank, status, peak, reason)
        SELECT key, 1, 'worker', 3, {local[1]} 4, 'running', '{{}}', 'started' FROM runs"""
    )
    return database


def test_the_revisions_are_in_order() -> None:
    numbers = [revision.number for revision in REVISIONS]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == REVISION


def test_a_new_database_has_all_tables(address: Address) -> None:
    with address.open() as store:
        assert stored_revision(store._database) == REVISION
        assert all(map(store._database.has_table, TABLES))


@pytest.mark.parametrize("revision", ["0001", "0002", "0003"])
def test_a_database_that_alembic_made_is_upgraded_to_what_a_new_one_is(address: Address, revision: str) -> None:
    with address.open() as store:
        new = described(store._database)
        for table in (*TABLES, "alembic_version"):
            store._database.change(f"DROP TABLE {table}")
    old_database(address, revision).close()
    with address.open() as store:
        assert described(store._database) == new
        assert len(new) > 15
        (kept,) = store.replicas("abc")
        assert (kept.name, kept.rank, kept.reason) == ("worker-3", 4, "started")
        store.put_replicas([kept._replace(local=1, rank=5)])
        assert [row.name for row in store.replicas("abc")] == ["worker-3", "worker-3.1"]


def test_an_upgrade_keeps_every_row(address: Address) -> None:
    with address.open() as store:
        store.add(run(tags=("t",), params={"p": 1}, summary={"m": 2.0}))
        store.record(status(1, "running"))
        store.put_replicas([replica()])
        before = (store.find("a1b2c3"), store.statuses("a1b2c3"), store.replicas("a1b2c3"))
        prepare(store._database, LATER)
        assert stored_revision(store._database) == NEXT
        assert (store.find("a1b2c3"), store.statuses("a1b2c3"), store.replicas("a1b2c3")) == before
        assert store._database.rows("SELECT colour FROM runs") == [("blue",)]
        prepare(store._database, LATER)
        assert store.check() == []


def test_a_table_that_others_refer_to_can_be_created_again(tmp_path: Path) -> None:
    """As SQLite needs it: with foreign keys enforced, dropping `runs` would delete every row of the other tables."""
    again = Revision(
        NEXT,
        """
CREATE TABLE runs_again AS SELECT * FROM runs;
DROP TABLE runs;
CREATE TABLE runs (key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, colour TEXT);
INSERT INTO runs (key, id) SELECT key, id FROM runs_again;
DROP TABLE runs_again;
""",
    )
    with Store.open(tmp_path) as store:
        store.add(run(tags=("t",)))
        prepare(store._database, (*REVISIONS, again))
        assert store._database.rows("SELECT tag FROM tags") == [("t",)]
        assert store.delete("a1b2c3")
        assert store._database.rows("SELECT tag FROM tags") == []  # enforced again


def test_an_upgrade_that_fails_changes_nothing(address: Address) -> None:
    with address.open() as store:
        store.add(run())
        before = described(store._database)
        with pytest.raises(StoreError, match=rf"upgrade to schema {AFTER} failed and was rolled back: .*nothing"):
            prepare(store._database, (*LATER, BROKEN))
        assert (stored_revision(store._database), described(store._database)) == (REVISION, before)
        assert store.find("a1b2c3") == run()


HALF = """
import signal, sys
from pathlib import Path
from phalanx.store.migrations.revision import Revision
from phalanx.store.schema import REVISIONS, prepare
from tests.store.conftest import Address
from tests.store.test_schema import AFTER, COLOUR, database_of

class Half(Revision):
    def statements(self, dialect):
        yield "CREATE TABLE half (x BIGINT)"
        print("half", flush=True)
        signal.pause()

prepare(database_of(Address(Path(sys.argv[1]), sys.argv[2] or None)), (*REVISIONS, COLOUR, Half(AFTER, "")))
"""
UPGRADE = """
import sys
from pathlib import Path
from phalanx.store.schema import prepare, stored_revision
from tests.store.conftest import Address
from tests.store.test_schema import LATER, database_of

database = database_of(Address(Path(sys.argv[1]), sys.argv[2] or None))
print("ready", stored_revision(database), flush=True)
sys.stdin.readline()
prepare(database, LATER)
print(stored_revision(database), database.rows("SELECT id, colour FROM runs"))
"""


def python(code: str, address: Address) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, str(address.home), address.url or ""]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )


def test_a_kill_in_the_middle_of_an_upgrade_leaves_the_old_state(address: Address) -> None:
    with address.open() as store:
        store.add(run())
        before = described(store._database)
        process = python(HALF, address)
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        process.kill()
        process.communicate(timeout=120)
        assert (stored_revision(store._database), described(store._database)) == (REVISION, before)
        prepare(store._database, LATER)
        assert store._database.rows("SELECT id, colour FROM runs") == [("a1b2c3", "blue")]


@pytest.mark.slow
def test_many_processes_upgrade_one_database_at_once(address: Address) -> None:
    old_database(address, "0001").close()
    processes = [python(UPGRADE, address) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready 0001\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        assert process.communicate(timeout=120) == (f"{NEXT} [('abc', 'blue')]\n", "")


def test_a_newer_database_is_refused(address: Address) -> None:
    with address.open() as store:
        prepare(store._database, LATER)
        before = described(store._database)
    with pytest.raises(
        StoreError, match=rf"newer Phalanx \(schema {NEXT}; this version supports 0001 to {REVISION}\): upgrade"
    ):
        address.open()
    database = database_of(address)
    assert (stored_revision(database), described(database)) == (NEXT, before)
    database.close()


def test_opening_sqlite_does_not_import_psycopg(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from phalanx.store import Store
Store.open(Path({str(tmp_path)!r})).close()
print("psycopg" in sys.modules)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"


def test_both_kinds_of_database_are_opened_by_the_same_call(address: Address) -> None:
    with address.open() as first, address.open() as second:
        first.add(run())
        assert second.find("a1b2c3") == run()
        assert isinstance(second, Store)
