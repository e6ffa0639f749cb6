"""Rendering of a plan into Kubernetes objects. Pure functions."""
