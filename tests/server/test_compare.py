from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.insight.comparison import flattened
from phalanx.store import Store, Summary
from tests.server.logs import START, remember
from tests.server.site import Site

SPEC = """\
version: 2
run: {{command: "python train.py"}}
environment:
  worker: {{count: {count}}}
  env_vars: [[API_TOKEN, {secret}], [LEVEL, "3"]]
"""


def made(site: Site, run_id: str, params: dict[str, Any], loss: float, commit: str, **more: Any) -> None:
    folder = remember(site, run_id, params=params, **more)
    with Store.open(site.home.path, site.database) as store:
        store.put_summaries(run_id, {"loss": Summary(loss, loss, loss, 1, 0, START)})
    spec = SPEC.format(count=2 if loss < 1 else 4, secret=f"secret-{run_id}")
    (folder / "spec.yml").write_text(f"{spec}\nparams: {json.dumps({**params, 'unused': run_id})}\n")
    records = {
        "host": "node-1",
        "python": "python3",
        "packages": {"torch": "2.4" if loss < 1 else "2.5", "numpy": "1.26"},
        "git": {"commit": commit, "branch": "main", "dirty": True, "diff": f"+{run_id}"},
        "environment": {
            "LEVEL": "3",
            "WHO": run_id,
            "PHALANX_PARAM_LR": str(params.get("lr")),
            "MY_PASSWORD": f"secret-{run_id}",
        },
    }
    (folder / "records.json").write_text(json.dumps(records))


def rows(answer: Any) -> dict[tuple[str, str], list[Any]]:
    return {(row["group"], row["name"]): row["values"] for row in answer["rows"]}


@pytest.fixture(scope="module")
def pair(site: Site) -> list[str]:
    made(site, "pair-1", {"lr": 0.1, "layers": 3}, 0.5, "aaaa")
    made(site, "pair-2", {"lr": 0.2, "layers": 3, "extra": None}, 1.5, "bbbb")
    return ["pair-1", "pair-2"]


def test_what_differs_is_informed_of_params_metrics_files_code_and_surroundings(site: Site, pair: list[str]) -> None:
    answer = site.get("/api/v1/compare", run=pair)
    assert [run["id"] for run in answer["runs"]] == pair
    assert all(row["differs"] for row in answer["rows"])
    found = rows(answer)
    assert found["params", "lr"] == [0.1, 0.2]
    assert ("params", "layers") not in found
    assert found["metrics", "loss"] == [0.5, 1.5]
    assert found["spec", "environment.worker.count"] == [2, 4]
    repeated = [name for group, name in found if group != "params" and name.lower().endswith("lr")]
    assert repeated == []  # a param has one row, however often the file and the environment have it
    assert found["spec", "params.unused"] == ["pair-1", "pair-2"]
    assert ("spec", "run.command") not in found
    assert found["code", "commit"] == ["aaaa", "bbbb"]
    assert found["code", "packages.torch"] == ["2.4", "2.5"]
    assert found["code", "diff"][0].startswith("uncommitted changes ")
    assert found["environment", "variables.WHO"] == pair
    assert ("environment", "host") not in found


def test_everything_says_what_is_the_same_too(site: Site, pair: list[str]) -> None:
    answer = site.get("/api/v1/compare", run=pair, everything=1)
    found = rows(answer)
    assert found["params", "layers"] == [3, 3]
    assert found["spec", "run.command"] == ["python train.py"] * 2
    assert found["environment", "host"] == ["node-1", "node-1"]
    assert {row["name"] for row in answer["rows"] if row["group"] == "code" and not row["differs"]} == {
        "branch",
        "dirty",
        "packages.numpy",
    }


def test_secrets_are_not_compared(site: Site, pair: list[str]) -> None:
    for everything in (0, 1):
        answer = site.ask("GET", "/api/v1/compare", params={"run": pair, "everything": everything})
        assert "secret-" not in answer.text


def test_a_run_without_files_has_no_values_there(site: Site, pair: list[str]) -> None:
    folder = remember(site, "bare-1")
    (folder / "spec.yml").write_text("]: not yaml")
    (folder / "records.json").write_text("[1]")
    answer = site.get("/api/v1/compare", run=["pair-1", "bare-1", "nobody", "pair-1"])
    assert [run["id"] for run in answer["runs"]] == ["pair-1", "bare-1"]
    assert rows(answer)["code", "commit"] == ["aaaa", None]


def test_runs_that_one_may_not_see_are_left_out(site: Site, pair: list[str]) -> None:
    made(site, "hidden-1", {"lr": 9.0}, 0.1, "cccc", project="hidden")
    token = site.context.tokens.create("somebody", "viewer", projects=["default"])
    asked = {"run": [*pair, "hidden-1"]}
    seen = site.ask("GET", "/api/v1/compare", token, params=asked)
    assert [run["id"] for run in seen.json()["runs"]] == pair
    assert "cccc" not in seen.text
    everybody = site.ask("GET", "/api/v1/compare", params=asked)
    assert len(everybody.json()["runs"]) == 3


def test_too_many_runs_are_refused(site: Site) -> None:
    answer = site.ask("GET", "/api/v1/compare", params={"run": [f"run-{n}" for n in range(101)]})
    assert answer.status_code == 400
    assert site.ask("GET", "/api/v1/compare").status_code == 400


def test_trees_become_paths_and_plain_lists_stay_whole() -> None:
    tree = {"a": {"b": [1, 2], "c": [{"d": None}, []], "e": {}}, 5: True}
    assert flattened(tree) == {"a.b": "[1, 2]", "a.c.0.d": None, "5": True}
    deep: Any = 1
    for _ in range(200):
        deep = {"x": deep}
    assert len(flattened(deep)) == 1
