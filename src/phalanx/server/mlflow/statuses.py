"""Mapping between MLflow's five statuses and ours."""

from __future__ import annotations

OURS = {
    "RUNNING": ("starting", "running", "unknown", "warning"),
    "SCHEDULED": ("created", "resuming", "building", "scheduled"),
    "FINISHED": ("succeeded", "skipped"),
    "FAILED": ("failed", "upstream_failed"),
    "KILLED": ("stopped",),
}
THEIRS = {ours: theirs for theirs, many in OURS.items() for ours in many}
ENDS = {"FINISHED": "succeeded", "FAILED": "failed", "KILLED": "stopped"}
BY_NUMBER = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
