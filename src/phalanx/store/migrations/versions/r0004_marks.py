"""Archived runs, stars, and what runs request: for lists.

NULL means unknown: an older Phalanx wrote the run. `phalanx doctor --rebuild` reads it from the plans.
"""

from __future__ import annotations

from phalanx.store.migrations.revision import Revision

REVISION = Revision(
    "0004",
    """
ALTER TABLE runs ADD COLUMN archived BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN replica_count BIGINT;
ALTER TABLE runs ADD COLUMN cpus DOUBLE PRECISION;
ALTER TABLE runs ADD COLUMN memory_mib DOUBLE PRECISION;
ALTER TABLE runs ADD COLUMN gpus DOUBLE PRECISION;
CREATE INDEX runs_archived ON runs (key) WHERE archived = 1;
CREATE INDEX runs_gpus ON runs (gpus);
CREATE INDEX replicas_host ON replicas (host, run_key);

CREATE TABLE stars (
    "user" {text} NOT NULL,
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    PRIMARY KEY ("user", run_key)
) {table_end};
CREATE INDEX stars_run ON stars (run_key);
""",
)
