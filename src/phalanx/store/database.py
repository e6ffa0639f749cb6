"""Connections to SQLite and PostgreSQL, and all differences between the two. Owns no table."""

from __future__ import annotations

import os
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from phalanx import extras
from phalanx.deferred_patterns import deferred_pattern
from phalanx.errors import StoreError

Row = tuple[Any, ...]

BUSY_S = 30.0
SHARED_BYTES = 32 << 10  # of the file -shm, without which SQLite opens no database
# PostgreSQL texts cannot contain NUL, and UTF-8 cannot encode lone surrogates
_UNSTORABLE = deferred_pattern("[\0\ud800-\udfff]")


def storable(value: Any) -> Any:
    if isinstance(value, str) and ("\0" in value or not value.isascii()):
        return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    return value


class Database(ABC):
    """One connection, for one thread. SQL uses `?` for parameters; every error is a StoreError."""

    dialect: ClassVar[str]
    begin: ClassVar[str]
    row_lock: ClassVar[str]  # ends a SELECT in a transaction whose rows no other transaction may change until it ends
    lower: ClassVar[str]  # expression that makes `{}` comparable ignoring case
    ascii_lower: ClassVar[str]  # the same for LIKE with a pattern of lower-case ASCII only
    driver_error: type[Exception]
    place: str

    def __init__(self) -> None:
        self._inside = False
        self._failed = False
        with self.translated_errors():
            self._connection = self._connect()

    @abstractmethod
    def _connect(self) -> Any:
        """A new DB-API connection that commits every statement outside a transaction."""

    @abstractmethod
    def has_table(self, name: str) -> bool: ...

    @abstractmethod
    def data_version(self) -> str:
        """Changes when another connection has changed data. For a connection that changes nothing itself."""

    @abstractmethod
    def problems(self) -> list[str]:
        """Problems that the database itself finds in its data."""

    @abstractmethod
    def schema_change(self) -> AbstractContextManager[None]:
        """A transaction that may change tables. Other processes wait for its end before they start theirs."""

    def _live(self) -> Any:
        return self._connection

    def _translated(self, sql: str) -> str:
        return sql

    def rows(self, sql: str, args: Iterable[Any] = ()) -> list[Row]:
        with self.translated_errors():
            found: list[Row] = self._live().execute(self._translated(sql), [*map(storable, args)]).fetchall()
            return found

    def change(self, sql: str, args: Iterable[Any] = ()) -> int:
        """Returns the number of changed rows."""
        with self.translated_errors():
            count: int = self._live().execute(self._translated(sql), [*map(storable, args)]).rowcount
            return count

    def change_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with self.translated_errors():
            cursor = self._live().cursor()
            cursor.executemany(self._translated(sql), [[*map(storable, row)] for row in rows])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, even when an error inside was caught. Inside another transaction it is a part of that one."""
        if self._inside:
            yield
            return
        self._failed = is_kept = False
        try:
            self.change(self.begin)
            self._inside = True
            yield
            if self._failed:
                raise StoreError(f"{self.place}: a part of the transaction failed, so it was rolled back")
            self.change("COMMIT")
            is_kept = True
        finally:
            self._inside = False
            if not is_kept:
                # SQLite may have rolled back by itself (disk full), and a lost connection has nothing to roll back.
                with suppress(self.driver_error):
                    self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        try:
            yield
        except self.driver_error as error:
            self._failed = True
            said = str(error).strip()
            raise StoreError(f"{self.place}: {self._advice(said)}", transient=not self._is_damaged(said)) from error

    def _advice(self, said: str) -> str:
        return said

    def _is_damaged(self, said: str) -> bool:  # noqa: ARG002 - a server repairs its files itself
        return False


class SqliteDatabase(Database):
    dialect = "sqlite"
    begin = "BEGIN IMMEDIATE"  # a transaction that becomes a writer later could not wait for the lock
    row_lock = ""  # the transaction is the only writer
    lower = "lower({})"
    ascii_lower = "{}"  # its LIKE ignores the case of ASCII; the function above is a hundred times slower
    driver_error = sqlite3.Error

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = str(path)
        super().__init__()

    def _connect(self) -> sqlite3.Connection:
        # SQLite gives its additional files (-wal, -shm) the mode of this one.
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
        with ExitStack() as undo:
            undo.callback(connection.close)
            self._write_ahead(connection)
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            undo.pop_all()
        # SQLite's own lower() handles only ASCII.
        connection.create_function("lower", 1, lambda text: text and str(text).lower(), deterministic=True)
        return connection

    @staticmethod
    def _write_ahead(connection: sqlite3.Connection) -> None:
        """Turn on the write-ahead log permanently. SQLite does not wait for other processes here, so this loop does."""
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                    connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def has_table(self, name: str) -> bool:
        return bool(self.rows("SELECT 1 FROM sqlite_master WHERE name = ?", [name]))

    def data_version(self) -> str:
        return str(self.rows("PRAGMA data_version")[0][0])

    @contextmanager
    def schema_change(self) -> Iterator[None]:
        # While foreign keys are enforced, DROP TABLE also deletes the rows that refer to it. The setting cannot be
        # changed within a transaction.
        self.change("PRAGMA foreign_keys = OFF")
        try:
            with self.transaction():
                yield
        finally:
            self.change("PRAGMA foreign_keys = ON")

    def problems(self) -> list[str]:
        found = [str(said) for (said,) in self.rows("PRAGMA integrity_check") if said != "ok"]
        orphans = self.rows("PRAGMA foreign_key_check")
        if orphans:
            found.append(f"{len(orphans)} rows belong to missing runs (first in `{orphans[0][0]}`)")
        if self.path.stat().st_mode & 0o077:
            found.append(f"{self.path} is accessible to other users: run chmod 600 on it")
        return found

    def _is_damaged(self, said: str) -> bool:
        return "malformed" in said or "not a database" in said

    def _advice(self, said: str) -> str:
        if self._is_damaged(said):
            return f"{said}. Move it away and run `phalanx doctor --rebuild`: the run folders contain all data"
        if "locked" in said:
            return f"{said} for {BUSY_S:.0f} seconds by another process"
        if "disk I/O error" in said and self._free_bytes() < SHARED_BYTES:
            return "no space left on its disk"
        return said

    def _free_bytes(self) -> int:
        import shutil  # slow, and hardly ever needed

        try:
            return shutil.disk_usage(self.path.parent).free
        except OSError:
            return SHARED_BYTES


class PostgresDatabase(Database):
    dialect = "postgresql"
    begin = "BEGIN"
    row_lock = " FOR UPDATE"
    lower = 'lower({} COLLATE "default")'  # the columns' own collation, "C", handles only ASCII
    ascii_lower = lower

    def __init__(self, url: str) -> None:
        with extras.needed("postgres", "a database in PostgreSQL"):
            import psycopg
        from urllib.parse import urlsplit

        self._psycopg = psycopg
        self._url = url
        self.driver_error = psycopg.Error
        parts = urlsplit(url)
        self.place = f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"  # no password in a message
        super().__init__()

    def _connect(self) -> Any:
        more: dict[str, Any] = {} if "connect_timeout" in self._url else {"connect_timeout": 10}
        return self._psycopg.connect(self._url, autocommit=True, **more)

    def _live(self) -> Any:
        if self._connection.closed and not self._inside:  # the server has restarted since
            self._connection = self._connect()
        return self._connection

    def _translated(self, sql: str) -> str:
        return sql.replace("?", "%s")

    def has_table(self, name: str) -> bool:
        return self.rows("SELECT to_regclass(?)", [name]) != [(None,)]

    def data_version(self) -> str:
        """Which transactions are over: with the same answer, the same data is visible."""
        return str(self.rows("SELECT txid_current_snapshot()::text")[0][0])

    @contextmanager
    def schema_change(self) -> Iterator[None]:
        with self.transaction():
            self.rows("SELECT pg_advisory_xact_lock(hashtext('phalanx schema'))")
            yield

    def problems(self) -> list[str]:
        return []  # PostgreSQL checks its own pages and keys
