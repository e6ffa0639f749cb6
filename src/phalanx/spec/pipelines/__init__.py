"""Pipelines: their fields, their ops, and the ticks of their schedules."""
