"""Attempts in a live cluster."""
