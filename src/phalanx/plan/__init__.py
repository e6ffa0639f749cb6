"""Spec to Plan: replicas, ranks, resources, totals, and the wiring of each framework."""

from phalanx.plan.framework_checks import inspect
from phalanx.plan.model import Plan, Replica
from phalanx.plan.planner import make, roles_of, total

__all__ = ["Plan", "Replica", "inspect", "make", "roles_of", "total"]
