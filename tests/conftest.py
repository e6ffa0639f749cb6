"""What holds for every suite: deadlines, which suites are collected, a clean tree, how many examples hypothesis tries."""

from __future__ import annotations

from importlib.util import find_spec

pytest_plugins = ["tests.deadlines", "tests.suites", "tests.tree_guard"]

if find_spec("hypothesis") is not None:  # suites of other interpreters do without it
    from tests.examples import load_default

    load_default()
