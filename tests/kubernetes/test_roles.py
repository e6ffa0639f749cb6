"""What we do in a cluster needs no more than the Role of deploy/kubernetes says, and less is told in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.homes import wait_for
from tests.cli.running import is_silent_about_itself
from tests.kubernetes.places import ON, KubernetesPlace
from tests.kubernetes.programs import TRAP
from tests.kubernetes.test_runs import THREE
from tests.kubernetes.worlds import World

BASE = Path(__file__).resolve().parent.parent.parent / "deploy" / "kubernetes" / "base"
ACCOUNT = "phalanx"


def documents() -> dict[str, dict[str, Any]]:
    """The account, its Role and what binds them."""
    found = {}
    for name in ("serviceaccount", "role", "rolebinding"):
        (found[name],) = yaml.safe_load_all((BASE / f"{name}.yaml").read_text())
    return found


@pytest.fixture(name="lowly")
def lowly_fixture(place: KubernetesPlace) -> KubernetesPlace:
    """A home that is the ServiceAccount of the deployed server, and nobody else."""
    for document in documents().values():
        place.world.api.create(document, place.world.namespace)
    place.kubeconfig = as_account(place.world, place, place.kubeconfig.with_name("lowly"))
    return place


def as_account(world: World, place: KubernetesPlace, path: Path) -> Path:
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = world.api.ask("POST", f"{world.path('serviceaccounts', ACCOUNT)}/token", asked)["status"]["token"]
    return place.proxy.kubeconfig(path, world.namespace, token)


@pytest.mark.smoke
def test_all_that_runs_need_is_in_the_role(lowly: KubernetesPlace) -> None:
    """From submission to removal, with a gang, a new attempt and a stop."""
    again = {"environment": {"max_restarts": 1}}
    gang = lowly.submitted("python3 meet.py", **{**THREE, "framework": "pytorch"})
    second = lowly.submitted("echo $PHALANX_ATTEMPT; [ $PHALANX_ATTEMPT = 2 ]", **again)
    stopped = lowly.submitted(TRAP)
    secret = lowly.submitted("printf %s $MY_TOKEN | wc -c", environment={"env_vars": [["MY_TOKEN", "hush"]]})
    wait_for(lambda: "ready" in lowly.log(stopped), 60)
    assert lowly.call("stop", stopped).code == 0
    found = lowly.over(gang, second, stopped, secret, patience_s=120.0)
    statuses = [(run["status"], run["attempt"]) for run in found]
    assert statuses == [("succeeded", 1), ("succeeded", 2), ("stopped", 1), ("succeeded", 1)], lowly.story(gang)
    assert lowly.log(secret) == "4\n"
    for run in (gang, second, stopped, secret):
        lowly.until_nothing_is_left(run)


def test_the_doctor_is_content_with_the_role(lowly: KubernetesPlace) -> None:
    answer = lowly.call("doctor", *ON)
    assert answer.code == 0, answer.out + answer.err
    assert is_silent_about_itself(answer)


def test_a_role_without_jobs_is_reported_by_the_doctor_and_by_the_run(lowly: KubernetesPlace) -> None:
    world, role = lowly.world, documents()["role"]
    rules = [rule for rule in role["rules"] if "jobs" not in rule["resources"]]
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}/roles/{role['metadata']['name']}"
    world.api.patch(path, {"rules": rules})
    answer = lowly.call("doctor", *ON)
    assert answer.code != 0
    assert "jobs" in answer.out + answer.err
    run = lowly.submitted("true")
    (found,) = lowly.over(run)
    assert found["status"] == "failed"
    assert 'cannot list resource "jobs"' in found["reason"]


def test_a_namespace_of_others_is_closed_to_it(lowly: KubernetesPlace) -> None:
    run = lowly.submitted("true", "--namespace", "kube-system")
    (found,) = lowly.over(run)
    assert found["status"] == "failed"
    assert 'in the namespace "kube-system"' in found["reason"]
    assert not [each for each in lowly.world.api.items("/api/v1/namespaces/kube-system/configmaps") if run in str(each)]


def test_what_the_namespace_never_takes_is_reported_and_given_up(lowly: KubernetesPlace) -> None:
    """Jobs are taken, and their pods are not: only events say so, which the Role lets us see."""
    largest = {"type": "Container", "max": {"memory": "64Mi"}}
    limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": {"limits": [largest]}}
    lowly.world.api.create(limits, lowly.world.namespace)
    environment = {"resources": {"memory": {"limits": "1Gi"}}, "kubernetes": {"give_up": "3s"}}
    run = lowly.submitted("true", environment=environment)
    (found,) = lowly.over(run)
    assert found["status"] == "failed", lowly.story(run)
    assert "it could not start in 3 s: a LimitRange of the namespace rejects it: maximum" in found["reason"]
    lowly.until_nothing_is_left(run)
