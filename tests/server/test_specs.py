from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.server.site import Site
from tests.server.started import start, until

MORE = """environment:
  env_vars:
  - [DATABASE_PASSWORD, hunter2]
  - [MIRROR, "https://me:hunter2@example.org/"]
  - [HARMLESS, "yes"]
"""


@pytest.fixture(scope="module")
def run_id(site: Site) -> str:
    run = start(site, "echo $HARMLESS $DATABASE_PASSWORD", MORE, params={}, name="shown")
    assert until(site, run["id"])["status"] == "succeeded"
    return str(run["id"])


def below(site: Site, run_id: str, path: str) -> Any:
    return site.get(f"/api/v1/runs/{run_id}/{path}")


def test_the_file_of_a_run_is_shown_without_its_secrets(site: Site, run_id: str) -> None:
    answer = site.ask("GET", f"/api/v1/runs/{run_id}/spec")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/yaml")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "hunter2" not in answer.text
    document = yaml.safe_load(answer.text)
    assert document["kind"] == "experiment"
    assert "yes" in str(document["environment"])


def test_the_run_itself_got_its_secret(site: Site, run_id: str) -> None:
    assert "yes hunter2" in site.ask("GET", f"/api/v1/runs/{run_id}/logs/master-0").text


@pytest.mark.parametrize("path", ["plan", "records", "environment/master-0"])
def test_nothing_else_shows_the_secrets_either(site: Site, run_id: str, path: str) -> None:
    assert "hunter2" not in str(below(site, run_id, path))


def test_the_plan_has_every_replica(site: Site, run_id: str) -> None:
    plan = below(site, run_id, "plan")
    assert [(one["role"], one["index"], one["rank"]) for one in plan["replicas"]] == [("master", 0, 0)]


def test_the_environment_of_a_replica_is_what_it_will_see(site: Site, run_id: str) -> None:
    answer = below(site, run_id, "environment/master-0")
    assert answer["argv"][-1].startswith("echo $HARMLESS")
    assert answer["variables"]["HARMLESS"] == "yes"
    assert answer["variables"]["DATABASE_PASSWORD"] == answer["variables"]["MIRROR"] == "***"
    assert answer["variables"]["PHALANX_RANK"] == "0"
    assert answer["folder"] == str(site.folder(run_id) / "code")


def test_a_replica_that_is_not_there_is_reported(site: Site, run_id: str) -> None:
    for name in ("worker-7", "x" * 500, "%2e%2e%2fplan.json"):
        assert site.ask("GET", f"/api/v1/runs/{run_id}/environment/{name}").status_code == 404


def test_the_surroundings_are_reported(site: Site, run_id: str) -> None:
    records = below(site, run_id, "records")
    assert {"packages", "host", "python", "git", "environment"} <= set(records)
    assert site.ask("GET", f"/api/v1/runs/{run_id}/code-diff").text == ""


@pytest.mark.parametrize("path", ["spec", "plan", "records", "code-diff", "environment/master-0"])
def test_what_a_run_does_not_have_is_a_kind_no(site: Site, path: str) -> None:
    tracked = site.post("/api/v1/runs", {}, 201)["id"]
    (site.folder(tracked) / "plan.json").unlink(missing_ok=True)
    answer = site.ask("GET", f"/api/v1/runs/{tracked}/{path}")
    assert answer.status_code == 404
    assert tracked in answer.json()["error"]["message"]
    site.post(f"/api/v1/runs/{tracked}/finish", {})


def test_a_broken_plan_is_no_fault_of_the_server(site: Site) -> None:
    run = start(site, "true")
    until(site, run["id"])
    for content in (b"", b"[1]", b'{"replicas": 5}', b'{"replicas": [{"role": 5}]}', b"[" * 100_000, b"\xff"):
        (site.folder(run["id"]) / "plan.json").write_bytes(content)
        for path in ("plan", "environment/master-0", "use", "topology"):
            assert site.ask("GET", f"/api/v1/runs/{run['id']}/{path}").status_code in (200, 404), (content[:50], path)
