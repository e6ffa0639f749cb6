"""The OpenAPI document: complete, and in agreement with the policy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from phalanx.artifacts.outputs import OutputEntry
from phalanx.registry.candidates import Candidate
from phalanx.server.policy import Rule
from phalanx.store import Artifact, ReplicaRecord, Run, StatusChange
from phalanx.store.model_index import Model, ModelEvent, ModelVersion
from phalanx.store.records import Summary
from phalanx.store.series.leaves import Bucket
from phalanx.store.series.rank_statistics import Spread
from tests.server.site import Site

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
        assert good or any(status in answers for status in ("302", "303", "307")), (method, path)
        for answer in good:
            schemas = [content.get("schema") for content in answer.get("content", {}).values()]
            assert schemas, (method, path, "has no schema")
            assert all(schemas), (method, path, "has no schema")
        always = {"400", "403", "414", "421", "429", "431", "500", "503"}
        assert always <= set(answers), (method, path)
        assert ("401" in answers) == (rule is not Rule.OPEN) or path == "/api/v1/session", (method, path)
        assert "422" not in answers or path in ("/api/v1/runs/submit", "/api/v1/runs/submit-many")
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
    assert not [name for name in document["components"]["schemas"] if "__" in name], "two models have the same name"
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


def test_a_method_that_a_path_lacks_is_answered_with_those_that_it_has(site: Site) -> None:
    answer = site.ask("PATCH", "/api/v1/runs", json={})
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, POST"
    assert answer.json()["error"]["hint"] == "it supports GET, POST"


# the documentation and the page --------------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parent.parent.parent
REFERENCE = ROOT / "docs" / "reference" / "rest-api.md"
REQUEST = re.compile(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`?\s]*)(?:\?([^`\s]*))?`")


def test_every_request_in_the_reference_exists_with_its_parameters(document: Any) -> None:
    known = {
        (method.upper(), re.sub(r"\{[a-z_]+\}", "{}", path.removeprefix("/api/v1"))): operation
        for method, path, operation in operations(document)
    }
    written, _, generated = REFERENCE.read_text().partition("<!-- generated: operations -->")
    found = REQUEST.findall(written)
    assert len(found) > 40
    for method, path, query in found:
        if path == "/api/v1/openapi.json":
            continue
        operation = known.get((method, re.sub(r"\{[a-z_]+\}", "{}", path)))
        assert operation is not None, (method, path)
        parameters = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
        names = {part.partition("=")[0] for part in query.split("&") if part}
        assert names <= parameters, (method, path, names - parameters)
    for method, path, operation in operations(document):
        assert f"`{method.upper()} {path}`" in generated, "run `make docs`"
        for one in operation.get("parameters", ()):
            row = next(line for line in generated.splitlines() if f"`{method.upper()} {path}`" in line)
            assert one["in"] != "query" or f"`{one['name']}`" in row, f"run `make docs`: {method} {path}"


TYPE = re.compile(r"^export type (\w+) = (?:\w+ & |Omit<[^>]*> & )?\{(?:\n(.*?)\n\};|([^\n]*)\};)$", re.M | re.S)
# What the page calls the schemas, where the names differ.
TYPES = {
    "Topology": "RunTopology",
    "ModelDetails": "ModelWithVersions",
    "RunsPage": "RunPage",
    "Columns": "RunColumns",
    "SearchFact": "SearchFact",
    "GroupRung": "RungRow",
    "AttemptTimes": "TrialAttempt",
    "TrialsPage": "TrialPage",
    "Summary": "SummaryRow",
    "RunRow": "ListedRun",
    "FirstFailure": "FirstFailureRow",
    "ReplicaUsage": "UseOverTime",
    "Environment": "ReplicaInputs",
    "ResourceRequest": "RequestedCapacity",
    "QueueRow": "QueuedRun",
    "Queue": "QueuePage",
    "LogLine": "MergedLine",
    "LogPage": "LogWindow",
    "Chart": "RunChart",
    "Charts": "RunCharts",
    "RunsCharts": "ComparedCharts",
    "Preview": "FilePreview",
    "Comparison": "RunComparison",
    "ModelCandidate": "CandidateRow",
}
OWN = {"Dimension", "ProjectRow"}  # of the settings of a search, which has no schema; and NamedCount


def test_every_field_that_the_page_reads_is_in_the_schema_of_its_answer(document: Any) -> None:
    schemas = document["components"]["schemas"]
    text = (ROOT / "web" / "src" / "types.ts").read_text()
    compared = 0
    for name, lines, line in TYPE.findall(text):
        body = lines or line
        schema = schemas.get(TYPES.get(name, name))
        if schema is None or name in OWN:
            assert name in OWN or name not in TYPES, f"{name} of types.ts has no schema {TYPES.get(name)}"
            continue
        missing = top_fields(body) - set(schema["properties"])
        assert not missing, f"{name} of types.ts has {sorted(missing)}, which {TYPES.get(name, name)} has not"
        compared += 1
    assert compared > 25


def top_fields(body: str) -> set[str]:
    """The names of the fields of a TypeScript type, without those of the types in it and of its index signature."""
    plain = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    while True:
        flat = re.sub(r"\{[^{}]*\}|\([^()]*\)|\[[^\[\]]*\]|<[^<>]*>", "", plain)
        if flat == plain:
            return set(re.findall(r"(?:^|[;\n])\s*(\w+)\??:", plain))
        plain = flat


def test_every_field_that_the_python_client_reads_is_in_the_schema_of_its_answer(document: Any) -> None:
    """The client makes records from rows: `rows.record` takes the fields of the record that a row has."""
    schemas = document["components"]["schemas"]
    records: dict[type, str] = {
        Run: "RunRow",
        StatusChange: "StatusRow",
        Artifact: "ArtifactRow",
        Model: "ModelRow",
        ModelVersion: "VersionRow",
        ModelEvent: "ModelEventRow",
        Candidate: "CandidateRow",
        OutputEntry: "OutputRow",
        Summary: "SummaryRow",
        Bucket: "BucketRow",
        Spread: "StepSpread",
    }
    for record, name in records.items():
        fields = set(record._fields)  # type: ignore[attr-defined] # a named tuple
        assert fields == set(schemas[name]["properties"]), name
    replica = set(schemas["ReplicaRow"]["properties"])
    assert {*ReplicaRecord._fields, "index", "name"} == replica
