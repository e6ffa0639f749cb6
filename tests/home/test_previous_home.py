"""Homes that earlier versions wrote: everything in them can be read, rebuilt and continued.

The database, the folders of runs and the accounts are those that the earlier version left, not made for these tests.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name
from tests.home.views import differences, serving, unpack, views, views_by_rest, without_scheduler

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("home-*"))
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # has a python3


@pytest.fixture(name="fixture", params=FIXTURES, ids=lambda path: path.name)
def fixture_fixture(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture(autouse=True)
def unpacked_fixture(fixture: Path, place: Place) -> None:
    unpack(fixture, place)


@pytest.fixture(name="expected")
def expected_fixture(fixture: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((fixture / "expected.json").read_bytes())
    return found


@pytest.fixture(name="access")
def access_fixture(fixture: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((fixture / "access.json").read_bytes())
    return found


def output(place: Place, name: str, path: str) -> str:
    """The content of a file that a run left."""
    run_id = place.call("show", name, "--json").data["id"]
    return Path(place.home, "runs", run_id, "outputs", path).read_text()


@pytest.mark.slow
def test_every_command_shows_what_it_showed(place: Place, expected: dict[str, Any]) -> None:
    with without_scheduler(place):
        assert list(differences(expected["commands"], views(place))) == []


@pytest.mark.slow
def test_the_database_made_again_from_the_folders_says_the_same(place: Place, expected: dict[str, Any]) -> None:
    assert place.call("doctor", "--json").data["problems"] == []
    rebuilt = place.call("doctor", "--rebuild", "--json").data
    assert (rebuilt["rebuilt"], rebuilt["problems"]) == (expected["commands"]["ps"]["count"], [])
    with without_scheduler(place):
        changed = list(differences(expected["commands"], views(place)))
    ids = {row["name"]: row["id"] for row in expected["commands"]["ps"]["runs"]}
    folder_is_ahead = f"/show {ids['unobserved']} --json/replicas/0/"  # its end was not in the database before
    assert [path for path in changed if not path.startswith(folder_is_ahead)] == []


@pytest.mark.slow
def test_files_of_a_model_are_still_the_ones_that_were_kept(place: Place, tmp_path: Path) -> None:
    answer = place.call("models", "get", "digits@champion", "-o", str(tmp_path / "model"))
    assert answer.code == 0, answer.err
    assert (tmp_path / "model" / "weights.bin").read_bytes() == bytes(range(256)) * 8


@pytest.mark.slow
def test_the_stopped_run_is_resumed_to_its_end(place: Place) -> None:
    answer = place.call("resume", "stopped", "--json", PATH=PATH)
    assert (answer.code, answer.data["status"], answer.data["attempt"]) == (0, "succeeded", 2)
    assert output(place, "stopped", "attempts") == "attempt 1\nattempt 2\n"
    points = [line.split(",") for line in place.call("metrics", "stopped", "--csv").out.splitlines()[1:]]
    assert [(name, attempt, float(value)) for name, _, _, attempt, _, _, value in points] == [
        ("value", "1", 1.0),
        ("value", "2", 2.0),
    ]


@pytest.mark.slow
def test_the_scheduler_takes_up_what_was_under_way_and_what_was_queued(place: Place) -> None:
    with without_scheduler(place):
        assert (place.status("unobserved"), place.status("queued")) == ("running", "created")
    place.call("ps")
    assert place.until("unobserved", "succeeded", "failed") == "succeeded"
    assert place.until("queued", "succeeded", "failed") == "succeeded"
    assert output(place, "queued", "done") == "at last\n"


@pytest.mark.slow
def test_another_home_imports_it(place: Place, expected: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Place(tmp_path / "other")
    imported = other.call("import", str(place.home), "--json")
    assert imported.code == 0, imported.err
    over = [row for row in expected["commands"]["ps"]["runs"] if row["finished_at"] is not None]
    rows = {row["id"]: row for row in other.quick("ps", "-n", "100", "--json").data["runs"]}
    kept = ("name", "project", "status", "params", "tags", "summary")
    found = [{name: rows[row["id"]][name] for name in kept} for row in over]
    assert list(differences([{name: row[name] for name in kept} for row in over], found)) == []


@pytest.mark.slow
def test_the_server_answers_as_it_did(place: Place, expected: dict[str, Any], access: dict[str, str]) -> None:
    owner = (place.home / "token").read_text().strip()
    names = [row["name"] for row in expected["commands"]["ps"]["runs"]]
    with without_scheduler(place), serving(place) as url, httpx.Client(base_url=url, trust_env=False) as client:
        assert list(differences(expected["rest"], views_by_rest(url, access["token"]))) == []
        assert list(differences(expected["rest"], views_by_rest(url, owner))) == []
        wrong = client.post("/api/v1/session", json={"user": access["user"], "password": "another password"})
        assert (wrong.status_code, client.get("/api/v1/runs").status_code) == (401, 401)
        login = client.post("/api/v1/session", json={"user": access["user"], "password": access["password"]})
        assert login.status_code == 200, login.text
        assert [row["name"] for row in client.get("/api/v1/runs").json()["runs"]] == names
