"""Stands in for Kubeflow Trainer 2.3 and JobSet 0.12: what becomes of a TrainJob is a Job, as they would have made it.

The JobSet between them is left out. Definitions are made of the models that PyPI has, with the rules for lists that
these do not tell. What Trainer's webhook would refuse ends the TrainJob here, with a condition that says so. Jobs have
what JobSets give them where a runtime says nothing: containers are started again in place, six times in all.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from copy import deepcopy
from typing import Any

import httpx

from tests.kubernetes.pods import now
from tests.kubernetes.rest import Answered, Rest, suppress_code

GROUP, VERSION = "trainer.kubeflow.org", "v1alpha1"
PATH = f"/apis/{GROUP}/{VERSION}"
JOB_SET = "jobset.sigs.k8s.io"
STEP = f"{GROUP}/trainjob-ancestor-step"
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
NODE = "node"
PORT = 29500
LOOK_S = 0.2
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
KEYED = ("env", "volumes", "volumeMounts", "imagePullSecrets", "containers", "initContainers", "replicatedJobs")
MOST = {"env": 128, "args": 128, "command": 128}
MERGED = {**dict.fromkeys(KEYED, "name"), "volumeMounts": "mountPath"}  # by which Kubernetes merges lists
POLICIES: dict[str, dict[str, Any]] = {"torch": {}, "jax": {}, "xgboost": {}}
RESERVED = {
    "torch": ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    "xgboost": ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"),
}

Object = dict[str, Any]


# definitions ---------------------------------------------------------------------------------------------------------


def definitions() -> list[Object]:
    from kubeflow_trainer_api.models import TrainerV1alpha1TrainJob

    whole = TrainerV1alpha1TrainJob.model_json_schema()
    schema = _structural(whole, whole["$defs"], "")
    schema["properties"] |= {"metadata": {"type": "object"}, "status": ANYTHING}
    runtime = {"type": "object", "properties": {"metadata": {"type": "object"}, "spec": ANYTHING}}
    return [
        _definition("TrainJob", "Namespaced", schema),
        _definition("TrainingRuntime", "Namespaced", runtime),
        _definition("ClusterTrainingRuntime", "Cluster", runtime),
    ]


def _definition(kind: str, scope: str, schema: Object) -> Object:
    plural = f"{kind.lower()}s"
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    served = {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    if kind == "TrainJob":
        served["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": scope, "names": names, "versions": [served]},
    }


def _structural(said: Object, known: Object, field: str) -> Object:
    """As definitions write it. `field`: whose schema it is."""
    said = next((one for one in said.get("anyOf", ()) if one.get("type") != "null"), said)
    name = said.get("$ref", "").rpartition("/")[2]
    if name.endswith(("Quantity", "IntOrString")):
        return {"x-kubernetes-int-or-string": True}
    if name.endswith("ObjectMeta"):
        return ANYTHING
    said = known.get(name, said)
    if "properties" in said:
        fields = {key: _structural(one, known, key) for key, one in said["properties"].items()}
        return {"type": "object", "properties": fields, "required": said.get("required", [])}
    if said.get("type") == "array":
        found: Object = {"type": "array", "items": _structural(said["items"], known, "")}
        if field in MOST:
            found["maxItems"] = MOST[field]
        key = "manager" if field == "runtimePatches" else "name" if field in KEYED else ""
        if key:
            found["items"]["required"] = sorted({*found["items"]["required"], key})
            found |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
        return found
    if isinstance(said.get("additionalProperties"), dict):
        return {"type": "object", "additionalProperties": _structural(said["additionalProperties"], known, "")}
    return {"type": said["type"]} if said.get("type") in ("string", "integer", "boolean", "number") else ANYTHING


def runtimes() -> list[Object]:
    """As Trainer ships them, less their images."""
    return [runtime(f"{name}-distributed", policy) for name, policy in POLICIES.items()]


def runtime(name: str, policy: Object, kind: str = "ClusterTrainingRuntime", **pod: Any) -> Object:
    source = name.partition("-")[0]
    spec = {"containers": [{"name": NODE, "image": "none"}], **pod}
    job = {"metadata": {"labels": {STEP: "trainer"}}, "spec": {"template": {"spec": spec}}}
    jobs = [{"name": NODE, "template": job}]
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"mlPolicy": {"numNodes": 1, source: policy}, "template": {"spec": {"replicatedJobs": jobs}}},
    }


# what it does --------------------------------------------------------------------------------------------------------


class Trainer:
    """In a thread, from `start` to `stop`; what it has put into the cluster goes with it."""

    def __init__(self, api: Rest) -> None:
        self.api = api
        self.stopped = threading.Event()
        self.trouble: list[str] = []
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        for definition in definitions():
            self.api.ensure(definition)
        for one in runtimes():
            self._ensure(one)
        self.thread.start()

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join(10.0)
        for definition in definitions():
            self.api.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}")

    def _ensure(self, one: Object) -> None:
        """The server knows a kind a moment after its definition."""
        while True:
            with suppress_code(404):
                with suppress_code(409):
                    self.api.ask("POST", f"{PATH}/{one['kind'].lower()}s", one)
                return
            time.sleep(0.1)

    def _run(self) -> None:
        while not self.stopped.wait(LOOK_S):
            try:
                for job in self.api.items(f"{PATH}/trainjobs"):
                    if not job["metadata"].get("deletionTimestamp"):
                        self._reconcile(job)
            except (httpx.HTTPError, Answered, OSError) as error:
                self.trouble.append(repr(error))

    def _reconcile(self, job: Object) -> None:
        meta, status = job["metadata"], deepcopy(job.get("status") or {})
        made = self.api.find(f"/apis/batch/v1/namespaces/{meta['namespace']}/jobs/{meta['name']}-{NODE}-0")
        if any(one["type"] in ("Complete", "Failed") for one in status.get("conditions") or ()):
            return
        if made is None:
            found = self._runtime(job)
            refused = "there is no such runtime" if found is None else refusal(job, found)
            if refused:
                status["conditions"] = [_condition("Failed", "Refused", refused)]
            else:
                for thing in objects(job, found):
                    self.api.ensure(thing, meta["namespace"])
        else:
            status["jobsStatus"], status["conditions"] = [_counted(made)], _conditions(made)
        if status != (job.get("status") or {}):
            with suppress_code(404):
                path = f"{PATH}/namespaces/{meta['namespace']}/trainjobs/{meta['name']}/status"
                self.api.patch(path, {"status": status})

    def _runtime(self, job: Object) -> Any:
        ref, where = job["spec"]["runtimeRef"], f"/namespaces/{job['metadata']['namespace']}"
        own = where if ref["kind"] == "TrainingRuntime" else ""
        return self.api.find(f"{PATH}{own}/{ref['kind'].lower()}s/{ref['name']}")


def refusal(job: Object, of: Object) -> str:
    """Why Trainer's webhook would not take it."""
    named = {each["name"]: each["template"]["spec"]["template"]["spec"] for each in _jobs(of["spec"])}
    for patch in job["spec"].get("runtimePatches") or ():
        for each in _jobs(patch["trainingRuntimeSpec"]):
            if each["name"] not in named:
                return "must not have replicated job that doesn't exist in the runtime job template"
            there = {box["name"] for box in named[each["name"]]["containers"]}
            for box in each["template"]["spec"]["template"]["spec"].get("containers") or ():
                if box["name"] not in there:
                    return f"must not have container that doesn't exist in the runtime job {each['name']}"
                if box["name"] == NODE and box.get("env"):
                    return "must not have envs for the node container"
    names = {each["name"] for each in job["spec"]["trainer"].get("env") or ()}
    for source in of["spec"]["mlPolicy"]:
        if taken := sorted(names & {*RESERVED.get(source, ())}):
            return f"must not have reserved envs, invalid envs configured: {taken}"
    return ""


def _jobs(spec: Object) -> list[Object]:
    return list(spec["template"]["spec"]["replicatedJobs"])


def objects(job: Object, of: Object) -> list[Object]:
    """The Job and the service of its JobSet."""
    meta, asked = job["metadata"], job["spec"]["trainer"]
    template = deepcopy(_jobs(of["spec"])[0]["template"])
    for patch in job["spec"].get("runtimePatches") or ():
        for each in _jobs(patch["trainingRuntimeSpec"]):
            template = merged(template, each["template"])
    pod, count = template["spec"]["template"], int(asked.get("numNodes") or 1)
    box = next(each for each in pod["spec"]["containers"] if each["name"] == NODE)
    given = [*_wiring(job, of, count), *(asked.get("env") or ())]
    box |= {"env": merged({"env": box.get("env") or []}, {"env": given})["env"]}
    box |= {key: asked[key] for key in ("image", "command", "args") if key in asked}
    if "resourcesPerNode" in asked:
        box["resources"] = asked["resourcesPerNode"]
    labels = {
        f"{JOB_SET}/jobset-name": meta["name"],
        f"{JOB_SET}/replicatedjob-name": NODE,
        f"{JOB_SET}/job-index": "0",
    }
    metadata = pod.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    pod["spec"] |= {"subdomain": meta["name"], "restartPolicy": pod["spec"].get("restartPolicy") or "OnFailure"}
    about = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "TrainJob", "name": meta["name"], "uid": meta["uid"]}
    owners = [{**about, "controller": True, "blockOwnerDeletion": True}]
    spec = {**template["spec"], "completionMode": "Indexed", "completions": count, "parallelism": count}
    spec["suspend"] = bool(job["spec"].get("suspend"))
    name = f"{meta['name']}-{NODE}-0"
    service = {"clusterIP": "None", "publishNotReadyAddresses": True}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": meta["name"], "ownerReferences": owners},
            "spec": {**service, "selector": {f"{JOB_SET}/jobset-name": meta["name"]}},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": labels, "ownerReferences": owners},
            "spec": spec,
        },
    ]


def _wiring(job: Object, of: Object, count: int) -> list[Object]:
    name, asked = job["metadata"]["name"], job["spec"]["trainer"]
    first, mine = f"{name}-{NODE}-0-0.{name}", {"valueFrom": {"fieldRef": {"fieldPath": INDEX}}}
    found: Object = {}
    if "torch" in of["spec"]["mlPolicy"]:
        found = {"PET_NNODES": count, "PET_NPROC_PER_NODE": asked.get("numProcPerNode", "auto"), "PET_NODE_RANK": mine}
        found |= {"PET_MASTER_ADDR": first, "PET_MASTER_PORT": PORT}
    elif "jax" in of["spec"]["mlPolicy"]:
        found = {"JAX_NUM_PROCESSES": count, "JAX_PROCESS_ID": mine, "JAX_COORDINATOR_ADDRESS": f"{first}:{PORT}"}
    elif "xgboost" in of["spec"]["mlPolicy"]:
        found = {"DMLC_TRACKER_URI": first, "DMLC_TRACKER_PORT": PORT, "DMLC_TASK_ID": mine, "DMLC_NUM_WORKER": count}
    items = found.items()
    return [{"name": key, **(value if isinstance(value, dict) else {"value": str(value)})} for key, value in items]


def merged(before: Any, change: Any, field: str = "") -> Any:
    """As a strategic merge of Kubernetes."""
    if isinstance(before, dict) and isinstance(change, dict):
        found = {key: merged(before[key], one, key) if key in before else one for key, one in change.items()}
        return {**before, **found}
    key = MERGED.get(field)
    if key is None or not isinstance(before, list):
        return change
    rows = {one[key]: one for one in before}
    for one in change:
        is_value = field == "env"  # a variable is replaced, however it came to its value
        rows[one[key]] = merged(rows[one[key]], one) if one[key] in rows and not is_value else one
    return list(rows.values())


# how it goes ---------------------------------------------------------------------------------------------------------


def _counted(made: Object) -> Object:
    status = made.get("status") or {}
    kinds = [one["type"] for one in _told(made)]
    is_active = not kinds and bool(status.get("active"))
    found = {"succeeded": "Complete" in kinds, "failed": "Failed" in kinds, "active": is_active, "ready": is_active}
    found["suspended"] = bool(made["spec"].get("suspend"))
    return {"name": NODE, **{key: int(value) for key, value in found.items()}}


def _told(made: Object) -> list[Object]:
    conditions = (made.get("status") or {}).get("conditions") or ()
    return [one for one in conditions if one["type"] in ("Complete", "Failed") and one["status"] == "True"]


def _conditions(made: Object) -> list[Object]:
    words = {"Complete": ("AllJobsCompleted", "jobset completed successfully"), "Failed": ("FailedJobs", "")}
    return [
        _condition(one["type"], words[one["type"]][0], words[one["type"]][1] or _blame(made)) for one in _told(made)
    ]


def _blame(made: Object) -> str:
    return f"jobset failed due to one or more job failures (first failed job: {made['metadata']['name']})"


def _condition(kind: str, reason: str, message: str) -> Object:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now()}


def is_served(api: Rest) -> bool:
    with suppress(Answered):
        api.get(f"{PATH}/trainjobs")
        return True
    return False
