"""Everybody who might ask: those who may, those who may not, and those who only pretend."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import httpx

from phalanx.server.auth.identities import Role
from phalanx.server.policy import Rule, leaves
from tests.server.site import Site

MARK = "S3CRET"  # in everything that nobody else may see, and in nothing that anybody asks for
MINE, THEIRS = "mine", "theirs"
PASSWORD = "correct horse battery"


class Secrets(NamedTuple):
    """What a project has that strangers must not learn of."""

    run_id: str
    experiment_id: str
    model: str
    model_id: str


class People:
    """On one site: identities with a role on the project MINE, and strangers who have one on THEIRS."""

    def __init__(self, site: Site) -> None:
        self.site = site
        tokens = site.context.tokens
        self.run_id, self.other_run_id = self.begin(), self.begin()
        made = {
            "stranger": tokens.create("stranger", "viewer", projects=[THEIRS]),
            "foreign editor": tokens.create("foreign-editor", "editor", projects=[THEIRS]),
            "foreign admin": tokens.create("foreign-admin", "admin", projects=[THEIRS]),
            "viewer": tokens.create("viewer", "viewer", projects=[MINE]),
            "editor": tokens.create("editor", "editor", projects=[MINE]),
            "project admin": tokens.create("project-admin", "admin", projects=[MINE]),
            "admin": tokens.create("admin", "admin"),
            "own run": site.run_token(self.run_id),
            "other run": site.run_token(self.other_run_id),
        }
        self.headers = {name: {"Authorization": f"Bearer {token}"} for name, token in made.items()}
        self.headers["nobody"] = {}
        self.headers["wrong token"] = {"Authorization": "Bearer phx_wrong"}
        self.headers["forged run"] = {"Authorization": f"Bearer phr_{self.run_id}_1_{'0' * 64}"}
        site.context.accounts.add("ana", PASSWORD, {MINE: Role.EDITOR})
        self.headers["cookie"] = {"Cookie": cookie(sign_in(site, user="ana", password=PASSWORD))}
        self.headers["forged cookie"] = {"Cookie": self.headers["cookie"]["Cookie"][:-4] + "0000"}

    def begin(self, project: str = MINE) -> str:
        answer = self.site.ask("POST", "/api/v1/runs", json={"project": project, "name": MARK})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def status(self, who: str, method: str, path: str, **more: Any) -> int:
        return self.answer(who, method, path, **more)[0]

    def answer(self, who: str, method: str, path: str, **more: Any) -> tuple[int, str]:
        """Also of an address that never ends to answer: then nothing but the status."""
        headers = {**self.headers[who], **more.pop("headers", {})}
        with self.site.client.stream(method, path, headers=headers, **more) as answer:
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                return answer.status_code, ""
            return answer.status_code, answer.read().decode("utf-8", "replace")


def sign_in(site: Site, **body: str) -> httpx.Response:
    with httpx.Client(base_url=site.url, timeout=30.0, trust_env=False, verify=False) as client:
        return client.post("/api/v1/session", json=body)


def cookie(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.headers["set-cookie"]).partition(";")[0]


def routes(site: Site) -> list[tuple[str, str, Rule]]:
    """Every method and address of the application, and who may use it."""
    found = []
    for route in leaves(site.app.routes):
        for method in sorted(route.methods or ()):
            key = ("GET" if method == "HEAD" else method, route.path)
            found.append((method, route.path, site.app.state.policy[key]))
    assert len(found) > 60
    return found


def filled(path: str, run_id: str = "x", rest: str = "x") -> str:
    """An address with something in the place of its parameters."""
    for name, value in {"run_id": run_id, "attempt": "1", "replica": "master-0"}.items():
        path = path.replace(f"{{{name}}}", value)
    return re.sub(r"\{[^}]+\}", rest, path)


def secrets_of(site: Site) -> Secrets:
    """A run of the project MINE with everything that a run can have."""
    experiment = site.mlflow("GET", "experiments/get-by-name", {"experiment_name": MINE})["experiment"]
    experiment_id = str(experiment["experiment_id"])
    tag = {"experiment_id": experiment_id, "key": "t", "value": MARK}
    site.mlflow("POST", "experiments/set-experiment-tag", tag)
    run_id = site.begin(experiment_id, run_name=MARK, tags=[{"key": "tag", "value": MARK}])
    site.mlflow("POST", "runs/log-batch", {"run_id": run_id, "params": [{"key": "p", "value": MARK}]})
    metric = {"run_id": run_id, "key": MARK, "value": 1.0, "timestamp": 1, "step": 1}
    site.mlflow("POST", "runs/log-metric", metric)
    site.ask("PUT", f"/api/2.0/mlflow-artifacts/artifacts/{run_id}/artifacts/{MARK}.txt", content=MARK.encode())
    fields = {"experiment_id": experiment_id, "name": MARK, "source_run_id": run_id}
    model_id = site.mlflow("POST", "logged-models", fields)["model"]["info"]["model_id"]
    site.mlflow("POST", "registered-models/create", {"name": "model", "description": MARK})
    version = {"name": "model", "source": f"runs:/{run_id}/{MARK}.txt", "run_id": run_id, "description": MARK}
    site.mlflow("POST", "model-versions/create", version)
    return Secrets(run_id, experiment_id, "model", str(model_id))


def fields_for(found: Secrets) -> dict[str, Any]:
    """What every call of MLflow's API finds something of in: it names all there is."""
    return {
        "run_id": found.run_id,
        "run_uuid": found.run_id,
        "run_ids": [found.run_id],
        "run_name": "taken over",
        "experiment_id": found.experiment_id,
        "experiment_ids": [found.experiment_id],
        "experiment_name": MINE,
        "name": found.model,
        "version": "1",
        "alias": "a",
        "stage": "Production",
        "new_name": "taken over",
        "key": "tag",
        "value": "taken over",
        "metric_key": "m",
        "timestamp": 1,
        "step": 1,
        "status": 2,
        "source": f"runs:/{found.run_id}/x",
        "source_run_id": found.run_id,
        "model_id": found.model_id,
        "tags": [{"key": "tag", "value": "taken over"}],
        "metrics": [{"key": "m", "value": 1.0, "timestamp": 1, "step": 1, "model_id": found.model_id}],
        "params": [{"key": "p", "value": "taken over"}],
        "datasets": [{"dataset": {"name": "d", "digest": "1"}}],
        "models": [{"model_id": found.model_id}],
        "model_json": json.dumps({"run_id": found.run_id, "artifact_path": "x", "utc_time_created": "", "flavors": {}}),
    }


def state_of(site: Site, found: Secrets) -> Any:
    """All that somebody could have changed."""
    files = {
        str(path.relative_to(site.home.path)): path.read_bytes()
        for top in (site.folder(found.run_id), site.home.path / "models")
        for path in sorted(top.rglob("*"))
        if path.is_file() and path.name != "agent.json"
    }
    return {
        "run": site.run(found.run_id),
        "experiment": site.mlflow("GET", "experiments/get", {"experiment_id": found.experiment_id}),
        "model": site.get(f"/api/v1/models/{found.model}"),
        "logged": site.mlflow("GET", f"logged-models/{found.model_id}"),
        "files": files,
    }
