"""Talking to a cluster."""
