"""A plan as data: exact for machines, readable and without secrets for people."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from phalanx.errors import SpecErrors
from phalanx.plan.document import HIDDEN, MANY, PlanView, document, document_text, resources_view
from phalanx.spec import Amount, Resources
from phalanx.stored_plan import decode_plan
from tests.plan.samples import EXAMPLE, RUN_ID, distributed, planned, replica

FRAMEWORKS = ("tensorflow", "mxnet", "pytorch", "horovod", "jax", "plain", "mpi")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_machines_document_comes_back_from_json_as_it_went(framework: str) -> None:
    made = distributed(framework, n_workers=3)
    data = decode_plan(json.loads(document_text(document(made))))
    assert data.environment == dict(made.shared)
    for written, found in zip(data.replicas, made.replicas, strict=True):
        assert (written.role, written.number, written.rank) == (found.role, found.index, found.rank)
        assert dict(written.environment) == dict(found.environment)
        assert (written.argv, written.defaults) == (found.argv, found.defaults)


def test_the_machines_document_has_all_that_an_agent_needs() -> None:
    data = document(planned(EXAMPLE.format(framework="tensorflow")))
    assert (data["version"], data["run_id"], data["launch"]) == (2, RUN_ID, "each")
    assert data["roles"] == {"master": 1, "worker": 7, "ps": 3}
    template = data["templates"][data["replicas"][3]["template"]]
    assert template["resources"]["gpu"] is None
    assert template["defaults"] == {"OMP_NUM_THREADS": "1"}


SECRETS = """
    version: 1
    kind: experiment
    framework: pytorch
    build:
      image: "busybox:1"
      env_vars: [[AWS_SECRET_ACCESS_KEY, hidden-1], [PIP_INDEX_URL, shown-1]]
    environment:
      env_vars:
        HF_TOKEN: hidden-2
        DATABASE_PASSWORD: hidden-3
        WANDB_API_KEY: hidden-4
        AWS_ACCESS_KEY_ID: hidden-5
        GOOGLE_CREDENTIALS: hidden-6
        ssh_private_key: hidden-7
        EMPTY_TOKEN: ""
        DATA_FOLDER: shown-2
      replicas:
        n_workers: 1
        default_worker: {env_vars: {GITHUB_TOKEN: hidden-8, DEPTH: shown-3}}
    run: {cmd: ls}
"""


def test_people_never_see_secrets() -> None:
    text = json.dumps(PlanView(planned(SECRETS)).as_json())
    assert "hidden-" not in text
    assert all(f"shown-{number}" in text for number in (1, 2, 3))


def test_people_see_that_a_secret_is_set_and_that_one_is_empty() -> None:
    variables = PlanView(planned(SECRETS)).as_json()["replicas"][1]["environment"]
    assert variables["HF_TOKEN"] == variables["GITHUB_TOKEN"] == variables["AWS_SECRET_ACCESS_KEY"] == HIDDEN
    assert variables["EMPTY_TOKEN"] == ""


def test_machines_do_see_secrets() -> None:
    text = json.dumps(document(planned(SECRETS)))
    assert all(f"hidden-{number}" in text for number in range(1, 9))


def test_people_see_hosts_and_folders_in_angle_brackets() -> None:
    variables = PlanView(distributed("pytorch")).as_json()["replicas"][1]["environment"]
    assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("<master-0>", "2222")
    assert variables["PHALANX_OUTPUTS"] == "<outputs>"
    assert json.loads(variables["PHALANX_CLUSTER"])["worker"] == ["<worker-0>:2222", "<worker-1>:2222"]


@pytest.mark.parametrize(("n_workers", "shown"), [(MANY, MANY), (MANY + 1, 1)])
def test_addresses_over_256_are_folded_into_one(n_workers: int, shown: int) -> None:
    made = distributed("tensorflow", n_workers=n_workers)
    view = PlanView(made)
    cluster = json.loads(view.text(made.shared["POLYAXON_CLUSTER"]))
    assert MANY == 256
    assert len(cluster["worker"]) == shown
    if shown == 1:
        assert cluster["worker"] == ["<worker-0..256>:2222"]
    assert cluster["master"] == ["<master-0>:2222"]
    config = json.loads(view.text(replica(made, "worker-200").environment["TF_CONFIG"]))
    assert len(config["cluster"]["worker"]) == shown
    assert config["task"] == {"type": "worker", "index": 200}


def test_machines_see_every_address() -> None:
    made = distributed("tensorflow", n_workers=MANY + 1)
    assert document(made)["roles"]["worker"] == MANY + 1
    assert len(document(made)["replicas"]) == MANY + 2


def test_the_people_view_says_every_replica() -> None:
    made = planned(EXAMPLE.format(framework="tensorflow"))
    view = PlanView(made).as_json()
    assert view["roles"] == {"master": 1, "worker": 7, "ps": 3}
    assert view["is_distributed"] is True
    assert view["resources"]["cpu"] == {"requests": 11, "limits": 19}
    third = view["replicas"][3]
    assert {key: third[key] for key in ("name", "role", "index", "rank", "command")} == {
        "name": "worker-2",
        "role": "worker",
        "index": 2,
        "rank": 3,
        "command": "python train.py",
    }
    assert third["argv"] == ["bash", "-c", "python train.py"]
    assert third["resources"] == {
        "cpu": {"requests": 1, "limits": 2},
        "memory": {"requests": 256, "limits": 1024},
        "gpu": None,
    }
    assert third["environment"]["OMP_NUM_THREADS"] == "1"
    assert third["defaults"] == ["OMP_NUM_THREADS"]


def test_every_rank_has_the_command_and_the_launcher_what_starts_it() -> None:
    view = PlanView(distributed("mpi", n_workers=2)).as_json()
    assert [found["command"] for found in view["replicas"]] == ["python train.py"] * 3
    assert [found["argv"][0] for found in view["replicas"]] == ["bash", "bash", "mpirun"]


def test_whole_numbers_are_written_without_a_point_and_absent_bounds_as_null() -> None:
    view = resources_view(Resources(cpu=Amount(2.0, None), memory=Amount(0.5, 1024.0)))
    assert json.dumps(view) == (
        '{"cpu": {"requests": 2, "limits": null}, "memory": {"requests": 0.5, "limits": 1024}, "gpu": null}'
    )


def test_tpus_are_shown_only_where_they_are_asked_for() -> None:
    assert "tpu" not in resources_view(Resources())
    assert resources_view(Resources(tpu=Amount(8, 8)))["tpu"] == {"requests": 8, "limits": 8}


@pytest.mark.parametrize("name", ["dü", "naïve-données"])
def test_data_stores_named_in_any_language_are_shown_or_refused(name: str) -> None:
    with suppress(SpecErrors):
        made = planned(f"version: 1\nkind: experiment\nenvironment: {{data_refs: [{name}]}}\nrun: {{cmd: ls}}\n")
        shown = json.loads(PlanView(made).as_json()["replicas"][0]["environment"]["POLYAXON_RUN_DATA_PATHS"])
        assert shown == {name: f"<data/{name}>"}
