"""Stands in for Kubeflow's training-operator 1.9: what it makes of a job, when it makes it again, and what it says.

The order of things, names, labels, variables and conditions are its own, and so is what hurts: it makes a pod again
that somebody deleted, unless the job is over; it takes a pod that is being deleted for one that failed; its services
know pods only once they are ready; it puts a container of its own before PyTorch's workers.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tests.kubernetes.pods import now
from tests.kubernetes.rest import Answered, Rest, suppress_code

PREFIX = "training.kubeflow.org"
OVER = ("Succeeded", "Failed")
RETRIED = 128  # exit codes from here on are signals, of which `ExitCode` thinks that they may not come again
TRIES = 100


class Kind(NamedTuple):
    """What training-operator does for one kind. `leaders`: whose end is the job's, the first that it has."""

    name: str
    replicas: str
    container: str
    port: int
    types: tuple[str, ...]
    leaders: tuple[str, ...]
    version: str = "v1"

    @property
    def plural(self) -> str:
        return self.name.lower() + "s"

    @property
    def path(self) -> str:
        return f"/apis/kubeflow.org/{self.version}"

    @property
    def port_name(self) -> str:
        return f"{self.name.lower()}-port"


KINDS = [
    Kind(
        "TFJob",
        "tfReplicaSpecs",
        "tensorflow",
        2222,
        ("PS", "Worker", "Chief", "Master", "Evaluator"),
        ("Chief", "Master", "Worker"),
    ),
    Kind("PyTorchJob", "pytorchReplicaSpecs", "pytorch", 23456, ("Master", "Worker"), ("Master", "Worker")),
    Kind("XGBoostJob", "xgbReplicaSpecs", "xgboost", 9999, ("Master", "Worker"), ("Master",)),
    Kind("JAXJob", "jaxReplicaSpecs", "jax", 6666, ("Worker",), ("Worker",)),
    Kind("MXJob", "mxReplicaSpecs", "mxnet", 9091, ("Scheduler", "Server", "Worker"), ()),
]


def refusal(kind: Kind, job: dict[str, Any]) -> str:
    """What the operator's webhook says to a job; nothing when it is taken. TFJobs may have any type, and whatever is
    wrong with a policy of restarts is found out by who makes the pods."""
    specs = job["spec"].get(kind.replicas) or {}
    faults = []
    for name, spec in specs.items():
        where = f"spec.{kind.replicas}[{name}]"
        boxes = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
        if kind.name != "TFJob" and name not in kind.types:
            faults.append(f'{where}: Unsupported value: "{name}"')
        if not any(box.get("name") == kind.container for box in boxes):
            faults.append(f"{where}.template.spec.containers: Required value: one must be called {kind.container}")
        if not all(box.get("image") for box in boxes):
            faults.append(f"{where}.template.spec.containers: Required value: an image")
        if name == "Master" and kind.name in ("PyTorchJob", "XGBoostJob") and spec.get("replicas") != 1:
            faults.append(f"{where}.replicas: Forbidden: must be 1")
        if kind.name == "PyTorchJob" and name == "Worker" and spec.get("replicas") == 0:
            faults.append(f"{where}.replicas: Forbidden: must be at least 1")
    if kind.name == "TFJob" and {"Chief", "Master"} <= set(specs):
        faults.append(f"spec.{kind.replicas}: Forbidden: more than one Chief or Master")
    if kind.name == "XGBoostJob" and "Master" not in specs:
        faults.append(f"spec.{kind.replicas}[Master]: Required value: must be present")
    elastic = job["spec"].get("elasticPolicy")
    if elastic is not None and "Worker" not in specs:
        faults.append(f"spec.{kind.replicas}[Worker]: Required value: elasticPolicy needs workers")
    if elastic is not None and "nProcPerNode" in elastic and "nprocPerNode" in job["spec"]:
        faults.append("spec.elasticPolicy.nProcPerNode: Forbidden: nprocPerNode is there, too")
    return "; ".join(faults)


class Training:
    """One job, with the pods and services that are its own."""

    def __init__(
        self, api: Rest, kind: Kind, job: dict[str, Any], pods: list[dict[str, Any]], services: list[dict[str, Any]]
    ) -> None:
        self.api, self.kind, self.job = api, kind, job
        self.pods, self.services = pods, services
        self.meta = job["metadata"]
        self.name, self.namespace = self.meta["name"], self.meta["namespace"]
        self.specs: dict[str, Any] = job["spec"][kind.replicas]
        self.policy = job["spec"].get("runPolicy") or {}
        self.status = deepcopy(job.get("status") or {})

    @property
    def is_over(self) -> bool:
        return any(self._has(kind) for kind in OVER)

    def do(self) -> None:
        if self.is_over:
            self._clean()
            return
        before = deepcopy(self.status)
        self._record_event("Created", f"{self.kind.name} {self.name} is created.")
        if self.policy.get("suspend"):
            self._suspend()
        elif self._is_exhausted():
            self._finish("Failed", f"Job {self.name} has failed because it has reached the specified backoff limit")
            for pod in self.pods:
                self._delete(pod)
        else:
            if self._has("Suspended"):
                self._record_event("Suspended", f"{self.kind.name} {self.name} is resumed.", "False", "Resumed")
                self.status["startTime"] = now()
            try:
                self._make()
            except Answered as refused:
                self._say("Warning", "FailedCreatePod", f"Error creating: {refused}")
                return  # it is tried again later
            self.status.setdefault("startTime", now())
            self._judge()
        if self.status != before:
            path = f"{self.kind.path}/namespaces/{self.namespace}/{self.kind.plural}/{self.name}/status"
            with suppress_code(404):
                self.api.patch(path, {"status": self.status})

    # pods and services

    def _make(self) -> None:
        """Type by type: its pods, then their services."""
        self.status["replicaStatuses"] = {}
        for kind, spec in self.specs.items():
            counts: Counter[str] = Counter()
            mine = {int(_label(pod, "replica-index")): pod for pod in self._of_type(kind)}
            for index in range(max(self._count(kind), *(number + 1 for number in mine), 0)):
                if index not in mine:
                    self.api.create(self._pod(kind, index, spec["template"]), self.namespace)
                    self._say("Normal", "SuccessfulCreatePod", f"Created pod: {self._pod_name(kind, index)}")
                    continue
                if index >= self._count(kind):
                    self._delete(mine[index])
                self._heed(kind, spec, mine[index])
                counts[_counted(mine[index])] += 1
            rows = {name: counts[name] for name in ("active", "succeeded", "failed")}
            self.status["replicaStatuses"][kind] = rows
            there = {service["metadata"]["name"] for service in self.services}
            for index in range(self._count(kind)):
                if self._pod_name(kind, index) not in there:
                    self.api.create(self._service(kind, index, spec), self.namespace)

    def _heed(self, kind: str, spec: dict[str, Any], pod: dict[str, Any]) -> None:
        """One that failed is made again where its type says so: it goes, and its place is empty the next time."""
        policy = spec.get("restartPolicy", "Never")
        if pod["status"].get("phase") != "Failed" or policy == "Never":
            return
        if policy != "ExitCode" or _exit_code(pod, self.kind.container) >= RETRIED:
            self._delete(pod)
            self._record_event("Restarting", f"job {self.name} is restarting because {kind} replica(s) failed.")
        else:
            self._record_event("Failed", f"job {self.name} is failing because {kind} replica(s) failed.")

    def _pod(self, kind: str, index: int, template: dict[str, Any]) -> dict[str, Any]:
        meta, spec = template.get("metadata") or {}, deepcopy(template["spec"])
        policy = self.specs[kind].get("restartPolicy", "Never")
        spec["restartPolicy"] = "Never" if policy == "ExitCode" else policy
        labels = {**(meta.get("labels") or {}), **self._labels(kind, index)}
        if self._is_master(kind, index):
            labels[f"{PREFIX}/job-role"] = "master"
        variables = [{"name": name, "value": str(value)} for name, value in self._variables(kind, index).items()]
        for box in spec["containers"]:
            if self.kind.name != "TFJob" or box["name"] == self.kind.container:
                box["env"] = [*(box.get("env") or ()), *variables]
        if self.kind.name == "PyTorchJob" and kind == "Worker" and "Master" in self.specs:
            spec["initContainers"] = [*(spec.get("initContainers") or ()), self._waiting_for_master()]
        own = {"name": self._pod_name(kind, index), "labels": labels, "annotations": meta.get("annotations") or {}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**own, "ownerReferences": [self._owner()]},
            "spec": spec,
        }

    def _waiting_for_master(self) -> dict[str, Any]:
        """As it stands before a worker: without a security context of its own. It gives up after so many tries."""
        look = f"getent hosts {self._pod_name('Master', 0)}"  # theirs is nslookup
        script = f"for i in $(seq {TRIES}); do {look} && exit 0; echo waiting for master; sleep 1; done; exit 1"
        return {
            "name": "init-pytorch",
            "image": "alpine:3.10",
            "imagePullPolicy": "IfNotPresent",
            "resources": {
                "limits": {"cpu": "100m", "memory": "20Mi"},
                "requests": {"cpu": "50m", "memory": "10Mi"},
            },
            "command": ["sh", "-c", script],
        }

    def _service(self, kind: str, index: int, spec: dict[str, Any]) -> dict[str, Any]:
        """All ports of the container, by their names: two without one are refused by the API server."""
        boxes = [box for box in spec["template"]["spec"]["containers"] if box["name"] == self.kind.container]
        ports = {port.get("name", ""): port["containerPort"] for port in boxes[0].get("ports") or ()}
        ports = ports or {self.kind.port_name: self.kind.port}
        labels = self._labels(kind, index)
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self._pod_name(kind, index), "labels": labels, "ownerReferences": [self._owner()]},
            "spec": {
                "clusterIP": "None",
                "selector": labels,
                "ports": [{**({"name": name} if name else {}), "port": port} for name, port in ports.items()],
            },
        }

    def _delete(self, pod: dict[str, Any]) -> None:
        """With its service, which has the same name."""
        for plural in ("pods", "services") if self.is_over or self.policy.get("suspend") else ("pods",):
            if plural == "services" or not pod["metadata"].get("deletionTimestamp"):
                self.api.delete(f"/api/v1/namespaces/{self.namespace}/{plural}/{pod['metadata']['name']}")

    def _suspend(self) -> None:
        for pod in self.pods:
            self._delete(pod)
        message = f"{self.kind.name} {self.name} is suspended."
        if self._has("Running"):
            self._record_event("Running", message, "False", "Suspended")
        self._record_event("Suspended", message)

    def _clean(self) -> None:
        wanted = self.policy.get("cleanPodPolicy") or "None"
        for pod in self.pods:
            if wanted == "All" or (wanted == "Running" and pod["status"].get("phase") in ("Running", "Pending")):
                self._delete(pod)
        keep_s, ended = self.policy.get("ttlSecondsAfterFinished"), self.status.get("completionTime")
        if keep_s is not None and ended and _age_s(ended) > keep_s:
            self.api.delete(f"{self.kind.path}/namespaces/{self.namespace}/{self.kind.plural}/{self.name}")

    def _say(self, kind: str, reason: str, message: str) -> None:
        about = {key: self.job[key] for key in ("apiVersion", "kind")} | {
            key: self.meta[key] for key in ("name", "namespace", "uid")
        }
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self.name[:50]}.", "namespace": self.namespace},
            "involvedObject": about,
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": f"{self.kind.name.lower()}-controller"},
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "count": 1,
        }
        with suppress(Answered):
            self.api.create(event, self.namespace)

    # names

    def _pod_name(self, kind: str, index: int) -> str:
        return f"{self.name}-{kind.lower()}-{index}"

    def _labels(self, kind: str, index: int) -> dict[str, str]:
        return {
            f"{PREFIX}/job-name": self.name,
            f"{PREFIX}/operator-name": f"{self.kind.name.lower()}-controller",
            f"{PREFIX}/replica-type": kind.lower(),
            f"{PREFIX}/replica-index": str(index),
        }

    def _is_master(self, kind: str, index: int) -> bool:
        if self.kind.name == "MXJob":
            return kind == "Server"
        if {"Master", "Chief"} & set(self.specs) or self.kind.name == "XGBoostJob":
            return kind in ("Master", "Chief")
        return kind == "Worker" and index == 0

    def _owner(self) -> dict[str, Any]:
        about = {"apiVersion": self.job["apiVersion"], "kind": self.kind.name, "name": self.name}
        return {**about, "uid": self.meta["uid"], "controller": True, "blockOwnerDeletion": True}

    def _of_type(self, kind: str) -> list[dict[str, Any]]:
        return [pod for pod in self.pods if _label(pod, "replica-type") == kind.lower()]

    def _count(self, kind: str) -> int:
        return int(self.specs[kind].get("replicas", 1)) if kind in self.specs else 0

    # variables

    def _port(self, kind: str) -> int:
        """The port that the template names as the operator's, or the usual one."""
        for box in self.specs[kind]["template"]["spec"]["containers"]:
            for port in box.get("ports") or ():
                if box["name"] == self.kind.container and port.get("name") == self.kind.port_name:
                    return int(port["containerPort"])
        return self.kind.port

    def _variables(self, kind: str, index: int) -> dict[str, Any]:
        total = sum(self._count(each) for each in self.specs)
        rank = index + (1 if kind == "Worker" and "Master" in self.specs else 0)
        if self.kind.name == "TFJob":
            return {"TF_CONFIG": json.dumps(self._tf_config(kind, index))} if total > 1 else {}
        if self.kind.name == "PyTorchJob":
            return {"PYTHONUNBUFFERED": 1, **self._of_master(total, rank), **self._of_elastic(total)}
        if self.kind.name == "XGBoostJob":
            workers = [self._pod_name("Worker", number) for number in range(self._count("Worker"))]
            found = {"MASTER_PORT": self._port("Master"), "MASTER_ADDR": self._pod_name("Master", 0)}
            found |= {"WORLD_SIZE": total, "RANK": rank, "PYTHONUNBUFFERED": 1}
            return found | ({"WORKER_PORT": self._port("Worker"), "WORKER_ADDRS": ",".join(workers)} if workers else {})
        if self.kind.name == "JAXJob":
            found = {"PYTHONUNBUFFERED": 1, "COORDINATOR_PORT": self._port("Worker")}
            found["COORDINATOR_ADDRESS"] = self._pod_name("Worker", 0)
            return found | {"NUM_PROCESSES": total, "PROCESS_ID": index}
        return {
            "DMLC_PS_ROOT_PORT": self._port("Scheduler"),
            "DMLC_PS_ROOT_URI": self._pod_name("Scheduler", 0),
            "DMLC_NUM_SERVER": self._count("Server"),
            "DMLC_NUM_WORKER": self._count("Worker"),
            "DMLC_ROLE": kind.lower(),
            "DMLC_USE_KUBERNETES": 1,
        }

    def _of_master(self, total: int, rank: int) -> dict[str, Any]:
        """Processes are counted where the job says how many a pod has; ranks are always those of pods."""
        if "Master" not in self.specs:
            return {}
        processes = str(self.job["spec"].get("nprocPerNode", "auto"))
        port, address = self._port("Master"), self._pod_name("Master", 0)
        return {
            "MASTER_PORT": port,
            "PET_MASTER_PORT": port,
            "MASTER_ADDR": address,
            "PET_MASTER_ADDR": address,
            "WORLD_SIZE": total * (int(processes) if processes.isdigit() else 1),
            "RANK": rank,
            "PET_NPROC_PER_NODE": processes,
            "PET_NODE_RANK": rank,
        }

    def _of_elastic(self, total: int) -> dict[str, Any]:
        asked = self.job["spec"].get("elasticPolicy")
        if asked is None:
            return {"PET_NNODES": total}
        host = asked.get("rdzvHost") or self._pod_name("Worker", 0)
        found = {"PET_RDZV_ENDPOINT": f"{host}:{asked.get('rdzvPort') or self._port('Worker')}"}
        found["PET_RDZV_BACKEND"] = asked.get("rdzvBackend") or "c10d"
        found["PET_NNODES"] = f"{asked['minReplicas']}:{asked['maxReplicas']}"
        given = {"PET_MAX_RESTARTS": asked.get("maxRestarts"), "PET_RDZV_ID": asked.get("rdzvId")}
        return found | {name: value for name, value in given.items() if value is not None}

    def _tf_config(self, kind: str, index: int) -> dict[str, Any]:
        cluster = {
            each.lower(): [
                f"{self._pod_name(each, number)}.{self.namespace}.svc:{self._port(each)}"
                for number in range(self._count(each))
            ]
            for each in self.specs
            if each != "Evaluator"
        }
        return {"cluster": cluster, "task": {"type": kind.lower(), "index": index}, "environment": "cloud"}

    # status

    def _is_exhausted(self) -> bool:
        """Of pods that fail it looks whether there may be any at all; those that are made again have no count."""
        limit = self.policy.get("backoffLimit")
        if limit is None:
            return False
        failed = [pod for pod in self.pods if pod["status"].get("phase") == "Failed"]
        before = sum(row.get("failed", 0) for row in (self.status.get("replicaStatuses") or {}).values())
        restarts = sum(
            box.get("restartCount", 0)
            for kind, spec in self.specs.items()
            for pod in self._of_type(kind)
            if spec.get("restartPolicy", "Never") != "Never" and pod["status"].get("phase") == "Running"
            for box in pod["status"].get("containerStatuses") or ()
        )
        is_at_limit: bool = restarts > 0 if limit == 0 else restarts >= limit
        return is_at_limit or (len(failed) > before and limit < 1)

    def _judge(self) -> None:
        statuses = self.status["replicaStatuses"]
        leader = next((kind for kind in self.kind.leaders if kind in self.specs), None)
        for kind, counts in statuses.items():
            if kind == leader or not self.kind.leaders:
                if counts.get("active"):
                    self._record_event("Running", f"{self.kind.name} {self.name} is running.")
                if self._has_succeeded(kind, counts.get("succeeded", 0)):
                    self._finish("Succeeded", f"{self.kind.name} {self.name} successfully completed.")
        for kind, counts in statuses.items():
            if not counts.get("failed") or self.is_over:
                continue
            words = f"because {counts['failed']} {kind} replica(s) failed."
            if self._is_restarting(self.specs[kind].get("restartPolicy", "Never")):
                self._record_event("Restarting", f"{self.kind.name} {self.name} is restarting {words}")
            else:
                self._finish("Failed", f"{self.kind.name} {self.name} is failed {words}")

    def _is_restarting(self, policy: str) -> bool:
        """Each kind has its own opinion of a pod that failed, or is being deleted."""
        if self.kind.name in ("PyTorchJob", "JAXJob"):
            return policy != "Never"
        return policy == "ExitCode" if self.kind.name != "TFJob" else self._has("Restarting")

    def _has_succeeded(self, kind: str, succeeded: int) -> bool:
        if self.job["spec"].get("elasticPolicy") and kind == "Worker":
            return succeeded > 0
        if self.kind.name == "TFJob" and kind == "Worker":
            first = [pod for pod in self._of_type(kind) if _label(pod, "replica-index") == "0"]
            if any(pod["status"].get("phase") == "Succeeded" for pod in first):
                return True
        return succeeded >= self._count(kind)

    def _finish(self, kind: str, message: str) -> None:
        self.status.setdefault("completionTime", now())
        self._record_event(kind, message)

    def _has(self, kind: str) -> bool:
        return any(each["type"] == kind and each["status"] == "True" for each in self.status.get("conditions") or ())

    def _record_event(self, kind: str, message: str, status: str = "True", reason: str = "") -> None:
        """A condition of each type, the newest last. Running and Restarting take turns; nothing follows Failed."""
        reason = f"{self.kind.name}{reason or kind}"
        conditions: list[dict[str, Any]] = self.status.get("conditions") or []
        same = [each for each in conditions if each["type"] == kind]
        if self._has("Failed") or any((each["status"], each["reason"]) == (status, reason) for each in same):
            return
        other = {"Running": "Restarting", "Restarting": "Running"}.get(kind)
        kept = [each for each in conditions if each["type"] not in (kind, other)]
        for each in kept:
            if each["type"] == "Running" and kind in OVER:
                each["status"] = "False"
        condition = {"type": kind, "status": status, "reason": reason, "message": message}
        self.status["conditions"] = [*kept, {**condition, "lastUpdateTime": now(), "lastTransitionTime": now()}]


def _counted(pod: dict[str, Any]) -> str:
    """As what a pod counts. One that runs and is being deleted has failed; one that waits counts as nothing."""
    phase = pod["status"].get("phase")
    if phase == "Running":
        return "failed" if pod["metadata"].get("deletionTimestamp") else "active"
    return {"Succeeded": "succeeded", "Failed": "failed"}.get(str(phase), "")


def _exit_code(pod: dict[str, Any], container: str) -> int:
    for box in pod["status"].get("containerStatuses") or ():
        ended = (box.get("state") or {}).get("terminated")
        if box["name"] == container and ended is not None:
            return int(ended["exitCode"])
    return 0xBEEF


def _label(thing: dict[str, Any], name: str) -> str:
    return str((thing["metadata"].get("labels") or {}).get(f"{PREFIX}/{name}", ""))


def _age_s(when: str) -> float:
    began = datetime.strptime(when, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return (datetime.now(UTC) - began).total_seconds()
