"""Spec to Plan: replicas, ranks, resources, totals, and the wiring of each framework."""

from phalanx.plan.inspecting import inspect
from phalanx.plan.making import make, roles_of, total
from phalanx.plan.model import Plan, Replica

__all__ = ["Plan", "Replica", "inspect", "make", "roles_of", "total"]
