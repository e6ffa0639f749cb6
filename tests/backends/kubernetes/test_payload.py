"""What goes along with pods: complete for the agent, without secrets, and small enough to be taken."""

from __future__ import annotations

import gzip
import json
import os
from base64 import b64decode
from typing import Any

import pytest

from phalanx.backends import agent_zip
from phalanx.backends.kubernetes.render import native_jobs, payload
from phalanx.backends.kubernetes.render.code_pieces import LARGEST_CODE
from phalanx.backends.kubernetes.target import ClusterTarget, Settings
from phalanx.errors import CallError
from phalanx.plan.document import document as as_document
from tests.backends.kubernetes.test_native_jobs import PLAIN, file, made_of

SERVER = ClusterTarget(Settings(server="https://phalanx.example"))
SHARED = ClusterTarget(Settings(home_claim="home", server="https://phalanx.example"))


def place_json(document: dict[str, Any], target: ClusterTarget = PLAIN, **more: Any) -> dict[str, Any]:
    made = made_of(document)
    found: dict[str, Any] = json.loads(payload.place_json(made, target, native_jobs.tables(made, target), **more))
    return found


def test_the_agent_gets_the_places_of_everything() -> None:
    found = place_json(file(replicas={"n_workers": 1}, kubernetes={"peers": "5m"}), yields=["RANK", "MASTER_ADDR"])
    assert found == {
        "version": 1,
        "host": {
            "master-0": "phalanx-r-1-master-0.phalanx-r-1",
            "worker-0": "phalanx-r-1-worker-0.phalanx-r-1",
            "*": "phalanx-r-1-master-0.phalanx-r-1",
        },
        "port": {"*": 2222},
        "courier": "frames",
        "server": None,
        "run_folder": "/phalanx/run",
        "code": {"kind": "bundle", "path": "/phalanx/code", "working": "/phalanx/code"},
        "outputs": "/phalanx/run/outputs",
        "data": {},
        "yields": ["MASTER_ADDR", "RANK"],
        "peers_s": 300.0,
        "grace_s": 20.0,
        "steps": [],
    }


@pytest.mark.parametrize(("whole_s", "grace_s"), [(30, 20.0), (600, 590.0), (12, 6.0)])
def test_a_program_has_the_time_to_end_that_its_pod_has(whole_s: int, grace_s: float) -> None:
    pod = {"terminationGracePeriodSeconds": whole_s}
    assert place_json(file(None, kubernetes={"pod": pod}))["grace_s"] == grace_s
    of_site = ClusterTarget(Settings(pod={"spec": {"terminationGracePeriodSeconds": 900}}))
    assert place_json(file(None), of_site)["grace_s"] == 890.0
    assert place_json(file(None, kubernetes={"pod": pod}), of_site)["grace_s"] == grace_s


@pytest.mark.parametrize(
    ("target", "courier", "code"),
    [(PLAIN, "frames", "bundle"), (SERVER, "server", "bundle"), (SHARED, "volume", "volume")],
)
def test_what_comes_home_and_what_goes_along_take_the_best_way_there_is(
    target: ClusterTarget, courier: str, code: str
) -> None:
    found = place_json(file(None), target)
    assert (found["courier"], found["code"]["kind"]) == (courier, code)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({"code": "bundle"}, "bundle"),
        ({"code": "image"}, "none"),
        ({"repository": "https://git.example/code.git"}, "git"),
        ({"code_claim": "sources"}, "volume"),
    ],
)
def test_the_file_has_the_last_word_on_where_code_comes_from(asked: dict[str, str], kind: str) -> None:
    assert place_json(file(None, kubernetes=asked), SERVER)["code"]["kind"] == kind


def test_build_steps_go_along() -> None:
    document = {**file(None), "build": {"image": "python:3.12", "build_steps": ["pip install numpy"]}}
    assert place_json(document)["steps"] == ["pip install numpy"]


def test_the_plan_of_agents_is_the_plan_less_its_secrets() -> None:
    made = made_of(file(env_vars={"API_KEY": "s3cret", "MODE": "fast"}, replicas={"n_workers": 1}))
    found = json.loads(gzip.decompress(payload.plan_gz(made)))
    whole = as_document(made)
    for one in whole["templates"]:
        assert one["environment"].pop("API_KEY") == "s3cret"
    assert found == json.loads(json.dumps(whole))
    assert payload.plan_gz(made) == payload.plan_gz(made)
    assert payload.plan_gz(made)[4:8] == bytes(4)  # no time of day in it


def test_params_that_look_secret_are_in_no_manifest() -> None:
    document = {**file(None), "declarations": {"db_password": "hunter2", "lr": 0.1}}
    made = made_of(document)
    found = native_jobs.objects(made, ClusterTarget())
    assert "hunter2" not in json.dumps(found)
    assert b"hunter2" not in gzip.decompress(b64decode(found[0]["binaryData"]["plan.json.gz"]))
    assert json.loads(payload.secrets_of(made)["POLYAXON_PARAMS"]) == {"db_password": "hunter2", "lr": 0.1}


def test_secrets_are_found_wherever_they_stand() -> None:
    document = file(
        env_vars={"API_KEY": "all"},
        replicas={"n_workers": 3, "worker": [{"index": 2, "env_vars": {"API_KEY": "mine", "TOKEN": "only"}}]},
    )
    document["build"] = {"image": "python:3.12", "env_vars": {"PIP_PASSWORD": "built"}}
    assert payload.secrets_of(made_of(document)) == {
        "PIP_PASSWORD": "built",
        "API_KEY": "all",
        "worker-2.API_KEY": "mine",
        "TOKEN": "only",
    }


def test_a_secret_is_rendered_without_its_values_and_says_so() -> None:
    found = payload.secret(made_of(file(None)), ["B_TOKEN", "A_TOKEN"])
    assert found["stringData"] == {"A_TOKEN": "", "B_TOKEN": ""}
    assert "empty" in found["metadata"]["annotations"][payload.EMPTIED]


def test_agent_and_client_fit_into_objects_that_can_be_applied() -> None:
    agent, client = agent_zip.carried()
    found = payload.agent_maps(made_of(file(None)), agent, client)
    assert [one["metadata"]["name"] for one in found] == ["phalanx-r-1-agent", "phalanx-r-1-tracking"]
    assert {name: b64decode(text) for one in found for name, text in one["binaryData"].items()} == {
        "agent.pyz": agent,
        "tracking.zip": client,
    }
    assert max(len(json.dumps(one)) for one in found) < payload.LARGEST_APPLIED


def test_code_that_is_too_large_is_refused_with_every_way_out() -> None:
    made = made_of(file(None))
    packed = os.urandom(LARGEST_CODE)
    found = payload.code_maps(made, packed)
    assert [one["metadata"]["name"] for one in found] == [f"phalanx-r-1-code{n}" for n in ("", "-1", "-2", "-3")]
    pieces = {name: b64decode(text) for one in found for name, text in one["binaryData"].items()}
    assert b"".join(pieces[name] for name in sorted(pieces)) == packed, "as a shell lists them"
    assert max(len(json.dumps(one)) for one in found) < payload.LARGEST_APPLIED
    assert [one["binaryData"] for one in payload.code_maps(made, b"")] == [{"code.tar.gz": ""}]
    with pytest.raises(CallError, match=r"701 KiB.*\.polyaxonignore.*repository.*code_claim.*server") as fault:
        payload.code_maps(made, bytes(LARGEST_CODE + 1025))
    assert "700" in str(fault.value)


def test_what_a_container_begins_with_is_the_same_for_every_run() -> None:
    hostile = file(None, "echo '$(rm -rf /)'", env_vars={"X": "`boom`"})
    first, second = (
        native_jobs.objects(made_of(one), ClusterTarget())[0]["data"]["start.sh"] for one in (file(None), hostile)
    )
    assert first == second == payload.start_script()
