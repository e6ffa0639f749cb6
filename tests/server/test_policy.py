"""Every address, every call of MLflow, and everybody who might ask: new addresses are asked, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse

from phalanx.server import policy
from phalanx.server.auth.identities import Identity, Role, least
from phalanx.server.mlflow.calls import CALLS
from phalanx.server.policy import Rule
from phalanx.store import Store
from tests.server.people import MARK, MINE, THEIRS, People, Secrets, fields_for, filled, routes, secrets_of, state_of
from tests.server.site import API, Site

SAFE = ("GET", "HEAD")
UNKNOWN = ("nobody", "wrong token", "forged run", "forged cookie")
RUNS = ("own run", "other run")
LIMITED = ("viewer", "editor", "project admin", "cookie")  # to one project
STRANGERS = ("stranger", "foreign editor", "foreign admin")


@pytest.fixture(scope="module")
def people(site: Site) -> People:
    return People(site)


@pytest.fixture(scope="module")
def secrets(people: People) -> Secrets:
    return secrets_of(people.site)


def refused(rule: Rule, method: str) -> dict[str, int]:  # noqa: C901 - a case for each rule
    """Who is refused, and how."""
    if rule is Rule.OPEN:
        return {}
    found = dict.fromkeys(UNKNOWN, 401)
    cookie = {} if method in SAFE else {"cookie": 403}
    match rule:
        case Rule.ANY_TOKEN:
            return {**found, **cookie}
        case Rule.SIGNED_IN:
            return {**found, **cookie, **dict.fromkeys(RUNS, 403)}
        case Rule.VIEW:
            return {**found, **cookie, **dict.fromkeys(STRANGERS, 404), "other run": 403}
        case Rule.PERSONAL:
            return {**found, **cookie, **dict.fromkeys(STRANGERS, 404), **dict.fromkeys(RUNS, 403)}
        case Rule.EDIT:
            return {**found, **cookie, **dict.fromkeys(STRANGERS, 404), "other run": 403, "viewer": 403}
        case Rule.MANAGE:
            return {**found, **cookie, **dict.fromkeys(STRANGERS, 404), **dict.fromkeys(RUNS, 403), "viewer": 403}
        case Rule.EDIT_SOME:
            return {**found, **cookie, **dict.fromkeys((*RUNS, "stranger", "viewer"), 403)}
        case Rule.ADMIN:
            return {**found, **dict.fromkeys((*RUNS, *STRANGERS, *LIMITED), 403)}
        case Rule.VIEW_ALL:
            return {**found, **dict.fromkeys((*RUNS, *STRANGERS, *LIMITED), 403)}
        case Rule.POD:
            return {**found, **dict.fromkeys((*STRANGERS, *LIMITED, "admin", "other run"), 403)}
        case Rule.MLFLOW:
            return {**found, **cookie}
    raise AssertionError(rule)


def allowed(rule: Rule, method: str) -> list[str]:
    """Who is never refused; of the others the body or the call decides."""
    if rule is Rule.OPEN:
        return ["nobody", "wrong token"]
    # The cookie must come from the page to change something, and the run itself must stay.
    named = ["editor", "admin", *(["viewer", "own run", "cookie"] if method in SAFE else [])]
    if rule in (Rule.EDIT_SOME, Rule.MLFLOW):
        named = ["admin"]
    return [who for who in named if who not in refused(rule, method)]


def test_a_refused_caller_is_refused_everywhere(people: People) -> None:
    asked = 0
    for method, path, rule in routes(people.site):
        for who, status in refused(rule, method).items():
            if who != "nobody" and (method == "HEAD" or "ajax-api" in path or "/tracked/" in path):
                continue  # the same handlers at another address
            found, text = people.answer(who, method, filled(path, people.run_id), content=b"{}")
            assert found == status, (who, method, path, rule, text)
            assert MARK not in text
            asked += 1
    assert asked > 300


@pytest.mark.slow
def test_an_allowed_caller_is_never_refused(people: People) -> None:
    """What they are answered depends on what they ask; it is neither a refusal nor a fault of ours."""
    asked = 0
    for method, path, rule in routes(people.site):
        for who in allowed(rule, method) if "ajax-api" not in path and method != "HEAD" else ():
            run_id = people.run_id if method in SAFE else people.begin()
            status, text = people.answer(who, method, filled(path, run_id), content=b"{}")
            assert status not in (401, 403), (who, method, path, rule, text)
            assert status < 500 or "/mpu/" in path or "/presigned/" in path, (who, method, path, rule, text)
            asked += 1
    assert asked > 100


def test_a_run_that_one_may_not_see_looks_like_one_that_is_not_there(people: People) -> None:
    for method, path, rule in routes(people.site):
        if rule in (Rule.VIEW, Rule.EDIT, Rule.MANAGE) and method != "HEAD":
            hidden = people.answer("stranger", method, filled(path, people.run_id), content=b"{}")
            absent = people.answer("stranger", method, filled(path, "nothing-here"), content=b"{}")
            assert hidden == (404, absent[1].replace("nothing-here", people.run_id)), (method, path)


def test_lists_show_strangers_nothing(people: People, secrets: Secrets) -> None:
    asked = 0
    run = {"run": secrets.run_id, "name": MINE, "project": MINE, "q": "", "limit": "100"}
    for method, path, rule in routes(people.site):
        if rule is Rule.SIGNED_IN and method == "GET":
            for who in STRANGERS:
                for params in ({}, run):
                    status, text = people.answer(who, method, filled(path, rest=secrets.model), params=params)
                    assert status < 500, (who, path, text)
                    assert MARK not in text, (who, path, params)
                    assert secrets.run_id not in text or status != 200, (who, path, params)
                    asked += 1
    assert asked > 20


@pytest.mark.parametrize(
    "query",
    [
        "status:running|failed|succeeded",
        f"name:{MARK}|x",
        "project:mine|theirs",
        "name:~x) OR (1=1",
        "created_at:>2000-01-01, status:running|stopped",
    ],
)
def test_no_query_finds_what_one_may_not_see(people: People, query: str) -> None:
    for project in (None, MINE, THEIRS):
        params = {"q": query, "limit": "100", **({"project": project} if project else {})}
        status, text = people.answer("stranger", "GET", "/api/v1/runs", params=params)
        if status == 200:
            assert {run["project"] for run in json.loads(text)["runs"]} <= {THEIRS}
        assert people.run_id not in text
        fields = {"experiment_ids": ["0"], "filter": "attributes.status != 'x' or 1 = 1"}
        assert people.run_id not in mlflow(people, "stranger", "POST", "runs/search", fields)[1]


def test_a_viewer_sees_in_lists_what_is_theirs(people: People, secrets: Secrets) -> None:
    for path in ("/api/v1/runs?limit=100", "/api/v1/models", f"/api/v1/models/{secrets.model}", "/api/v1/projects"):
        status, text = people.answer("viewer", "GET", path)
        assert status == 200
        assert (MARK if "projects" not in path else MINE) in text, path


# MLflow -------------------------------------------------------------------------------------------------------------


def mlflow(  # noqa: PLR0917 - what a call has
    people: People, who: str, method: str, path: str, fields: Any, prefix: str = ""
) -> tuple[int, str]:
    address = f"{prefix}{API}/{path}"
    if method == "GET":
        return people.answer(who, method, address, params=fields)
    return people.answer(who, method, address, content=json.dumps(fields))


def named(path: str, secrets: Secrets) -> str:
    return path.replace("*", secrets.model_id, 1).replace("*", "tag")


def test_no_call_of_mlflow_answers_strangers_or_changes_anything(people: People, secrets: Secrets) -> None:
    fields, before = fields_for(secrets), state_of(people.site, secrets)
    plain = {key: value for key, value in fields.items() if isinstance(value, str | int)}
    prefixes = ("", f"/tracked/{secrets.run_id}/1/master-0")
    for who in ("stranger", "foreign admin"):
        for (method, path), entry in CALLS.items():
            for prefix in prefixes:
                asked = {**plain, "run_ids": secrets.run_id, "experiment_ids": secrets.experiment_id}
                given = asked if method == "GET" else fields
                status, text = mlflow(people, who, method, named(path, secrets), given, prefix)
                assert MARK not in text, (who, method, path, text)
                assert status < 500 or status == 501, (who, method, path, text)
                assert status != 200 or entry.reads or path in HARMLESS, (who, method, path, text)
    assert state_of(people.site, secrets) == before


# What makes something new of one's own, whatever else is named.
HARMLESS = ("registered-models/create", "experiments/create")


@pytest.mark.parametrize("who", ["viewer", "stranger"])
def test_who_only_looks_calls_nothing_that_writes(people: People, secrets: Secrets, who: str) -> None:
    fields, before = fields_for(secrets), state_of(people.site, secrets)
    for (method, path), entry in CALLS.items():
        if not entry.reads:
            status, text = mlflow(people, who, method, named(path, secrets), fields)
            assert status == 403, (method, path, text)
            assert json.loads(text)["error_code"] == "PERMISSION_DENIED"
    assert state_of(people.site, secrets) == before


def test_strangers_reach_no_artifact_by_any_address(people: People, secrets: Secrets) -> None:
    before = state_of(people.site, secrets)
    places = (f"{secrets.run_id}/artifacts/{MARK}.txt", f"{secrets.run_id}/artifacts", f"~models/{secrets.model}/1")
    for prefix in ("", f"/tracked/{secrets.run_id}/1/master-0"):
        for api in ("api", "ajax-api"):
            base = f"{prefix}/{api}/2.0/mlflow-artifacts/artifacts"
            for place in places:
                for who in STRANGERS:
                    for method in ("GET", "PUT", "DELETE"):
                        status, text = people.answer(who, method, f"{base}/{place}", content=b"x")
                        assert status in (403, 404), (who, method, place, text)
                    status, text = people.answer(who, "GET", base, params={"path": place})
                    assert status == 404, (who, place, text)
    assert state_of(people.site, secrets) == before
    assert people.answer("viewer", "GET", f"/api/2.0/mlflow-artifacts/artifacts/{places[0]}") == (200, MARK)
    assert people.status("viewer", "GET", f"/api/2.0/mlflow-artifacts/artifacts/{places[2]}/{MARK}.txt") == 200


def test_an_editor_works_in_their_project_with_mlflow_and_in_no_other(people: People) -> None:
    status, text = mlflow(people, "editor", "POST", "experiments/create", {"name": "somebody else's"})
    assert status == 403, text
    status, text = mlflow(people, "foreign editor", "POST", "experiments/create", {"name": THEIRS})
    assert status == 200, text
    theirs = json.loads(text)["experiment_id"]
    assert mlflow(people, "editor", "POST", "runs/create", {"experiment_id": theirs})[0] == 404
    assert mlflow(people, "editor", "POST", "runs/create", {})[0] == 403, "the default project is not theirs either"
    status, text = mlflow(people, "foreign editor", "POST", "runs/create", {"experiment_id": theirs})
    assert status == 200, text
    run_id = json.loads(text)["run"]["info"]["run_id"]
    assert mlflow(people, "foreign editor", "POST", "registered-models/create", {"name": "theirs"})[0] == 200
    path = f"/api/2.0/mlflow-artifacts/artifacts/{run_id}/artifacts/m"
    assert people.status("foreign editor", "PUT", path, content=b"x") == 200
    version = {"name": "theirs", "source": f"runs:/{run_id}/m", "run_id": run_id}
    assert mlflow(people, "foreign editor", "POST", "model-versions/create", version)[0] == 200
    alias = {"name": "theirs", "alias": "best", "version": "1"}
    assert mlflow(people, "foreign editor", "POST", "registered-models/alias", alias)[0] == 200
    assert mlflow(people, "editor", "GET", "registered-models/get", {"name": "theirs"})[0] == 404
    assert "theirs" not in people.answer("editor", "GET", "/api/v1/models")[1]
    assert "theirs" in people.answer("foreign editor", "GET", "/api/v1/models")[1]


def test_a_version_is_not_made_of_what_one_may_not_see(people: People, secrets: Secrets) -> None:
    """Nor by way of another model's version, a logged model, or the id of a run that does not belong to the source."""
    created = mlflow(people, "foreign editor", "POST", "registered-models/create", {"name": "copies"})
    assert created[0] == 200, created
    mine = people.begin(THEIRS)
    for source, more in (
        (f"runs:/{secrets.run_id}/{MARK}.txt", {}),
        (f"runs:/{secrets.run_id}/{MARK}.txt", {"run_id": secrets.run_id}),
        ("runs:/elsewhere1/model", {"run_id": "elsewhere1"}),
        (f"mlflow-artifacts:/{secrets.run_id}/artifacts/{MARK}.txt", {}),
        (f"mlflow-artifacts://host/{secrets.run_id}/artifacts/{MARK}.txt", {}),
        (f"models:/{secrets.model}/1", {}),
        (f"models:/{secrets.model_id}", {}),
        (f"runs:/{mine}/x", {"model_id": secrets.model_id}),
        (f"runs:/{mine}/../../{secrets.run_id}/artifacts/{MARK}.txt", {}),
        (f"/{secrets.run_id}/artifacts", {}),
        ("file:///etc/passwd", {}),
    ):
        fields = {"name": "copies", "source": source, "run_id": mine, **more}
        status, text = mlflow(people, "foreign editor", "POST", "model-versions/create", fields)
        assert status in (400, 403, 404), (source, text)


def test_an_experiment_does_not_take_the_name_of_one_that_is_not_seen(people: People, secrets: Secrets) -> None:
    """Clients find experiments by name: they would log to whoever took it."""
    fields = {"name": THEIRS}
    mlflow(people, "foreign editor", "POST", "experiments/create", fields)
    theirs = json.loads(
        mlflow(people, "foreign editor", "GET", "experiments/get-by-name", {"experiment_name": THEIRS})[1]
    )
    rename = {"experiment_id": theirs["experiment"]["experiment_id"], "new_name": MINE}
    assert mlflow(people, "foreign editor", "POST", "experiments/update", rename)[0] == 400
    found = people.site.mlflow("GET", "experiments/get-by-name", {"experiment_name": MINE})["experiment"]
    assert found["experiment_id"] == secrets.experiment_id


def test_a_run_sees_its_own_project_once_anybody_is_limited(people: People, secrets: Secrets) -> None:
    elsewhere = people.begin("third")
    token = people.site.run_token(people.run_id)
    prefix = f"/tracked/{people.run_id}/1/master-0"
    answer = people.site.mlflow_answer("GET", "runs/get", {"run_id": elsewhere}, prefix, token)
    assert answer.status_code == 404
    answer = people.site.mlflow_answer("GET", "runs/get", {"run_id": secrets.run_id}, prefix, token)
    assert answer.status_code == 200, "it is of the same project"


def test_a_run_sees_all_while_no_one_is_limited(own_site: Site) -> None:
    """Training loads models that other projects made."""
    mine, other = own_site.begin(), own_site.post("/api/v1/runs", {"project": "other"}, 201)["id"]
    prefix, token = f"/tracked/{mine}/1/master-0", own_site.run_token(mine)
    assert own_site.mlflow_answer("GET", "runs/get", {"run_id": other}, prefix, token).status_code == 200
    own_site.context.tokens.create("guest", "viewer", projects=["public"])
    assert own_site.mlflow_answer("GET", "runs/get", {"run_id": other}, prefix, token).status_code == 404


def test_the_id_of_another_users_run_is_taken_and_reveals_nothing(people: People) -> None:
    status, text = people.answer(
        "foreign editor", "POST", "/api/v1/runs", json={"id": people.run_id, "project": THEIRS}
    )
    assert status == 409
    assert MARK not in text
    assert people.status("foreign editor", "POST", "/api/v1/runs", json={"project": MINE}) == 403
    assert people.status("foreign editor", "POST", "/api/v1/runs", json={"project": THEIRS}) == 201


def test_a_run_is_submitted_only_to_a_project_of_ones_own(people: People) -> None:
    file = {"name": "x.yml", "text": "version: 1\nkind: experiment\nrun:\n  cmd: 'true'\n"}
    for project in (MINE, "default", "*", "new"):
        body = {"files": [file], "project": project}
        status, text = people.answer("foreign editor", "POST", "/api/v1/runs/submit", json=body)
        assert status == (400 if project == "*" else 403), text
    assert people.status("editor", "POST", "/api/v1/runs/submit", json={"files": [file], "project": MINE}) == 201


def test_where_only_admins_start_runs_editors_do_not(tmp_path: Path) -> None:
    """A run is a command of the server's user: whoever starts one may do what that user may."""
    with Site(tmp_path, only_admins_start=True) as site:
        run_id = site.begin()
        admin = site.context.tokens.create("admin", "admin")
        for method, template in policy.STARTING:
            assert site.ask(method, filled(template, run_id), content=b"{}").status_code == 403
            assert site.ask(method, filled(template, run_id), admin, content=b"{}").status_code in (400, 409, 422)
        assert site.ask("POST", f"/api/v1/runs/{run_id}/finish", json={}).status_code == 200


# the table ----------------------------------------------------------------------------------------------------------


def test_an_application_with_a_gap_in_the_table_does_not_start(site: Site) -> None:
    with pytest.raises(RuntimeError, match="/unheard-of"):
        policy.check([*site.app.routes, *_added(lambda app: app.add_api_route("/unheard-of", lambda: 1))])
    with pytest.raises(RuntimeError, match="bypasses the policy"):
        policy.check([*site.app.routes, *_added(lambda app: app.add_route("/raw", PlainTextResponse))])
    with pytest.raises(RuntimeError, match="bypasses the policy"):
        policy.check([*site.app.routes, *_added(lambda app: app.mount("/files", FastAPI()))])
    with pytest.raises(RuntimeError, match="has unused"):
        policy.check([])


def _added(change: Any) -> list[Any]:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    change(app)
    return list(app.routes)


def test_what_is_distinguished_by_address_has_an_address() -> None:
    assert {*policy.COSTLY, *policy.PIECES, *policy.CODE, *policy.ROUTINE, *policy.STARTING} <= set(policy.POLICY)
    for call in (*policy.COSTLY_CALLS, *policy.ROUTINE_CALLS):
        assert any(path.startswith(call) for _, path in CALLS), call


def test_a_role_on_all_projects_is_one_on_each() -> None:
    one = Identity("x", {"*": Role.VIEWER, "a": Role.EDITOR})
    assert [one.role_on(project) for project in ("a", "b")] == [Role.EDITOR, Role.VIEWER]
    assert one.projects(Role.VIEWER) is None
    assert one.projects(Role.EDITOR) == frozenset(["a"])
    assert one.projects(Role.ADMIN) == frozenset()
    assert Identity("x", {}).role_on("a") is None


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({"*": 3}, {"*": 1}, {"*": 1}),
        ({"*": 3}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"*": 3}, {"a": 1}),
        ({"a": 3}, {"b": 3}, {}),
        ({"*": 1, "a": 3}, {"*": 2}, {"*": 1, "a": 2}),
        ({"*": 2}, {}, {}),
    ],
)
def test_two_limits_leave_what_both_allow(one: dict[str, int], other: dict[str, int], both: dict[str, int]) -> None:
    roles = [{place: Role(role) for place, role in given.items()} for given in (one, other)]
    assert least(roles[0], roles[1]) == both


def test_candidates_of_models_are_shown_to_those_who_see_their_run(people: People) -> None:
    with Store.open(people.site.home.path, people.site.database) as store:
        store.put_fact(people.run_id, "candidates", [{"path": f"outputs/{MARK}.pt", "size": 1, "at": 1.7e9}])
    for query in ("", f"?run={people.run_id}"):
        seen = {
            who: f"outputs/{MARK}.pt" in people.answer(who, "GET", f"/api/v1/models/-/candidates{query}")[1]
            for who in ("viewer", "admin", "stranger", "foreign admin", "nobody")
        }
        assert seen == {"viewer": True, "admin": True, "stranger": False, "foreign admin": False, "nobody": False}
