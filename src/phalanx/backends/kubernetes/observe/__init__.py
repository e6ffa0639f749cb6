"""Interpretation of an attempt's objects in the cluster. Pure functions."""
