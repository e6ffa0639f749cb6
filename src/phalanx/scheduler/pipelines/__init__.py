"""Pipelines in the scheduler's loop: what their ops do next, what they produce, and the ticks of schedules."""
