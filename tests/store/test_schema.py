"""The schema: made directly or by Alembic it is the same, and upgrades keep every row."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from phalanx.store import Store, StoreError
from phalanx.store.database import Database, PostgresDatabase, SqliteDatabase
from phalanx.store.schema import MIGRATIONS, REVISION, create, prepare, stored_revision, upgrade
from phalanx.store.store import TABLES
from tests.store.conftest import Address
from tests.store.samples import replica, run, status

NEXT = """
revision = "0004"
down_revision = "0003"

def upgrade():
    from alembic import op
    op.execute("ALTER TABLE runs ADD COLUMN colour TEXT")
    op.execute("CREATE TABLE extras (run_key BIGINT REFERENCES runs (key) ON DELETE CASCADE)")
    op.execute("UPDATE runs SET colour = 'blue'")
"""
BROKEN = """
revision = "0005"
down_revision = "0004"

def upgrade():
    from alembic import op
    op.execute("CREATE TABLE half (x BIGINT)")
    op.execute("SELECT * FROM nothing")
"""


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


def emptied(database: Database) -> None:
    for table in (*TABLES, "alembic_version"):
        database.change(f"DROP TABLE {table}")


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """The migrations of a later version of Phalanx."""
    folder = tmp_path / "50% later"
    shutil.copytree(MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "r0004_colour.py").write_text(NEXT)
    return folder


def test_our_revision_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_heads() == [REVISION]


def test_a_fresh_schema_is_what_the_migrations_give(address: Address) -> None:
    database = database_of(address)
    create(database)
    fresh = described(database)
    assert stored_revision(database) == REVISION
    emptied(database)
    assert stored_revision(database) is None
    upgrade(database)
    assert described(database) == fresh
    assert stored_revision(database) == REVISION
    assert len(fresh) > 15
    database.close()


def test_an_upgrade_keeps_every_row(address: Address, later: Path) -> None:
    with address.open() as store:
        store.add(run(tags=("t",), params={"p": 1}, summary={"m": 2.0}))
        store.record(status(1, "running"))
        store.put_replicas([replica()])
        before = (store.find("a1b2c3"), store.statuses("a1b2c3"), store.replicas("a1b2c3"))
        upgrade(store._database, later)
        assert store.schema_revision == "0004"
        assert (store.find("a1b2c3"), store.statuses("a1b2c3"), store.replicas("a1b2c3")) == before
        assert store._database.rows("SELECT colour FROM runs") == [("blue",)]
        upgrade(store._database, later)
        assert store.check() == []


def test_an_upgrade_that_fails_changes_nothing(address: Address, later: Path) -> None:
    (later / "versions" / "r0005_broken.py").write_text(BROKEN)
    with address.open() as store:
        store.add(run())
        before = described(store._database)
        with pytest.raises(StoreError, match="is as before"):
            upgrade(store._database, later)
        assert (store.schema_revision, described(store._database)) == (REVISION, before)
        assert store.find("a1b2c3") == run()


def test_an_older_database_is_upgraded_when_it_is_opened(address: Address, later: Path) -> None:
    with address.open() as store:
        store.add(run())
    database = database_of(address)
    prepare(database, "0004", later)
    assert stored_revision(database) == "0004"
    assert database.rows("SELECT id, colour FROM runs") == [("a1b2c3", "blue")]
    database.close()


def test_a_revision_that_nobody_knows_is_told(address: Address) -> None:
    with address.open() as store:
        store._database.change("UPDATE alembic_version SET version_num = '0000'")
    with pytest.raises(StoreError, match=r"could not be upgraded, and is as before: Can't locate revision .*0000"):
        address.open()


def test_a_newer_database_is_refused(address: Address, later: Path) -> None:
    with address.open() as store:
        upgrade(store._database, later)
    with pytest.raises(StoreError, match=r"newer Phalanx \(schema 0004; this one knows 0003\): upgrade Phalanx"):
        address.open()


def test_opening_needs_neither_alembic_nor_sqlalchemy_nor_psycopg(tmp_path: Path) -> None:
    code = f"""
import sys
from importlib import import_module
from pathlib import Path
from phalanx.store import Store
for _ in range(2):
    Store.open(Path({str(tmp_path)!r})).close()
print(sorted({{"alembic", "sqlalchemy", "psycopg"}} & set(sys.modules)))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


def test_both_kinds_of_database_are_opened_by_the_same_call(address: Address) -> None:
    with address.open() as first, address.open() as second:
        first.add(run())
        assert second.find("a1b2c3") == run()
        assert isinstance(second, Store)


def test_rows_of_replicas_survive_that_processes_have_rows_of_their_own(address: Address) -> None:
    database = database_of(address)
    for name in ("r0001_initial", "r0002_tracking"):
        for statement in import_module(f"phalanx.store.migrations.versions.{name}").statements(database.dialect):
            database.change(statement)
    database.change("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    database.change("INSERT INTO alembic_version VALUES ('0002')")
    database.change(
        """INSERT INTO runs (id, project, status, created_at, updated_at, attempt, priority, kind, backend, "user",
        reason) VALUES ('abc', 'p', 'running', 1, 1, 1, 0, 'experiment', 'native', 'me', '')"""
    )
    database.change(
        """INSERT INTO replicas (run_key, attempt, role, number, rank, status, peak, reason)
        SELECT key, 1, 'worker', 3, 4, 'running', '{}', 'started' FROM runs"""
    )
    database.close()
    with address.open() as store:
        (kept,) = store.replicas("abc")
        assert (kept.name, kept.rank, kept.reason) == ("worker-3", 4, "started")
        store.put_replicas([kept._replace(local=1, rank=5)])
        assert [row.name for row in store.replicas("abc")] == ["worker-3", "worker-3.1"]
