"""Replicas may have several processes: each has a row of its own."""

from __future__ import annotations

from phalanx.store.migrations.versions import r0001_initial

revision = "0003"
down_revision = "0002"

_COLUMNS = (
    "run_key, attempt, role, number, rank, status, host, pid, cause, code, signal, started_at, finished_at, peak, "
    "reason"
)
# A primary key cannot be changed in SQLite: the table is made anew.
_DDL = f"""
ALTER TABLE replicas RENAME TO replicas_before;

CREATE TABLE replicas (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    attempt BIGINT NOT NULL,
    role {{text}} NOT NULL,
    number BIGINT NOT NULL,
    local BIGINT NOT NULL,
    rank BIGINT NOT NULL,
    status {{text}} NOT NULL,
    host {{text}},
    pid BIGINT,
    cause {{text}},
    code BIGINT,
    signal BIGINT,
    started_at BIGINT,
    finished_at BIGINT,
    peak {{text}} NOT NULL,
    reason {{text}} NOT NULL,
    PRIMARY KEY (run_key, attempt, role, number, local)
) {{table_end}};

INSERT INTO replicas ({_COLUMNS}, local) SELECT {_COLUMNS}, 0 FROM replicas_before;
DROP TABLE replicas_before;
"""  # noqa: S608 - constants


def statements(dialect: str) -> list[str]:
    return r0001_initial.parts(_DDL, dialect)


def upgrade() -> None:
    r0001_initial.apply(statements)
