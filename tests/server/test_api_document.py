"""The OpenAPI document: complete, and in agreement with the policy."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.server.policy import Rule
from tests.server.site import Site

CONVERTED = ("groups",)
METHODS = ("get", "post", "put", "patch", "delete")


@pytest.fixture(scope="module")
def document(site: Site) -> Any:
    return site.get("/api/v1/openapi.json")


def operations(document: Any) -> list[tuple[str, str, Any]]:
    return [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method in METHODS
    ]


def test_every_operation_documents_its_answers_its_errors_and_who_may_call_it(site: Site, document: Any) -> None:
    rules = {(method, path.replace(":path}", "}")): rule for (method, path), rule in site.app.state.policy.items()}
    found = operations(document)
    assert len(found) > 50
    for method, path, operation in found:
        rule = rules[method.upper(), path]
        answers = operation["responses"]
        good = [answer for status, answer in answers.items() if int(status) < 300]
        assert good, (method, path)
        for answer in good:
            schemas = [content.get("schema") for content in answer.get("content", {}).values()]
            assert all(schemas) or operation["tags"][0] not in CONVERTED, (method, path, "has no schema")
        always = {"400", "403", "414", "421", "429", "431", "500", "503"}
        assert always <= set(answers), (method, path)
        assert ("401" in answers) == (rule is not Rule.OPEN) or path == "/api/v1/session", (method, path)
        assert bool(operation["security"]) == (rule is not Rule.OPEN), (method, path)
        assert "Access: " in operation["description"]
        if "requestBody" in operation:
            assert {"408", "413"} <= set(answers), (method, path)


def test_every_reference_leads_somewhere_and_no_operation_has_the_id_of_another(document: Any) -> None:
    def references(node: Any) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return own + [one for value in node.values() for one in references(value)]
        return [one for value in node for one in references(value)] if isinstance(node, list) else []

    for reference in set(references(document)):
        place = document
        for step in reference.removeprefix("#/").split("/"):
            assert step in place, reference
            place = place[step]
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    schemes = document["components"]["securitySchemes"]
    assert {one["type"] for one in schemes.values()} == {"http", "apiKey"}
    assert schemes["session"]["name"] == site_cookie(document)


def site_cookie(document: Any) -> str:
    name: str = document["components"]["securitySchemes"]["session"]["name"]
    assert name.startswith("phalanx-")
    return name


def test_a_body_is_answered_with_all_its_faults_at_once(site: Site) -> None:
    run_id = site.begin()
    answer = site.ask("PATCH", f"/api/v1/runs/{run_id}", json={"nmae": "x", "tags": "a", "description": 3})
    assert answer.status_code == 400
    body = answer.json()
    assert {one["field"]: one["message"] for one in body["fields"]} == {
        "description": "must be a string",
        "tags": "must be a list",
        "nmae": "is not a field of this request",
    }
    assert body["error"]["hint"] == "did you mean `name`?"
    assert "`tags` must be a list" in body["error"]["message"]
    for content, message in ((b"[1]", "not a JSON object"), (b"{", "not JSON"), (b"[" * 100_000, "not JSON")):
        answer = site.ask("PATCH", f"/api/v1/runs/{run_id}", content=content)
        assert answer.status_code == 400
        assert message in answer.json()["error"]["message"]
    answer = site.ask("GET", "/api/v1/runs", params={"limit": "x", "offset": "-1"})
    assert answer.json()["error"]["message"] == "`limit` must be a whole number; `offset` must be at least 0"


def test_a_body_of_another_type_is_refused_with_what_to_send(site: Site) -> None:
    path = f"/api/v1/runs/{site.begin()}"
    answer = site.ask("PATCH", path, content=b"name=x", headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 415
    assert "Content-Type: application/json" in answer.json()["error"]["hint"]
    for kind in ("application/json; charset=utf-8", "application/merge-patch+json"):
        assert site.ask("PATCH", path, content=b"{}", headers={"Content-Type": kind}).status_code == 200
