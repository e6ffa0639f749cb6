"""What an attempt waits for, in plain words; and what of it does not pass by itself."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.backends.contract import RUNNING, WAITING
from phalanx.backends.kubernetes.observe.pending import PendingReason, obstacles, refusal, unschedulable
from phalanx.backends.kubernetes.observe.states import AttemptObjects, observed, waiting_for
from tests.backends.kubernetes.test_states import ENDED_AT, STARTED, group, job, pod


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
            "it needs a node that matches its selector: 4 of 4 nodes do not match its node selector or affinity",
        ),
        (
            "0/2 nodes are available: 1 node(s) had taint {gpu: yes}, that the pod didn't tolerate, 1 Too many pods.",
            "it needs a node with room for another pod: 1 of 2 nodes has a taint {gpu: yes} that it does not "
            "tolerate, 1 of 2 has the maximum number of pods",
        ),
        (
            "0/2 nodes are available: 2 node(s) had volume node affinity conflict.",
            "it needs a node that fits: 2 of 2 nodes are not where its volume is",
        ),
        (  # as 1.34 says it, where DRA has its word, too
            "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. no new claims to "
            "deallocate, preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No "
            "preemption victims found for incoming pod.",
            "it needs a node with enough free CPU: 1 of 3 nodes has a taint that it does not tolerate, 2 of 3 have "
            "too little CPU",
        ),
        (
            "0/4 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) didn't match "
            "pod anti-affinity rules, 1 node(s) were unschedulable, 1 node(s) didn't find available persistent volumes "
            "to bind. no new claims to deallocate, preemption: 0/4 nodes are available: 4 Preemption is not helpful",
            "it needs a node that fits: 1 of 4 nodes is not where its volume is, 1 of 4 has pods that its "
            "anti-affinity excludes, 1 of 4 is closed to new pods, 1 of 4 has no volume for its claim",
        ),
        (
            "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, preemption: 0/2 nodes are "
            "available: 2 Preemption is not helpful for scheduling.",
            "it needs a node with the devices that it claims: 2 of 2 nodes have too few of the devices that it claims",
        ),
        (
            '0/1 nodes are available: persistentvolumeclaim "data" not found. preemption: 0/1 nodes are available: 1 '
            "Preemption is not helpful for scheduling.",
            "its volume claim `data` does not exist",
        ),
        ('persistentvolumeclaim "data" not found', "its volume claim `data` does not exist"),
        (
            "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/1 nodes",
            "its volume claim has no volume yet",
        ),
        ("no nodes available to schedule pods", "the cluster has no nodes"),
        ("something new", "no node fits: something new"),
        ("", "no node fits: the scheduler gives no reason"),
    ],
)
def test_a_scheduler_is_understood(message: str, words: str) -> None:
    assert unschedulable(message).words == words
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
            waiting("ErrImagePull", "manifest unknown"),
            "its image cannot be pulled: nowhere/image:1 (manifest unknown)",
        ),
        (  # since 1.32 kubelets say while they wait what went wrong before
            waiting(
                "ImagePullBackOff",
                'Back-off pulling image "nope:1": ErrImagePull: rpc error: code = NotFound desc = failed to pull and '
                'unpack image "docker.io/library/nope:1": failed to resolve reference "docker.io/library/nope:1": '
                "docker.io/library/nope:1: not found",
                image="nope:1",
            ),
            "its image cannot be pulled: nope:1 (docker.io/library/nope:1: not found)",
        ),
        (
            waiting(
                "ErrImagePull",
                'failed to pull and unpack image "docker.io/a/b:1": failed to resolve reference "docker.io/a/b:1": '
                "pull access denied, repository does not exist or may require authorization: server message: "
                "insufficient_scope: authorization failed",
                image="a/b:1",
            ),
            "its image cannot be pulled: a/b:1 (pull access denied, repository does not exist or may require "
            "authorization: server message: insufficient_scope: authorization failed: it does not exist, or needs a "
            "Secret of `environment.image_pull_secrets`)",
        ),
        (
            waiting(
                "CreateContainerConfigError",
                'container has runAsNonRoot and image will run as root (pod: "x_default(1)", container: phalanx)',
            ),
            "its image runs as root, which is not allowed here: `runAsUser` in the `securityContext` of "
            "`environment.kubernetes.pod` sets another user",
        ),
        (waiting("InvalidImageName", image="Not An Image"), "its image name is invalid: Not An Image"),
        (
            waiting("CreateContainerConfigError", 'secret "wandb" not found'),
            "Secret `wandb` does not exist in the namespace",
        ),
        (
            waiting("CreateContainerConfigError", 'configmap "defaults" not found'),
            "ConfigMap `defaults` does not exist in the namespace",
        ),
        (
            waiting("CreateContainerConfigError", "couldn't find key A in Secret default/b"),
            "the Secret `b` has no key `A`",
        ),
        (waiting("ContainerCreating"), "its container is being created"),
        (waiting("Novelty", "whatever it is"), "Novelty (whatever it is)"),
    ],
)
def test_why_a_container_waits_is_said(status: dict[str, Any], words: str) -> None:
    assert waiting_for(group(pod(containerStatuses=[status]), works=[job()])) == words


def test_a_container_that_crashes_again_and_again_has_begun() -> None:
    assert observed(group(pod(containerStatuses=[waiting("CrashLoopBackOff")]), works=[job()])).state == RUNNING


def test_steps_before_the_start_are_reported() -> None:
    step = {"name": "prepare", "state": {"running": {}}}
    assert waiting_for(group(pod(initContainerStatuses=[step]), works=[job()])) == "step `prepare` is running"


def event(about: str, reason: str, message: str, at: str = ENDED_AT) -> dict[str, Any]:
    return {
        "involvedObject": {"name": about, "uid": about},
        "reason": reason, "message": message, "lastTimestamp": at,
    }  # fmt: skip


def test_events_of_kubelets_show_their_progress() -> None:
    seen = pod(containerStatuses=[waiting("ContainerCreating")])
    lacking = event("one", "FailedMount", 'MountVolume.SetUp failed for volume "d": configmap "x" not found')
    pulling = event("one", "Pulling", 'Pulling image "python"', at=STARTED)
    assert waiting_for(group(seen, works=[job()], events=[pulling])) == "its image is being pulled"
    reason = waiting_for(group(seen, works=[job()], events=[lacking, pulling]))
    assert reason == "ConfigMap `x` does not exist in the namespace"
    keyless = event("one", "FailedMount", 'SetUp failed for volume "d" : references non-existent secret key: a.pem')
    assert waiting_for(group(seen, events=[keyless])) == "the Secret that it mounts has no key `a.pem`"
    runtime = 'rpc error: code = Unknown desc = no runtime for "nvidia" is configured'
    sandless = event("one", "FailedCreatePodSandBox", f"Failed to create pod sandbox: {runtime}")
    network = event("one", "FailedCreatePodSandBox", "Failed to create pod sandbox: plugin type=calico failed")
    away = event("one", "FailedMount", 'SetUp failed for volume "d" : mount failed: exit status 32')
    lasting = [bool(obstacles(group(seen, events=[one]))) for one in (lacking, keyless, sandless, network, away)]
    assert lasting == [True, True, True, False, False]


def test_a_quota_that_is_used_up_and_pods_that_are_refused_are_reported() -> None:
    quota = (
        'Error creating: pods "x" is forbidden: exceeded quota: compute, requested: limits.cpu=4, used: limits.cpu=8, '
        "limited: limits.cpu=10"
    )
    reason = waiting_for(group(works=[job()], events=[event("phalanx-abc-worker", "FailedCreate", quota)]))
    assert reason == "the quota `compute` is used up: requested limits.cpu=4, used limits.cpu=8 of limits.cpu=10"
    policy = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'
    assert "(restricted:latest) rejects it: runAsNonRoot != true" in refusal(policy).words
    nobody = 'pods "x" is forbidden: error looking up service account a/b: serviceaccount "nobody" not found'
    assert "`nobody`" in refusal(nobody).words


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            'Error creating: pods "x" is forbidden: maximum memory usage per Container is 4Gi, but limit is 16Gi',
            "a LimitRange of the namespace rejects it: maximum memory usage per Container is 4Gi, but limit is 16Gi",
        ),
        (
            'Error creating: admission webhook "validate.kyverno.svc-fail" denied the request: no label `team`',
            "the webhook `validate.kyverno.svc-fail` of the cluster rejects its pods: no label `team`",
        ),
        (
            "Error creating: pods \"x\" is forbidden: ValidatingAdmissionPolicy 'images' with binding 'all' denied "
            "request: only ours",
            "the policy `images` of the cluster rejects its pods: only ours",
        ),
        (
            'Error creating: pods "x" is forbidden: no PriorityClass with name high was found',
            "priority class `high` does not exist in the cluster",
        ),
        (
            'Error creating: pods "x" is forbidden: failed quota: all: must specify limits.memory for: phalanx',
            "the quota `all` requires every pod to set limits.memory for: phalanx: otherwise it never starts",
        ),
        (
            'worker pod created failed: Pod "x" is invalid: spec.containers[0].image: Required value',
            "the cluster rejects its pods: spec.containers[0].image: Required value",
        ),
    ],
)
def test_permanent_refusals_differ_from_transient_ones(message: str, words: str) -> None:
    assert refusal(message) == PendingReason(words, is_lasting=True)


@pytest.mark.parametrize(
    "message",
    [
        'Error creating: pods "x" is forbidden: exceeded quota: a, requested: pods=1, used: pods=2, limited: pods=2',
        "Error creating: Internal error occurred: failed calling webhook: connection refused",
        "Error creating: Timeout: request did not complete within requested timeout",
    ],
)
def test_refusals_that_pass_by_themselves_last_as_long_as_they_do(message: str) -> None:
    assert not refusal(message).is_lasting


def test_a_refusal_counts_until_pods_were_made_after_all() -> None:
    said = [event("phalanx-abc-worker", "FailedCreate", 'serviceaccount "late" not found', at=STARTED)]
    assert "`late`" in waiting_for(group(works=[job()], events=said))
    said.append(event("phalanx-abc-worker", "SuccessfulCreate", "Created pod: x", at=ENDED_AT))
    assert waiting_for(group(works=[job()], events=said)) == "its pods are being created"
    assert obstacles(group(works=[job()], events=said)) == {}


def test_a_refusal_is_over_when_a_pod_came_later_though_no_one_says_that_it_was_made() -> None:
    works, said = [job(name="phalanx-abc")], event("phalanx-abc", "FailedCreatePod", "is forbidden: no", at=STARTED)
    older, younger = (pod(meta={"creationTimestamp": at}) for at in ("2026-11-16T09:59:59Z", ENDED_AT))
    assert "" in obstacles(group(older, works=works, events=[said]))
    assert obstacles(group(older, younger, works=works, events=[said])) == {}


def test_mpijobs_say_by_one_reason_that_they_failed_and_that_pods_are_refused() -> None:
    works = [job(name="phalanx-abc")]
    said = event("phalanx-abc", "MPIJobFailed", 'worker pod created failed: pods "x" is forbidden: no')
    assert waiting_for(group(works=works, events=[said])) == "the cluster rejects its pods: no"
    said = event("phalanx-abc", "MPIJobFailed", "MPIJob default/phalanx-abc has failed")
    assert waiting_for(group(works=works, events=[said])) == "its pods are being created"


def test_an_autoscaler_says_whether_nodes_will_come() -> None:
    short_of = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: 1 Insufficient cpu."}
    seen = pod(conditions=[short_of], spec={"nodeName": None})
    no = event("one", "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached", at=STARTED)
    yes = event("one", "TriggeredScaleUp", "pod triggered scale-up: [{gpus 0->1 (max: 3)}]")
    reason = waiting_for(group(seen, works=[job()], events=[no]))
    assert reason.endswith("has too little CPU; no nodes are added for it: 1 max node group size reached")
    assert waiting_for(group(seen, works=[job()], events=[no, yes])).endswith("; nodes are being added for it")
    seen["status"]["nominatedNodeName"] = "node-7"  # pods of lower priority are on their way out there
    assert waiting_for(group(seen, works=[job()])).endswith(
        "has too little CPU; pods are being preempted for it on node-7"
    )


def test_the_newest_condition_counts_regardless_of_the_field_with_its_time() -> None:
    seen = pod(containerStatuses=[waiting("ContainerCreating")])
    old = event("one", "FailedMount", 'configmap "x" not found', at=STARTED)
    new = {**event("one", "Pulling", "Pulling image"), "lastTimestamp": None, "eventTime": STARTED}
    new["series"] = {"lastObservedTime": ENDED_AT}
    assert waiting_for(group(seen, works=[job()], events=[new, old])) == "its image is being pulled"


# what does not pass by itself


@pytest.mark.parametrize(
    ("status", "is_lasting"),
    [
        (waiting("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: x: not found'), True),
        (waiting("InvalidImageName"), True),
        (waiting("ErrImageNeverPull"), True),
        (waiting("CreateContainerConfigError", 'secret "wandb" not found'), True),
        (waiting("CreateContainerError", "no command specified"), True),
        (waiting("ErrImagePull", "dial tcp: lookup nowhere.example: no such host"), True),
        (waiting("ErrImagePull", "dial tcp 10.0.0.1:443: i/o timeout"), False),
        (waiting("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: 503 Service Unavailable'), False),
        (waiting("ErrImagePull", "toomanyrequests: You have reached your pull rate limit"), False),
        (waiting("RegistryUnavailable", "image pull failed for x because the registry is unavailable"), False),
        (waiting("ContainerCreating"), False),
    ],
)
def test_what_keeps_a_container_from_starting_lasts_or_passes(status: dict[str, Any], is_lasting: bool) -> None:
    seen = group(pod(containerStatuses=[status]), works=[job()])
    assert obstacles(seen) == ({"one": waiting_for(seen)} if is_lasting else {})


def test_want_of_room_is_no_obstacle() -> None:
    def unplaced(message: str) -> AttemptObjects:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        return group(pod(spec={"nodeName": None}, conditions=[condition]), works=[job()])

    assert obstacles(unplaced("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")) == {}
    assert obstacles(unplaced("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")) == {}
    assert list(obstacles(unplaced('persistentvolumeclaim "data" not found'))) == ["one"]
    policy = event("phalanx-abc-worker", "FailedCreate", 'violates PodSecurity "restricted:latest": no')
    assert list(obstacles(group(works=[job()], events=[policy]))) == [""]
    assert obstacles(group(works=[job(suspend=True)], events=[policy])) == {}
    running = pod(phase="Running", containerStatuses=[{"name": "phalanx", "state": {"running": {}}}])
    assert obstacles(group(running, works=[job()])) == {}


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
    assert "check that `volcano` is running" in waiting_for(group(unseen, works=[job()]))
