"""PostgreSQL alone: a connection that was lost is made again."""

from __future__ import annotations

from contextlib import suppress

import pytest

from phalanx.store import StoreError
from tests.store.conftest import Address
from tests.store.samples import run

pytestmark = pytest.mark.parametrize("address", ["postgresql"], indirect=True)


def cut(address: Address, pid: int) -> None:
    import psycopg

    assert address.url is not None
    with psycopg.connect(address.url) as connection:
        connection.execute("SELECT pg_terminate_backend(%s)", [pid])


def test_a_lost_connection_is_reported_once_and_made_again(address: Address) -> None:
    with address.open() as store:
        store.add(run("kept"))
        cut(address, store._database.rows("SELECT pg_backend_pid()")[0][0])
        with pytest.raises(StoreError, match="postgresql://"):
            store.ids()
        assert store.ids() == {"kept"}


def test_a_connection_lost_within_a_transaction_loses_the_whole_of_it(address: Address) -> None:
    with address.open() as store:
        with suppress(StoreError), store.transaction():
            store.add(run("half"))
            cut(address, store._database.rows("SELECT pg_backend_pid()")[0][0])
            store.add(run("other"))
            pytest.fail("the connection was not lost")
        store.add(run("after"))
        assert store.ids() == {"after"}
