"""The schema's revision: made, upgraded or refused when a store is opened.

A fresh database gets the statements of the migrations directly, and Alembic's mark. Alembic itself and SQLAlchemy
take half a second to import: they are used only to upgrade a database that is there already.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from phalanx.errors import StoreError
from phalanx.store.database import Database

REVISION = "0003"
MIGRATIONS = Path(__file__).parent / "migrations"

_MARK = "alembic_version"
_MARK_DDL = f"""CREATE TABLE {_MARK} (
    version_num VARCHAR(32) NOT NULL, CONSTRAINT {_MARK}_pkc PRIMARY KEY (version_num)
)"""


def stored_revision(database: Database) -> str | None:
    """None: there is no schema yet."""
    if not database.has_table(_MARK):
        return None
    found = database.rows(f"SELECT version_num FROM {_MARK}")  # noqa: S608 - a constant
    return str(found[0][0]) if found else None


def prepare(database: Database, revision: str = REVISION, migrations: Path = MIGRATIONS) -> None:
    """Bring the schema to a revision. May be called at any time and by many at once.

    Raises StoreError when the database was written by a newer Phalanx, or cannot be changed.
    """
    stored = stored_revision(database)
    if stored == revision:
        return
    if stored is None:
        create(database)
    elif stored > revision:
        raise StoreError(
            f"{database.place} was written by a newer Phalanx (schema {stored}; this one knows {revision}): "
            "upgrade Phalanx, or use another PHALANX_HOME"
        )
    else:
        upgrade(database, migrations)


def create(database: Database) -> None:
    with database.transaction():
        database.rows(database.schema_lock)
        if stored_revision(database) is not None:
            return  # another process was faster
        for file in sorted((MIGRATIONS / "versions").glob("r*.py")):
            migration = import_module(f"phalanx.store.migrations.versions.{file.stem}")
            for statement in migration.statements(database.dialect):
                database.change(statement)
        database.change(_MARK_DDL)
        database.change(f"INSERT INTO {_MARK} (version_num) VALUES (?)", [REVISION])  # noqa: S608 - a constant


def upgrade(database: Database, migrations: Path = MIGRATIONS) -> None:
    """Run all missing migrations in one transaction."""
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError
    from sqlalchemy import create_engine, pool
    from sqlalchemy.exc import SQLAlchemyError

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    # A bare connection: with foreign keys on, SQLite would empty the other tables when one is rebuilt.
    engine = create_engine(database.engine_url, creator=database.new_connection, poolclass=pool.NullPool)
    try:
        with database.telling(), engine.connect() as connection:
            connection.exec_driver_sql(database.begin)
            connection.exec_driver_sql(database.schema_lock)
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.exec_driver_sql("COMMIT")
    except (CommandError, SQLAlchemyError) as error:
        raise StoreError(f"{database.place}: the schema could not be upgraded, and is as before: {error}") from error
