"""What Kubernetes says of pods and jobs, in plain words; and who ended what."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from phalanx.backends.contract import ENDED, RUNNING, WAITING
from phalanx.backends.kubernetes.observe.states import (
    AttemptObjects,
    PodEnd,
    failed_init_of,
    members_of,
    observed,
    pod_end,
    verdict_of,
    waiting_for,
)
from phalanx.ends import Cause

MEMBERS = "phalanx.dev/members"
INDEX = "batch.kubernetes.io/job-completion-index"
NAMED = {"name": "PHALANX_MEMBERS", "value": "a-0,a-1"}
STARTED, ENDED_AT = "2026-11-16T10:00:00Z", "2026-11-16T10:01:00Z"


def pod(name: str = "one", *, members: str = "worker-0", index: str | None = None, **status: Any) -> dict[str, Any]:
    spec = status.pop("spec", {})
    meta = status.pop("meta", {})
    annotations = {MEMBERS: members, **({INDEX: index} if index is not None else {})}
    labels = {"phalanx.dev/run": "abc", "phalanx.dev/attempt": "1"}
    box = {"name": "phalanx", "image": "python", "resources": {"limits": {"memory": "2Gi"}}}
    return {
        "metadata": {"name": name, "uid": name, "annotations": annotations, "labels": labels, **meta},
        "spec": {"containers": [box], "restartPolicy": "Never", "nodeName": "node-1", **spec},
        "status": {"phase": "Pending", **status},
    }


def ended(code: int, reason: str = "Error", **more: Any) -> dict[str, Any]:
    """The status of a container that is over."""
    state = {"exitCode": code, "reason": reason, "startedAt": STARTED, "finishedAt": ENDED_AT, **more}
    return {"name": "phalanx", "state": {"terminated": state}}


def failed(code: int = 1, reason: str = "Error", **status: Any) -> dict[str, Any]:
    return pod(phase="Failed", containerStatuses=[ended(code, reason)], **status)


def target(reason: str) -> list[dict[str, Any]]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason}]


def job(*conditions: dict[str, Any], name: str = "phalanx-abc-worker", works: int = 1, **spec: Any) -> dict[str, Any]:
    meta = {
        "name": name,
        "uid": name,
        "annotations": {"phalanx.dev/works": str(works)},
        "labels": spec.pop("labels", {}),
    }
    return {"kind": "Job", "metadata": meta, "spec": spec, "status": {"conditions": list(conditions)}}


def group(*pods: dict[str, Any], **parts: Any) -> AttemptObjects:
    return AttemptObjects("abc", 1, pods=pods, **parts)


# how a pod ended


def test_a_program_that_failed_is_reported_with_its_code_times_and_node() -> None:
    outcome = pod_end(failed(3))
    assert outcome is not None
    assert (outcome.cause, outcome.message, outcome.code, outcome.signal) == ("error", "exit code 3", 3, None)
    assert (outcome.ended_at or 0) - (outcome.started_at or 0) == 60
    assert outcome.host == "node-1"
    assert not outcome.is_outside


@pytest.mark.parametrize(
    ("seen", "cause", "words"),
    [
        (pod(phase="Succeeded", containerStatuses=[ended(0, "Completed")]), "finished", "finished"),
        (failed(139), "error", "killed by signal 11 (SIGSEGV)"),
        (failed(137), "error", "killed by signal 9 (SIGKILL)"),
        (failed(137, "OOMKilled"), "memory", "killed for memory: it used more than its limit of 2Gi"),
        (failed(200), "error", "exit code 200"),
        (
            failed(143, conditions=target("PreemptionByScheduler")),
            "lost",
            "preempted by a pod of higher priority",
        ),
        (
            failed(137, conditions=target("DeletionByTaintManager")),
            "lost",
            "its node was lost or tainted (a taint that it does not tolerate)",
        ),
        (
            failed(143, conditions=target("EvictionByEvictionAPI")),
            "lost",
            "evicted through the API, for example for node maintenance",
        ),
        (pod(phase="Failed", conditions=target("DeletionByPodGC")), "lost", "its node was lost"),
        (failed(137, conditions=target("Novelty")), "lost", "terminated by the cluster (Novelty)"),
        (
            pod(
                phase="Failed", reason="Evicted", message="The node was low on resource: memory. Threshold quantity: 1"
            ),
            "lost",
            "evicted: its node was low on memory",
        ),
        (
            pod(phase="Failed", reason="Evicted", message="The node was low on resource: ephemeral-storage. "),
            "lost",
            "evicted: its node was low on disk",
        ),
        (pod(phase="Failed", reason="NodeLost"), "lost", "its node was lost"),
        (
            pod(
                phase="Failed", reason="Terminated", message="Pod was terminated in response to imminent node shutdown."
            ),
            "lost",
            "its node was shut down",
        ),
        (
            pod(phase="Failed", reason="OutOfnvidia.com/gpu", message="Pod was rejected: no GPU"),
            "lost",
            "its node rejected it: no GPU",
        ),
        (
            pod(
                phase="Failed",
                reason="TopologyAffinityError",
                message="Pod was rejected: Resources cannot be allocated",
            ),
            "lost",
            "its node rejected it: Resources cannot be allocated",
        ),
        (
            pod(
                phase="Failed",
                reason="Evicted",
                message="Pod was rejected: The node had condition: [DiskPressure]. ",
            ),
            "lost",
            "its node rejected it: The node had condition: [DiskPressure].",
        ),
        (
            pod(
                phase="Failed",
                reason="NodeShutdown",
                message="Pod was rejected: Pod was rejected as the node is shutting down.",
            ),
            "lost",
            "its node was shut down",
        ),
        (
            pod(
                phase="Failed",
                reason="Evicted",
                message="The node was low on resource: memory. Threshold quantity: 100Mi, available: 40Mi. Container "
                "phalanx was using 9Gi, request is 1Gi, has larger consumption of memory. ",
                conditions=target("TerminationByKubelet"),
            ),
            "lost",
            "evicted: its node was low on memory; it used 9Gi and requested 1Gi",
        ),
        (pod(phase="Failed", reason="DeadlineExceeded"), "timeout", "ended by the time limit of its job"),
        (failed(137, "ContainerStatusUnknown"), "lost", "its node lost track of its container"),
    ],
)
def test_node_loss_eviction_and_preemption_are_no_failures_of_the_program(
    seen: dict[str, Any], cause: str, words: str
) -> None:
    outcome = pod_end(seen)
    assert outcome is not None
    assert (outcome.cause, outcome.message) == (cause, words)
    assert outcome.is_outside == (cause in ("lost", "timeout"))


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({}, "killed for memory: it has no limit, and its node had none left"),
        ({"resources": {"limits": {"memory": "8Gi"}}}, "killed for memory: it used more than its limit of 8Gi"),
    ],
)
def test_a_limit_may_be_that_of_the_whole_pod_or_none(resources: dict[str, Any], words: str) -> None:
    bare = {"containers": [{"name": "phalanx"}], **resources}
    outcome = pod_end(failed(137, "OOMKilled", spec=bare))
    assert outcome is not None
    assert outcome.message == words


def sidecar(state: dict[str, Any]) -> dict[str, Any]:
    """A pod beside whose replica a container stays that Kubernetes starts before it (1.29 and later)."""
    boxes = [{"name": "istio-proxy", "restartPolicy": "Always"}, {"name": "prepare"}]
    done = {"name": "prepare", "state": {"terminated": {"exitCode": 0}}}
    return pod(
        spec={"initContainers": boxes}, initContainerStatuses=[{"name": "istio-proxy", "image": "istio", **state}, done]
    )


def test_a_sidecar_is_no_step() -> None:
    """It runs as long as the replica, and is killed after it."""
    assert waiting_for(group(sidecar({"state": {"running": {}}}), works=[job()])) == "its container is being created"
    over = sidecar({"state": {"terminated": {"exitCode": 137, "reason": "Error"}}})
    over["status"] |= {"phase": "Failed", "containerStatuses": [ended(3)]}
    outcome = pod_end(over)
    assert outcome is not None
    assert (outcome.cause, outcome.message) == ("error", "exit code 3")
    unpulled = sidecar({"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}})
    assert waiting_for(group(unpulled, works=[job()])) == "its image cannot be pulled: istio (not found)"


def test_a_replica_that_exceeds_its_disk_limit_caused_its_own_failure() -> None:
    said = 'Usage of EmptyDir volume "shm" exceeds the limit "1Gi".'
    outcome = pod_end(pod(phase="Failed", reason="Evicted", message=said))
    assert outcome is not None
    assert outcome.cause == "error"
    assert said in outcome.message


def test_what_cannot_be_started_says_why() -> None:
    said = 'exec: "train": executable file not found in $PATH'
    never = "1970-01-01T00:00:00Z"  # as containerd has it
    outcome = pod_end(pod(phase="Failed", containerStatuses=[ended(128, "StartError", message=said, startedAt=never)]))
    assert outcome is not None
    assert (outcome.cause, outcome.code, outcome.started_at) == ("error", 127, None)
    assert said in outcome.message


def test_a_step_that_failed_before_the_start_is_the_setup() -> None:
    step = {"name": "prepare", "state": {"terminated": {"exitCode": 78, "reason": "Error"}}}
    waiting = {"name": "phalanx", "state": {"waiting": {"reason": "PodInitializing"}}}
    outcome = pod_end(pod(phase="Failed", initContainerStatuses=[step], containerStatuses=[waiting]))
    assert outcome is not None
    assert (outcome.cause, outcome.message, outcome.code) == ("setup", "step `prepare` failed: exit code 78", 78)
    said = "exec /bin/sh: exec format error"
    step["state"] = {"terminated": {"exitCode": 128, "reason": "StartError", "message": said}}
    outcome = pod_end(pod(phase="Failed", initContainerStatuses=[step], containerStatuses=[waiting]))
    assert outcome is not None
    assert (outcome.cause, outcome.message) == ("setup", f"step `prepare` cannot start: {said}")


def test_a_pod_that_is_gone_was_deleted_by_us_or_by_others() -> None:
    running = pod(phase="Running", containerStatuses=[{"name": "phalanx", "state": {"running": {}}}])
    assert pod_end(running) is None
    others, ours = pod_end(running, is_gone=True), pod_end(running, is_gone=True, is_stop_requested=True)
    assert others is not None
    assert ours is not None
    assert (others.cause, others.message, others.is_outside) == ("stopped", "its pod was deleted, not by Phalanx", True)
    assert (ours.cause, ours.message, ours.is_outside) == ("stopped", "stopped", False)


UNLOCATED = "The container could not be located when the pod was terminated"


def unlocated(name: str, **more: Any) -> dict[str, Any]:
    """The status that a kubelet writes for a container that it does not find when it ends a pod."""
    state = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": UNLOCATED, "startedAt": None, **more}
    return {"name": name, "state": {"terminated": {**state, "finishedAt": None}}}


@pytest.mark.parametrize("state", [{"waiting": {"reason": "PodInitializing"}}, unlocated("phalanx")["state"]])
def test_a_pod_that_is_deleted_before_it_starts_was_not_killed(state: dict[str, Any]) -> None:
    deleted = pod(
        phase="Failed",
        meta={"deletionTimestamp": ENDED_AT},
        initContainerStatuses=[unlocated("prepare")],
        containerStatuses=[{"name": "phalanx", "state": state}],
    )
    outcome = pod_end(deleted)
    assert outcome is not None
    assert (outcome.cause, outcome.message, outcome.is_outside) == (
        "stopped",
        "its pod was deleted, not by Phalanx",
        True,
    )
    assert failed_init_of(deleted) is None, "its log is not read"
    outcome = pod_end(deleted, is_stop_requested=True)
    assert outcome is not None
    assert (outcome.cause, outcome.message) == ("stopped", "stopped")


def test_a_container_that_ran_on_a_node_that_forgot_it_is_lost() -> None:
    forgotten = unlocated("phalanx", message=f"{UNLOCATED}. The container used to be Running")
    outcome = pod_end(pod(phase="Failed", meta={"deletionTimestamp": ENDED_AT}, containerStatuses=[forgotten]))
    assert outcome is not None
    assert (outcome.cause, outcome.is_outside) == ("lost", True)


def test_a_pod_that_its_deleted_job_took_along_did_not_fail() -> None:
    deleted = {"deletionTimestamp": ENDED_AT}
    outcome = pod_end(failed(143, meta=deleted))
    assert outcome is not None
    assert (outcome.cause, outcome.signal) == ("stopped", signal.SIGTERM)
    assert pod_end(failed(1, meta=deleted)) == pod_end(failed(1))  # it failed by itself before


def test_the_deadline_of_its_job_is_its_time_limit() -> None:
    late = job({"type": "Failed", "status": "True", "reason": "DeadlineExceeded"})
    outcome = pod_end(failed(143, meta={"deletionTimestamp": ENDED_AT}), [late])
    assert outcome is not None
    assert outcome.cause == "timeout"


def test_kueue_that_takes_back_its_room_has_preempted_it() -> None:
    outcome = pod_end(pod(phase="Running"), [job(suspend=True)], is_gone=True)
    assert outcome is not None
    assert (outcome.cause, outcome.is_outside) == ("lost", True)


def test_a_container_beside_ours_does_not_keep_it_going() -> None:
    boxes = [
        {"name": "istio-proxy"},
        {"name": "phalanx", "env": [{"name": "PHALANX_MEMBERS", "value": "worker-0"}]},
    ]
    proxy = {"name": "istio-proxy", "state": {"running": {}}}
    outcome = pod_end(pod(phase="Running", spec={"containers": boxes}, containerStatuses=[proxy, ended(0)]))
    assert outcome is not None
    assert outcome.cause == "finished"


def test_what_its_kubelet_starts_again_is_not_over() -> None:
    assert pod_end(pod(phase="Running", spec={"restartPolicy": "OnFailure"}, containerStatuses=[ended(1)])) is None


def test_of_several_that_ended_what_came_from_outside_is_what_happened() -> None:
    error = PodEnd(Cause.ERROR, "exit code 1", 1, ended_at=1.0)
    lost = PodEnd(Cause.LOST, "its node was lost", ended_at=2.0, is_outside=True)
    deleted = PodEnd(Cause.STOPPED, "its pod was deleted, not by us", ended_at=0.5, is_outside=True)
    assert verdict_of([error, lost, deleted]) == ("lost", "its node was lost")
    assert verdict_of([deleted, PodEnd(Cause.FINISHED, "finished")]) == (
        "stopped",
        "its pods were deleted, not by Phalanx",
    )
    assert verdict_of([PodEnd(Cause.FINISHED, "finished")]) is None


# whose it is


@pytest.mark.parametrize(
    ("seen", "members"),
    [
        (pod(members="worker-3"), ("worker-3",)),
        (pod(members="worker-0,worker-2", index="1"), ("worker-2",)),
        (pod(members="worker-0,worker-2", meta={"labels": {"training.kubeflow.org/replica-index": "0"},
                                                "annotations": {MEMBERS: "worker-0,worker-2"}}), ("worker-0",)),
        (pod(members="worker-0,worker-1", index="7"), ()),
        (pod(members="launcher-0", index="7"), ("launcher-0",)),
        ({"spec": {"containers": [{"name": "node", "env": [NAMED]}]}}, ("a-0",)),
        ({"metadata": {}}, ()),
    ],
)  # fmt: skip
def test_a_pod_says_which_replica_it_runs(seen: dict[str, Any], members: tuple[str, ...]) -> None:
    assert members_of(seen) == members


# all together


def test_an_attempt_is_whole_only_when_all_that_makes_its_pods_is_there() -> None:
    jobs = [job(name="a", works=2), job(name="b", works=2)]
    assert not group(works=jobs[:1]).is_whole
    assert group(works=jobs).is_whole
    assert group(builds=[job()]).is_whole  # the rest follows


def test_servers_that_go_on_do_not_keep_an_attempt_from_its_end() -> None:
    done = {"type": "Complete", "status": "True"}
    worker = pod("w", members="worker-0", phase="Succeeded", containerStatuses=[ended(0)])
    server = pod(
        "s", members="ps-0", phase="Running", containerStatuses=[{"name": "phalanx", "state": {"running": {}}}]
    )
    works = [job(done), job(name="ps", labels={"phalanx.dev/role": "ps"})]
    seen = observed(group(worker, server, works=works))
    assert (seen.state, seen.cause) == (ENDED, "finished")
    assert observed(group(worker, server, works=[job(), works[1]])).state == RUNNING


RUNS = [{"name": "phalanx", "state": {"running": {"startedAt": STARTED}}}]
FOUR = {"phalanx.dev/members": "worker-0,worker-1,worker-2,worker-3", "phalanx.dev/works": "1"}


def four() -> dict[str, Any]:
    found = job()
    found["metadata"]["annotations"] = FOUR
    return found


def test_what_a_part_of_the_replicas_waits_for_is_said_while_the_others_run() -> None:
    """As a Job controller and a scheduler say it: a quota for two pods, and a node without room."""
    two = [pod(f"p{n}", members=f"worker-{n}", phase="Running", containerStatuses=RUNS) for n in range(2)]
    event = {
        "involvedObject": {"kind": "Job", "name": "phalanx-abc-worker"},
        "reason": "FailedCreate",
        "lastTimestamp": ENDED_AT,
        "message": 'Error creating: pods "phalanx-abc-worker-2-x" is forbidden: exceeded quota: few, '
        "requested: pods=1, used: pods=2, limited: pods=2",
    }
    quota = "the quota `few` is used up: requested pods=1, used pods=2 of pods=2"
    seen = observed(group(*two, works=[four()], events=[event]))
    assert seen.state == RUNNING
    assert seen.why == f"2 of 4 replicas run; worker-2, worker-3 wait: {quota}"
    unfit = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    unfit["message"] = "0/1 nodes are available: 1 Insufficient cpu."
    third = pod("p2", members="worker-2", conditions=[unfit], spec={"nodeName": None}, meta={})
    seen = observed(group(*two, third, works=[four()], events=[event]))
    cpu = "it needs a node with enough free CPU: 1 of 1 nodes has too little CPU"
    assert seen.why == f"2 of 4 replicas run; worker-2 waits: {cpu}; worker-3 waits: {quota}"
    rest = [pod(f"p{n}", members=f"worker-{n}", phase="Running", containerStatuses=RUNS) for n in (2, 3)]
    assert observed(group(*two, *rest, works=[four()], events=[event])).why == ""


def test_replicas_without_a_pod_are_only_named_with_a_reason() -> None:
    """An elastic job may never have all of them; and pods of MPIJobs v1 are of hosts, not of ranks."""
    one = pod("p0", members="worker-0", phase="Running", containerStatuses=RUNS)
    assert observed(group(one, works=[four()])).why == ""
    hosts = [pod(f"h{n}", members=f"host-{n}", phase="Running", containerStatuses=RUNS) for n in range(3)]
    late = pod("h3", members="host-3", containerStatuses=[{"name": "phalanx", "state": {"waiting": {"reason": "X"}}}])
    assert observed(group(one, *hosts, late, works=[four()])).why == "4 of 5 replicas run; host-3 waits: X"


def test_what_others_wait_for_is_of_no_interest_once_one_has_failed() -> None:
    assert observed(group(failed(1), works=[four()])).why == ""


def away(member: str, **more: Any) -> dict[str, Any]:
    """A pod on a node that does not respond: the node controller changes `Ready`, and nobody the rest."""
    conditions = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    tolerations = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300} for key in keys]
    spec = {"nodeName": "gpu-7", "tolerations": tolerations, **more}
    return pod(member, members=member, phase="Running", containerStatuses=RUNS, conditions=conditions, spec=spec)


def test_a_node_that_does_not_respond_is_named_at_once() -> None:
    seen = observed(group(away("worker-0"), away("worker-1"), works=[job()]))
    assert seen.state == RUNNING
    assert seen.why == "node gpu-7 is not ready, with worker-0, worker-1: the cluster gives up on it after 300 s", (
        seen.why
    )
    for_ever = observed(group(away("worker-0", tolerations=[]), works=[job()]))
    assert for_ever.why == "node gpu-7 is not ready, with worker-0"
    gated = away("worker-0", readinessGates=[{"conditionType": "example.com/ready"}])
    assert observed(group(gated, works=[job()])).why == ""


def test_a_build_comes_first_and_its_failure_ends_the_run() -> None:
    seen = observed(group(builds=[job()]))
    assert (seen.why, seen.is_building) == ("its image is being built", True)
    broken = job({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "it failed"})
    seen = observed(group(builds=[broken]))
    assert (seen.state, seen.cause, seen.why) == (ENDED, "setup", "its image could not be built: it failed")


def test_strange_objects_do_no_harm() -> None:
    for strange in ({}, {"metadata": None, "spec": None, "status": None}, {"status": {"containerStatuses": None}}):
        assert pod_end(strange) is None
        assert observed(group(strange, works=[strange])).state in (WAITING, RUNNING)


def test_what_an_agent_left_in_the_status_of_its_pod_is_believed() -> None:
    """Of a step that failed, it says which; of a program that wrote there itself, nothing."""
    end = {"cause": "setup", "code": 78, "signal": None, "message": "`pip install nonsense` failed with code 1"}
    said = json.dumps({"phalanx": 1, "ends": {"worker-0": end}})
    step = {"name": "prepare", "state": {"terminated": {"exitCode": 78, "message": said}}}
    outcome = pod_end(pod(phase="Failed", initContainerStatuses=[step]))
    assert outcome is not None
    assert (outcome.cause, outcome.message, outcome.code) == ("setup", "`pip install nonsense` failed with code 1", 78)
    for nonsense in ("", "boom", "[]", '{"phalanx": 1}', '{"phalanx": 1, "ends": {"a": {"cause": "magic"}}}'):
        status = [ended(3, message=nonsense)]
        outcome = pod_end(pod(phase="Failed", containerStatuses=status))
        assert outcome is not None
        assert (outcome.cause, outcome.message) == ("error", "exit code 3")
