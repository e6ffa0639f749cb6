"""The database schema: created, upgraded or rejected when a store is opened. Owns the table `alembic_version`.

That table holds the number of the newest applied revision. Alembic applied the first revisions; the name remains, so
that databases of all versions are read alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.errors import StoreError
from phalanx.store.database import Database
from phalanx.store.migrations.revision import Revision
from phalanx.store.migrations.versions import (
    r0001_initial,
    r0002_tracking,
    r0003_processes,
    r0004_marks,
    r0005_dependencies,
    r0006_covering_index,
    r0007_metric_indexes,
)

REVISIONS = (  # oldest first
    r0001_initial.REVISION,
    r0002_tracking.REVISION,
    r0003_processes.REVISION,
    r0004_marks.REVISION,
    r0005_dependencies.REVISION,
    r0006_covering_index.REVISION,
    r0007_metric_indexes.REVISION,
)
REVISION = REVISIONS[-1].number


def stored_revision(database: Database) -> str | None:
    """The applied revision; None without a schema."""
    if not database.has_table("alembic_version"):
        return None
    found = database.rows("SELECT version_num FROM alembic_version")
    return str(found[0][0]) if found else None


def prepare(database: Database, revisions: Sequence[Revision] = REVISIONS) -> None:
    """Upgrade the schema to the newest revision. Safe to call at any time, and from many processes at once.

    Raises StoreError if a newer Phalanx wrote the database, or if it cannot be changed. The database is then unchanged.
    """
    if not _missing(database, revisions):
        return
    with database.schema_change():
        missing = _missing(database, revisions)  # another process may have upgraded it meanwhile
        for revision in missing:
            _apply(database, revision)
        if missing:
            _mark(database, missing[-1])


def _missing(database: Database, revisions: Sequence[Revision]) -> Sequence[Revision]:
    """The revisions that the database does not have yet."""
    stored = stored_revision(database)
    if stored is None:
        return revisions
    numbers = [revision.number for revision in revisions]
    if stored not in numbers:
        raise StoreError(
            f"{database.place} was written by a newer Phalanx (schema {stored}; this version supports {numbers[0]} "
            f"to {numbers[-1]}): upgrade Phalanx, or use another PHALANX_HOME or PHALANX_DATABASE",
            transient=False,
        )
    return revisions[numbers.index(stored) + 1 :]


def _apply(database: Database, revision: Revision) -> None:
    try:
        for statement in revision.statements(database.dialect):
            database.change(statement)
    except StoreError as error:
        message = f"the upgrade to schema {revision.number} failed and was rolled back: {error}"
        raise StoreError(message, transient=error.transient) from error


def _mark(database: Database, revision: Revision) -> None:
    database.change(
        """CREATE TABLE IF NOT EXISTS alembic_version (
            version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
        )"""
    )
    database.change("DELETE FROM alembic_version")
    database.change("INSERT INTO alembic_version (version_num) VALUES (?)", [revision.number])
