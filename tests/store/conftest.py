"""An empty place for a store, in each of the databases."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from phalanx.store import Store
from tests.suites import POSTGRES, databases


class Address(NamedTuple):
    home: Path
    url: str | None

    def open(self) -> Store:
        return Store.open(self.home, self.url)


@contextmanager
def fresh(kind: str, folder: Path) -> Iterator[Address]:
    if kind == "sqlite":
        yield Address(folder / "home", None)
        return
    import psycopg

    url = os.environ[POSTGRES]

    schema = f"test_{uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        yield Address(folder / "home", f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{schema}")
        connection.execute("SET client_min_messages = warning")
        connection.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture(params=databases())
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Address]:
    with fresh(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def store(address: Address) -> Iterator[Store]:
    with address.open() as opened:
        yield opened


@pytest.fixture(scope="class", params=databases())
def class_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One for all tests of a class that only read."""
    with fresh(request.param, tmp_path_factory.mktemp("store")) as found, found.open() as opened:
        yield opened
