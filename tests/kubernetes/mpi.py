"""Stands in for mpi-operator 0.8 (MPIJob v2beta1) and for what training-operator 1.9 makes of an MPIJob v1.

Names, labels, variables, keys and conditions are theirs, and so is what hurts: mpi-operator's word for the end of a job
is that of its launcher's Job alone, so that a host that fails before the launcher comes is waited for until somebody
ends the job; a job that was held back has its launcher at once, whatever the hosts do; a host that is gone is made
again; names are there before those who bear them listen. What is not valid is told by an event, and by nothing else.
"""

from __future__ import annotations

import subprocess
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster import is_ready
from tests.kubernetes.pods import now
from tests.kubernetes.rest import Rest, suppress_code
from tests.kubernetes.training import PREFIX, Kind

LAUNCHER, WORKER = "Launcher", "Worker"
CONFIG_AT, KUBECTL_AT = "/etc/mpi", "/opt/kube"
KUBEXEC = '#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n/opt/kube/kubectl exec ${{POD_NAME}}{} -- /bin/sh -c "$*"'


class MpiJob:
    """One job and its pods."""

    def __init__(self, api: Rest, kind: Kind, job: dict[str, Any], pods: list[dict[str, Any]]) -> None:
        self.api, self.kind, self.job, self.pods = api, kind, job, pods
        self.meta, self.spec = job["metadata"], job["spec"]
        self.name, self.namespace = self.meta["name"], self.meta["namespace"]
        self.specs: dict[str, Any] = self.spec[kind.replicas]
        self.policy = self.spec.get("runPolicy") or {}
        self.status = deepcopy(job.get("status") or {})

    @property
    def is_v2(self) -> bool:
        """mpi-operator has a Job for its launcher, and ssh; training-operator makes the pod itself, and has kubectl."""
        return self.kind.version != "v1"

    @property
    def is_own_worker(self) -> bool:
        return self.is_v2 and bool(self.spec.get("runLauncherAsWorker"))

    def do(self) -> None:
        if (self._has("Succeeded") or self._has("Failed")) and self.status.get("completionTime"):
            self._clean()
            return
        if problem := self._problem():
            self._record_event(problem)
            return
        before = deepcopy(self.status)
        self._condition("Created", "MPIJobCreated", f"MPIJob {self.namespace}/{self.name} is created.")
        if self.policy.get("suspend"):
            self._condition("Suspended", "MPIJobSuspended", "MPIJob suspended")
        else:
            self.status.setdefault("startTime", now())
            self._make_what_pods_need()
            self._make_pods()
            self._judge()
        if self.status != before:
            path = f"{self.kind.path}/namespaces/{self.namespace}/{self.kind.plural}/{self.name}/status"
            with suppress_code(404):
                self.api.patch(path, {"status": self.status})

    def _problem(self) -> str:
        if LAUNCHER not in self.specs:
            return "must have Launcher replica spec"
        if self.specs[LAUNCHER].get("replicas", 1) != 1:
            return "the Launcher's replicas: must be 1"
        if WORKER in self.specs and not self.specs[WORKER].get("replicas"):
            return "the Worker's replicas: must be greater than or equal to 1"
        policies = ("Never", "OnFailure") if self.is_v2 else ("Never", "OnFailure", "Always", "ExitCode")
        for kind, spec in self.specs.items():
            if spec.get("restartPolicy", "Never") not in policies:
                return f"the {kind}'s restartPolicy: Unsupported value: {spec['restartPolicy']}"
        return ""

    def _record_event(self, problem: str) -> None:
        about = {"apiVersion": self.job["apiVersion"], "kind": self.kind.name, "namespace": self.namespace}
        about |= {"name": self.name, "uid": self.meta["uid"]}
        event = {
            "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "ValidationError",
            "metadata": {"name": f"{self.name}.invalid"}, "involvedObject": about, "lastTimestamp": now(),
            "message": f"Found validation errors: {problem}", "source": {"component": "mpi-job-controller"},
        }  # fmt: skip
        self.api.ensure(event, self.namespace)

    # what pods need

    def _replicas(self, kind: str) -> int:
        return int(self.specs[kind].get("replicas") or 1) if kind in self.specs else 0

    def _workers(self) -> list[str]:
        return [f"{self.name}-worker-{index}" for index in range(self._replicas(WORKER))]

    def _owner(self) -> dict[str, Any]:
        about = {"apiVersion": self.job["apiVersion"], "kind": self.kind.name, "name": self.name}
        return {**about, "uid": self.meta["uid"], "controller": True, "blockOwnerDeletion": True}

    def _ensure(self, kind: str, name: str, **fields: Any) -> None:
        meta = {"name": name, "labels": {"app": self.name}, "ownerReferences": [self._owner()]}
        self.api.ensure({"apiVersion": "v1", "kind": kind, "metadata": meta, **fields}, self.namespace)

    def _make_what_pods_need(self) -> None:
        slots = self.spec.get("slotsPerWorker") or 1
        if not self.is_v2:
            container = f" --container {self.spec['mainContainer']}" if self.spec.get("mainContainer") else ""
            hosts = "".join(f"{name} slots={slots}\n" for name in self._workers())
            data = {"hostfile": hosts, "kubexec.sh": KUBEXEC.format(container), "discover_hosts.sh": "#!/bin/sh"}
            self._ensure("ConfigMap", f"{self.name}-config", data=data)
            self._ensure("ServiceAccount", f"{self.name}-launcher")
            return
        names = [*([f"{self.name}-launcher"] if self.is_own_worker else []), *self._workers()]
        full = [f"{name}.{self.name}.{self.namespace}.svc" for name in names]
        data = {
            "hostfile": "".join(f"{name} slots={slots}\n" for name in full),
            "discover_hosts.sh": "#!/bin/sh\n" + "".join(f"echo {name}\n" for name in full),
        }
        self._ensure("ConfigMap", f"{self.name}-config", data=data)
        selector = {f"{PREFIX}/operator-name": "mpi-operator", f"{PREFIX}/job-name": self.name}
        service = {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": self.is_own_worker}
        self._ensure("Service", self.name, spec=service)
        self._make_keys(f"{self.name}-ssh")

    def _make_keys(self, name: str) -> None:
        """That the launcher comes to the workers with; made once for each job."""
        if self.api.find(f"/api/v1/namespaces/{self.namespace}/secrets/{name}") is not None:
            return
        with tempfile.TemporaryDirectory() as folder:
            key = Path(folder) / "key"
            made = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-f", str(key)]
            subprocess.run(made, check=True, capture_output=True)
            data = {"ssh-privatekey": key.read_text(), "ssh-publickey": key.with_suffix(".pub").read_text()}
        self._ensure("Secret", name, type="kubernetes.io/ssh-auth", stringData=data)

    # pods

    def _make_pods(self) -> None:
        there = {pod["metadata"]["name"] for pod in self.pods}
        launcher = self._launcher()
        if launcher is not None and _ended(launcher):
            return
        for index, name in enumerate(self._workers()):
            if name not in there:
                self._make(WORKER, name, self._labels(WORKER, index))
        if launcher is None and self._may_launch():
            self._make(LAUNCHER, f"{self.name}-launcher", self._labels(LAUNCHER, 0))

    def _launcher(self) -> dict[str, Any] | None:
        """Its Job, or the pod itself."""
        group, plural = ("/apis/batch/v1", "jobs") if self.is_v2 else ("/api/v1", "pods")
        found: dict[str, Any] | None = self.api.find(
            f"{group}/namespaces/{self.namespace}/{plural}/{self.name}-launcher"
        )
        return found

    def _may_launch(self) -> bool:
        """While a job is suspended it has no workers, so all of them are ready, and the launcher's Job is made."""
        if self.spec.get("launcherCreationPolicy") != "WaitForWorkersReady" or self._has("Suspended"):
            return True
        return sum(map(is_ready, self._pods_of(WORKER))) >= self._replicas(WORKER)

    def _labels(self, kind: str, index: int) -> dict[str, str]:
        found = {f"{PREFIX}/job-name": self.name}
        if not self.is_v2:
            found |= {f"{PREFIX}/operator-name": "mpijob-controller", f"{PREFIX}/replica-type": kind.lower()}
            return found | ({f"{PREFIX}/replica-index": str(index)} if kind == WORKER else {})
        found |= {f"{PREFIX}/operator-name": "mpi-operator", f"{PREFIX}/job-role": kind.lower()}
        if kind == WORKER:
            found[f"{PREFIX}/replica-index"] = str(index + self.is_own_worker)
        elif self.is_own_worker:
            found[f"{PREFIX}/replica-index"] = "0"
        return found

    def _make(self, kind: str, name: str, labels: dict[str, str]) -> None:
        template = self.specs[kind]["template"]
        meta, spec = template.get("metadata") or {}, deepcopy(template["spec"])
        spec["restartPolicy"] = self.specs[kind].get("restartPolicy") or "Never"
        first = spec["containers"][0]  # whatever else is there is not theirs
        first["env"] = [*(first.get("env") or ()), *({"name": k, "value": v} for k, v in self._variables(kind).items())]
        if self.is_v2:
            spec["hostname"], spec["subdomain"] = name, self.name
            if kind == WORKER and not first.get("command") and not first.get("args"):
                first["command"] = ["/usr/sbin/sshd", "-De"]
            _mount(
                spec, {"name": "ssh-auth", "secret": self._keys()}, self.spec.get("sshAuthMountPath") or "/root/.ssh"
            )
        elif kind == LAUNCHER:
            spec["serviceAccountName"] = f"{self.name}-launcher"
            _mount(spec, {"name": "mpi-job-kubectl", "emptyDir": {}}, KUBECTL_AT)
        if kind == LAUNCHER or not self.is_v2:
            _mount(spec, {"name": "mpi-job-config", "configMap": {"name": f"{self.name}-config"}}, CONFIG_AT)
        found = {"labels": {**(meta.get("labels") or {}), **labels}, "annotations": meta.get("annotations") or {}}
        if kind == LAUNCHER and self.is_v2:
            self._make_job(name, {"metadata": found, "spec": spec})
            return
        about = {"name": name, **found, "ownerReferences": [self._owner()]}
        self.api.ensure({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}, self.namespace)

    def _keys(self) -> dict[str, Any]:
        items = [("ssh-privatekey", "id_rsa"), ("ssh-publickey", "id_rsa.pub"), ("ssh-publickey", "authorized_keys")]
        found: dict[str, Any] = {"items": [{"key": key, "path": path} for key, path in items]}
        if self.spec.get("sshAuthMountPath", "/root/.ssh") == "/root/.ssh":
            found["defaultMode"] = 0o600
        return {"secretName": f"{self.name}-ssh", **found}

    def _make_job(self, name: str, template: dict[str, Any]) -> None:
        """Restarts, deadline and removal are the Job's."""
        names = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
        spec = {key: self.policy[key] for key in names if self.policy.get(key) is not None}
        meta = {"name": name, "labels": {"app": self.name}, "ownerReferences": [self._owner()]}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {**spec, "template": template}}
        self.api.ensure(job, self.namespace)

    def _variables(self, kind: str) -> dict[str, str]:
        if not self.is_v2:
            variables = {
                "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
                "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
            }
            return (
                {**variables, "NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
                if kind == LAUNCHER
                else {}
            )
        found = {"K_MPI_JOB_ROLE": kind.lower()}
        if kind == LAUNCHER:
            found |= {
                "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
                "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
                "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
                "OMPI_MCA_orte_set_default_slots": str(self.spec.get("slotsPerWorker") or 1),
            }
            if not self.is_own_worker:
                found |= {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
        return found

    # status

    def _pods_of(self, kind: str) -> list[dict[str, Any]]:
        key = f"{PREFIX}/{'job-role' if self.is_v2 else 'replica-type'}"
        return [pod for pod in self.pods if pod["metadata"]["labels"].get(key) == kind.lower()]

    def _has(self, kind: str) -> bool:
        return any(each["type"] == kind and each["status"] == "True" for each in self.status.get("conditions") or ())

    def _condition(self, kind: str, reason: str, message: str) -> None:
        if self._has(kind):
            return
        conditions = [each for each in self.status.get("conditions") or () if each["type"] != kind]
        for each in conditions:
            if each["type"] == "Running" and kind in ("Succeeded", "Failed"):
                each["status"] = "False"
        fields = {"reason": reason, "message": message, "lastUpdateTime": now(), "lastTransitionTime": now()}
        self.status["conditions"] = [*conditions, {"type": kind, "status": "True", **fields}]

    def _judge(self) -> None:
        """By the launcher. A host that fails counts, and changes nothing, unless it was evicted."""
        phases = {kind: [pod["status"].get("phase") for pod in self._pods_of(kind)] for kind in (LAUNCHER, WORKER)}
        rows = {"active": "Running", "succeeded": "Succeeded", "failed": "Failed"}
        self.status["replicaStatuses"] = {
            kind: {name: count for name, phase in rows.items() if (count := found.count(phase))}
            for kind, found in phases.items()
        }
        where = f"MPIJob {self.namespace}/{self.name}"
        evicted = [pod for pod in self._pods_of(WORKER) if pod["status"].get("reason") == "Evicted"]
        if evicted:
            self._condition("Failed", "MPIJobEvicted", f"{len(evicted)}/{len(phases[WORKER])} workers are evicted")
        if "Running" in phases[LAUNCHER] and phases[WORKER].count("Running") == self._replicas(WORKER):
            self._condition("Running", "MPIJobRunning", f"{where} is running.")
        end = _ended(self._launcher() or {})
        if end is None:
            return
        kind, reason, message = end
        if kind == "Succeeded":
            self._condition(kind, "MPIJobSucceeded", f"{where} successfully completed.")
        else:
            self._condition(kind, reason or "MPIJobFailed", message or f"{where} has failed")
        self.status["completionTime"] = now()

    def _clean(self) -> None:
        """Workers; the launcher's pod is for its Job to keep."""
        wanted = self.policy.get("cleanPodPolicy") or "None"
        for pod in self._pods_of(WORKER):
            is_running = pod["status"].get("phase") in ("Running", "Pending")
            if not pod["metadata"].get("deletionTimestamp") and (
                wanted == "All" or (wanted == "Running" and is_running)
            ):
                self.api.delete(f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}")


def _mount(spec: dict[str, Any], volume: dict[str, Any], path: str) -> None:
    first = spec["containers"][0]
    spec["volumes"] = [*(spec.get("volumes") or ()), volume]
    first["volumeMounts"] = [*(first.get("volumeMounts") or ()), {"name": volume["name"], "mountPath": path}]


def _ended(launcher: dict[str, Any]) -> tuple[str, str, str] | None:
    """How a launcher's Job or pod ended: the condition of its MPIJob."""
    status = launcher.get("status") or {}
    for each in status.get("conditions") or ():
        if each["type"] == "Complete" and each["status"] == "True":
            return "Succeeded", "", ""
        if each["type"] == "Failed" and each["status"] == "True":
            last = "/" if each.get("reason") == "BackoffLimitExceeded" else ""
            return "Failed", f"{each.get('reason', '')}{last}", str(each.get("message", ""))
    phase = status.get("phase")
    return (phase, "", "") if phase in ("Succeeded", "Failed") else None
