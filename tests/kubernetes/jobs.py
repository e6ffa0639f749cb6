"""Stands in for the Job controller of a current Kubernetes: pods, counts and conditions as its, and no more.

    python -m tests.kubernetes.jobs <state of the cluster>

The API server of these tests comes with a controller that knows no index. This one does what that of 1.34 does for the
fields that face.py keeps: Indexed completion, limits for a Job and for each index, suspension, deadlines, finalizers by
which no pod goes uncounted, FailureTarget and SuccessCriteriaMet before the end is told, and removal after a time.
Policies for failures and for success are left out: nothing of ours has them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import httpx

from tests.kubernetes.cluster import is_ready
from tests.kubernetes.pods import now
from tests.kubernetes.rest import STRATEGIC, Answered, Rest, suppress_code

DOMAIN = "batch.kubernetes.io"
INDEX, FAILURES = f"{DOMAIN}/job-completion-index", f"{DOMAIN}/job-index-failure-count"
FINALIZER = f"{DOMAIN}/job-tracking"
CONTROLLER = "kubernetes.io/job-controller"
VARIABLE = "JOB_COMPLETION_INDEX"
LOOK_S, AGAIN_S = 0.1, 1.0
HANDS = 8
BACKOFF_S, LONGEST_BACKOFF_S = 10.0, 600.0
OVER = ("Succeeded", "Failed")

Object = dict[str, Any]


class Controller:
    """Looks at all Jobs whenever one of them or a pod has changed, and does what is missing."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.jobs = Rest.of(state / "admin.kubeconfig")  # as the later Kubernetes shows them
        self.api = Rest.of(state / "inner.kubeconfig")
        self.hands = ThreadPoolExecutor(HANDS)
        self.not_before: dict[str, tuple[float, float]] = {}  # Jobs whose pods were refused: when again, after what

    def run(self) -> None:
        changed = threading.Event()
        for api, path in ((self.jobs, "/apis/batch/v1/jobs"), (self.api, "/api/v1/pods")):
            threading.Thread(target=_watch, args=(api, path, changed), daemon=True).start()
        while True:
            changed.wait(AGAIN_S)
            changed.clear()
            try:
                self.look()
            except (httpx.HTTPError, Answered, OSError, ValueError) as error:
                print(repr(error), file=sys.stderr, flush=True)
                changed.set()
            time.sleep(LOOK_S)

    def look(self) -> None:
        jobs = {job["metadata"]["uid"]: job for job in self.jobs.items("/apis/batch/v1/jobs")}
        pods: dict[str, list[Object]] = {}
        for pod in self.api.items("/api/v1/pods", labelSelector="job-name"):
            pods.setdefault(_maker(pod), []).append(pod)
        for uid, made in pods.items():
            if uid not in jobs or _is_finished(jobs[uid]):
                self.free(made)
        for uid, job in jobs.items():
            if job["spec"].get("managedBy", CONTROLLER) != CONTROLLER:
                continue
            if _is_finished(job):
                self._expire(job)
                continue
            with suppress_code(404, 409):
                Synced(self, {"apiVersion": "batch/v1", "kind": "Job", **job}, pods.get(uid, [])).do()

    def _expire(self, job: Object) -> None:
        kept_s = job["spec"].get("ttlSecondsAfterFinished")
        ended = next((one for one in _conditions(job) if one["type"] in ("Complete", "Failed")), None)
        if kept_s is not None and ended is not None and _age_s(ended["lastTransitionTime"]) >= kept_s:
            self.jobs.delete(_path(job), propagationPolicy="Foreground")

    # pods

    def free(self, pods: Iterable[Object]) -> None:
        """They are counted, or nobody counts them any more."""
        for pod in pods:
            if _is_held(pod):
                change = {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
                with suppress_code(404, 409, 422):
                    self.api.patch(_path(pod), change, STRATEGIC)

    def delete(self, pods: Iterable[Object]) -> None:
        for pod in pods:
            self.api.delete(_path(pod), preconditions={"uid": pod["metadata"]["uid"]})

    def event(self, job: Object, kind: str, reason: str, message: str) -> None:
        meta = job["metadata"]
        about = {"kind": "Job", "apiVersion": "batch/v1", **{key: meta[key] for key in ("namespace", "name", "uid")}}
        thing = {
            "apiVersion": "v1", "kind": "Event", "metadata": {"generateName": f"{meta['name'][:50]}."},
            "involvedObject": about, "type": kind, "reason": reason, "message": message,
            "source": {"component": "job-controller"}, "firstTimestamp": now(), "lastTimestamp": now(), "count": 1,
        }  # fmt: skip
        with suppress(Answered, httpx.HTTPError):
            self.api.create(thing, meta["namespace"])


class Synced:
    """One Job that is not over, and its pods."""

    def __init__(self, controller: Controller, job: Object, pods: list[Object]) -> None:
        self.controller, self.job, self.pods = controller, job, pods
        self.meta, self.spec = job["metadata"], job["spec"]
        self.status: Object = deepcopy(job.get("status") or {})
        self.is_indexed = self.spec.get("completionMode") == "Indexed"
        self.per_index: int | None = self.spec.get("backoffLimitPerIndex")
        self.only_failed = self.spec.get("podReplacementPolicy") == "Failed"
        self.active = [pod for pod in pods if _phase(pod) not in OVER and not _is_deleted(pod)]
        self.terminating = [pod for pod in pods if _phase(pod) not in OVER and _is_deleted(pod)]
        self.uncounted = [pod for pod in pods if _is_held(pod)]
        self.failed = [pod for pod in self.uncounted if self._is_failed(pod)]
        succeeded = [pod for pod in self.uncounted if _phase(pod) == "Succeeded"]
        self.done = {*_parsed(self.status.get("completedIndexes")), *map(_index, succeeded)}
        self.lost = set(_parsed(self.status.get("failedIndexes")))
        self.succeeded = len(self.done) if self.is_indexed else self.status.get("succeeded", 0) + len(succeeded)
        if self.per_index is not None:
            self.lost |= {_index(pod) for pod in self.failed if _failures(pod) >= self.per_index}

    def do(self) -> None:
        before = deepcopy(self.status)
        if self.meta.get("deletionTimestamp"):
            self.controller.free(self.pods)
            return
        if not self.spec.get("suspend"):
            self.status.setdefault("startTime", now())
        verdict = self._verdict()
        if verdict is not None:
            self.controller.delete(self.active)
            self.terminating += self.active
            self.active = []
        else:
            self._manage()
            if not self.active and self._is_complete():
                verdict = ("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")
        counted = self.uncounted if verdict is not None else [*self.failed, *self._succeeded()]
        self._count(counted, is_failure=verdict is not None and verdict[0] == "FailureTarget")
        if verdict is not None:
            self._conclude(*verdict)
        if self.status != before:
            gone = {key: None for key in before if key not in self.status}
            same = {"uid": self.meta["uid"]}  # a job of the same name may have taken its place
            self.controller.jobs.patch(
                f"{_path(self.job)}/status", {"metadata": same, "status": {**self.status, **gone}}
            )
        self.controller.free(counted)

    # what it comes to

    def _is_failed(self, pod: Object) -> bool:
        """Who is being deleted has failed, unless only what has ended is replaced."""
        return _phase(pod) == "Failed" or (not self.only_failed and _is_deleted(pod) and _phase(pod) != "Succeeded")

    def _is_complete(self) -> bool:
        completions = self.spec.get("completions")
        return bool(self.succeeded > 0 if completions is None else self.succeeded >= int(completions))

    def _succeeded(self) -> list[Object]:
        return [pod for pod in self.uncounted if _phase(pod) == "Succeeded"]

    def _verdict(self) -> tuple[str, str, str] | None:
        """The interim condition that it has or gets, with reason and message. None while it goes on."""
        for kind in ("SuccessCriteriaMet", "FailureTarget"):
            if (had := self._condition(kind)) is not None and had["status"] == "True":
                return kind, had.get("reason", ""), had.get("message", "")
        deadline_s = self.spec.get("activeDeadlineSeconds")
        if self.status.get("failed", 0) + len(self.failed) > self.spec["backoffLimit"] or self._is_past_restarts():
            return "FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if deadline_s and not self.spec.get("suspend") and _age_s(self.status["startTime"]) >= deadline_s:
            return "FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline"
        most = self.spec.get("maxFailedIndexes")
        if most is not None and len(self.lost) > most:
            words = "Job has exceeded the specified maximal number of failed indexes"
            return "FailureTarget", "MaxFailedIndexesExceeded", words
        if self.lost and len(self.lost) + len(self.done) >= self.spec["completions"]:
            return "FailureTarget", "FailedIndexes", "Job has failed indexes"
        return None

    def _is_past_restarts(self) -> bool:
        """Of containers in place, where pods restart them themselves."""
        if self.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        statuses = [
            one
            for pod in self.pods
            if _phase(pod) in ("Pending", "Running")
            for part in ("initContainerStatuses", "containerStatuses")
            for one in pod["status"].get(part) or ()
        ]
        restarts, limit = sum(one.get("restartCount", 0) for one in statuses), self.spec["backoffLimit"]
        return bool(restarts > 0 if limit == 0 else restarts >= limit)

    def _count(self, counted: Collection[Object], *, is_failure: bool) -> None:
        failures = [pod for pod in counted if _phase(pod) != "Succeeded" and (is_failure or self._is_failed(pod))]
        self.status["failed"] = self.status.get("failed", 0) + len(failures)
        self.status["succeeded"] = self.succeeded
        self.status["active"], self.status["terminating"] = len(self.active), len(self.terminating)
        self.status["ready"] = sum(map(is_ready, self.active))
        self.status["uncountedTerminatedPods"] = {}
        if self.is_indexed:
            self.status["completedIndexes"] = _written(self.done)
        if self.per_index is not None:
            self.status["failedIndexes"] = _written(self.lost)

    def _conclude(self, interim: str, reason: str, message: str) -> None:
        """The end is told when no pod is left that still ends."""
        if self._condition(interim) is None:
            self._set(interim, "True", reason, message)
        if self.terminating:
            return
        kind = "Complete" if interim == "SuccessCriteriaMet" else "Failed"
        self._set(kind, "True", reason, message)
        if kind == "Complete":
            self.status["completionTime"] = now()
            self.controller.event(self.job, "Normal", "Completed", "Job completed")
        else:
            self.controller.event(self.job, "Warning", reason, message)

    def _condition(self, kind: str) -> Object | None:
        return next((one for one in self.status.get("conditions") or () if one["type"] == kind), None)

    def _set(self, kind: str, state: str, reason: str, message: str) -> bool:
        """Whether that is news. What was never there is not said to be false."""
        had = self._condition(kind)
        if (had is None and state == "False") or (had is not None and had["status"] == state):
            return False
        condition = {"type": kind, "status": state, "reason": reason, "message": message}
        others = [one for one in self.status.get("conditions") or () if one["type"] != kind]
        self.status["conditions"] = [*others, {**condition, "lastProbeTime": now(), "lastTransitionTime": now()}]
        return True

    # pods

    def _manage(self) -> None:
        if self.spec.get("suspend"):
            self.controller.free(self.active)
            self.controller.delete(self.active)
            self.terminating += self.active
            self.active = []
            if self._set("Suspended", "True", "JobSuspended", "Job suspended"):
                self.controller.event(self.job, "Normal", "Suspended", "Job suspended")
            return
        if self._set("Suspended", "False", "JobResumed", "Job resumed"):
            self.status["startTime"] = now()
            self.controller.event(self.job, "Normal", "Resumed", "Job resumed")
        missing = self._wanted() - len(self.active) - (len(self.terminating) if self.only_failed else 0)
        if missing > 0 and not self._is_backing_off():
            self._create(missing)

    def _wanted(self) -> int:
        parallelism = int(self.spec.get("parallelism", 1))
        if self.spec.get("completions") is None:
            return len(self.active) if self.succeeded else parallelism
        return min(int(self.spec["completions"]) - self.succeeded, parallelism)

    def _is_backing_off(self) -> bool:
        at, _ = self.controller.not_before.get(self.meta["uid"], (0.0, 0.0))
        if time.monotonic() < at:
            return True
        ended = [_ended_at(pod) for pod in self.pods if _phase(pod) == "Failed"]
        failures = self.status.get("failed", 0) + len(self.failed)
        if self.per_index is not None or not ended or not failures:
            return False
        return bool(_age_s(max(ended)) < min(BACKOFF_S * 2 ** (failures - 1), LONGEST_BACKOFF_S))

    def _create(self, missing: int) -> None:
        indexes: list[int | None] = [None] * missing
        if self.is_indexed:
            kept = [*self.active, *(self.terminating if self.only_failed else ())]
            taken = {*self.done, *self.lost, *map(_index, kept)}
            free: Iterable[int] = (index for index in range(self.spec["completions"]) if index not in taken)
            indexes = list(islice(free, missing))
        with_count = {_index(pod): _failures(pod) + 1 for pod in self.failed}
        made = [self._pod(index, with_count.get(index if index is not None else -1, 0)) for index in indexes]
        answers = list(self.controller.hands.map(self._created, made))
        self.active += [pod for pod in answers if pod is not None]
        if None in answers:
            _, pause_s = self.controller.not_before.get(self.meta["uid"], (0.0, 0.5))
            pause_s = min(2 * pause_s, 60.0)
            self.controller.not_before[self.meta["uid"]] = (time.monotonic() + pause_s, pause_s)

    def _created(self, pod: Object) -> Object | None:
        try:
            found: Object = self.controller.api.create(pod, self.meta["namespace"])
        except Answered as answered:
            message = answered.status.get("message", "")
            self.controller.event(self.job, "Warning", "FailedCreate", f"Error creating: {message}")
            return None
        name = found["metadata"]["name"]
        self.controller.event(self.job, "Normal", "SuccessfulCreate", f"Created pod: {name}")
        return found

    def _pod(self, index: int | None, failures: int) -> Object:
        template, name = deepcopy(self.spec["template"]), self.meta["name"]
        meta, spec = template.get("metadata") or {}, template["spec"]
        labels = {
            **(meta.get("labels") or {}),
            f"{DOMAIN}/job-name": name,
            f"{DOMAIN}/controller-uid": self.meta["uid"],
        }
        annotations = dict(meta.get("annotations") or {})
        prefix = f"{name}-"
        if index is not None:
            labels[INDEX] = annotations[INDEX] = str(index)
            if self.per_index is not None:
                annotations[FAILURES] = str(failures)
            spec["hostname"] = f"{name}-{index}"
            prefix = f"{name[: 58 - len(f'-{index}-')]}-{index}-"
            for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
                own = container.setdefault("env", [])
                if VARIABLE not in [one["name"] for one in own]:
                    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
                    own.append({"name": VARIABLE, "valueFrom": source})
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": self.meta["uid"]}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": prefix,
                "labels": labels,
                "annotations": annotations,
                "finalizers": [*(meta.get("finalizers") or ()), FINALIZER],
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": spec,
        }


def _watch(api: Rest, path: str, changed: threading.Event) -> None:
    while True:
        with suppress(httpx.HTTPError, Answered, OSError, ValueError):
            for _ in api.watch(path):
                changed.set()
        time.sleep(0.5)


def _path(thing: Object) -> str:
    meta = thing["metadata"]
    root = "/apis/batch/v1" if "template" in thing["spec"] else "/api/v1"
    return f"{root}/namespaces/{meta['namespace']}/{'jobs' if root != '/api/v1' else 'pods'}/{meta['name']}"


def _maker(pod: Object) -> str:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in owners if one.get("controller") and one["kind"] == "Job"), "")


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _is_deleted(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_held(pod: Object) -> bool:
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def _index(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, -1))


def _failures(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(FAILURES, 0))


def _conditions(job: Object) -> list[Object]:
    return list((job.get("status") or {}).get("conditions") or ())


def _is_finished(job: Object) -> bool:
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in _conditions(job))


def _ended_at(pod: Object) -> str:
    states = [one.get("state") or {} for one in pod["status"].get("containerStatuses") or ()]
    times = [state["terminated"].get("finishedAt") or now() for state in states if "terminated" in state]
    return max(times, default=pod["metadata"]["creationTimestamp"])


def _age_s(when: str) -> float:
    then = datetime.strptime(when, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return (datetime.now(UTC) - then).total_seconds()


def _parsed(text: str | None) -> list[int]:
    found: list[int] = []
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1) if first else ()
    return found


def _written(indexes: Iterable[int]) -> str:
    """As `0,2-4,6,7`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


if __name__ == "__main__":
    Controller(Path(sys.argv[1])).run()
