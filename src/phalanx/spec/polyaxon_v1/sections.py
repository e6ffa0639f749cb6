"""The sections and keys of files of Polyaxon 1.x and 2.x, and how a file of that format is recognised."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.spec.rewrites import Map
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Diagnostics, Node

REFERENCES = ("component", "pathRef", "urlRef", "hubRef", "dagRef")
SHORTCUTS = (
    "ports",
    "container",
    "cmd",
    "env",
    "resources",
    "environment",
    "init",
    "connections",
    "sidecars",
    "volumes",
)
RUN_SHARED = ("environment", "connections", "volumes", "init", "sidecars", "container")
FILE = frozenset(
    (
        *("version", "kind", "name", "description", "tags", "presets", "queue", "namespace", "cache", "termination"),
        *("plugins", "build", "hooks", "isApproved", "cost", "mount", "inputs", "outputs", "run", "template"),
        *("params", "matrix", "schedule", "events", "joins", "dependencies", "trigger", "conditions", "contexts"),
        *("skipOnUpstreamSkip", "runPatch", "patchStrategy", "isPreset", "strictParams", "actions", "profile"),
        *REFERENCES,
        *SHORTCUTS,
    )
)
_MODERN = frozenset(("hptuning", "framework", "backend", "logging", "models", "after"))
ROLES = {  # of distributed kinds
    "tfjob": ("chief", "worker", "ps", "evaluator"),
    "pytorchjob": ("master", "worker"),
    "mpijob": ("launcher", "worker"),
    "mxjob": ("scheduler", "server", "worker", "tuner", "tunerTracker", "tunerServer"),
    "xgbjob": ("master", "worker"),
    "paddlejob": ("master", "worker"),
    "daskjob": ("job", "scheduler", "worker"),
    "daskcluster": ("scheduler", "worker"),
}
_POLICIES = ("cleanPodPolicy", "schedulingPolicy")
RUN_KEYS = {
    "job": (*RUN_SHARED,),
    "service": (*RUN_SHARED, "ports", "rewritePath", "isExternal", "replicas"),
    "dag": ("operations", "components", "concurrency", "earlyStopping", "environment", "connections", "volumes"),
    "tfjob": (*ROLES["tfjob"], *_POLICIES, "enableDynamicWorker", "successPolicy"),
    "pytorchjob": (*ROLES["pytorchjob"], *_POLICIES, "elasticPolicy", "nProcPerNode"),
    "mpijob": (*ROLES["mpijob"], *_POLICIES, "slotsPerWorker", "implementation", "sshAuthMountPath"),
    "mxjob": (*ROLES["mxjob"], *_POLICIES, "mode"),
    "xgbjob": (*ROLES["xgbjob"], *_POLICIES),
}
REPLICA = ("replicas", *RUN_SHARED)
CONTAINER = frozenset(
    (
        *("name", "image", "command", "args", "workingDir", "env", "envFrom", "resources", "ports", "volumeMounts"),
        *("volumeDevices", "imagePullPolicy", "securityContext", "livenessProbe", "readinessProbe", "startupProbe"),
        *("lifecycle", "stdin", "stdinOnce", "tty", "terminationMessagePath", "terminationMessagePolicy"),
        *("resizePolicy", "restartPolicy"),
    )
)
ENVIRONMENT = frozenset(
    (
        *("labels", "annotations", "nodeSelector", "affinity", "tolerations", "nodeName", "serviceAccountName"),
        *("hostAliases", "securityContext", "imagePullSecrets", "hostNetwork", "hostPID", "dnsPolicy", "dnsConfig"),
        *("schedulerName", "priorityClassName", "priority", "restartPolicy", "hostIPC"),
    )
)
VARIABLE = frozenset(
    (
        *("name", "description", "type", "value", "isOptional", "isList", "isFlag", "argFormat", "connection"),
        *("toInit", "toEnv", "validation", "delayValidation", "options"),
    )
)
INIT = frozenset(
    (
        *("git", "artifacts", "paths", "file", "dockerfile", "tensorboard", "modelRef", "artifactRef", "lineageRef"),
        *("connection", "container", "path"),
    )
)
TERMINATION = ("maxRetries", "ttl", "timeout", "culling", "probe", "podFailurePolicy", "restartPolicy")
MATRIX = frozenset(
    (
        *("kind", "params", "values", "concurrency", "seed", "earlyStopping", "tuner", "numRuns", "maxIterations"),
        *("eta", "resource", "metric", "resume", "numInitialRuns", "numIterations", "utilityFunction", "algorithm"),
    )
)


def sign_of_format(layer: Node) -> Node | None:
    """A part of a file that only Polyaxon 1.x and 2.x have; None for every other file."""
    version, kind, run = layer.get("version"), layer.get("kind"), layer.get("run")
    if layer.get("apiVersion") is not None:  # a manifest of Kubernetes, which is read as a component
        return layer.get("apiVersion")
    if version is not None and str(version.value) in ("1.1", "1.05"):
        return version
    if kind is not None:
        return kind if str(kind.value).casefold() in ("component", "operation") else _container_of(run)
    parts = [_container_of(run), *map(layer.get, (*REFERENCES, "runPatch", "isPreset", "patchStrategy"))]
    own = layer.get("container")
    return next((part for part in (*parts, own) if part is not None), None)


def is_modern(layer: Node) -> bool:
    """Whether a layer over a file of Polyaxon 1.x is in our own form: it has what only that has."""
    if sign_of_format(layer) is not None:
        return False
    environment, run = layer.get("environment"), layer.get("run")
    parts = (
        set(layer.entries or ()) & _MODERN,
        set(environment.entries or ()) - ENVIRONMENT if environment is not None else (),
        set(run.entries or ()) & {"cmd", "script"} if run is not None else (),
    )
    return any(parts)


def _container_of(run: Node | None) -> Node | None:
    return (run.get("container") or run.get("kind")) if run is not None else None


def known_keys(node: Node, known: Collection[str], where: str, findings: Diagnostics) -> Map:
    """The entries of a map under their own names. Snake case is read with a note; other keys are errors. Empty for
    anything but a map, which is reported."""
    if node.entries is None:
        if node.value is not None and not node.poisoned:
            findings.error(node, f"`{where}` must be a map")
        return {}
    found: Map = {}
    for key, child in node.entries.items():
        name = key if key in known else camel_case(key)
        if name not in known:
            hint = did_you_mean(key, known)
            findings.error(child, f"unknown key `{key[:60]}` in {where}", hint, at_key=True)
            continue
        if name != key:
            findings.note(child, f"`{key}` read as `{name}`")
        if child.value is not None:
            found[name] = child
    return found


def camel_case(key: str) -> str:
    head, *rest = key.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)
