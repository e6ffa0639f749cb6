"""Stands in for Kubeflow's training-operator and mpi-operator: pods, services and statuses as theirs, and no more.

    python -m tests.kubernetes.operators <state of the cluster>

The real ones are containers that nothing here can pull. Names, labels and variables are theirs; what they refuse by a
webhook fails here with a condition that says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.kubernetes.cluster import Settings, is_ready
from tests.kubernetes.crds import definitions
from tests.kubernetes.pods import now
from tests.kubernetes.rest import Answered, Rest, suppress_code

PREFIX = "training.kubeflow.org"
LOOK_S = 0.3


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


def kinds(mpi_version: str) -> list[Kind]:
    return [
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
        Kind("MXJob", "mxReplicaSpecs", "mxnet", 9091, ("Scheduler", "Server", "Worker"), ("Worker",)),
        Kind("MPIJob", "mpiReplicaSpecs", "", 0, ("Launcher", "Worker"), ("Launcher",), mpi_version),
    ]


class Operator:
    """Looks at all jobs again and again, and does what is missing."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.settings = Settings(**json.loads((state / "settings.json").read_text()))
        self.api = Rest.of(state / "admin.kubeconfig")
        self.kinds = kinds(self.settings.mpi_version)

    def run(self) -> None:
        for definition in definitions(self.settings.mpi_version):
            self.api.ensure(definition)
        for kind in self.kinds:
            self._await(kind)
        (self.state / "operators.ready").touch()
        changed = threading.Event()
        for kind in self.kinds:
            threading.Thread(target=self._watch, args=(f"{kind.path}/{kind.plural}", changed), daemon=True).start()
        threading.Thread(target=self._watch, args=("/api/v1/pods", changed), daemon=True).start()
        while True:
            changed.wait(5.0)
            changed.clear()
            for kind in self.kinds:
                try:
                    self._reconcile(kind)
                except (httpx.HTTPError, Answered, OSError) as error:
                    print(kind.name, error, file=sys.stderr, flush=True)
                    changed.set()
            time.sleep(LOOK_S)

    def _await(self, kind: Kind) -> None:
        while True:
            with suppress_code(404, 503):
                self.api.get(f"{kind.path}/{kind.plural}")
                return
            time.sleep(0.1)

    def _watch(self, path: str, changed: threading.Event) -> None:
        while True:
            try:
                for _ in self.api.watch(path):
                    changed.set()
            except (httpx.HTTPError, Answered, OSError, ValueError):
                time.sleep(0.5)

    def _reconcile(self, kind: Kind) -> None:
        jobs = self.api.items(f"{kind.path}/{kind.plural}")
        if not jobs:
            return
        pods = self.api.items("/api/v1/pods", labelSelector=f"{PREFIX}/job-name")
        for job in jobs:
            if job["metadata"].get("deletionTimestamp"):
                continue
            mine = [pod for pod in pods if _is_owned(pod, job) or _is_launcher_of(pod, job)]
            Reconciled(
                self.api, kind, {"apiVersion": f"kubeflow.org/{kind.version}", "kind": kind.name, **job}, mine
            ).do()


class Reconciled:
    """One job and its pods."""

    def __init__(self, api: Rest, kind: Kind, job: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        self.api = api
        self.kind = kind
        self.job = job
        self.pods = pods
        self.meta = job["metadata"]
        self.name, self.namespace = self.meta["name"], self.meta["namespace"]
        self.specs: dict[str, Any] = job["spec"][kind.replicas]
        self.status = deepcopy(job.get("status") or {})
        self.policy = job["spec"].get("runPolicy") or {}

    def do(self) -> None:
        if self._has("Succeeded") or self._has("Failed"):
            self._clean()
            return
        before = deepcopy(self.status)
        if problem := self._problem():
            self._condition("Failed", f"{self.kind.name}FailedValidation", problem)
        elif not self.policy.get("suspend"):
            self._condition("Created", f"{self.kind.name}Created", f"{self.kind.name} {self.name} is created.")
            self.status.setdefault("startTime", now())
            self._create()
            self._count()
            self._judge()
        if self.status != before:
            path = f"{self.kind.path}/namespaces/{self.namespace}/{self.kind.plural}/{self.name}/status"
            with suppress_code(404):
                self.api.patch(path, {"status": self.status})

    # pods

    def _problem(self) -> str:
        for kind, spec in self.specs.items():
            if kind not in self.kind.types:
                return f"there is no replica type {kind} in a {self.kind.name}"
            names = [each["name"] for each in spec["template"]["spec"]["containers"]]
            if self.kind.container and self.kind.container not in names:
                return f"there is no container named {self.kind.container} in {kind}"
        return ""

    def _create(self) -> None:
        if self.kind.name == "MPIJob":
            self._prepare_mpi()
        there = {pod["metadata"]["name"] for pod in self.pods}
        for kind, spec in self.specs.items():
            if kind == "Launcher" and not self._may_launch():
                continue
            for index in range(spec.get("replicas") or 1):
                name = self._pod_name(kind, index)
                if name not in there and not self._had(name):
                    self._create_one(kind, index, name, spec["template"])

    def _may_launch(self) -> bool:
        if self.job["spec"].get("launcherCreationPolicy") != "WaitForWorkersReady":
            return True
        workers = [pod for pod in self.pods if _label(pod, "replica-type") == "worker" and is_ready(pod)]
        return len(workers) >= self._replicas("Worker")

    def _had(self, name: str) -> bool:
        """A pod that was there and is gone is not made again: these tests' jobs never restart."""
        return name in (self.status.get("made") or ())

    def _create_one(self, kind: str, index: int, name: str, template: dict[str, Any]) -> None:
        labels = self._labels(kind, index)
        meta = template.get("metadata") or {}
        spec = deepcopy(template["spec"])
        spec["restartPolicy"] = self.specs[kind].get("restartPolicy") or "Never"
        for container in spec["containers"]:
            if not self.kind.container or container["name"] == self.kind.container:
                container["env"] = [*(container.get("env") or ()), *self._variables(kind, index)]
        if self.kind.name == "MPIJob":
            self._wire_mpi(kind, index, spec)
        if kind == "Launcher" and self._is_by_job:
            self._create_launcher(name, {**(meta.get("labels") or {}), **labels}, meta.get("annotations") or {}, spec)
            return
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {**(meta.get("labels") or {}), **labels},
                "annotations": meta.get("annotations") or {},
                "ownerReferences": [self._owner()],
            },
            "spec": spec,
        }
        self.api.ensure(pod, self.namespace)
        self.status["made"] = sorted({*(self.status.get("made") or ()), name})
        if self.kind.name != "MPIJob":
            self.api.ensure(self._service(name, labels), self.namespace)

    def _service(self, name: str, selector: dict[str, str]) -> dict[str, Any]:
        meta = {"name": name, "labels": selector, "ownerReferences": [self._owner()]}
        ports = [{"port": self.kind.port}] if self.kind.port else []
        spec = {"clusterIP": "None", "selector": selector, "ports": ports}
        return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}

    def _pod_name(self, kind: str, index: int) -> str:
        return f"{self.name}-launcher" if kind == "Launcher" else f"{self.name}-{kind.lower()}-{index}"

    def _labels(self, kind: str, index: int) -> dict[str, str]:
        operator = "mpi-operator" if self.kind.version != "v1" else f"{self.kind.name.lower()}-controller"
        is_shifted = kind == "Worker" and bool(self.job["spec"].get("runLauncherAsWorker"))
        role = (
            {f"{PREFIX}/job-role": kind.lower()}
            if kind in ("Master", "Chief", "Launcher") or operator == "mpi-operator"
            else {}
        )
        return {
            f"{PREFIX}/job-name": self.name,
            f"{PREFIX}/operator-name": operator,
            f"{PREFIX}/replica-type": kind.lower(),
            f"{PREFIX}/replica-index": str(index + (1 if is_shifted else 0)),
            **role,
        }

    def _owner(self) -> dict[str, Any]:
        about = {
            "apiVersion": self.job["apiVersion"],
            "kind": self.kind.name,
            "name": self.name,
            "uid": self.meta["uid"],
        }
        return {**about, "controller": True, "blockOwnerDeletion": True}

    # variables

    def _replicas(self, kind: str) -> int:
        return int(self.specs[kind].get("replicas") or 1) if kind in self.specs else 0

    def _port(self, kind: str) -> int:
        """The port that the template names as the operator's, or the usual one."""
        for container in self.specs[kind]["template"]["spec"]["containers"]:
            for port in container.get("ports") or ():
                if container["name"] == self.kind.container and port.get("name") == f"{self.kind.name.lower()}-port":
                    return int(port["containerPort"])
        return self.kind.port

    def _variables(self, kind: str, index: int) -> list[dict[str, str]]:
        found: dict[str, Any] = {}
        total = sum(self._replicas(each) for each in self.specs)
        first = next(iter(each for each in ("Master", "Worker") if each in self.specs), "")
        rank = index + (1 if kind == "Worker" and "Master" in self.specs else 0)
        if self.kind.name == "TFJob" and total > 1:
            found["TF_CONFIG"] = json.dumps(self._tf_config(kind, index))
        elif self.kind.name == "PyTorchJob":
            address, port = self._pod_name(first, 0), self._port(first)
            found = {
                "PYTHONUNBUFFERED": 1,
                "MASTER_PORT": port,
                "MASTER_ADDR": address,
                "WORLD_SIZE": total,
                "RANK": rank,
            }
            found |= {"PET_MASTER_PORT": port, "PET_MASTER_ADDR": address, "PET_NNODES": total, "PET_NODE_RANK": rank}
        elif self.kind.name == "XGBoostJob":
            address = self._pod_name(first, 0)
            found = {"MASTER_PORT": self._port(first), "MASTER_ADDR": address, "WORLD_SIZE": total, "RANK": rank}
            found["PYTHONUNBUFFERED"] = 1
        elif self.kind.name == "JAXJob":
            found = {"COORDINATOR_ADDRESS": self._pod_name("Worker", 0), "COORDINATOR_PORT": self._port("Worker")}
            found |= {"NUM_PROCESSES": total, "PROCESS_ID": index, "PYTHONUNBUFFERED": 1}
        elif self.kind.name == "MXJob":
            found = {
                "DMLC_PS_ROOT_URI": self._pod_name("Scheduler", 0),
                "DMLC_PS_ROOT_PORT": self.kind.port,
                "DMLC_NUM_SERVER": self._replicas("Server"),
                "DMLC_NUM_WORKER": self._replicas("Worker"),
                "DMLC_ROLE": kind.lower(),
                "DMLC_USE_KUBERNETES": 1,
            }
        elif self.kind.name == "MPIJob":
            found = {"K_MPI_JOB_ROLE": kind.lower()}
            if kind == "Launcher":
                found |= {
                    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
                    "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
                }
                found["OMPI_MCA_plm_rsh_args"] = "-o ConnectionAttempts=10"
        return [{"name": name, "value": str(value)} for name, value in found.items()]

    def _tf_config(self, kind: str, index: int) -> dict[str, Any]:
        cluster = {
            each.lower(): [
                f"{self._pod_name(each, number)}.{self.namespace}.svc:{self._port(each)}"
                for number in range(self._replicas(each))
            ]
            for each in self.specs
            if each != "Evaluator"
        }
        return {"cluster": cluster, "task": {"type": kind.lower(), "index": index}, "environment": "cloud"}

    # MPI

    @property
    def _is_by_job(self) -> bool:
        """mpi-operator has a Job for its launcher; training-operator makes the pod itself."""
        return self.kind.version != "v1"

    def _create_launcher(
        self, name: str, labels: dict[str, str], annotations: dict[str, str], spec: dict[str, Any]
    ) -> None:
        template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": labels, "ownerReferences": [self._owner()]},
            "spec": {"backoffLimit": self.policy.get("backoffLimit", 0), "template": template},
        }
        self.api.ensure(job, self.namespace)
        self.status["made"] = sorted({*(self.status.get("made") or ()), name})

    def _write_keys(self) -> None:
        """That the launcher comes to the workers with; made once for each job."""
        name = f"{self.name}-ssh"
        if self.api.find(f"/api/v1/namespaces/{self.namespace}/secrets/{name}") is not None:
            return
        with tempfile.TemporaryDirectory() as folder:
            key = Path(folder) / "key"
            made = ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-f", str(key)]
            subprocess.run(made, check=True, capture_output=True)
            data = {"ssh-privatekey": key.read_text(), "ssh-publickey": key.with_suffix(".pub").read_text()}
        meta = {"name": name, "ownerReferences": [self._owner()]}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "kubernetes.io/ssh-auth"}
        self.api.ensure({**secret, "stringData": data}, self.namespace)

    def _mount_keys(self, spec: dict[str, Any]) -> None:
        items = [("ssh-privatekey", "id_rsa"), ("ssh-publickey", "id_rsa.pub"), ("ssh-publickey", "authorized_keys")]
        keys = {"secretName": f"{self.name}-ssh", "items": [{"key": key, "path": path} for key, path in items]}
        spec["volumes"] = [*(spec.get("volumes") or ()), {"name": "ssh-auth", "secret": keys}]
        mount = {"name": "ssh-auth", "mountPath": self.job["spec"].get("sshAuthMountPath") or "/root/.ssh"}
        first = spec["containers"][0]
        first["volumeMounts"] = [*(first.get("volumeMounts") or ()), mount]

    def _prepare_mpi(self) -> None:
        slots = self.job["spec"].get("slotsPerWorker") or 1
        names = [self._pod_name("Worker", index) for index in range(self._replicas("Worker"))]
        if self.job["spec"].get("runLauncherAsWorker"):
            names.insert(0, self._pod_name("Launcher", 0))
        hosts = "".join(f"{name}.{self.name}.{self.namespace}.svc slots={slots}\n" for name in names)
        if self._is_by_job:
            self._write_keys()
        meta = {"name": f"{self.name}-config", "ownerReferences": [self._owner()]}
        self.api.ensure(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"hostfile": hosts}}, self.namespace
        )
        selector = {f"{PREFIX}/job-name": self.name}
        self.api.ensure(self._service(self.name, selector), self.namespace)

    def _wire_mpi(self, kind: str, index: int, spec: dict[str, Any]) -> None:
        spec["hostname"], spec["subdomain"] = self._pod_name(kind, index), self.name
        if self._is_by_job:
            self._mount_keys(spec)
        if kind != "Launcher":
            return
        spec["volumes"] = [
            *(spec.get("volumes") or ()),
            {"name": "mpi-job-config", "configMap": {"name": f"{self.name}-config"}},
        ]
        mount = {"name": "mpi-job-config", "mountPath": "/etc/mpi"}
        for container in spec["containers"]:
            container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]

    # status

    def _has(self, kind: str) -> bool:
        return any(each["type"] == kind and each["status"] == "True" for each in self.status.get("conditions") or ())

    def _condition(self, kind: str, reason: str, message: str) -> None:
        if self._has(kind):
            return
        conditions = self.status.setdefault("conditions", [])
        for each in conditions:
            if each["type"] == "Running" and kind in ("Succeeded", "Failed"):
                each["status"] = "False"
        conditions.append(
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastUpdateTime": now(),
                "lastTransitionTime": now(),
            }
        )

    def _count(self) -> None:
        counted = {}
        for kind in self.specs:
            mine = [pod for pod in self.pods if _label(pod, "replica-type") == kind.lower()]
            phases = [pod["status"].get("phase") for pod in mine]
            rows = {
                "active": phases.count("Running"),
                "succeeded": phases.count("Succeeded"),
                "failed": phases.count("Failed"),
            }
            counted[kind] = {name: number for name, number in rows.items() if number}
        self.status["replicaStatuses"] = counted

    def _judge(self) -> None:
        name = self.kind.name
        failed = [pod["metadata"]["name"] for pod in self.pods if pod["status"].get("phase") == "Failed"]
        leader = next((each for each in self.kind.leaders if each in self.specs), None)
        leaders = [pod for pod in self.pods if leader and _label(pod, "replica-type") == leader.lower()]
        ended = [pod for pod in leaders if pod["status"].get("phase") == "Succeeded"]
        if any(pod["status"].get("phase") == "Running" for pod in self.pods):
            self._condition("Running", f"{name}Running", f"{name} {self.name} is running.")
        deadline = self.policy.get("activeDeadlineSeconds")
        if failed:
            self._condition("Failed", f"{name}Failed", f"{name} {self.name} is failed because {failed[0]} failed.")
        elif deadline and _age_s(self.status["startTime"]) > deadline:
            self._condition("Failed", "DeadlineExceeded", f"{name} {self.name} was active longer than {deadline} s")
        elif leader and len(ended) >= self._replicas(leader):
            self._condition("Succeeded", f"{name}Succeeded", f"{name} {self.name} successfully completed.")
            self.status["completionTime"] = now()

    def _clean(self) -> None:
        wanted = self.policy.get("cleanPodPolicy") or "None"
        for pod in self.pods:
            is_running = pod["status"].get("phase") in ("Running", "Pending")
            if not pod["metadata"].get("deletionTimestamp") and (
                wanted == "All" or (wanted == "Running" and is_running)
            ):
                self.api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}")


def _is_owned(pod: dict[str, Any], job: dict[str, Any]) -> bool:
    return any(owner["uid"] == job["metadata"]["uid"] for owner in pod["metadata"].get("ownerReferences") or ())


def _is_launcher_of(pod: dict[str, Any], job: dict[str, Any]) -> bool:
    """Made by the Job of a launcher."""
    meta, name = pod["metadata"], job["metadata"]["name"]
    is_here = meta["namespace"] == job["metadata"]["namespace"]
    return is_here and any(owner["name"] == f"{name}-launcher" for owner in meta.get("ownerReferences") or ())


def _label(pod: dict[str, Any], name: str) -> str:
    return str((pod["metadata"].get("labels") or {}).get(f"{PREFIX}/{name}", ""))


def _age_s(when: str) -> float:
    began = datetime.strptime(when, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return (datetime.now(UTC) - began).total_seconds()


if __name__ == "__main__":
    Operator(Path(sys.argv[1])).run()
