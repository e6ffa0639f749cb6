"""All pods at once: what Kueue, Volcano and scheduler-plugins are told, and who of them is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.backends.contract import RUNNING, WAITING
from phalanx.backends.kubernetes.observe.attempt_objects import queued_as, topics_of
from phalanx.backends.kubernetes.observe.states import observed, pod_end, waiting_for
from phalanx.backends.kubernetes.render import gang_scheduling, native_jobs
from phalanx.backends.kubernetes.target import Cluster, ClusterTarget, Settings
from phalanx.errors import CallError
from tests.backends.kubernetes import test_states as seen
from tests.backends.kubernetes.runs import ONE, group_of, until, works
from tests.backends.kubernetes.schemas import validate
from tests.backends.kubernetes.test_native_jobs import file, jobs, made_of, overridden

KUEUE = ClusterTarget(cluster=Cluster(gang="kueue", queues=("team",), is_assumed=False))
VOLCANO = ClusterTarget(cluster=Cluster(gang="volcano", is_assumed=False))
PLUGINS = ClusterTarget(cluster=Cluster(gang="scheduler-plugins", is_assumed=False))
NOBODY = ClusterTarget(cluster=Cluster(is_assumed=False))
SEVERAL = ClusterTarget(cluster=Cluster(gang="kueue", queues=("a", "b"), is_assumed=False))
ASKED: dict[str, Any] = {
    "resources": {"cpu": {"requests": 0.5}, "memory": {"requests": 1536}, "gpu": {"requests": 1, "limits": 1}}
}
SPREAD = file(replicas={"n_workers": 3, "default_worker": ASKED}, **ASKED)
ALONE = file(None)


def rendered(document: dict[str, Any], target: ClusterTarget, **kubernetes: Any) -> list[dict[str, Any]]:
    if kubernetes:
        document = {**document, "environment": {**document["environment"], "kubernetes": kubernetes}}
    return native_jobs.objects(made_of(document), target)


def group(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [one for one in objects if one["kind"] == "PodGroup"]
    return found


def pods_of(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [job["spec"]["template"] for job in jobs(objects).values()]


def test_a_single_job_is_queued_by_kueue_as_a_job() -> None:
    found = rendered(ALONE, KUEUE)
    (job,) = jobs(found).values()
    assert job["metadata"]["labels"][gang_scheduling.QUEUE_LABEL] == "team"
    assert gang_scheduling.QUEUE_LABEL not in job["spec"]["template"]["metadata"]["labels"]
    assert "suspend" not in job["spec"]  # that is for Kueue to say


def test_the_pods_of_several_jobs_are_one_group_to_kueue() -> None:
    found = rendered(SPREAD, KUEUE)
    assert all(gang_scheduling.QUEUE_LABEL not in job["metadata"]["labels"] for job in jobs(found).values())
    for pod in pods_of(found):
        assert pod["metadata"]["labels"][gang_scheduling.QUEUE_LABEL] == "team"
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] == "phalanx-r-1"
        assert pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "4"
        assert pod["metadata"]["annotations"]["kueue.x-k8s.io/retriable-in-group"] == "false"


def test_clusters_that_cannot_hold_pods_back_queue_each_job() -> None:
    old = ClusterTarget(cluster=Cluster(version=(1, 26), gang="kueue", queues=("team",), is_assumed=False))
    found = rendered(SPREAD, old)
    assert {job["metadata"]["labels"][gang_scheduling.QUEUE_LABEL] for job in jobs(found).values()} == {"team"}
    assert all("kueue.x-k8s.io/pod-group-name" not in pod["metadata"]["labels"] for pod in pods_of(found))


def is_queued_by_jobs(found: list[dict[str, Any]], queue: str) -> bool:
    """Whether each Job waits by itself, and no pod is one of a group."""
    by_jobs = {job["metadata"]["labels"].get(gang_scheduling.QUEUE_LABEL) for job in jobs(found).values()} == {queue}
    return by_jobs and not any(gang_scheduling.GROUP_LABEL in pod["metadata"]["labels"] for pod in pods_of(found))


def test_more_kinds_of_pods_than_kueue_admits_wait_job_by_job_unless_they_are_to_be_a_gang() -> None:
    document = file(replicas={"n_workers": 9, "worker": [overridden(index, 1 + index) for index in range(9)]})
    with pytest.raises(CallError, match="at most 8 kinds"):
        rendered(document, KUEUE, gang="kueue")
    assert is_queued_by_jobs(rendered(document, KUEUE), "team")
    assert len(jobs(rendered(document, KUEUE, gang="none"))) == 10


def test_pods_that_differ_in_what_kueue_does_not_look_at_are_of_one_kind() -> None:
    names = [{"index": index, "env_vars": [["MINE", str(index)]]} for index in range(9)]
    document = file(replicas={"n_workers": 9, "worker": names})
    assert len(jobs(rendered(document, KUEUE))) > gang_scheduling.MOST_SHAPES
    assert all(gang_scheduling.GROUP_LABEL in pod["metadata"]["labels"] for pod in pods_of(rendered(document, KUEUE)))


@pytest.mark.parametrize(
    "cluster",
    [
        Cluster(gang="kueue", queues=("default", "team"), is_assumed=False),  # would take Jobs that name none
        Cluster(gang="kueue", queues=("team",), queues_all=True, is_assumed=False),
        Cluster(gang="kueue", queues=("team",), queues_pods=False, is_assumed=False),
    ],
)
def test_where_kueue_takes_every_job_or_no_pods_each_names_its_queue(cluster: Cluster) -> None:
    assert is_queued_by_jobs(rendered(SPREAD, ClusterTarget(cluster=cluster), queue="team"), "team")


def test_what_builds_the_image_waits_where_kueue_takes_every_job() -> None:
    document = {**SPREAD, "build": {"image": "python:3.12", "build_steps": ["pip install x"]}}
    site = Settings(registry="registry.example/team")
    for queues_all, queue in ((True, "team"), (False, None)):
        cluster = Cluster(gang="kueue", queues=("team",), queues_all=queues_all, is_assumed=False)
        found = [
            one
            for one in rendered(document, ClusterTarget(site, cluster))
            if one["metadata"]["name"].endswith("-build")
        ]
        (job,) = [one for one in found if one["kind"] == "Job"]
        assert job["metadata"]["labels"].get(gang_scheduling.QUEUE_LABEL) == queue


def test_a_queue_without_a_gang_is_one_for_each_job() -> None:
    assert is_queued_by_jobs(rendered(SPREAD, KUEUE, gang="none", queue="team"), "team")
    site = KUEUE._replace(settings=Settings(queue="team"))
    assert not is_queued_by_jobs(rendered(SPREAD, site, gang="none"), "team")  # the file wants neither
    assert is_queued_by_jobs(rendered(SPREAD, KUEUE._replace(settings=Settings(queue="team", gang="none"))), "team")
    with pytest.raises(CallError, match="needs Kueue, which this cluster does not have"):
        rendered(SPREAD, VOLCANO, gang="none", queue="team")


@pytest.mark.parametrize("asked", [{}, {"gang": "none"}])
def test_no_one_waits_for_ever_where_kueue_wants_a_queue(asked: dict[str, str]) -> None:
    strict = Cluster(gang="kueue", queues_all=True, is_assumed=False)
    with pytest.raises(CallError, match="without a queue: name one"):
        rendered(ALONE, ClusterTarget(cluster=strict), **asked)
    assert is_queued_by_jobs(rendered(ALONE, ClusterTarget(cluster=strict), queue="hidden"), "hidden")
    usual = ClusterTarget(cluster=strict._replace(queues=("default",)))
    assert jobs(rendered(ALONE, usual, **asked))  # that one is Kueue's own choice


def test_kueue_that_is_there_besides_volcano_can_be_asked_for() -> None:
    kinds = {"LocalQueue": ("kueue.x-k8s.io/v1beta2",), "PodGroup": ("scheduling.volcano.sh/v1beta1",)}
    both = ClusterTarget(cluster=Cluster(gang="volcano", kinds=kinds, is_assumed=False))
    assert gang_scheduling.chosen(
        made_of(file(None, kubernetes={"gang": "kueue", "queue": "team"})), both
    ) == gang_scheduling.GangScheduler("kueue", "team")
    assert gang_scheduling.chosen(made_of(SPREAD), both) == gang_scheduling.GangScheduler("volcano")
    queued = ClusterTarget(cluster=both.cluster._replace(gang="kueue", queues=("team",)))
    with pytest.raises(CallError, match="it has: team; `gang: volcano` uses a queue of Volcano"):
        rendered(SPREAD, queued, queue="other")


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
    target = ClusterTarget(Settings(queue=named), Cluster(gang="kueue", queues=queues, is_assumed=False))
    assert gang_scheduling.chosen(made_of(ALONE), target) == gang_scheduling.GangScheduler("kueue", taken)


def test_kueue_without_a_queue_for_us_is_as_none() -> None:
    nowhere = ClusterTarget(cluster=Cluster(gang="kueue", is_assumed=False))
    assert gang_scheduling.chosen(made_of(SPREAD), nowhere) is None


def test_volcano_gets_a_group_with_everything_that_its_pods_ask_for() -> None:
    found = rendered(SPREAD, VOLCANO, queue="train", priority_class="high")
    pod_group = group(found)
    assert pod_group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert pod_group["spec"] == {
        "minMember": 4,
        "minResources": {"cpu": "2", "memory": "6Gi", "nvidia.com/gpu": "4"},
        "queue": "train",
        "priorityClassName": "high",
    }
    kinds = [one["kind"] for one in found]
    assert kinds.index("PodGroup") < kinds.index("Job")
    for pod in pods_of(found):
        assert pod["spec"]["schedulerName"] == "volcano"
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == pod_group["metadata"]["name"]


def test_scheduler_plugins_get_a_group_of_theirs() -> None:
    found = rendered(SPREAD, PLUGINS)
    pod_group = group(found)
    assert pod_group["apiVersion"] == "scheduling.x-k8s.io/v1alpha1"
    assert (pod_group["spec"]["minMember"], pod_group["spec"]["scheduleTimeoutSeconds"]) == (
        4,
        gang_scheduling.SCHEDULE_S,
    )
    for pod in pods_of(found):
        assert pod["spec"]["schedulerName"] == "scheduler-plugins-scheduler"
        assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == pod_group["metadata"]["name"]


def test_a_scheduler_that_the_file_names_stays() -> None:
    found = rendered(SPREAD, PLUGINS, scheduler="ours")
    assert {pod["spec"]["schedulerName"] for pod in pods_of(found)} == {"ours"}


def test_one_pod_is_no_gang_unless_requested() -> None:
    assert [one["kind"] for one in rendered(ALONE, VOLCANO)] == ["ConfigMap", "Job"]
    assert group(rendered(ALONE, VOLCANO, gang="volcano"))["spec"]["minMember"] == 1


@pytest.mark.parametrize("target", [KUEUE, VOLCANO, PLUGINS])
def test_none_turns_it_off(target: ClusterTarget) -> None:
    assert rendered(SPREAD, target, gang="none")[1:] == rendered(SPREAD, NOBODY, gang="none")[1:]


@pytest.mark.parametrize(
    ("target", "asked", "words"),
    [
        (NOBODY, {"gang": "volcano"}, "has none of Kueue, Volcano and scheduler-plugins"),
        (VOLCANO, {"gang": "kueue"}, "this cluster has volcano"),
        (NOBODY, {"queue": "team"}, "neither Kueue nor Volcano"),
        (PLUGINS, {"queue": "team"}, "scheduler-plugins has no queues"),
        (KUEUE, {"queue": "other"}, "it has: team"),
        (
            ClusterTarget(cluster=Cluster(gang="kueue", queues=("a", "b"), is_assumed=False)),
            {},
            "several Kueue queues: a, b",
        ),
        (ClusterTarget(cluster=Cluster(gang="kueue")), {}, "Kueue needs a queue"),
    ],
)
def test_what_the_cluster_does_not_have_is_said_with_what_it_has(
    target: ClusterTarget, asked: dict[str, str], words: str
) -> None:
    with pytest.raises(CallError, match=words):
        rendered(SPREAD, target, **asked)


def test_a_second_one_that_is_served_can_be_asked_for() -> None:
    both = Cluster(gang="kueue", kinds={"PodGroup": ("scheduling.volcano.sh/v1beta1",)}, is_assumed=False)
    assert group(rendered(SPREAD, ClusterTarget(cluster=both), gang="volcano"))["spec"]["minMember"] == 4


def test_a_cluster_that_was_not_asked_may_have_anything_the_file_names() -> None:
    assert gang_scheduling.chosen(
        made_of(file(None, kubernetes={"queue": "team"})), ClusterTarget()
    ) == gang_scheduling.GangScheduler("kueue", "team")
    assert gang_scheduling.chosen(
        made_of(file(None, kubernetes={"gang": "volcano"})), ClusterTarget()
    ) == gang_scheduling.GangScheduler("volcano")


@pytest.mark.parametrize("target", [KUEUE, VOLCANO, PLUGINS])
def test_jobs_of_gangs_are_valid(target: ClusterTarget) -> None:
    for job in jobs(rendered(SPREAD, target)).values():
        validate(job, "1.34")


@pytest.mark.parametrize(
    ("written", "amount"), [("500m", 0.5), ("2", 2), (3, 3), ("1.5Gi", 1.5 * 2**30), ("1e3", 1000), ("12E", 12e18)]
)
def test_amounts_are_read_as_kubernetes_writes_them(written: str, amount: float) -> None:
    assert gang_scheduling.quantity(written) == amount


@given(st.lists(st.integers(1, 64_000), min_size=1, max_size=5))
def test_sums_of_amounts_are_exact(millis: list[int]) -> None:
    jobs_of_gang = [
        {
            "spec": {
                "parallelism": 2,
                "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": f"{each}m"}}}]}},
            }
        }
        for each in millis
    ]
    assert gang_scheduling.quantity(gang_scheduling.asked_for(jobs_of_gang)["cpu"]) * 1000 == 2 * sum(millis)


# in words


def of_workload(name: str, message: str, reason: str = "Pending", at: str = seen.ENDED_AT) -> dict[str, Any]:
    about = {"kind": "Workload", "name": name, "uid": "of-the-workload"}
    return {"involvedObject": about, "reason": reason, "message": message, "eventTime": at}


SHORT = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 2 more needed"


def test_kueue_says_why_it_does_not_admit_a_job() -> None:
    held = seen.job(suspend=True, labels={gang_scheduling.QUEUE_LABEL: "team"})
    events = [
        of_workload("job-phalanx-abc-worker-1a2b3", SHORT),
        of_workload("job-phalanx-abc-worker-1a2b3", "an older word", at=seen.STARTED),
        of_workload("job-phalanx-abc-worker-1a2b3", "Quota reserved in ClusterQueue", "QuotaReserved"),
        of_workload("job-phalanx-other-1a2b3", "of another"),
    ]
    words = waiting_for(seen.group(works=[held], events=events))
    assert words == f"Kueue has not admitted it yet: {SHORT}"
    operated = {**held, "kind": "PyTorchJob"}
    events = [of_workload("pytorchjob-phalanx-abc-worker-1a2b3", SHORT)]
    assert waiting_for(seen.group(works=[operated], events=events)).endswith(SHORT)


def test_kueue_says_why_an_image_is_not_built_yet() -> None:
    held = seen.job(suspend=True, labels={gang_scheduling.QUEUE_LABEL: "team"}, name="phalanx-abc-build")
    events = [of_workload("job-phalanx-abc-build-1a2b3", SHORT)]
    why = observed(seen.group(builds=[held], events=events)).why
    assert why == f"its image is being built: Kueue has not admitted it yet: {SHORT}"


def test_kueue_says_why_it_does_not_admit_a_group_of_pods() -> None:
    gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    gated = seen.pod(conditions=[gate], spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})
    gated["metadata"]["labels"][gang_scheduling.GROUP_LABEL] = "phalanx-abc-1"
    words = waiting_for(seen.group(gated, works=[seen.job()], events=[of_workload("phalanx-abc-1", SHORT)]))
    assert words == f"Kueue has not admitted it yet: {SHORT}"


def test_what_kueue_says_of_a_run_is_heard(tmp_path: Path) -> None:
    with works(tmp_path, operators=["kueue"]) as there:
        engine, attempt_folder = there.engine(), there.run(ONE, queue="team")
        handle = there.submit(engine, attempt_folder)
        (job,) = there.server.names("Job")
        held = there.server.get("Job", job)
        assert held is not None
        assert held["metadata"]["labels"][gang_scheduling.QUEUE_LABEL] == "team"
        there.server.put({**held, "spec": {**held["spec"], "suspend": True}})
        meta = {"name": "said", "namespace": "default"}
        there.server.put(
            {"apiVersion": "v1", "kind": "Event", "metadata": meta, **of_workload(f"job-{job}-1a2b3", SHORT)}
        )
        reason = f"Kueue has not admitted it yet: {SHORT}"
        until(lambda: (seen := engine.observe([handle]).get(handle)) is not None and seen.why == reason)


def test_a_run_that_kueue_takes_back_before_it_began_waits_again(tmp_path: Path) -> None:
    with works(tmp_path, operators=["kueue"]) as there:
        engine, attempt_folder = there.engine(), there.run(ONE, queue="team")
        handle = there.submit(engine, attempt_folder)
        engine.fetch(attempt_folder, handle)
        (job,) = there.server.names("Job")
        (pod,) = there.spawn(attempt_folder, phase=None).values()
        attempt = until(
            lambda: next((one.attempt for one in engine.controller.kept.values() if one.attempt.pods), None)
        )

        def suspend(is_held: bool) -> None:
            held = there.server.get("Job", job)
            assert held is not None
            there.server.put({**held, "spec": {**held["spec"], "suspend": is_held}})

        suspend(True)
        until(lambda: (group := group_of(engine)) and any(work["spec"].get("suspend") for work in group.works))
        there.server.remove("Pod", pod)
        until(lambda: not attempt.pods)
        assert engine.observe([handle])[handle].state == WAITING
        suspend(False)
        there.spawn(attempt_folder)
        until(lambda: engine.observe([handle])[handle].state == RUNNING)
        assert attempt.ends.all == {}


def test_a_held_job_without_a_queue_says_what_may_be_missing() -> None:
    assert "`environment.kubernetes.queue`" in waiting_for(seen.group(works=[seen.job(suspend=True)]))


@given(st.text("abc-", min_size=1, max_size=80))
def test_long_names_are_found_as_kueue_cuts_them(name: str) -> None:
    job = {"kind": "Job", "metadata": {"name": name}}
    for longest in (247, 57):  # its older releases keep more of it
        assert queued_as(job) in topics_of(of_workload(f"{f'job-{name}'[:longest]}-1a2b3", ""))


def test_pods_that_kueue_takes_down_are_no_failures_of_the_program() -> None:
    said = "Preempted to accommodate a workload (UID: 1, JobUID: 2) due to prioritization in the ClusterQueue"
    target = {"type": "TerminationTarget", "status": "True", "reason": "WorkloadEvicted", "message": said}
    outcome = pod_end(seen.pod(phase="Failed", containerStatuses=[seen.ended(143)], conditions=[target]))
    assert outcome is not None
    assert (outcome.cause, outcome.is_outside, outcome.message) == ("lost", True, f"preempted by Kueue: {said}")


def unplaced(name: str, message: str, reason: str = "Unschedulable") -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return seen.pod(name, conditions=[condition], spec={"nodeName": None})


def test_volcano_says_which_pod_of_a_gang_does_not_fit() -> None:
    waits = "3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable"
    pods = [
        unplaced("a", "Pod default/a can possibly be assigned to node1", "Schedulable"),
        unplaced("b", waits),
        unplaced("c", "0/2 nodes are unavailable: 2 Insufficient cpu."),
    ]
    words = waiting_for(seen.group(*pods, works=[seen.job()]))
    assert words == "1 of 3 pods: it needs a node with enough free CPU: 2 of 2 nodes have too little CPU"
    together = "its pods start together, and there is not enough capacity for all of them yet"
    assert waiting_for(seen.group(*pods[:2], works=[seen.job()])) == together
    unfit = {"type": "Unschedulable", "status": "True", "message": "queue resource quota insufficient"}
    gang = {"metadata": {"name": "g"}, "status": {"phase": "Pending", "conditions": [unfit]}}
    words = waiting_for(seen.group(*pods[:2], works=[seen.job()], gangs=[gang]))
    assert words == f"{together}: queue resource quota insufficient"


def test_scheduler_plugins_say_that_others_are_missing() -> None:
    said = "0/2 nodes are available: pre-filter pod a-0 cannot find enough sibling pods, 1, minMember: 2"
    assert "start together" in waiting_for(seen.group(unplaced("a", said), works=[seen.job()]))
