"""Runs started in a real notebook kernel: what its front end shows. `make test-notebook` runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name
from tests.notebook.environment import jupyter_folder

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src"


def messages(place: Place, *cells: str) -> list[dict[str, Any]]:
    """The kernel is that of Jupyter's environment; Phalanx and its packages are those of this one."""
    paths = [str(SOURCES), sysconfig.get_paths()["purelib"]]
    call = [str(jupyter_folder() / "python"), str(HERE / "kernel_messages.py"), json.dumps(cells)]
    environment = place.environment(PYTHONPATH=os.pathsep.join(paths))
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=place.folder, env=environment)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert not [one for one in found if one["type"] == "error"], found
    return found


def pages(found: list[dict[str, Any]], kind: str) -> list[str]:
    return [one["data"]["text/html"] for one in found if one["type"] == kind and "text/html" in one["data"]]


FUNCTION = """
import phalanx, time
from phalanx import tracking
def train(lr):
    for step in range(20):
        tracking.log(loss=lr / (step + 1), step=step)
        print("step", step, flush=True)
        time.sleep(0.1)
    return lr
run = phalanx.submit(train, 0.5, name="from-a-notebook")
print(run.result())
"""


def test_a_cell_that_waits_shows_the_run_and_its_last_state(place: Place) -> None:
    found = messages(place, FUNCTION, "run")
    assert len(pages(found, "display_data")) == 1
    updates = pages(found, "update_display_data")
    assert len({one["transient"]["display_id"] for one in found if one["type"].endswith("display_data")}) == 1
    assert any(">running</b>" in page for page in [*pages(found, "display_data"), *updates])
    assert ">succeeded</b>" in updates[-1]
    assert "step 19" in updates[-1]
    assert "<polyline" in updates[-1]
    assert "0.5\n" in "".join(one["text"] for one in found if one["type"] == "stream")
    (result,) = [one["data"] for one in found if one["type"] == "execute_result"]
    assert "from-a-notebook" in result["text/plain"]
    assert ">succeeded</b>" in result["text/html"]


def test_the_magic_runs_files_and_commands(place: Place) -> None:
    (place.folder / "file.yml").write_text(
        "version: 1\nkind: experiment\nname: magic\nrun: {cmd: 'echo lr {{ lr }}'}\n"
    )
    found = messages(
        place,
        "%load_ext phalanx",
        "run = %phalanx run -f file.yml -P lr=0.1",
        "print(run.state, run.stdout())",
        "%phalanx ps",
        "%phalanx run -f missing.yml",
    )
    said = "".join(one["text"] for one in found if one["type"] == "stream")
    assert "succeeded lr 0.1\n" in said
    assert "magic" in said.partition("STATUS")[2]
    assert "missing.yml: no such file" in said
