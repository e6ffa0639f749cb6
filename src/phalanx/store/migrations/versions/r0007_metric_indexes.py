"""An index for each value of a metric: the runs with the best values are at the beginning of one."""

from __future__ import annotations

from phalanx.store.migrations.revision import Revision

REVISION = Revision(
    "0007",
    """
DROP INDEX summaries_values;
CREATE INDEX summaries_value ON summaries (metric, value, run_key);
CREATE INDEX summaries_min ON summaries (metric, "min", run_key);
CREATE INDEX summaries_max ON summaries (metric, "max", run_key);
""",
)
