"""Metric series: files."""
