"""Helpers to write statements for any table."""

# ruff: noqa: S608 - built only from constants of this package

from __future__ import annotations

from collections.abc import Iterable, Sequence

LONGEST_LABEL = 500  # characters: PostgreSQL indexes at most 2,700 bytes


def columns(fields: Iterable[str]) -> str:
    return ", ".join(f'"{field}"' for field in fields)


def insertion(table: str, fields: Sequence[str], key: str, *, update: bool = False) -> str:
    """Insert a row; if it exists, update it (`update`) or do nothing."""
    changes = ", ".join(f'"{field}" = excluded."{field}"' for field in fields if field not in key.split(", "))
    action = f"UPDATE SET {changes}" if update else "NOTHING"
    marks = ", ".join("?" * len(fields))
    return f"INSERT INTO {table} ({columns(fields)}) VALUES ({marks}) ON CONFLICT ({key}) DO {action}"


def label(text: str) -> str:
    """Shorten a text that is looked up by an index (a name, a tag, a project)."""
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"
