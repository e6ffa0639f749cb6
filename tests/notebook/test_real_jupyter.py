"""`phalanx notebook` with the real JupyterLab, from the first cell to the end. `make test-notebook` runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from phalanx.agent.processes import descendants
from tests.cli.homes import Place, place_fixture, wait_for  # noqa: F401 - found by its name
from tests.cli.running import Answer
from tests.notebook.environment import jupyter_folder, with_jupyter

CELL = Path(__file__).with_name("cell.py")
LOGGING = """
from phalanx import tracking
for step in range(3):
    tracking.log(loss=1.0 / (step + 1), step=step)
open("written-by-a-cell.txt", "w").write("kept")
print("done in", __import__("os").getcwd())
"""
# Settings of a user who once opened Jupyter to everyone.
OPENED = {
    "ServerApp": {"ip": "0.0.0.0", "port": 18888, "token": "", "password": "", "open_browser": True},
    "IdentityProvider": {"token": ""},
}


class Jupyter:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.settings = place.home.parent / "jupyter"
        self.settings.mkdir()

    def call(self, *words: str) -> Answer:
        variables = {"PATH": with_jupyter(os.environ["PATH"]), "JUPYTER_CONFIG_DIR": str(self.settings)}
        return self.place.call(*words, **variables)  # type: ignore[arg-type]

    def started(self, *options: str) -> dict[str, Any]:
        answer = self.call("notebook", "--json", *options)
        assert answer.code == 0, answer.err
        found: dict[str, Any] = answer.data
        return found

    def cell(self, run: str, code: str) -> str:
        address = self.place.attempt(run) / ".notebook" / "address.json"
        call = [str(jupyter_folder() / "python"), str(CELL), str(address), code]
        done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=90)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(name="jupyter")
def jupyter_fixture(place: Place) -> Jupyter:
    return Jupyter(place)


@pytest.mark.smoke
def test_a_cell_logs_to_the_run_and_what_it_wrote_stays_when_the_notebook_is_stopped(jupyter: Jupyter) -> None:
    """Although the user's own settings open Jupyter to everyone."""
    for name in ("jupyter_server_config", "jupyter_lab_config"):
        (jupyter.settings / f"{name}.json").write_text(json.dumps(OPENED))
    place = jupyter.place
    found = jupyter.started()
    run, url = found["id"], urlsplit(found["url"])
    (token,) = parse_qs(url.query)["token"]
    base = f"http://127.0.0.1:{url.port}"
    assert httpx.get(f"{base}/api/contents", trust_env=False).status_code == 403
    assert httpx.get(f"{base}/api/contents?token={token}", trust_env=False).status_code == 200
    assert "<title>JupyterLab</title>" in httpx.get(found["url"], trust_env=False, follow_redirects=True).text
    assert httpx.get(f"{base}/lab", trust_env=False).status_code == 302, "to the page that asks for the token"
    assert jupyter.cell(run, LOGGING) == f"done in {place.folder}\n"
    assert _listening(place.attempt(run)) == {f"127.0.0.1:{url.port}"}
    wait_for(lambda: place.call("metrics", run, "--json").data.get("metrics"))
    os.kill(_server(place.attempt(run)), signal.SIGUSR1)  # Jupyter then prints its address
    assert place.call("stop", run).code == 0
    assert (place.folder / "written-by-a-cell.txt").read_text() == "kept"
    series = place.call("metrics", run, "loss", "--json")
    assert series.code == 0, series.err
    log = (place.attempt(run) / "log").read_text()
    assert "/lab?token=..." in log
    everything = [path for path in place.home.rglob("*") if path.is_file()]
    assert not [path for path in everything if token.encode() in path.read_bytes()]


def _server(attempt: Path) -> int:
    """The process of Jupyter's server."""
    agent = json.loads((attempt / "agent.json").read_text())["pid"]
    return next(one.pid for one in descendants(agent) if one.parent == agent)


def _listening(attempt: Path) -> set[str]:
    """The addresses at which the server, without its kernels, accepts connections."""
    inodes = set()
    for link in Path(f"/proc/{_server(attempt)}/fd").iterdir():
        target = os.readlink(link)
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                host, _, port = fields[1].partition(":")
                parts = [str(int(host[at : at + 2], 16)) for at in range(len(host) - 2, -1, -2)]
                found.add(f"{'.'.join(parts)}:{int(port, 16)}")
    return found


def test_an_idle_notebook_ends_by_itself_with_its_kernels(jupyter: Jupyter) -> None:
    found = jupyter.started("--idle", "3s")
    run = found["id"]
    jupyter.cell(run, "import time; time.sleep(5); print('a cell that runs is activity')")
    began = time.monotonic()
    assert jupyter.place.until(run, "succeeded", "failed") == "succeeded"
    assert time.monotonic() - began < 80
    assert "Shutting down" in (jupyter.place.attempt(run) / "log").read_text()


def test_pages_save_every_thirty_seconds_and_a_time_limit_ends_it_in_order(jupyter: Jupyter) -> None:
    found = jupyter.started("--timeout", "20s")
    run, url = found["id"], urlsplit(found["url"])
    setting = f"http://127.0.0.1:{url.port}/lab/api/settings/@jupyterlab/docmanager-extension:plugin?{url.query}"
    schema = httpx.get(setting, trust_env=False).json()["schema"]
    assert schema["properties"]["autosaveInterval"]["default"] == 30
    saving = "from phalanx import tracking; tracking.on_checkpoint(lambda: open('saved.txt', 'w').write('in time'))"
    jupyter.cell(run, saving)
    assert jupyter.place.until(run, "failed", "succeeded") == "failed"
    assert "time limit of 20 s" in jupyter.place.call("show", run, "--json").data["reason"]
    assert (jupyter.place.folder / "saved.txt").read_text() == "in time"
