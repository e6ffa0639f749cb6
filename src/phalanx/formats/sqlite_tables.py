"""SQLite databases of other tools, read without trust: read-only, bounded, with any set of columns."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any
from urllib.parse import quote

from phalanx.errors import CallError

MAX_VALUE = 16 << 20  # bytes of one value
_HEADER = b"SQLite format 3\0"

Row = dict[str, Any]


def has_tables(path: Path, names: Set[str]) -> bool:
    """Whether a file is a SQLite database with these tables."""
    try:
        with path.open("rb") as stream:
            if stream.read(16) != _HEADER:
                return False
        database = ReadOnlyDatabase(path)
    except (OSError, CallError):
        return False
    try:
        return names <= set(database.tables)
    finally:
        database.close()


class ReadOnlyDatabase:
    """A read-only database: only real tables, and the columns that exist."""

    def __init__(self, path: Path) -> None:
        """Raises CallError."""
        self.path = path
        try:
            self.connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)
            self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
            self.connection.text_factory = lambda data: data.decode("utf-8", "replace")
            self.connection.execute("PRAGMA trusted_schema = OFF")  # nothing of the file is called
            real = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
            self.tables = {
                str(name): [str(row[1]) for row in self.connection.execute(f"PRAGMA table_info({_quoted(str(name))})")]
                for (name,) in self.connection.execute(real).fetchall()
            }
        except sqlite3.Error as fault:
            raise CallError(f"{path} is not a readable database: {fault}") from None

    def rows(self, table: str, columns: tuple[str, ...], where: str = "", *args: Any) -> Iterator[Row]:
        """Missing columns are None; a missing table has no rows. Raises CallError."""
        there = self.tables.get(table)
        if there is None:
            return
        chosen = ", ".join(_quoted(column) if column in there else "NULL" for column in columns)
        sql = f"SELECT {chosen} FROM {_quoted(table)} {where}"  # noqa: S608 - of constants alone
        try:
            for row in self.connection.execute(sql, args):
                yield dict(zip(columns, row, strict=True))
        except sqlite3.Error as fault:
            raise CallError(f"{self.path} cannot be read: {fault}") from None

    def count(self, table: str) -> int:
        if table not in self.tables:
            return 0
        try:
            sql = f"SELECT count(*) FROM {_quoted(table)}"  # noqa: S608 - of constants alone
            return int(self.connection.execute(sql).fetchone()[0])
        except sqlite3.Error as fault:
            raise CallError(f"{self.path} cannot be read: {fault}") from None

    def close(self) -> None:
        self.connection.close()

    def __del__(self) -> None:
        """Close the connection once no run uses it any more."""
        if hasattr(self, "connection"):
            self.connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
