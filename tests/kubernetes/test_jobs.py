"""What the Job controller of a current Kubernetes does: the real one where a cluster is given, and ours that stands in
for it. A difference is a bug of ours, and runs depend on all of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.homes import wait_for
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.places import PATIENCE_S
from tests.kubernetes.worlds import GIVEN, IMAGE, World

INDEX = "batch.kubernetes.io/job-completion-index"
ONE_FAILS = "[ $JOB_COMPLETION_INDEX = 1 ] && exit 3; "
FOREVER = "sleep 600"


class Jobs(NamedTuple):
    """A namespace in which all Jobs of these tests run at the same time."""

    world: World

    def start(self, name: str, command: str, **spec: Any) -> None:
        may = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        box = {"image": IMAGE, "command": ["sh", "-c", command], "securityContext": may}
        first = {**box, "name": "first", "command": ["sh", "-c", "echo first $JOB_COMPLETION_INDEX"]}
        pod = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsUser": 1000, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "initContainers": [first],
            "containers": [{**box, "name": "main"}],
        }
        count = {"completions": 3, "parallelism": 3, "completionMode": "Indexed"}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
        whole = {**job, "spec": {**count, "template": {"spec": pod}, **spec}}
        self.world.api.create(whole, self.world.namespace)

    def seen(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.world.api.get(self.world.path("jobs", name))
        return found

    def status(self, name: str) -> dict[str, Any]:
        return dict(self.seen(name).get("status") or {})

    def change(self, name: str, **spec: Any) -> None:
        self.world.api.patch(self.world.path("jobs", name), {"spec": spec})

    def pods(self, name: str) -> dict[str, dict[str, Any]]:
        """By their index, those that are not being deleted."""
        found = self.world.items("pods", labelSelector=f"batch.kubernetes.io/job-name={name}")
        there = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return {pod["metadata"]["annotations"][INDEX]: pod for pod in there}

    def phases(self, name: str) -> dict[str, str]:
        return {index: pod["status"].get("phase", "") for index, pod in sorted(self.pods(name).items())}

    def until(self, name: str, condition: Callable[[], Any]) -> None:
        try:
            wait_for(condition, PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"{self.status(name)} {self.phases(name)}") from None

    def until_over(self, name: str) -> dict[str, str]:
        """The reasons of its conditions, by type."""
        self.until(name, lambda: {"Failed", "Complete"} & set(self.conditions(name)))
        return self.conditions(name)

    def conditions(self, name: str) -> dict[str, str]:
        return {
            one["type"]: one.get("reason", "")
            for one in self.status(name).get("conditions") or ()
            if one["status"] == "True"
        }


@pytest.fixture(name="jobs", scope="module")
def jobs_fixture(own: Cluster | None) -> Iterator[Jobs]:
    world = World(own.kubeconfig if own is not None else Path(str(GIVEN)).expanduser(), own)
    world.make()
    jobs = Jobs(world)
    try:
        if world.version < (1, 32):
            pytest.skip("before 1.32 Jobs say less of how they end")
        jobs.start("fine", "echo main $JOB_COMPLETION_INDEX $(hostname)")
        jobs.start("each", f"{ONE_FAILS}sleep 3", backoffLimitPerIndex=0)
        jobs.start("whole", ONE_FAILS + FOREVER, backoffLimit=0)
        jobs.start("both", ONE_FAILS + FOREVER, backoffLimit=0, backoffLimitPerIndex=0)
        jobs.start("taken", FOREVER, backoffLimitPerIndex=0)
        jobs.start("held", FOREVER, suspend=True, backoffLimitPerIndex=0)
        jobs.start("late", FOREVER, activeDeadlineSeconds=4, backoffLimit=0)
        jobs.start("fleeting", "true", ttlSecondsAfterFinished=1)
        yield jobs
    finally:
        world.remove()


def test_pods_are_called_by_their_index_and_know_it(jobs: Jobs) -> None:
    assert jobs.until_over("fine") == {
        "SuccessCriteriaMet": "CompletionsReached",
        "Complete": "CompletionsReached",
    }
    assert jobs.status("fine")["completedIndexes"] == "0-2"
    for index, pod in jobs.pods("fine").items():
        name = pod["metadata"]["name"]
        assert re.fullmatch(rf"fine-{index}-[a-z0-9]{{5}}", name)
        assert pod["metadata"]["labels"][INDEX] == index
        assert pod["spec"]["hostname"] == f"fine-{index}"
        log = f"{jobs.world.path('pods', name)}/log"
        assert jobs.world.api.text(log, container="main") == f"main {index} fine-{index}\n"
        assert jobs.world.api.text(log, container="first") == f"first {index}\n"


def test_an_index_that_fails_leaves_the_others_alone_where_each_has_a_limit(jobs: Jobs) -> None:
    assert jobs.seen("each")["spec"]["backoffLimit"] == 2**31 - 1, "none for the whole"
    assert jobs.until_over("each") == {"FailureTarget": "FailedIndexes", "Failed": "FailedIndexes"}
    status = jobs.status("each")
    assert (status["failedIndexes"], status["completedIndexes"]) == ("1", "0,2")
    assert jobs.phases("each") == {"0": "Succeeded", "1": "Failed", "2": "Succeeded"}


@pytest.mark.parametrize("name", ["whole", "both"])
def test_a_limit_for_the_whole_takes_all_pods_away_even_where_each_index_has_one(jobs: Jobs, name: str) -> None:
    reason = "BackoffLimitExceeded"
    assert jobs.until_over(name) == {"FailureTarget": reason, "Failed": reason}
    assert jobs.phases(name) == {"1": "Failed"}, "the others are gone, with their logs"


def test_an_index_whose_pod_is_deleted_has_failed_and_gets_no_other(jobs: Jobs) -> None:
    jobs.until("taken", lambda: list(jobs.phases("taken").values()) == ["Running"] * 3)
    jobs.world.api.delete(jobs.world.path("pods", jobs.pods("taken")["0"]["metadata"]["name"]))
    jobs.until("taken", lambda: jobs.status("taken").get("failedIndexes") == "0")
    jobs.until("taken", lambda: not jobs.status("taken").get("terminating"))
    assert jobs.phases("taken") == {"1": "Running", "2": "Running"}
    assert not jobs.conditions("taken"), "it goes on"


def test_a_job_that_is_suspended_has_no_pods(jobs: Jobs) -> None:
    jobs.until("held", lambda: jobs.conditions("held") == {"Suspended": "JobSuspended"})
    assert not jobs.pods("held")
    jobs.change("held", suspend=False)
    jobs.until("held", lambda: list(jobs.phases("held").values()) == ["Running"] * 3)
    jobs.change("held", suspend=True)
    jobs.until("held", lambda: not jobs.pods("held") and jobs.conditions("held"))
    assert not jobs.status("held").get("failed"), "that counts as nobody's failure"


def test_a_deadline_ends_a_job_and_its_pods(jobs: Jobs) -> None:
    assert jobs.until_over("late") == {"FailureTarget": "DeadlineExceeded", "Failed": "DeadlineExceeded"}
    assert not jobs.pods("late")


def test_what_is_over_is_removed_after_its_time(jobs: Jobs) -> None:
    jobs.until("fleeting", lambda: jobs.world.api.find(jobs.world.path("jobs", "fleeting")) is None)
    jobs.until("fleeting", lambda: not jobs.pods("fleeting"))
