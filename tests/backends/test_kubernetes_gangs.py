"""All pods at once: what Kueue, Volcano and scheduler-plugins are told, and who of them is chosen."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.backends.kubernetes import gangs, native
from phalanx.backends.kubernetes.place import Cluster, Place, Settings
from phalanx.errors import CallError
from tests.backends.test_kubernetes_native import file, jobs, made_of, overridden

KUEUE = Place(cluster=Cluster(gang="kueue", queues=("team",), is_assumed=False))
VOLCANO = Place(cluster=Cluster(gang="volcano", is_assumed=False))
PLUGINS = Place(cluster=Cluster(gang="scheduler-plugins", is_assumed=False))
NOBODY = Place(cluster=Cluster(is_assumed=False))
SEVERAL = Place(cluster=Cluster(gang="kueue", queues=("a", "b"), is_assumed=False))
ASKED: dict[str, Any] = {
    "resources": {"cpu": {"requests": 0.5}, "memory": {"requests": 1536}, "gpu": {"requests": 1, "limits": 1}}
}
SPREAD = file(replicas={"n_workers": 3, "default_worker": ASKED}, **ASKED)
ALONE = file(None)


def rendered(document: dict[str, Any], place: Place, **kubernetes: Any) -> list[dict[str, Any]]:
    if kubernetes:
        document = {**document, "environment": {**document["environment"], "kubernetes": kubernetes}}
    return native.objects(made_of(document), place)


def group(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [one for one in objects if one["kind"] == "PodGroup"]
    return found


def pods_of(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [job["spec"]["template"] for job in jobs(objects).values()]


def test_a_single_job_is_queued_by_kueue_as_a_job() -> None:
    found = rendered(ALONE, KUEUE)
    (job,) = jobs(found).values()
    assert job["metadata"]["labels"][gangs.QUEUE_LABEL] == "team"
    assert gangs.QUEUE_LABEL not in job["spec"]["template"]["metadata"]["labels"]
    assert "suspend" not in job["spec"]  # that is for Kueue to say


def test_the_pods_of_several_jobs_are_one_group_to_kueue() -> None:
    found = rendered(SPREAD, KUEUE)
    assert all(gangs.QUEUE_LABEL not in job["metadata"]["labels"] for job in jobs(found).values())
    for pod in pods_of(found):
        assert pod["metadata"]["labels"][gangs.QUEUE_LABEL] == "team"
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] == "phalanx-r-1"
        assert pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "4"
        assert pod["metadata"]["annotations"]["kueue.x-k8s.io/retriable-in-group"] == "false"


def test_clusters_that_cannot_hold_pods_back_queue_each_job() -> None:
    old = Place(cluster=Cluster(version=(1, 26), gang="kueue", queues=("team",), is_assumed=False))
    found = rendered(SPREAD, old)
    assert {job["metadata"]["labels"][gangs.QUEUE_LABEL] for job in jobs(found).values()} == {"team"}
    assert all("kueue.x-k8s.io/pod-group-name" not in pod["metadata"]["labels"] for pod in pods_of(found))


def test_more_kinds_of_pods_than_kueue_admits_are_refused() -> None:
    document = file(replicas={"n_workers": 9, "worker": [overridden(index, 1 + index) for index in range(9)]})
    with pytest.raises(CallError, match="at most 8 kinds"):
        rendered(document, KUEUE)
    assert len(jobs(rendered(document, KUEUE, gang="none"))) == 10


@pytest.mark.parametrize(
    ("queues", "named", "taken"),
    [
        (("team",), None, "team"),
        (("a", "default"), None, "default"),
        (("a", "b"), "b", "b"),
        ((), "hidden", "hidden"),  # whoever may not list queues may still know one
    ],
)
def test_the_queue_is_the_one_that_is_named_or_the_only_one(
    queues: tuple[str, ...], named: str | None, taken: str
) -> None:
    place = Place(Settings(queue=named), Cluster(gang="kueue", queues=queues, is_assumed=False))
    assert gangs.chosen(made_of(ALONE), place) == gangs.Gang("kueue", taken)


def test_kueue_without_a_queue_for_us_is_as_none() -> None:
    nowhere = Place(cluster=Cluster(gang="kueue", is_assumed=False))
    assert gangs.chosen(made_of(SPREAD), nowhere) is None


def test_volcano_gets_a_group_with_everything_that_its_pods_ask_for() -> None:
    found = rendered(SPREAD, VOLCANO, queue="train", priority_class="high")
    told = group(found)
    assert told["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert told["spec"] == {
        "minMember": 4,
        "minResources": {"cpu": "2", "memory": "6Gi", "nvidia.com/gpu": "4"},
        "queue": "train",
        "priorityClassName": "high",
    }
    kinds = [one["kind"] for one in found]
    assert kinds.index("PodGroup") < kinds.index("Job")
    for pod in pods_of(found):
        assert pod["spec"]["schedulerName"] == "volcano"
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == told["metadata"]["name"]


def test_scheduler_plugins_get_a_group_of_theirs() -> None:
    found = rendered(SPREAD, PLUGINS)
    told = group(found)
    assert told["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
    assert (told["spec"]["minMember"], told["spec"]["scheduleTimeoutSeconds"]) == (4, gangs.SCHEDULE_S)
    for pod in pods_of(found):
        assert pod["spec"]["schedulerName"] == "scheduler-plugins-scheduler"
        assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == told["metadata"]["name"]


def test_a_scheduler_that_the_file_names_stays() -> None:
    found = rendered(SPREAD, PLUGINS, scheduler="ours")
    assert {pod["spec"]["schedulerName"] for pod in pods_of(found)} == {"ours"}


def test_one_pod_is_no_gang_unless_somebody_wants_it() -> None:
    assert [one["kind"] for one in rendered(ALONE, VOLCANO)] == ["ConfigMap", "Job"]
    assert group(rendered(ALONE, VOLCANO, gang="volcano"))["spec"]["minMember"] == 1


@pytest.mark.parametrize("place", [KUEUE, VOLCANO, PLUGINS])
def test_none_turns_it_off(place: Place) -> None:
    assert rendered(SPREAD, place, gang="none")[1:] == rendered(SPREAD, NOBODY, gang="none")[1:]


@pytest.mark.parametrize(
    ("place", "asked", "words"),
    [
        (NOBODY, {"gang": "volcano"}, "has none of Kueue, Volcano and scheduler-plugins"),
        (VOLCANO, {"gang": "kueue"}, "this cluster has volcano"),
        (NOBODY, {"queue": "team"}, "neither Kueue nor Volcano"),
        (PLUGINS, {"queue": "team"}, "scheduler-plugins has none"),
        (KUEUE, {"queue": "other"}, "there is: team"),
        (
            Place(cluster=Cluster(gang="kueue", queues=("a", "b"), is_assumed=False)),
            {},
            "several queues of Kueue: a, b",
        ),
        (Place(cluster=Cluster(gang="kueue")), {}, "in which queue"),
    ],
)
def test_what_the_cluster_does_not_have_is_said_with_what_it_has(
    place: Place, asked: dict[str, str], words: str
) -> None:
    with pytest.raises(CallError, match=words):
        rendered(SPREAD, place, **asked)


def test_a_second_one_that_is_served_can_be_asked_for() -> None:
    both = Cluster(gang="kueue", kinds={"PodGroup": ("scheduling.volcano.sh/v1beta1",)}, is_assumed=False)
    assert group(rendered(SPREAD, Place(cluster=both), gang="volcano"))["spec"]["minMember"] == 4


def test_a_cluster_that_nobody_asked_may_have_whatever_the_file_names() -> None:
    assert gangs.chosen(made_of(file(None, kubernetes={"queue": "team"})), Place()) == gangs.Gang("kueue", "team")
    assert gangs.chosen(made_of(file(None, kubernetes={"gang": "volcano"})), Place()) == gangs.Gang("volcano")


@pytest.mark.parametrize("place", [KUEUE, VOLCANO, PLUGINS])
def test_jobs_of_gangs_are_valid(place: Place) -> None:
    for job in jobs(rendered(SPREAD, place)).values():
        kubernetes_validate.validate(job, "1.25", strict=True)


@pytest.mark.parametrize(
    ("written", "amount"), [("500m", 0.5), ("2", 2), (3, 3), ("1.5Gi", 1.5 * 2**30), ("1e3", 1000), ("12E", 12e18)]
)
def test_amounts_are_read_as_kubernetes_writes_them(written: str, amount: float) -> None:
    assert gangs.quantity(written) == amount


@given(st.lists(st.integers(1, 64_000), min_size=1, max_size=5))
def test_sums_of_amounts_are_exact(millis: list[int]) -> None:
    told = [
        {
            "spec": {
                "parallelism": 2,
                "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": f"{each}m"}}}]}},
            }
        }
        for each in millis
    ]
    assert gangs.quantity(gangs.asked_for(told)["cpu"]) * 1000 == 2 * sum(millis)
