"""What Kubernetes says of pods and jobs, in plain words; and who ended what."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from phalanx.backends.engines import ENDED, RUNNING, WAITING
from phalanx.backends.kubernetes.waiting import refusal, unschedulable
from phalanx.backends.kubernetes.words import Fate, Group, fate_of, members_of, observed, verdict_of, waiting_for

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


def group(*pods: dict[str, Any], **parts: Any) -> Group:
    return Group("abc", 1, pods=pods, **parts)


# how a pod ended


def test_a_program_that_failed_is_told_with_its_code_times_and_node() -> None:
    fate = fate_of(failed(3))
    assert fate is not None
    assert (fate.cause, fate.message, fate.code, fate.signal) == ("error", "exit code 3", 3, None)
    assert (fate.ended_at or 0) - (fate.started_at or 0) == 60
    assert fate.host == "node-1"
    assert not fate.is_outside


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
            "its node was lost, or given up (a taint that it does not tolerate)",
        ),
        (
            failed(143, conditions=target("EvictionByEvictionAPI")),
            "lost",
            "evicted: somebody asked for its node, as for maintenance",
        ),
        (pod(phase="Failed", conditions=target("DeletionByPodGC")), "lost", "its node was lost"),
        (failed(137, conditions=target("Novelty")), "lost", "taken down by the cluster (Novelty)"),
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
            "its node did not take it: Pod was rejected: no GPU",
        ),
        (pod(phase="Failed", reason="DeadlineExceeded"), "timeout", "ended by the time limit of its job"),
        (failed(137, "ContainerStatusUnknown"), "lost", "its node lost sight of its container"),
    ],
)
def test_node_loss_eviction_and_preemption_are_no_failures_of_the_program(
    seen: dict[str, Any], cause: str, words: str
) -> None:
    fate = fate_of(seen)
    assert fate is not None
    assert (fate.cause, fate.message) == (cause, words)
    assert fate.is_outside == (cause in ("lost", "timeout"))


def test_whoever_uses_more_disk_than_its_limit_is_to_blame_itself() -> None:
    said = 'Usage of EmptyDir volume "shm" exceeds the limit "1Gi".'
    fate = fate_of(pod(phase="Failed", reason="Evicted", message=said))
    assert fate is not None
    assert fate.cause == "error"
    assert said in fate.message


def test_what_cannot_be_started_says_why() -> None:
    said = 'exec: "train": executable file not found in $PATH'
    fate = fate_of(pod(phase="Failed", containerStatuses=[ended(128, "StartError", message=said)]))
    assert fate is not None
    assert (fate.cause, fate.code) == ("error", 127)
    assert said in fate.message


def test_a_step_that_failed_before_the_start_is_the_setup() -> None:
    step = {"name": "prepare", "state": {"terminated": {"exitCode": 78, "reason": "Error"}}}
    waiting = {"name": "phalanx", "state": {"waiting": {"reason": "PodInitializing"}}}
    fate = fate_of(pod(phase="Failed", initContainerStatuses=[step], containerStatuses=[waiting]))
    assert fate is not None
    assert (fate.cause, fate.message, fate.code) == ("setup", "step `prepare` failed: exit code 78", 78)


def test_a_pod_that_is_gone_was_deleted_by_us_or_by_others() -> None:
    running = pod(phase="Running", containerStatuses=[{"name": "phalanx", "state": {"running": {}}}])
    assert fate_of(running) is None
    others, ours = fate_of(running, is_gone=True), fate_of(running, is_gone=True, is_told=True)
    assert others is not None
    assert ours is not None
    assert (others.cause, others.message, others.is_outside) == ("stopped", "its pod was deleted, not by us", True)
    assert (ours.cause, ours.message, ours.is_outside) == ("stopped", "stopped", False)


def test_a_pod_that_its_deleted_job_took_along_did_not_fail() -> None:
    deleted = {"deletionTimestamp": ENDED_AT}
    fate = fate_of(failed(143, meta=deleted))
    assert fate is not None
    assert (fate.cause, fate.signal) == ("stopped", signal.SIGTERM)
    assert fate_of(failed(1, meta=deleted)) == fate_of(failed(1))  # it failed by itself before


def test_the_deadline_of_its_job_is_its_time_limit() -> None:
    late = job({"type": "Failed", "status": "True", "reason": "DeadlineExceeded"})
    fate = fate_of(failed(143, meta={"deletionTimestamp": ENDED_AT}), [late])
    assert fate is not None
    assert fate.cause == "timeout"


def test_kueue_that_takes_back_its_room_has_preempted_it() -> None:
    fate = fate_of(pod(phase="Running"), [job(suspend=True)], is_gone=True)
    assert fate is not None
    assert (fate.cause, fate.is_outside) == ("lost", True)


def test_a_container_beside_ours_does_not_keep_it_going() -> None:
    boxes = [
        {"name": "istio-proxy"},
        {"name": "phalanx", "env": [{"name": "PHALANX_MEMBERS", "value": "worker-0"}]},
    ]
    proxy = {"name": "istio-proxy", "state": {"running": {}}}
    fate = fate_of(pod(phase="Running", spec={"containers": boxes}, containerStatuses=[proxy, ended(0)]))
    assert fate is not None
    assert fate.cause == "finished"


def test_what_its_kubelet_starts_again_is_not_over() -> None:
    assert fate_of(pod(phase="Running", spec={"restartPolicy": "OnFailure"}, containerStatuses=[ended(1)])) is None


def test_of_several_that_ended_what_came_from_outside_is_what_happened() -> None:
    error = Fate("error", "exit code 1", 1, ended_at=1.0)
    lost = Fate("lost", "its node was lost", ended_at=2.0, is_outside=True)
    deleted = Fate("stopped", "its pod was deleted, not by us", ended_at=0.5, is_outside=True)
    assert verdict_of([error, lost, deleted]) == ("lost", "its node was lost")
    assert verdict_of([deleted, Fate("finished", "finished")]) == ("stopped", "its pods were deleted, not by us")
    assert verdict_of([Fate("finished", "finished")]) is None


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


# what it waits for


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "0/3 nodes are available: 2 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint "
            "{node-role.kubernetes.io/control-plane: }. preemption: 0/3 nodes are available: 1 No victims found.",
            "it needs a node with enough free GPUs: 2 of 3 nodes have too few GPUs (nvidia.com/gpu), 1 of 3 has a "
            "taint {node-role.kubernetes.io/control-plane} that it does not tolerate",
        ),
        (
            "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.",
            "it needs a node with enough free CPU and with enough free memory: 1 of 1 nodes has too little CPU, "
            "1 of 1 has too little memory",
        ),
        (
            "0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector.",
            "it needs a node of the kind it asks for: 4 of 4 nodes do not match its node selector or affinity",
        ),
        (
            "0/2 nodes are available: 1 node(s) had taint {gpu: yes}, that the pod didn't tolerate, 1 Too many pods.",
            "it needs a node with room for another pod: 1 of 2 nodes has a taint {gpu: yes} that it does not "
            "tolerate, 1 of 2 has as many pods as it may",
        ),
        (
            "0/2 nodes are available: 2 node(s) had volume node affinity conflict.",
            "it needs a node that takes it: 2 of 2 nodes are not where its volume is",
        ),
        ('persistentvolumeclaim "data" not found', "its volume claim `data` is not there"),
        (
            "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/1 nodes",
            "its volume claim has no volume yet",
        ),
        ("no nodes available to schedule pods", "the cluster has no nodes"),
        ("something new", "no node takes it: something new"),
        ("", "no node takes it: the scheduler does not say why"),
    ],
)
def test_a_scheduler_is_understood(message: str, words: str) -> None:
    assert unschedulable(message) == words
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    seen = observed(group(pod(spec={"nodeName": None}, conditions=[condition]), works=[job()]))
    assert (seen.state, seen.why) == (WAITING, words)


def waiting(reason: str, message: str = "", image: str = "nowhere/image:1") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    return {"name": "phalanx", "image": image, "state": state}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (waiting("ImagePullBackOff", 'Back-off pulling image "x"'), "its image cannot be pulled: nowhere/image:1"),
        (
            waiting("ErrImagePull", "pull access denied"),
            "its image cannot be pulled: nowhere/image:1 (pull access denied)",
        ),
        (waiting("InvalidImageName", image="Not An Image"), "the name of its image is not one: Not An Image"),
        (
            waiting("CreateContainerConfigError", 'secret "wandb" not found'),
            "there is no Secret `wandb` in the namespace",
        ),
        (
            waiting("CreateContainerConfigError", 'configmap "defaults" not found'),
            "there is no ConfigMap `defaults` in the namespace",
        ),
        (
            waiting("CreateContainerConfigError", "couldn't find key A in Secret default/b"),
            "the Secret `b` has no key `A`",
        ),
        (waiting("ContainerCreating"), "its container is being made"),
        (waiting("Novelty", "whatever it is"), "Novelty (whatever it is)"),
    ],
)
def test_why_a_container_waits_is_said(status: dict[str, Any], words: str) -> None:
    assert waiting_for(group(pod(containerStatuses=[status]), works=[job()])) == words


def test_a_container_that_crashes_again_and_again_has_begun() -> None:
    assert observed(group(pod(containerStatuses=[waiting("CrashLoopBackOff")]), works=[job()])).state == RUNNING


def test_steps_before_the_start_are_told() -> None:
    step = {"name": "prepare", "state": {"running": {}}}
    assert waiting_for(group(pod(initContainerStatuses=[step]), works=[job()])) == "step `prepare` is at work"


def event(about: str, reason: str, message: str, at: str = ENDED_AT) -> dict[str, Any]:
    return {
        "involvedObject": {"name": about, "uid": about},
        "reason": reason, "message": message, "lastTimestamp": at,
    }  # fmt: skip


def test_kubelets_tell_by_events_what_they_are_at() -> None:
    seen = pod(containerStatuses=[waiting("ContainerCreating")])
    lacking = event("one", "FailedMount", 'MountVolume.SetUp failed for volume "d": configmap "x" not found')
    pulling = event("one", "Pulling", 'Pulling image "python"', at=STARTED)
    assert waiting_for(group(seen, works=[job()], events=[pulling])) == "its image is being pulled"
    told = waiting_for(group(seen, works=[job()], events=[lacking, pulling]))
    assert told == "there is no ConfigMap `x` in the namespace"


def test_a_quota_that_is_used_up_and_pods_that_are_refused_are_told() -> None:
    quota = (
        'Error creating: pods "x" is forbidden: exceeded quota: compute, requested: limits.cpu=4, used: limits.cpu=8, '
        "limited: limits.cpu=10"
    )
    told = waiting_for(group(works=[job()], events=[event("phalanx-abc-worker", "FailedCreate", quota)]))
    assert told == "the quota `compute` is used up: it asks for limits.cpu=4, used are limits.cpu=8 of limits.cpu=10"
    policy = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
    assert "(restricted:latest) refuses it: runAsNonRoot != true" in refusal(policy)
    assert "`nobody`" in refusal(
        'pods "x" is forbidden: error looking up service account a/b: serviceaccount "nobody" not found'
    )


def test_pods_that_wait_for_different_things_are_counted() -> None:
    unfit = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes available"}
    pods = [pod("a", containerStatuses=[waiting("ContainerCreating")]), pod("b", conditions=[unfit])]
    assert waiting_for(group(*pods, works=[job()])) == "1 of 2 pods: the cluster has no nodes"


def test_queues_and_gangs_that_hold_it_back_are_named() -> None:
    held = job(suspend=True, labels={"kueue.x-k8s.io/queue-name": "team"})
    assert "Kueue has not admitted it yet: its queue `team`" in waiting_for(group(works=[held]))
    operated = job(runPolicy={"suspend": True}, labels={"kueue.x-k8s.io/queue-name": "team"})
    assert "Kueue has not admitted it yet" in waiting_for(group(works=[operated]))
    gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    gated = pod(conditions=[gate], spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}], "nodeName": None})
    assert waiting_for(group(gated, works=[job()])) == "Kueue has not admitted it yet"
    unfit = {"type": "Unschedulable", "status": "True", "message": "2/3 tasks in gang unschedulable"}
    gang = {"metadata": {"name": "g"}, "status": {"phase": "Pending", "conditions": [unfit]}}
    assert "2/3 tasks in gang unschedulable" in waiting_for(group(works=[job()], gangs=[gang]))
    unseen = pod(spec={"schedulerName": "volcano", "nodeName": None})
    assert "is `volcano` at work?" in waiting_for(group(unseen, works=[job()]))


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


def test_a_build_comes_first_and_its_failure_ends_the_run() -> None:
    assert observed(group(builds=[job()])).why == "its image is being built"
    broken = job({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "it failed"})
    seen = observed(group(builds=[broken]))
    assert (seen.state, seen.cause, seen.why) == (ENDED, "setup", "its image could not be built: it failed")


def test_strange_objects_do_no_harm() -> None:
    for strange in ({}, {"metadata": None, "spec": None, "status": None}, {"status": {"containerStatuses": None}}):
        assert fate_of(strange) is None
        assert observed(group(strange, works=[strange])).state in (WAITING, RUNNING)


def test_what_an_agent_left_in_the_status_of_its_pod_is_believed() -> None:
    """Of a step that failed, it says which; of a program that wrote there itself, nothing."""
    end = {"cause": "setup", "code": 78, "signal": None, "message": "`pip install nonsense` failed with code 1"}
    said = json.dumps({"phalanx": 1, "ends": {"worker-0": end}})
    step = {"name": "prepare", "state": {"terminated": {"exitCode": 78, "message": said}}}
    fate = fate_of(pod(phase="Failed", initContainerStatuses=[step]))
    assert fate is not None
    assert (fate.cause, fate.message, fate.code) == ("setup", "`pip install nonsense` failed with code 1", 78)
    for nonsense in ("", "boom", "[]", '{"phalanx": 1}', '{"phalanx": 1, "ends": {"a": {"cause": "magic"}}}'):
        status = [ended(3, message=nonsense)]
        fate = fate_of(pod(phase="Failed", containerStatuses=status))
        assert fate is not None
        assert (fate.cause, fate.message) == ("error", "exit code 3")
