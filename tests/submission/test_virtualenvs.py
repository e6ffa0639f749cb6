"""Virtual environments that submissions make."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from phalanx.spec.model import Build
from phalanx.submission.virtualenvs import VirtualenvSpec, ensure
from tests.agent.running import wait_for


@pytest.mark.slow
def test_two_submissions_of_the_same_content_build_it_once(tmp_path: Path) -> None:
    made, go_on = tmp_path / "made", tmp_path / "go-on"
    step = f"echo built >> {made}; until [ -e {go_on} ]; do sleep 0.05; done"
    wanted = VirtualenvSpec(build=Build(build_steps=(step,)))
    said: list[str] = []

    def build() -> dict[str, str]:
        return ensure(wanted, tmp_path, os.environ, tmp_path / "builds", said.append)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(build)
        wait_for(made.exists)
        second = pool.submit(build)
        wait_for(lambda: any("waiting for another submission" in line for line in said))
        go_on.touch()
        assert first.result() == second.result()
    assert made.read_text() == "built\n"
