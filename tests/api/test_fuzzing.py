"""The server answers every request as its OpenAPI document says: thousands of cases that schemathesis makes from it.

PHALANX_EXAMPLES=10 tries about ten times as many; PHALANX_SEED=n tries others.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.homes import Place
from tests.cli.running import COMMAND

SCHEMATHESIS = os.environ.get("PHALANX_TEST_API", "")
LEAST_CASES = 2_000
EXAMPLES = round(10 * float(os.environ.get("PHALANX_EXAMPLES") or 1))  # per operation, besides those of its schema
SEED = os.environ.get("PHALANX_SEED") or "7"
FILE = """
version: 1
kind: experiment
framework: pytorch
environment: {replicas: {n_workers: 1}}
run: {cmd: python program.py}
"""
PROGRAM = """
import os
from pathlib import Path
from phalanx import tracking
run = tracking.start()
for step in range(300):
    run.log(loss=1 / (step + 1), step=step)
Path(os.environ["PHALANX_OUTPUTS"], "table.csv").write_text("a,b\\n1,2\\n")
print("done")
"""
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
)
# A stream has no end, and a session that is ended is the fuzzer's own.
NOT_ASKED = "/live$|/session$"


class Served(NamedTuple):
    url: str
    token: str
    run: str
    log: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = Place(tmp_path_factory.mktemp("api"))
    (place.folder / "polyaxonfile.yml").write_text(FILE)
    (place.folder / "program.py").write_text(PROGRAM)
    ran = place.call("run", "-f", "polyaxonfile.yml", "--json")
    assert ran.code == 0, ran.err
    log = place.folder / "server.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [COMMAND, "serve", "--port", "0", "--json"],
            env=place.environment(),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert process.stdout is not None
    announced = json.loads(process.stdout.readline())
    try:
        yield Served(
            announced["url"], Path(announced["token_file"]).read_text().strip(), json.loads(ran.out)["id"], log
        )
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()


def fuzz(served: Served, folder: Path, config: str, *more: str) -> tuple[int, str]:
    """How many cases were tried, and what was said. Fails when an answer was a fault of the server's."""
    (folder / "schemathesis.toml").write_text(config)
    # With one worker: two that parse Python at once fail now and then (CPython 3.11, "recursion depth mismatch").
    command = [
        SCHEMATHESIS,
        *("--config-file", str(folder / "schemathesis.toml"), "--no-color", "run"),
        f"{served.url}/api/v1/openapi.json",
        *("-H", f"Authorization: Bearer {served.token}", "--checks", ",".join(CHECKS)),
        *("--phases", "examples,coverage,fuzzing", "--seed", SEED, "--exclude-path-regex", NOT_ASKED),
        *("--request-timeout", "30", "--no-shrink", "--warnings", "off", "--generation-database", "none"),
        *("--max-examples", str(EXAMPLES)),
        *more,
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=3500)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-6000:] + served.log.read_text()[-3000:]
    found = re.search(r"([\d,]+) generated", output)
    assert found is not None, output[-3000:]
    print(f"seed {SEED}: {found[1]} cases")
    return int(found[1].replace(",", "")), output


def test_no_question_about_a_run_that_is_there_breaks_the_server(served: Served, tmp_path: Path) -> None:
    """All but removing it, and making it go on."""
    config = f'[parameters]\nrun_id = "{served.run}"\nreplica = "worker-0"\nname = "loss"\n'
    kept = ("--exclude-method", "DELETE", "--exclude-path-regex", f"{NOT_ASKED}|/(restart|copy|resume|submit)$")
    cases, _ = fuzz(served, tmp_path, config, *kept)
    assert cases >= LEAST_CASES


def test_no_question_at_all_breaks_the_server(served: Served, tmp_path: Path) -> None:
    cases, _ = fuzz(served, tmp_path, "")
    assert cases >= LEAST_CASES


def test_nothing_was_reported_as_a_fault_on_the_servers_terminal(served: Served) -> None:
    assert " failed: " not in served.log.read_text()
