"""Archive, tags, stars, grouped runs, CSV and saved views over REST."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from phalanx.client import Client
from phalanx.ingest.rebuild import rebuild_store
from phalanx.store import Store
from tests.server.site import Site


def create(site: Site, *, done: bool = True, **fields: Any) -> str:
    run_id = str(site.post("/api/v1/runs", fields, 201)["id"])
    if done:
        site.post(f"/api/v1/runs/{run_id}/finish", {"status": "succeeded"})
    return run_id


def listed(site: Site, token: str | None = None, **params: Any) -> list[str]:
    answer = site.ask("GET", "/api/v1/runs", token, params=params)
    assert answer.status_code == 200, answer.text
    return sorted(run["name"] for run in answer.json()["runs"])


def audit(site: Site) -> list[tuple[str, str, str]]:
    rows = [json.loads(line) for line in (site.home.path / "audit.log").read_text().splitlines()]
    return [(row["who"], row["action"], row.get("run", "")) for row in rows]


def test_marks_are_written_to_the_folder_and_the_audit_log(own_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = create(own_site, name="one", tags=["a", "b"]), create(own_site, name="two")
    busy = create(own_site, name="busy", done=False)
    with Client(own_site.url, own_site.token) as client:
        assert client.archive("one").archived
        assert client.tag("two", add=["x", "y"], remove=["b"]).tags == ("x", "y")
        assert client.rename(two, "second").name == "second"
        assert client.describe(two, "# note").description == "# note"
        client.star(two)
        assert [run.name for run in client.runs("starred:true")] == ["second"]
        assert client.run("one").id == one  # archived runs are found by name
    assert own_site.ask("POST", f"/api/v1/runs/{busy}/archive").status_code == 409
    assert own_site.ask("POST", f"/api/v1/runs/{two}/tags", json={"add": [" "]}).status_code == 400
    assert (listed(own_site), own_site.get("/api/v1/runs")["archived"]) == (["busy", "second"], 1)
    assert listed(own_site, archived="1") == ["busy", "one", "second"]
    assert listed(own_site, q="archived:true") == ["one"]
    actions = [("tester", "POST /api/v1/runs/{run_id}/archive", one), ("tester", "PUT /api/v1/runs/{run_id}/star", two)]
    assert set(actions) <= set(audit(own_site))
    own_site.post(f"/api/v1/runs/{busy}/finish", {})
    own_site.scheduling.stop()
    monkeypatch.setenv("PHALANX_HOME", str(own_site.home.path))
    assert rebuild_store() == 3
    with Store.open(own_site.home.path) as store:
        assert [run.id for run in store.runs("archived:true")] == [one]
        (second,) = store.runs("starred:true, tags:y", user="tester")
        assert (second.name, second.description, second.tags) == ("second", "# note", ("x", "y"))


def test_stars_are_the_callers_own_and_need_only_a_viewer(own_site: Site) -> None:
    run_id = create(own_site, name="one", project="p")
    create(own_site, name="two", project="q")
    viewer = own_site.context.tokens.create("viewer", "read")
    assert own_site.ask("PUT", f"/api/v1/runs/{run_id}/star", viewer).status_code == 200
    assert own_site.ask("GET", "/api/v1/stars", viewer).json() == {"runs": [run_id]}
    assert own_site.get("/api/v1/stars") == {"runs": []}
    for _ in range(2):  # also from the cache
        assert listed(own_site, viewer, q="starred:true") == ["one"]
        assert listed(own_site, q="starred:true") == []
    for path, method in (("archive", "POST"), ("tags", "POST"), ("unarchive", "POST")):
        assert own_site.ask(method, f"/api/v1/runs/{run_id}/{path}", viewer, json={}).status_code == 403
    assert own_site.ask("DELETE", f"/api/v1/runs/{run_id}/star", viewer).status_code == 200
    assert own_site.ask("GET", "/api/v1/stars", viewer).json() == {"runs": []}


def test_runs_are_grouped_and_exported(own_site: Site) -> None:
    for number in range(4):
        create(own_site, name=f"=run{number}", project="p", params={"lr": 0.1 if number % 2 else 0.01, "seed": number})
    create(own_site, name="other", project="q", params={"lr": 1})
    found = own_site.get("/api/v1/runs/grouped", by="params.lr", project="p", columns="metric.loss")
    assert [(group["values"], group["runs"]) for group in found["groups"]] == [([0.01], 2), ([0.1], 2)]
    assert found["groups"][0]["metrics"]["metric.loss"] == {"runs": 0, "mean": None, "min": None, "max": None}
    assert listed(own_site, q=found["groups"][1]["query"]) == ["=run1", "=run3"]
    for params in ({"by": "nothing"}, {"by": ""}, {"by": "tags", "columns": "x"}, {"by": "tags", "q": "oops"}):
        assert own_site.ask("GET", "/api/v1/runs/grouped", params=params).status_code == 400
    answer = own_site.ask(
        "GET", "/api/v1/runs.csv", params={"project": "p", "columns": "params.lr,best.loss", "sort": "name"}
    )
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="runs.csv"'
    rows = list(csv.reader(io.StringIO(answer.text)))
    assert rows[0] == ["id", "name", "status", "params.lr", "best.loss"]
    assert [row[1:] for row in rows[1:3]] == [["'=run0", "succeeded", "0.01", ""], ["'=run1", "succeeded", "0.1", ""]]
    assert own_site.ask("GET", "/api/v1/runs.csv", params={"columns": "nothing"}).status_code == 400
    stranger = own_site.context.tokens.create("stranger", "viewer", projects=["q"])
    assert "=run" not in own_site.ask("GET", "/api/v1/runs.csv", stranger).text
    assert own_site.ask("GET", "/api/v1/runs/grouped", stranger, params={"by": "params.lr"}).json()["count"] == 1


def test_views_are_personal_or_shared_with_those_who_see_the_project(own_site: Site) -> None:
    tokens = own_site.context.tokens
    viewer = tokens.create("viewer", "viewer", projects=["p"])
    stranger = tokens.create("stranger", "viewer", projects=["q"])

    def names(token: str | None = None) -> list[str]:
        return [view["name"] for view in own_site.ask("GET", "/api/v1/views", token).json()["views"]]

    def save(token: str | None, status: int, **body: Any) -> Any:
        answer = own_site.ask("POST", "/api/v1/views", token, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    shared = save(
        None, 201, name="best", project="p", shared=True, q="metric.loss:<1", sort="metric.loss", by="params.lr"
    )
    mine = save(viewer, 201, name="mine", project="p", columns="metric.loss")
    save(viewer, 403, name="team", project="p", shared=True)
    save(viewer, 403, name="x", project="q")
    save(viewer, 400, name="")
    save(viewer, 400, name="x", colour="red")
    assert (names(), names(viewer), names(stranger)) == (["best"], ["best", "mine"], [])
    again = save(None, 201, name="best", project="p", shared=True, q="changed:1")
    assert (again["id"], names()) == (shared["id"], ["best"])
    assert own_site.ask("DELETE", f"/api/v1/views/{shared['id']}", viewer).status_code == 403
    for token in (None, stranger):
        assert own_site.ask("DELETE", f"/api/v1/views/{mine['id']}", token).status_code == 404
    assert own_site.ask("DELETE", f"/api/v1/views/{mine['id']}", viewer).status_code == 200
    assert own_site.ask("DELETE", f"/api/v1/views/{shared['id']}").status_code == 200
    assert (names(), names(viewer)) == ([], [])


def test_views_are_bounded_and_a_damaged_file_is_reported(own_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.server.saved_views.MOST_OWN", 1)
    assert own_site.ask("POST", "/api/v1/views", json={"name": "a"}).status_code == 201
    assert own_site.ask("POST", "/api/v1/views", json={"name": "a", "q": "x:1"}).status_code == 201
    assert own_site.ask("POST", "/api/v1/views", json={"name": "b"}).status_code == 409
    (own_site.home.path / "views.json").write_text("{")
    answer = own_site.ask("GET", "/api/v1/views")
    assert answer.status_code in (400, 503)
    assert "views.json" in answer.text
