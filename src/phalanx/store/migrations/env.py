"""Alembic's entry: `phalanx.store.schema.upgrade` hands over a connection with a transaction under way."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
