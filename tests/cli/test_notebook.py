"""`phalanx notebook` on this machine, with a small server in place of Jupyter."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.cli.homes import Place, place_fixture, wait_for  # noqa: F401 - found by its name
from tests.cli.running import Answer
from tests.notebook.fake_jupyter import install


class WithJupyter:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.path = f"{install(place.home.parent / 'bin')}{os.pathsep}{os.environ['PATH']}"

    def call(self, *words: str, **environment: str) -> Answer:
        return self.place.call(*words, **{**environment, "PATH": self.path})  # type: ignore[arg-type]


@pytest.fixture(name="jupyter")
def jupyter_fixture(place: Place) -> WithJupyter:
    return WithJupyter(place)


@pytest.mark.slow
def test_a_notebook_starts_in_this_folder_without_a_file_and_is_stopped_like_any_run(jupyter: WithJupyter) -> None:
    answer = jupyter.call("notebook", "--json", "--idle", "2h", "--name", "mine")
    assert answer.code == 0, answer.err
    found, place = answer.data, jupyter.place
    url = urlsplit(found["url"])
    (token,) = parse_qs(url.query)["token"]
    assert (url.hostname, url.path, found["status"], found["tunnel"]) == ("127.0.0.1", "/lab", "running", [])
    said = httpx.get(found["url"], headers={"Authorization": f"token {token}"}, trust_env=False)
    assert said.text == str(place.folder)
    assert httpx.get(f"http://127.0.0.1:{url.port}/", trust_env=False).status_code == 403
    run = found["id"]
    assert jupyter.call("notebook", "--url", "mine", "--json").data["url"] == found["url"]
    assert [row["id"] for row in place.call("ps", "--json", "-q", "kind:notebook").data["runs"]] == [run]
    assert "--ServerApp.shutdown_no_activity_timeout=7200" in place.call("logs", run).out
    _find_nowhere(token, place, run)
    assert place.call("stop", run).code == 0
    assert not (place.attempt(run) / ".notebook").exists()
    assert place.call("notebook", "--url", run).code == 2


def _find_nowhere(token: str, place: Place, run: str) -> None:
    """The token is in the private files of the notebook only: not in the plan, the log, the database, or `show`."""
    hidden = place.attempt(run) / ".notebook"
    files = [path for path in place.home.rglob("*") if path.is_file() and hidden not in path.parents]
    assert not [path for path in files if token.encode() in path.read_bytes()]
    with sqlite3.connect(place.home / "phalanx.db") as database:
        assert token not in "\n".join(database.iterdump())
    for words in (("show", run, "--json"), ("logs", run), ("events", run)):
        assert token not in place.call(*words).out
    arguments = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
    assert not any(token.encode() in words for words in arguments)


@pytest.mark.slow
def test_an_old_file_starts_the_same_with_run(jupyter: WithJupyter) -> None:
    place = jupyter.place
    place.file(None, kind="notebook", backend="lab", build={"image": "python:3.6"})
    answer = jupyter.call("run", "-f", "polyaxonfile.yml", "-d")
    assert answer.code == 0, answer.err
    run = answer.out.strip()
    assert wait_for((place.attempt(run) / ".notebook" / "address.json").exists)
    assert f"`phalanx stop {run}` ends it" in jupyter.call("notebook", "--url", run).out
    place.call("stop", run)


def test_without_jupyter_nothing_is_queued(place: Place) -> None:
    answer = place.call("notebook", PATH="/usr/bin:/bin")
    assert answer.code == 2
    assert answer.err.strip().endswith("is not installed, or not on PATH: `pip install jupyterlab`")
    old = place.file(None, kind="notebook", backend="notebook")
    answer = place.call("run", "-f", old, PATH="/usr/bin:/bin")
    assert "pip install notebook" in answer.err
    assert not place.run_ids()


def test_a_notebook_that_ends_at_once_is_reported_with_its_last_lines(jupyter: WithJupyter) -> None:
    answer = jupyter.call("notebook", FAKE_IS_OPEN="1")
    assert answer.code == 2
    assert "has ended: failed" in answer.err
    assert "answered without a token" in answer.err


@pytest.mark.slow
def test_a_file_of_another_kind_is_refused(jupyter: WithJupyter) -> None:
    place = jupyter.place
    answer = jupyter.call("notebook", "-f", place.file("true"))
    assert (answer.code, "is a file of `kind: experiment`" in answer.err) == (2, True)
    run = place.ran("true")
    answer = jupyter.call("notebook", "--url", run)
    assert (answer.code, "not a notebook" in answer.err) == (2, True)
    answer = jupyter.call("notebook", "--idle", "later")
    assert (answer.code, "--idle 'later'" in answer.err) == (2, True)


@pytest.mark.slow
def test_from_another_machine_the_line_for_ssh_is_printed(jupyter: WithJupyter) -> None:
    came = "10.0.0.9 50000 10.0.0.1 22"
    answer = jupyter.call("notebook", SSH_CONNECTION=came, USER="ada", DISPLAY="", WAYLAND_DISPLAY="")
    assert "on your machine, run and keep running:\n  ssh -N -L " in answer.out
    assert " ada@10.0.0.1\nthen open http://127.0.0.1:" in answer.out
