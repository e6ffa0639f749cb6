"""Replicas may have several processes: each has its own row."""

from __future__ import annotations

from phalanx.store.migrations.revision import Revision

# SQLite cannot change a primary key, so the table is recreated.
REVISION = Revision(
    "0003",
    """
ALTER TABLE replicas RENAME TO replicas_before;

CREATE TABLE replicas (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    attempt BIGINT NOT NULL,
    role {text} NOT NULL,
    number BIGINT NOT NULL,
    local BIGINT NOT NULL,
    rank BIGINT NOT NULL,
    status {text} NOT NULL,
    host {text},
    pid BIGINT,
    cause {text},
    code BIGINT,
    signal BIGINT,
    started_at BIGINT,
    finished_at BIGINT,
    peak {text} NOT NULL,
    reason {text} NOT NULL,
    PRIMARY KEY (run_key, attempt, role, number, local)
) {table_end};

INSERT INTO replicas (run_key, attempt, role, number, local, rank, status, host, pid, cause, code, signal,
    started_at, finished_at, peak, reason)
SELECT run_key, attempt, role, number, 0, rank, status, host, pid, cause, code, signal,
    started_at, finished_at, peak, reason
FROM replicas_before;
DROP TABLE replicas_before;
""",
)
