"""What holds for every suite: deadlines, the choice of suites, a clean tree, how many examples hypothesis tries."""

from __future__ import annotations

import gc
import os
from importlib.util import find_spec

import pytest

from tests.temp_root import choose_temp_root

pytest_plugins = ["tests.deadlines", "tests.suites", "tests.tree_guard", "tests.shared_fixtures"]

if find_spec("hypothesis") is not None:  # suites of other interpreters do without it
    from tests.examples import load_default

    load_default()

choose_temp_root()

# Servers of tests have one process, unless the test says otherwise: several would take more of the machine.
os.environ.setdefault("PHALANX_SERVER_PROCESSES", "1")

# Thousands of tests are collected, and stay. Without this the garbage collector looks at them over and over.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that leaves the process in its own folder must not hurt the next one: that folder is removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        os.chdir(item.config.rootpath)
