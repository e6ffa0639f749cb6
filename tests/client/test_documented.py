"""The example of docs/serve/client.md does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.site import Site

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "serve" / "client.md"
TRAIN = """
from phalanx import tracking
import os
for step in range(5):
    tracking.log(loss=1.0 / (step + 1), step=step)
open(os.environ["PHALANX_OUTPUTS"] + "/best.txt", "w").write("best")
print("trained", flush=True)
"""


@pytest.mark.slow
def test_the_example_of_the_page_runs_as_it_stands(site: Site, tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "polyaxonfile.yml").write_text("version: 1\nkind: experiment\nrun: {cmd: python3 train.py}\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PHALANX_")}
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env={**kept, "PHALANX_SERVER": site.url, "PHALANX_TOKEN": site.token, "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    first, second, third, *rest = done.stdout.splitlines()
    assert first == "master-0 trained"
    assert second == "succeeded {'lr': 0.1} {'loss': 0.2}"
    assert third == "5 0.2"
    assert len(rest) == 1
    assert (tmp_path / "what-it-left" / "best.txt").read_text() == "best"
