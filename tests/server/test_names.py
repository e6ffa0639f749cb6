"""Names that users give: those that forge lines or control terminals are refused wherever one is made, and those that
are too long for a file are answered."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from phalanx.naming import has_control_characters, without_control_characters
from tests.server.site import Site

EVIL = ("a\nb", "a\rb", "a\x1b[31mb", "a\x7fb", "a\x85b", "a\u2028b", "a\x00b", "\ud800")
FINE = ("Übung 1", "a\u200db", "\u202eevil", "模型", "a b/c:d")  # what is displayed with care is no reason to refuse
FILE = {"name": "polyaxonfile.yml", "text": "{version: 1, kind: job, run: {cmd: 'true'}}"}


def sent(site: Site, method: str, path: str, body: Any) -> httpx.Response:
    """As ASCII, which any name fits into."""
    return site.ask(method, path, content=json.dumps(body))


def requests(run_id: str, experiment_id: str, name: str) -> list[tuple[str, str, Any]]:
    """Every request that makes a name: a project, a run, a user, a tag, a param, a metric, a model."""
    tag = {"key": name, "value": "v"}
    metric = {"key": name, "value": 1, "timestamp": 1}
    tagged = {**FILE, "text": json.dumps({"version": 1, "kind": "job", "tags": [name], "run": {"cmd": "true"}})}
    ours = [
        *(("POST", "/api/v1/runs", {field: name}) for field in ("project", "name", "group")),
        *(("POST", "/api/v1/runs", {field: {name: "x"}}) for field in ("params", "labels")),
        ("POST", "/api/v1/runs", {"tags": [name]}),
        *(("POST", "/api/v1/runs/submit", {"files": [FILE], field: name}) for field in ("project", "name")),
        ("POST", "/api/v1/runs/submit", {"files": [FILE], "tags": [name]}),
        ("POST", "/api/v1/runs/submit", {"files": [tagged]}),
        ("PATCH", f"/api/v1/runs/{run_id}", {"name": name}),
        ("PATCH", f"/api/v1/runs/{run_id}", {"tags": [name]}),
        ("POST", f"/api/v1/runs/{run_id}/tags", {"add": [name]}),
        ("POST", "/api/v1/views", {"name": name}),
        ("POST", "/api/v1/reports", {"project": "default", "title": name}),
    ]
    theirs = [
        ("experiments/create", {"name": name}),
        ("experiments/create", {"name": "tagged", "tags": [tag]}),
        ("experiments/update", {"experiment_id": experiment_id, "new_name": name}),
        ("experiments/set-experiment-tag", {"experiment_id": experiment_id, **tag}),
        ("runs/create", {"run_name": name}),
        ("runs/create", {"user_id": name}),
        ("runs/create", {"tags": [tag]}),
        ("runs/create", {"tags": [{"key": "mlflow.runName", "value": name}]}),
        ("runs/create", {"tags": [{"key": "mlflow.user", "value": name}]}),
        ("runs/update", {"run_id": run_id, "run_name": name}),
        ("runs/set-tag", {"run_id": run_id, **tag}),
        ("runs/set-tag", {"run_id": run_id, "key": "mlflow.runName", "value": name}),
        ("runs/log-parameter", {"run_id": run_id, **tag}),
        ("runs/log-metric", {"run_id": run_id, **metric}),
        ("runs/log-batch", {"run_id": run_id, "metrics": [metric]}),
        ("runs/log-batch", {"run_id": run_id, "tags": [tag]}),
        ("runs/log-inputs", {"run_id": run_id, "datasets": [{"dataset": {"name": name, "digest": "1"}}]}),
        ("registered-models/create", {"name": name}),
        ("registered-models/create", {"name": "tagged", "tags": [tag]}),
        ("logged-models", {"experiment_id": "0", "name": name}),
        ("logged-models", {"experiment_id": "0", "name": "tagged", "tags": [tag]}),
    ]
    return [*ours, *(("POST", f"/api/2.0/mlflow/{path}", body) for path, body in theirs)]


@pytest.fixture(scope="module", name="run_id")
def run_with_a_name(site: Site) -> str:
    return site.begin(run_name="named")


@pytest.mark.parametrize("name", EVIL)
def test_a_name_with_control_characters_is_refused_wherever_one_is_made(site: Site, run_id: str, name: str) -> None:
    for method, path, body in requests(run_id, "0", name):
        answer = sent(site, method, path, body)
        assert 400 <= answer.status_code < 500, (path, body, answer.text)
        if answer.status_code != 422:  # what YAML itself refuses, it words by itself
            said = ("control characters", "invisible", "surrogates")
            assert any(words in answer.text for words in said), (path, body, answer.text)
    everything = json.dumps([site.get("/api/v1/runs", limit=1000), site.get("/api/v1/projects")])
    assert json.dumps(name)[1:-1] not in everything
    assert site.stored(run_id).name == "named"


@pytest.mark.parametrize("name", FINE)
def test_names_of_any_language_are_accepted(site: Site, run_id: str, name: str) -> None:
    for field in ("project", "name", "group"):
        assert sent(site, "POST", "/api/v1/runs", {field: name}).status_code == 201
    assert site.begin(run_name=name)
    assert without_control_characters(name) == name


@pytest.mark.parametrize("name", ["x" * 300, "é" * 200, "x" * 6000, "\ud800"])
def test_a_name_that_no_file_can_have_is_answered(site: Site, run_id: str, name: str) -> None:
    """With a sentence, not as a failure of the server."""
    in_path = quote(name.encode("utf-8", "surrogatepass"), safe="")
    folders = ("outputs", "artifacts", "models", "media/master-0/1", "")
    paths = [f"{place}/{folder}/{in_path}" for place in ("outputs", "preview", "view") for folder in folders]
    gets = [
        *(f"/api/v1/runs/{run_id}/{path}".replace("//", "/") for path in (*paths, f"logs/{in_path}")),
        *(f"/api/v1/{place}/{in_path}" for place in ("runs", "models", "groups")),
        *(f"/api/2.0/mlflow-artifacts/artifacts/{run_id}/{place}/{in_path}" for place in ("artifacts", "models")),
        f"/api/2.0/mlflow/artifacts/list?run_id={run_id}&path={in_path}",
        f"/api/2.0/mlflow/registered-models/get?name={in_path}",
        f"/api/2.0/mlflow/experiments/get-by-name?experiment_name={in_path}",
    ]
    answers = [site.raw("GET", path) for path in gets]
    answers += [site.raw("PUT", f"/api/v1/runs/{run_id}/files/{place}/{in_path}", b"x") for place in ("outputs", "a")]
    answers += [site.raw(method, gets[-5], b"x") for method in ("PUT", "DELETE")]
    for path, (status, body) in zip([*gets, *("PUT",) * 4], answers, strict=True):
        assert status < 500, (path, status, body)
    for method, path, body in requests(run_id, "0", name):
        assert sent(site, method, path, body).status_code < 500, (path, body)
    for given in ({"token": name}, {"user": name, "password": name}):
        assert sent(site, "POST", "/api/v1/session", given).status_code in (400, 401)


def test_a_registered_name_is_refused_with_its_limit(site: Site) -> None:
    answer = sent(site, "POST", "/api/2.0/mlflow/registered-models/create", {"name": "é" * 200})
    assert answer.status_code == 400
    assert "at most 100 characters" in answer.json()["message"]


def test_what_is_no_name_is_known_by_its_characters() -> None:
    assert all(map(has_control_characters, EVIL))
    assert without_control_characters("a\nb\x1b\u2028") == "a_b__"
