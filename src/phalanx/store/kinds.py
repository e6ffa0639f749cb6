"""Kinds of rows that are no single run: they consist of other runs, whose `group` is their id."""

from __future__ import annotations

GROUP = "group"
PIPELINE = "pipeline"
SCHEDULE = "schedule"  # a pipeline that is run at each of its ticks
WHOLES = (GROUP, PIPELINE, SCHEDULE)
IS_RUN = f"kind:~{'|'.join(WHOLES)}"  # a query
