"""A pytest plugin with which MLflow's own tests talk to `phalanx serve`. `make test-mlflow-own` loads it.

Where MLflow's tests start a server of MLflow, or use a database as the tracking store, they get a `phalanx serve` with
an empty home instead. It contains nothing of MLflow's tests, and changes nothing in what they check.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = os.environ.get("PHALANX_PYTHON", str(ROOT / ".venv" / "bin" / "python"))
# Tests of what Phalanx does not have, by what that is.
LEFT_OUT = {
    "traces, assessments": r"test_rest_tracking.*(trace|assessment)|active_model_link_traces|test_clear_active_model$",
    "gateway: endpoints, secrets, providers": r"test_rest_tracking.*(secret|endpoint|model_def|provider|list_models)",
    "evaluation datasets": r"test_rest_tracking.*(evaluation_dataset|experiments_rest|experiments_at_once|error_cases)",
    "scorers": r"test_rest_tracking.*scor(er|ing)",
    "issues": r"test_rest_tracking.*_issue",
    "addresses that only MLflow's page uses": (
        r"graphql|promptlab|gateway_proxy|upload_artifact_handler|dataset_handler|path_validation|logged_model_artifact\["
    ),
    "artifacts in a local folder of the server": (
        r"create_get_search_experiment|test_artifacts\[|version_with_(path|non_local)_source|version_with_file_uri"
        r"|test_log_artifact_with_dirs"
    ),
    "settings of MLflow's own server": r"version_with_validation_regex",
    "what MLflow's client does only without a server": (
        r"test_create_experiment$|bad_name|test_tracking.*log_metric_validation|batch_validates_entity|metric_async_throws"
        r"|test_initialize_logged_model_active_run"
    ),
    "experiments with the ids 1, 2, 3": r"test_search_runs_multiple_experiments",
    "renaming registered models": r"test_update_registered_model_flow",
    "other packages (pyspark)": r"test_registry_uri_from_spark_conf",
}
NO_VARIANT = SimpleNamespace(params={})
# Imports `phalanx serve` once, and forks a process of it for every line with a home: hundreds of starts take long.
FORKS = """
import os, signal, sys
import phalanx.server.app
from phalanx.cli.commands.serve import command
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(line.rstrip())
        command(["--home", line.rstrip(), "--port", "0", "--json", "--rate", "0"])
"""


class Servers:
    """Each test gets a `phalanx serve` with an empty home."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="phalanx-mlflow-"))
        self.current = ""
        self.runs = self.folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
        self.forks = subprocess.Popen(
            [PYTHON, "-c", FORKS], env=kept, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @contextlib.contextmanager
    def one(self) -> Iterator[str]:
        """The address of the test's server."""
        if self.current:
            yield self.current
            return
        home = Path(tempfile.mkdtemp(dir=self.folder))
        assert self.forks.stdin is not None
        assert self.forks.stdout is not None
        self.runs = home / "runs"
        print(home, file=self.forks.stdin, flush=True)
        started = json.loads(self.forks.stdout.readline())
        try:
            self.current = started["url"]
            # `requests` reads this file for every call, whether MLflow's client makes it or a test itself.
            (home / "netrc").write_text(f"machine 127.0.0.1 login anyone password {(home / 'token').read_text()}")
            os.environ["NETRC"] = str(home / "netrc")
            yield self.current
        finally:
            self.current = ""
            os.kill(started["pid"], signal.SIGKILL)  # its home is removed: there is nothing to conclude
            shutil.rmtree(home, ignore_errors=True)

    def local_path(self, otherwise: Callable[[str], str]) -> Callable[[str], str]:
        """Tests look at the files of artifacts: these are in the home."""
        scheme = "mlflow-artifacts:/"
        return lambda uri: str(self.runs / uri.removeprefix(scheme)) if uri.startswith(scheme) else otherwise(uri)

    def close(self) -> None:
        self.forks.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> None:
    """Before anything of the tests is imported, replace what gives them a server."""
    servers = Servers()
    early_config.add_cleanup(servers.close)
    stores: Any = importlib.import_module("mlflow.tracking._tracking_service.utils")
    use_tracking_uri = stores._use_tracking_uri

    @contextlib.contextmanager
    def tracking_uri(uri: str, *arguments: Any, **named: Any) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            address = stack.enter_context(servers.one()) if uri.startswith("sqlite:") else uri
            yield stack.enter_context(use_tracking_uri(address, *arguments, **named))

    stores._use_tracking_uri = tracking_uri
    handlers: Any = importlib.import_module("mlflow.server.handlers")
    handlers.initialize_backend_stores = lambda *_, **__: None  # slow, and not used
    files: Any = importlib.import_module("mlflow.utils.file_utils")
    files.local_file_uri_to_path = servers.local_path(files.local_file_uri_to_path)
    helpers: Any = importlib.import_module("tests.tracking.integration_test_utils")
    helpers.ServerThread = helpers._init_server = lambda *_, **__: servers.one()


def reason_of(nodeid: str) -> str | None:
    return next((reason for reason, words in LEFT_OUT.items() if re.search(words, nodeid)), None)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Skip what Phalanx does not have. Leave out the variants for MLflow's file store, which MLflow skips as well, but
    only after the start of a server."""
    items[:] = [item for item in items if "file" not in getattr(item, "callspec", NO_VARIANT).params.values()]
    for item in items:
        reason = None if os.environ.get("PHALANX_LEAVE_OUT_NOTHING") else reason_of(item.nodeid)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the rows of the table in docs/track/mlflow.md."""
    counts: dict[str, Counter[str]] = {}
    for outcome, reports in terminalreporter.stats.items():
        for report in (report for report in reports if hasattr(report, "nodeid") and hasattr(report, "when")):
            is_counted = report.when == "call" or outcome in ("skipped", "error")
            area = Path(report.nodeid.partition("::")[0]).stem
            counts.setdefault(reason_of(report.nodeid) or area, Counter())[outcome] += is_counted
    terminalreporter.section("tests by area")
    for area, found in sorted(counts.items()):
        results = ", ".join(f"{number} {outcome}" for outcome, number in found.items() if outcome and number)
        terminalreporter.write_line(f"| {area} | {results} |")
