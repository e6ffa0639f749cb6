"""Kubernetes manifests of training jobs (Kubeflow's, and a plain Job) as components, which are then converted."""

from __future__ import annotations

from phalanx.spec.polyaxon_v1.sections import ENVIRONMENT
from phalanx.spec.rewrites import Map
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Diagnostics, Node

_REPLICA_SPECS = {  # by kind: the run kind, the key of the replica specs, and the names of the types
    "TFJob": ("tfjob", "tfReplicaSpecs", {"Chief": "chief", "Master": "chief", "Worker": "worker", "PS": "ps"}),
    "PyTorchJob": ("pytorchjob", "pytorchReplicaSpecs", {"Master": "master", "Worker": "worker"}),
    "MPIJob": ("mpijob", "mpiReplicaSpecs", {"Launcher": "launcher", "Worker": "worker"}),
    "XGBoostJob": ("xgbjob", "xgbReplicaSpecs", {"Master": "master", "Worker": "worker"}),
    "MXJob": ("mxjob", "mxReplicaSpecs", {"Scheduler": "scheduler", "Server": "server", "Worker": "worker"}),
}
KINDS = (*_REPLICA_SPECS, "TrainJob", "Job")
_POLICY = {
    "backoffLimit": "maxRetries",
    "activeDeadlineSeconds": "timeout",
    "ttlSecondsAfterFinished": "ttl",
}
_QUIET = frozenset(("restartPolicy", "template", "replicas", "completions", "parallelism", "runPolicy", "suspend"))
_ALIKE = ("matchLabels", "selector", "manualSelector", "completionMode", "podReplacementPolicy")


def component_of(manifest: Node, findings: Diagnostics) -> Node:
    """A component that says the same. Adds errors for kinds and sections that cannot be read."""
    kind = manifest.get("kind")
    name = str(kind.value) if kind is not None else ""
    body = manifest.get("spec") or manifest.like({})
    reader = _ManifestReader(manifest, body, findings)
    if name in _REPLICA_SPECS:
        run = reader.replicated(*_REPLICA_SPECS[name])
    elif name == "TrainJob":
        run = reader.train_job()
    elif name == "Job":
        run = reader.job()
    else:
        hint = did_you_mean(name, KINDS) or f"there are {', '.join(KINDS)}"
        findings.error(kind or manifest, f"a manifest of kind `{name[:60]}` is not a training job", hint)
        run = {}
    return reader.component(run)


class _ManifestReader:
    """Reads one manifest."""

    def __init__(self, manifest: Node, body: Node, findings: Diagnostics) -> None:
        self.manifest, self.body, self.findings = manifest, body, findings

    def component(self, run: Map) -> Node:
        metadata = self.manifest.get("metadata")
        name = metadata.get("name") if metadata is not None else None
        entries: Map = {"version": self.manifest.like(1.1), "kind": self.manifest.like("component")}
        if name is not None:
            entries["name"] = name
        namespace = metadata.get("namespace") if metadata is not None else None
        if namespace is not None:
            self.findings.note(namespace, "`namespace` is not used: use `--namespace`")
        termination = self._termination()
        if termination:
            entries["termination"] = self.body.like(dict(termination))
        if run:
            entries["run"] = self.body.like(dict(run))
        return self.manifest.like(entries)

    def replicated(self, kind: str, key: str, names: dict[str, str]) -> Map:
        run: Map = {"kind": self.body.like(kind)}
        specs = self.body.get(key)
        if specs is None or not specs.entries:
            self.findings.missing(self.body, key, f"the manifest requires `{key}`")
            return run
        by_fold = {theirs.casefold(): ours for theirs, ours in names.items()}
        for theirs, node in specs.entries.items():
            role = by_fold.get(theirs.casefold())
            if role is None:
                hint = did_you_mean(theirs, names) or f"there are {', '.join(names)}"
                self.findings.error(node, f"replicas of type `{theirs[:60]}` have no counterpart", hint, at_key=True)
            else:
                run[role] = node.like(self._replica(node))
        for theirs, ours in (("slotsPerWorker", "slotsPerWorker"), ("elasticPolicy", "elasticPolicy")):
            found = self.body.get(theirs)
            if found is not None:
                run[ours] = found
        processes = self.body.get("nprocPerNode")
        if processes is not None and str(processes.value).isdigit():
            run["nProcPerNode"] = processes.like(int(str(processes.value)))
        elif processes is not None:
            self.findings.note(processes, "`nprocPerNode` is not used: there is one process per GPU")
        self._note_rest({key, "slotsPerWorker", "elasticPolicy", "nprocPerNode", "runPolicy", "cleanPodPolicy"})
        return run

    def job(self) -> Map:
        run: Map = {"kind": self.body.like("job"), **self._replica(self.body)}
        for key in ("parallelism", "completions"):
            found = self.body.get(key)
            if found is not None and found.value != 1:
                message = (
                    f"`{key}` is not used: a run without a framework is one replica; `run --times N` queues N runs"
                )
                self.findings.note(found, message)
        self._note_rest({*_QUIET, *_POLICY, *_ALIKE})
        return run

    def train_job(self) -> Map:
        trainer = self.body.get("trainer") or self.body.like({})
        runtime = self.body.get("runtimeRef")
        name = runtime.get("name") if runtime is not None else None
        kind = "mpijob" if name is not None and "mpi" in str(name.value) else "pytorchjob"
        if name is not None and "torch" not in str(name.value):
            self.findings.note(name, f"the runtime `{name.value}` read as {kind.removesuffix('job')}")
        known = trainer.entries or {}
        container: Map = {key: known[key] for key in ("image", "command", "args", "env") if trainer.get(key)}
        resources = trainer.get("resourcesPerNode")
        if resources is not None:
            container["resources"] = resources
        nodes = trainer.get("numNodes")
        count = nodes.value if nodes is not None and isinstance(nodes.value, int) else 1
        one = trainer.like({"container": trainer.like(dict(container))})
        run: Map = {"kind": self.body.like(kind)}
        if kind == "mpijob":
            run["worker"] = trainer.like({**_entries(one), "replicas": trainer.like(count)})
        else:
            run["master"] = one
            if count > 1:
                run["worker"] = trainer.like({**_entries(one), "replicas": trainer.like(count - 1)})
        processes = trainer.get("numProcPerNode")
        if processes is not None and isinstance(processes.value, int) and kind == "pytorchjob":
            run["nProcPerNode"] = processes
        self._note_rest({"trainer", "runtimeRef", "suspend"})
        return run

    def _replica(self, node: Node) -> Map:
        template = node.get("template")
        pod = template.get("spec") if template is not None else None
        section: Map = {"replicas": node.entries["replicas"]} if node.entries and node.get("replicas") else {}
        if pod is None or pod.entries is None:
            self.findings.missing(node, "template.spec", "the manifest requires `template.spec.containers`")
            return section
        containers = pod.items("containers")
        if containers:
            section["container"] = containers[0]
        if len(containers) > 1:
            section["sidecars"] = containers[0].like(list(containers[1:]))
        environment = {
            key: child for key, child in pod.entries.items() if key in ENVIRONMENT and key != "restartPolicy"
        }
        metadata = template.get("metadata") if template is not None else None
        for key in ("labels", "annotations"):
            found = metadata.get(key) if metadata is not None else None
            if found is not None:
                environment[key] = found
        if environment:
            section["environment"] = pod.like(dict(environment))
        if pod.get("volumes") is not None:
            section["volumes"] = pod.entries["volumes"]
        for key, child in pod.entries.items():
            if key not in ENVIRONMENT and key not in ("containers", "volumes") and child.value is not None:
                self.findings.note(child, f"`{key}` of the pod is not used: write it in `environment.kubernetes.pod`")
        return section

    def _termination(self) -> Map:
        policy = self.body.get("runPolicy") or self.body
        found = {ours: policy.get(theirs) for theirs, ours in _POLICY.items()}
        return {ours: node for ours, node in found.items() if node is not None}

    def _note_rest(self, known: set[str]) -> None:
        for key, child in (self.body.entries or {}).items():
            if key not in known and key not in _POLICY and child.value is not None:
                self.findings.note(child, f"`{key[:60]}` of the manifest is not used")


def _entries(node: Node) -> Map:
    assert node.entries is not None
    return node.entries
