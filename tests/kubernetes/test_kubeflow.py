"""Runs through Kubeflow's operators: the real ones where a cluster has them, and their doubles where it is ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.kubernetes.observe.states import NOT_BY_US
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.places import ON, KubernetesPlace
from tests.kubernetes.programs import TRAP
from tests.kubernetes.rest import Answered, suppress_code
from tests.kubernetes.test_runs import AtOnce, replica
from tests.kubernetes.worlds import GIVEN, IMAGE, World

TWO = {"replicas": {"n_workers": 2}}
ON_FAILURE = {"restart_policy": "OnFailure"}
SERVED = {
    "pytorch": "pytorchjobs",
    "tensorflow": "tfjobs",
    "xgboost": "xgboostjobs",
    "jax": "jaxjobs",
    "mxnet": "mxjobs",
}
WANTED: dict[str, tuple[str, dict[str, Any]]] = {
    "pytorch": ("python3 meet.py", {"framework": "pytorch", "environment": TWO}),
    "tensorflow": (
        "python3 -c 'import json, os; print(json.dumps(json.loads(os.environ[\"TF_CONFIG\"]), sort_keys=True))'",
        {"framework": "tensorflow", "environment": {"replicas": {"n_workers": 1, "n_ps": 1}}},
    ),
    "xgboost": ("echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR", {"framework": "xgboost", "environment": TWO}),
    "jax": ("echo process ${PROCESS_ID:-$JAX_PROCESS_ID}", {"framework": "jax", "environment": TWO}),
    "serving": (
        '[ "$PHALANX_ROLE" != ps ] || exec sleep 600; sleep 2; echo done',
        {"framework": "tensorflow", "environment": {"replicas": {"n_workers": 1, "n_ps": 1}}},
    ),
    "faltering": (
        'echo started; [ "$PHALANX_REPLICA" != worker-0 ] || { sleep 2; exit 7; }; '
        "trap 'echo asked to end; exit 0' TERM; while :; do sleep 0.1; done",
        {"framework": "pytorch", "environment": TWO},
    ),
    "restarted": (
        'echo begun; [ "$PHALANX_REPLICA" != worker-0 ] || [ -e "$HOME/once" ] || { touch "$HOME/once"; exit 5; }; '
        "sleep 6; echo done",
        {"framework": "pytorch", "environment": {**TWO, "max_restarts": 2, "kubernetes": ON_FAILURE}},
    ),
    "elastic": (
        "torchrun() { env | grep ^PET_ | sort; sleep 2; }; torchrun train.py",
        {"framework": "pytorch", "environment": {**TWO, "kubernetes": {"min_workers": 1, "max_workers": 4}}},
    ),
    "failing": ("echo bad; exit 3", {"framework": "pytorch", "environment": TWO}),
    "metrics": ("python3 steps.py 20 0.02", {"framework": "pytorch", "environment": TWO}),
    "again": (
        "echo attempt $PHALANX_ATTEMPT; [ $PHALANX_ATTEMPT = 2 ] || exit 4",
        {"framework": "pytorch", "environment": {**TWO, "max_restarts": 1}},
    ),
}


def is_served(world: World, plural: str) -> bool:
    with suppress_code(404):
        world.api.get(f"/apis/kubeflow.org/v1/namespaces/{world.namespace}/{plural}")
        return True
    return False


@pytest.fixture(name="at_once", scope="module")
def at_once_fixture(tmp_path_factory: pytest.TempPathFactory, own: Cluster | None) -> Iterator[AtOnce]:
    world = World(own.kubeconfig if own is not None else Path(str(GIVEN)).expanduser(), own)
    world.make()
    place = KubernetesPlace(tmp_path_factory.mktemp("kubeflow"), world)
    try:
        ids = {
            name: place.submitted(command, **{"backend": "kubeflow", **fields})
            for name, (command, fields) in WANTED.items()
            if is_served(world, SERVED[fields["framework"]])
        }
        if not ids:
            pytest.skip("no operator of Kubeflow is here")
        found = place.over(*ids.values(), patience_s=360.0)
        yield AtOnce(place, dict(zip(ids, found, strict=True)), {})
    finally:
        place.close()
        world.remove()


@pytest.mark.smoke
def test_ranks_of_pytorch_meet(at_once: AtOnce) -> None:
    at_once.succeeded("pytorch")
    assert at_once.logs("pytorch") == {
        "master-0": ["met worker-0 worker-1"],
        "worker-0": ["answer welcome"],
        "worker-1": ["answer welcome"],
    }


@pytest.mark.smoke
def test_tensorflow_gets_its_cluster(at_once: AtOnce) -> None:
    run = at_once.succeeded("tensorflow")["id"]
    logs = at_once.logs("tensorflow")
    assert '"type": "chief"' in logs["master-0"][0]
    assert '"type": "worker"' in logs["worker-0"][0]
    assert f"phalanx-{run}" in logs["worker-0"][0], "the operator's names"


@pytest.mark.parametrize(("name", "words"), [("xgboost", "rank"), ("jax", "process")])
def test_every_rank_knows_its_number(at_once: AtOnce, name: str, words: str) -> None:
    if name not in at_once.runs:
        pytest.skip(f"no {SERVED[name]} here")
    at_once.succeeded(name)
    lines_of_ranks = [line for lines in at_once.logs(name).values() for line in lines if line.startswith(words)]
    assert [line.split()[1] for line in sorted(lines_of_ranks)] == ["0", "1", "2"]


def test_a_failure_is_reported_with_its_code(at_once: AtOnce) -> None:
    found = at_once.runs["failing"]
    assert found["status"] == "failed", at_once.place.story(found["id"])
    assert "exit code 3" in found["reason"]
    assert 3 in [row["code"] for row in found["replicas"]]


@pytest.mark.smoke
def test_all_end_when_one_fails_and_none_is_made_again(at_once: AtOnce) -> None:
    """An operator makes pods again that were deleted, while it does not think that their job is over."""
    found = at_once.runs["faltering"]
    assert found["status"] == "failed", at_once.place.story(found["id"])
    assert "worker-0" in found["reason"]
    assert "exit code 7" in found["reason"]
    assert {row["name"]: row["status"] for row in found["replicas"] if row["status"] != "failed"} == {
        "master-0": "stopped",
        "worker-1": "stopped",
    }
    logs = at_once.logs("faltering")
    assert logs["worker-0"] == ["started"]
    for name in ("master-0", "worker-1"):
        assert (logs[name][0], logs[name][-1], logs[name].count("started")) == ("started", "asked to end", 1)
    assert made_pods(at_once, found["id"]) == {"master-0": 1, "worker-0": 1, "worker-1": 1}


def test_servers_end_with_those_whom_they_serve(at_once: AtOnce) -> None:
    found = at_once.succeeded("serving")
    assert replica(found, "ps-0")["status"] in ("stopped", "succeeded")
    assert at_once.logs("serving")["worker-0"] == ["done"]
    assert made_pods(at_once, found["id"]) == {"chief-0": 1, "worker-0": 1, "ps-0": 1}


def made_pods(at_once: AtOnce, run: str) -> Counter[str]:
    """How often each was made, as the operator says."""
    events = at_once.place.world.items("events", fieldSelector="reason=SuccessfulCreatePod")
    said = [event for event in events if f"-{run}" in event["involvedObject"]["name"]]
    names: Counter[str] = Counter()
    for event in said:
        names[event["message"].rpartition(f"-{run}-")[2]] += int(event.get("count") or 1)
    return names


def test_metrics_come_home(at_once: AtOnce) -> None:
    run = at_once.succeeded("metrics")["id"]
    (found,) = at_once.place.call("metrics", run, "loss", "--json").data["metrics"]
    assert {line["replica"]: line["steps"] for line in found["series"]} == {
        name: list(range(20)) for name in ("master-0", "worker-0", "worker-1")
    }


def test_a_new_attempt_is_ours(at_once: AtOnce) -> None:
    found = at_once.succeeded("again")
    assert found["attempt"] == 2
    assert [at_once.log("again", attempt=number) for number in (1, 2)] == ["attempt 1\n", "attempt 2\n"]


def test_a_replica_is_started_again_in_its_pod_where_the_file_says_so(at_once: AtOnce) -> None:
    found = at_once.succeeded("restarted")
    assert found["attempt"] == 1
    logs = at_once.logs("restarted")
    assert logs["worker-0"] == ["begun", "begun", "done"]
    assert logs["master-0"] == logs["worker-1"] == ["begun", "done"]
    assert made_pods(at_once, found["id"]) == {"master-0": 1, "worker-0": 1, "worker-1": 1}


def test_an_elastic_job_says_its_workers_where_to_meet(at_once: AtOnce) -> None:
    run = at_once.succeeded("elastic")["id"]
    for lines in at_once.logs("elastic").values():
        variables = dict(line.split("=", 1) for line in lines)
        assert variables["PET_NNODES"] == "2:5"
        assert variables["PET_RDZV_ENDPOINT"] == f"phalanx-{run}-worker-0:23456"
        assert (variables["PET_RDZV_BACKEND"], variables["PET_RDZV_ID"]) == ("c10d", f"phalanx-{run}")


def test_nothing_is_left(at_once: AtOnce) -> None:
    for found in at_once.runs.values():
        at_once.place.until_nothing_is_left(found["id"])


def test_a_run_is_stopped_through_its_operator(place: KubernetesPlace) -> None:
    if not is_served(place.world, "pytorchjobs"):
        pytest.skip("no PyTorchJob here")
    run = place.submitted(TRAP, backend="kubeflow", framework="pytorch", environment=TWO)
    place.trapped(run)
    assert place.call("stop", run).code == 0
    (found,) = place.over(run)
    assert found["status"] == "stopped", place.story(run)
    assert "asked to end" in place.log(run)
    assert replica(found, "worker-0")["status"] == "stopped"
    place.until_nothing_is_left(run)


def test_a_deleted_pod_is_not_recreated_for_nothing(place: KubernetesPlace) -> None:
    """It cannot join the others any more: all of them end, and it is said who did it."""
    if not is_served(place.world, "pytorchjobs"):
        pytest.skip("no PyTorchJob here")
    run = place.submitted(TRAP, backend="kubeflow", framework="pytorch", environment=TWO)
    place.trapped(run, "master-0", "worker-0", "worker-1")
    (pod,) = [pod for pod in place.pods(run) if pod["metadata"]["name"].endswith("-worker-1")]
    place.world.api.delete(place.world.path("pods", pod["metadata"]["name"]))
    (found,) = place.over(run)
    assert (found["status"], found["reason"]) == ("stopped", NOT_BY_US), place.story(run)
    assert {row["status"] for row in found["replicas"]} == {"stopped"}
    assert "asked to end" in place.log(run, "worker-1")
    assert "asked to end" in place.log(run)
    place.until_nothing_is_left(run)


def test_ranks_of_pytorch_meet_in_a_strict_namespace(place: KubernetesPlace) -> None:
    """Which refuses the container that training-operator puts before the workers of a job with a master."""
    if not is_served(place.world, "pytorchjobs"):
        pytest.skip("no PyTorchJob here")
    strict = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    place.world.api.patch(f"/api/v1/namespaces/{place.world.namespace}", strict)
    found = place.succeeded("python3 meet.py", backend="kubeflow", framework="pytorch", environment=TWO)
    assert place.log(found["id"]).splitlines() == ["met worker-0 worker-1"]
    place.until_nothing_is_left(found["id"])


def test_a_job_that_is_none_is_refused_by_the_operator(world: World) -> None:
    if not is_served(world, "pytorchjobs"):
        pytest.skip("no PyTorchJob here")
    template = {"spec": {"containers": [{"name": "pytorch", "image": IMAGE}]}}
    for specs in ({"Master": {"replicas": 2, "template": template}}, {"Boss": {"replicas": 1, "template": template}}):
        job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "wrong"}}
        with pytest.raises(Answered, match="denied the request"):
            world.api.create({**job, "spec": {"pytorchReplicaSpecs": specs, "runPolicy": {}}}, world.namespace)


def test_what_an_operator_cannot_express_is_an_error_before_anything_is_made(place: KubernetesPlace) -> None:
    replicas = {"n_workers": 2, "worker": [{"index": 1, "resources": {"gpu": {"limits": 1}}}]}
    answer = place.run("true", *ON, backend="kubeflow", framework="pytorch", environment={"replicas": replicas})
    assert answer.code != 0
    assert "native" in answer.err, answer.err
    assert not place.world.items("configmaps", labelSelector="phalanx.dev/run")
