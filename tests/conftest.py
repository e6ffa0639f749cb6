"""What holds for every suite: deadlines, which suites are collected, how many examples hypothesis tries."""

from __future__ import annotations

from importlib.util import find_spec

pytest_plugins = ["tests.deadlines", "tests.suites"]

if find_spec("hypothesis") is not None:  # suites of other interpreters do without it
    from tests.examples import load_default

    load_default()
