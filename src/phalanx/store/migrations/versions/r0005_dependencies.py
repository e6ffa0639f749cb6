"""The open dependencies of runs that wait for others."""

from __future__ import annotations

from phalanx.store.migrations.revision import Revision

REVISION = Revision(
    "0005",
    """
CREATE TABLE dependencies (
    run_key BIGINT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    upstream {text} NOT NULL,
    condition {text} NOT NULL,
    PRIMARY KEY (run_key, upstream, condition)
) {table_end};
""",
)
