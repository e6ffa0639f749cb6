"""Runs as TrainJobs: by Kubeflow Trainer where a cluster has it, and by its double where it is ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.places import KubernetesPlace
from tests.kubernetes.programs import TRAP
from tests.kubernetes.test_runs import AtOnce, replica
from tests.kubernetes.trainer_operator import Trainer, is_served
from tests.kubernetes.worlds import GIVEN, World


def asked(framework: str, runtime: str = "", **environment: Any) -> dict[str, Any]:
    """A master and two workers; a named runtime goes before the operators that are there as well."""
    source = {"pytorch": "torch"}.get(framework, framework)
    chosen = {"replicas": {"n_workers": 2}, "kubernetes": {"runtime": runtime or f"{source}-distributed"}}
    return {"backend": "kubeflow", "framework": framework, "environment": {**chosen, **environment}}


WANTED: dict[str, tuple[str, dict[str, Any]]] = {
    "pytorch": ("python3 meet.py; echo node $PET_NODE_RANK of $PET_NNODES", asked("pytorch")),
    "jax": ("echo process $JAX_PROCESS_ID of $JAX_NUM_PROCESSES at $JAX_COORDINATOR_ADDRESS", asked("jax")),
    "xgboost": ("echo rank $DMLC_TASK_ID of $DMLC_NUM_WORKER at $DMLC_TRACKER_URI", asked("xgboost")),
    "metrics": ("python3 steps.py 20 0.02", asked("pytorch")),
    "secret": ("[ $API_TOKEN = hush ] && echo known", asked("pytorch", env_vars=[["API_TOKEN", "hush"]])),
    "failing": ("echo bad; exit 3", asked("pytorch")),
    "many": ("echo bad; exit 3", asked("pytorch", replicas={"n_workers": 7})),
    "faltering": (
        'echo started; [ "$PHALANX_REPLICA" != worker-0 ] || { sleep 2; exit 7; }; '
        "trap 'echo asked to end; exit 0' TERM; while :; do sleep 0.1; done",
        asked("pytorch"),
    ),
    "again": (
        "echo attempt $PHALANX_ATTEMPT; [ $PHALANX_ATTEMPT = 2 ] || exit 4",
        asked("pytorch", max_restarts=1),
    ),
}


@pytest.fixture(name="trainer", scope="module", autouse=True)
def trainer_fixture(own: Cluster | None) -> Iterator[None]:
    if own is None:
        yield
        return
    trainer = Trainer(own.api)
    try:
        trainer.start()
        yield
    finally:
        trainer.stop()


@pytest.fixture(name="at_once", scope="module")
def at_once_fixture(tmp_path_factory: pytest.TempPathFactory, own: Cluster | None, trainer: None) -> Iterator[AtOnce]:
    world = World(own.kubeconfig if own is not None else Path(str(GIVEN)).expanduser(), own)
    if not is_served(world.api):
        pytest.skip("no Kubeflow Trainer is here")
    world.make()
    place = KubernetesPlace(tmp_path_factory.mktemp("trainer"), world)
    try:
        ids = {name: place.submitted(command, **fields) for name, (command, fields) in WANTED.items()}
        found = place.over(*ids.values(), patience_s=240.0)
        yield AtOnce(place, dict(zip(ids, found, strict=True)), {})
    finally:
        place.close()
        world.remove()


@pytest.mark.smoke
def test_ranks_of_pytorch_meet_under_the_names_of_a_job_set(at_once: AtOnce) -> None:
    at_once.succeeded("pytorch")
    assert at_once.logs("pytorch") == {
        "master-0": ["met worker-0 worker-1", "node 0 of 3"],
        "worker-0": ["answer welcome", "node 1 of 3"],
        "worker-1": ["answer welcome", "node 2 of 3"],
    }


@pytest.mark.parametrize(("name", "words"), [("jax", "process"), ("xgboost", "rank")])
def test_every_rank_knows_its_number_and_the_first(at_once: AtOnce, name: str, words: str) -> None:
    run = at_once.succeeded(name)["id"]
    lines_of_ranks = sorted(line for lines in at_once.logs(name).values() for line in lines if line.startswith(words))
    first = f"phalanx-{run}-node-0-0.phalanx-{run}"
    port = ":29500" if name == "jax" else ""
    assert lines_of_ranks == [f"{words} {number} of 3 at {first}{port}" for number in range(3)]


def test_metrics_come_home(at_once: AtOnce) -> None:
    run = at_once.succeeded("metrics")["id"]
    (found,) = at_once.place.call("metrics", run, "loss", "--json").data["metrics"]
    assert {line["replica"]: line["steps"] for line in found["series"]} == {
        name: list(range(20)) for name in ("master-0", "worker-0", "worker-1")
    }


def test_a_secret_is_known_to_the_program(at_once: AtOnce) -> None:
    at_once.succeeded("secret")
    assert at_once.log("secret") == "known\n"


def test_a_failure_is_reported_with_its_code_and_nothing_is_run_again(at_once: AtOnce) -> None:
    found = at_once.runs["failing"]
    assert found["status"] == "failed", at_once.place.story(found["id"])
    assert "exit code 3" in found["reason"]
    log_lines = [line for lines in at_once.logs("failing").values() for line in lines]
    assert log_lines.count("bad") <= 3, "once for each replica"


def test_all_are_heard_where_a_job_takes_its_pods_away_because_too_many_were_started_again(at_once: AtOnce) -> None:
    found = at_once.runs["many"]
    assert found["status"] == "failed", at_once.place.story(found["id"])
    assert "exit code 3" in found["reason"]
    logs = at_once.logs("many")
    codes = {row["name"]: row["code"] for row in found["replicas"]}
    assert len(logs) == 8
    assert all(logs[name] == ["bad"] for name, code in codes.items() if code == 3), logs
    assert 3 in codes.values()


def test_when_one_fails_the_others_are_ended_by_us(at_once: AtOnce) -> None:
    found = at_once.runs["faltering"]
    assert found["status"] == "failed", at_once.place.story(found["id"])
    assert "exit code 7" in found["reason"]
    assert replica(found, "worker-0")["code"] == 7
    for name in ("master-0", "worker-1"):
        first, *_, last = at_once.logs("faltering")[name]  # between them some shells say what ended
        assert (first, last) == ("started", "asked to end"), name
        assert replica(found, name)["status"] == "stopped"


def test_a_new_attempt_is_ours(at_once: AtOnce) -> None:
    found = at_once.succeeded("again")
    assert found["attempt"] == 2
    assert [at_once.log("again", attempt=number) for number in (1, 2)] == ["attempt 1\n", "attempt 2\n"]


def test_nothing_is_left(at_once: AtOnce) -> None:
    for found in at_once.runs.values():
        at_once.place.until_nothing_is_left(found["id"])


@pytest.mark.smoke
def test_a_run_is_stopped(place: KubernetesPlace) -> None:
    if not is_served(place.world.api):
        pytest.skip("no Kubeflow Trainer is here")
    run = place.submitted(TRAP, **asked("pytorch"))
    place.trapped(run)
    assert place.call("stop", run).code == 0
    (found,) = place.over(run)
    assert found["status"] == "stopped", place.story(run)
    assert "asked to end" in place.log(run)
    place.until_nothing_is_left(run)


def test_a_replica_that_is_killed_for_memory_ends_the_run_though_its_kubelet_starts_it_again(
    place: KubernetesPlace,
) -> None:
    if not is_served(place.world.api):
        pytest.skip("no Kubeflow Trainer is here")
    few = {"resources": {"memory": {"limits": "100Mi"}}}
    fields = asked("pytorch", "", **few, replicas={"n_workers": 1, "default_worker": few})
    found = place.ran("python3 hog.py", **fields)
    assert found["status"] == "failed", place.story(found["id"])
    assert "memory" in found["reason"]
