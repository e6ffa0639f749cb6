"""An index with all values of a metric: filtering and sorting by minima and maxima read nothing else."""

from __future__ import annotations

from phalanx.store.migrations.revision import Revision

REVISION = Revision(
    "0006",
    """
DROP INDEX summaries_value;
CREATE INDEX summaries_values ON summaries (metric, value, run_key, "min", "max");
""",
)
