"""What is rendered for Kubernetes is what clusters take: every object, strictly, from the oldest release on."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from phalanx import spec
from phalanx.backends.kubernetes.target import ATTEMPT, RUN, Settings
from phalanx.errors import CallError, SpecErrors
from tests.backends.kubernetes.files import CASES, EXAMPLES, SINGLE, Case, objects_of, rendered
from tests.backends.kubernetes.operator_objects import templates_of
from tests.backends.kubernetes.schemas import NEWEST, OLDEST, VERSIONS, faults_of, restricted, secrets_outside

ROOT_OVER_SSH = ("mpi", "mpi-v1", "horovod")  # workers of MPI are sshd


def written_for(name: str, version: str) -> list[dict[str, Any]]:
    """The objects of a case as a cluster of that release gets them."""
    major, minor = version.split(".")
    case = CASES[name]
    return objects_of(rendered(case._replace(cluster=case.cluster._replace(version=(int(major), int(minor))))))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_a_cluster_takes_every_object(name: str, version: str) -> None:
    assert faults_of(written_for(name, version), version) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_every_release_takes_the_large_one(version: str) -> None:
    assert faults_of(written_for("distributed", version), version) == []


@pytest.mark.parametrize("name", CASES)
def test_nothing_secret_is_to_be_seen(name: str) -> None:
    job = rendered(CASES[name])
    assert list(secrets_outside(objects_of(job), ["hush-hush"])) == []
    complete = job.completed(None) if job.completed is not None else job
    assert "hush-hush" not in complete.files["manifests.yaml"]


def test_not_even_in_what_is_packed() -> None:
    owner = objects_of(rendered(CASES["single"]))[0]
    plan = gzip.decompress(base64.b64decode(owner["binaryData"]["plan.json.gz"]))
    assert b"hush-hush" not in plan
    assert b"MODE" in plan
    assert json.loads(plan)["run_id"] == "a1b2c3d4e5"


@pytest.mark.parametrize("name", CASES)
def test_all_is_one_runs_and_one_attempts(name: str) -> None:
    for one in objects_of(rendered(CASES[name])):
        for metadata in (one["metadata"], *(template["metadata"] for template in templates_of(one))):
            assert metadata["labels"][RUN] == "a1b2c3d4e5"
            assert metadata["labels"][ATTEMPT] == "1"


@pytest.mark.parametrize("name", [name for name in CASES if name not in ROOT_OVER_SSH])
def test_pods_are_restricted(name: str) -> None:
    templates = [template for one in objects_of(rendered(CASES[name])) for template in templates_of(one)]
    assert templates
    assert [fault for template in templates for fault in restricted(template)] == []


@pytest.mark.parametrize("name", CASES)
def test_the_printed_manifests_are_the_same_and_whole(name: str) -> None:
    job = rendered(CASES[name])
    assert job.completed is not None
    complete = job.completed(b"not really an archive")
    assert complete.shown == "manifests.yaml"
    printed = [one for one in yaml.load_all(complete.files["manifests.yaml"], yaml.CSafeLoader) if one]
    assert faults_of(printed, NEWEST) == []
    names = {(one["kind"], one["metadata"]["name"]) for one in printed}
    assert names >= {(one["kind"], one["metadata"]["name"]) for one in objects_of(job)}
    carried = {key for one in printed for key in one.get("binaryData", {})}
    assert carried >= {"agent.pyz", "tracking.zip"}


@pytest.mark.parametrize("file", EXAMPLES, ids=[f"{file.parent.name}-{file.stem}" for file in EXAMPLES])
def test_every_example_goes_there_or_says_why_not(file: Path) -> None:
    loaded = spec.load([(file.name, file.read_bytes())])
    if loaded.kind in (spec.Kind.GROUP, spec.Kind.PIPELINE):
        return
    for backend in ("kubernetes", "kubeflow"):
        case = Case(file.read_text(), backend, settings=Settings())
        try:
            objects = objects_of(rendered(case))
        except (CallError, SpecErrors) as fault:
            said = str(fault)
        else:
            said = "`" if faults_of(objects, NEWEST) == [] else ""
        assert "`" in said, said  # a refusal names what to change


def test_a_pod_that_is_not_restricted_is_noticed() -> None:
    """The validators themselves."""
    (job,) = [one for one in objects_of(rendered(Case(SINGLE))) if one["kind"] == "Job"]
    (template,) = templates_of(job)
    template["spec"]["hostNetwork"] = True
    template["spec"]["containers"][0]["securityContext"]["capabilities"] = {"add": ["SYS_ADMIN"]}
    job["spec"]["unheard"] = 1
    found = " ".join(faults_of([job]))
    assert "hostNetwork" in found
    assert "capabilities are added" in found
    assert "unheard" in found
