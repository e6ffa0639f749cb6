"""Phalanx: one declarative file, any cluster."""

__version__ = "0.1.0"
