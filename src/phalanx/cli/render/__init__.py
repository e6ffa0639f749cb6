"""Rendering of output: tables, plots, errors, progress."""
