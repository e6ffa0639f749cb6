"""Fixtures of the scheduler's tests."""

from tests.scheduler.scripted_engine import cluster_fixture

__all__ = ["cluster_fixture"]
