"""Plugins for every test session."""

from __future__ import annotations

pytest_plugins = ["tests.tree_guard"]
