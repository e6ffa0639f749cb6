"""Which tests belong to the default run, as a pytest plugin.

Tests of real clusters, browsers, databases and frameworks need things that not every machine has. Each of these suites
has a make verb that sets them up, and is collected only when that verb asks for it. The end of every other run lists
the suites that were left out, so that nothing is skipped in silence.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
POSTGRES = "PHALANX_TEST_POSTGRES"  # the URL of a database to use


class Suite(NamedTuple):
    """Tests below some paths of tests/, and when they are wanted."""

    verb: str
    paths: tuple[str, ...]
    is_wanted: Callable[[pytest.Config], bool]


def _by_variable(*names: str) -> Callable[[pytest.Config], bool]:
    return lambda _: any(os.environ.get(name) for name in names)


def _by_path(folder: str) -> Callable[[pytest.Config], bool]:
    return lambda config: any(f"tests/{folder}" in str(argument) for argument in config.invocation_params.args)


def _by_packages(*names: str) -> Callable[[pytest.Config], bool]:
    return lambda _: all(find_spec(name) is not None for name in names)


SUITES = (
    Suite("test-api", ("api",), _by_variable("PHALANX_TEST_API")),
    Suite("test-build", ("builders",), _by_variable("PHALANX_TEST_BUILD")),
    Suite("test-corpus", ("corpus", "frameworks/test_seeds.py"), _by_variable("PHALANX_TEST_CORPUS")),
    Suite("test-corpus CORPUS2=folder", ("corpus/test_later_files.py",), _by_variable("PHALANX_TEST_CORPUS2")),
    Suite("test-frameworks", ("frameworks",), _by_path("frameworks")),
    Suite("test-install", ("install",), _by_variable("PHALANX_TEST_INSTALL")),
    Suite("test-kubernetes", ("kubernetes",), _by_variable("PHALANX_TEST_KUBERNETES", "PHALANX_TEST_KUBECONFIG")),
    Suite("test-mlflow", ("mlflow_client",), _by_packages("mlflow")),
    Suite(
        "test-notebook",
        ("notebook/test_real_jupyter.py", "notebook/test_real_kernel.py"),
        _by_variable("PHALANX_TEST_NOTEBOOK"),
    ),
    Suite("test-postgres", ("store/test_postgres.py", "server/test_two_servers.py"), _by_variable(POSTGRES)),
    Suite("test-s3", ("artifacts/test_remote_s3.py",), _by_packages("moto", "s3fs")),
    Suite("test-slurm", ("slurm",), _by_variable("PHALANX_TEST_SLURM")),
    Suite("test-snakemake", ("workflows",), _by_variable("PHALANX_TEST_SNAKEMAKE")),
    Suite("test-tensorboard", ("boards/test_real_tensorboard.py",), _by_variable("PHALANX_TEST_TENSORBOARD")),
    Suite("test-trackers", ("frameworks_tracking",), _by_path("frameworks_tracking")),
    Suite("test-web", ("web",), _by_variable("PHALANX_TEST_WEB")),
)


def databases() -> list[str]:
    """What the contract of the store is tested on here."""
    return ["sqlite", "postgresql"] if os.environ.get(POSTGRES) else ["sqlite"]


def suite_of(path: Path) -> Suite | None:
    relative = path.relative_to(HERE) if path.is_relative_to(HERE) else Path()
    return next(
        (suite for suite in SUITES for start in suite.paths if relative.is_relative_to(start)),
        None,
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.is_dir() or not collection_path.name.startswith("test_"):
        return None
    suite = suite_of(collection_path)
    return None if suite is None or suite.is_wanted(config) else True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _runs_everything(config):
        left_out = [suite.verb for suite in SUITES if not suite.is_wanted(config)]
        terminalreporter.write_line(f"suites of their own, not part of this run: make {' '.join(left_out)}")


def _runs_everything(config: pytest.Config) -> bool:
    return [Path(argument).resolve() for argument in config.args] == [HERE]
