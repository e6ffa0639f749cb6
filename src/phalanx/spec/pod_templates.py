"""Patches for pod templates: validates the names of Kubernetes fields, so that typos are reported in the file.

An API server drops unknown fields, or rejects them long after the file was read. The names are those of the newest
release; the cluster validates the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from phalanx.spec.model import freeze
from phalanx.spec.shapes import INVALID, SUGGESTIONS
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Diagnostics, Node
from phalanx.spec.yaml_reader import describe

PATCH = "$patch"
RETAIN = "$retainKeys"
HOW = ("delete", "merge", "replace")


class TemplatePart(NamedTuple):
    """A Kubernetes map, or a list of maps with the merge key `key`. None: validated by the cluster."""

    name: str
    fields: Mapping[str, TemplatePart | None]
    is_list: bool = False
    key: str | None = None


def _part(
    name: str, words: str, /, *, many: bool = False, key: str | None = None, **parts: TemplatePart | None
) -> TemplatePart:
    return TemplatePart(name, {**dict.fromkeys(words.split()), **parts}, many, key)


_PROBE = _part(
    "a probe",
    "exec failureThreshold grpc httpGet initialDelaySeconds periodSeconds successThreshold tcpSocket "
    "terminationGracePeriodSeconds timeoutSeconds",
)
_RESOURCES = _part("resources", "claims limits requests")
CONTAINERS = _part(
    "a container",
    "args command image imagePullPolicy name resizePolicy restartPolicy restartPolicyRules stdin stdinOnce "
    "terminationMessagePath terminationMessagePolicy tty workingDir",
    many=True,
    key="name",
    env=_part(
        "a variable",
        "name value",
        many=True,
        key="name",
        valueFrom=_part("`valueFrom`", "configMapKeyRef fieldRef fileKeyRef resourceFieldRef secretKeyRef"),
    ),
    envFrom=_part("`envFrom`", "configMapRef prefix secretRef", many=True),
    ports=_part("a port", "containerPort hostIP hostPort name protocol", many=True, key="containerPort"),
    volumeMounts=_part(
        "a mount",
        "bindMountOptions mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr",
        many=True,
        key="mountPath",
    ),
    volumeDevices=_part("a device", "devicePath name", many=True, key="devicePath"),
    resources=_RESOURCES,
    securityContext=_part(
        "the security context of a container",
        "allowPrivilegeEscalation appArmorProfile capabilities privileged procMount readOnlyRootFilesystem runAsGroup "
        "runAsNonRoot runAsUser seLinuxOptions seccompProfile windowsOptions",
    ),
    lifecycle=_part("`lifecycle`", "postStart preStop stopSignal"),
    livenessProbe=_PROBE,
    readinessProbe=_PROBE,
    startupProbe=_PROBE,
)
SPEC = _part(
    "the spec of a pod",
    "activeDeadlineSeconds automountServiceAccountToken dnsPolicy enableServiceLinks ephemeralContainers "
    "evictionResponders hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride nodeName nodeSelector os "
    "overhead preemptionPolicy priority priorityClassName restartPolicy runtimeClassName schedulerName "
    "schedulingGroup serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
    "terminationGracePeriodSeconds",
    containers=CONTAINERS,
    initContainers=CONTAINERS,
    volumes=_part(
        "a volume",
        "awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi downwardAPI emptyDir ephemeral fc "
        "flexVolume flocker gcePersistentDisk gitRepo glusterfs hostPath image iscsi name nfs persistentVolumeClaim "
        "photonPersistentDisk portworxVolume projected quobyte rbd scaleIO secret storageos vsphereVolume",
        many=True,
        key="name",
    ),
    affinity=_part("`affinity`", "nodeAffinity podAffinity podAntiAffinity"),
    tolerations=_part("a toleration", "effect key operator tolerationSeconds value", many=True),
    topologySpreadConstraints=_part(
        "a spread constraint",
        "labelSelector matchLabelKeys maxSkew minDomains nodeAffinityPolicy nodeTaintsPolicy topologyKey "
        "whenUnsatisfiable",
        many=True,
        key="topologyKey",
    ),
    securityContext=_part(
        "the security context of a pod",
        "appArmorProfile fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser seLinuxChangePolicy "
        "seLinuxOptions seccompProfile supplementalGroups supplementalGroupsPolicy sysctls windowsOptions",
    ),
    resources=_RESOURCES,
    dnsConfig=_part("`dnsConfig`", "nameservers options searches"),
    hostAliases=_part("a host alias", "hostnames ip", many=True, key="ip"),
    imagePullSecrets=_part("a pull secret", "name", many=True, key="name"),
    readinessGates=_part("a readiness gate", "conditionType", many=True),
    schedulingGates=_part("a scheduling gate", "name", many=True, key="name"),
    resourceClaims=_part("a resource claim", "name resourceClaimName resourceClaimTemplateName", many=True, key="name"),
)
TEMPLATE = _part("the template of a pod", "", metadata=_part("`metadata`", "annotations labels"), spec=SPEC)


class PodTemplate(NamedTuple):
    """A patch for the template of a pod (`metadata`, `spec`), or for its spec alone. It holds only the differences."""

    def read(self, node: Node, findings: Diagnostics) -> Any:
        faults = len(findings.errors)
        keys = set(node.entries or ())
        _Checking(findings).part(TEMPLATE if keys & {"metadata", "spec"} else SPEC, node)
        if len(findings.errors) > faults or any(scalar.poisoned for scalar in node.scalars()):
            return INVALID
        return freeze(node.plain())

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}

    def words(self) -> str:
        return "a map"


class _Checking:
    def __init__(self, findings: Diagnostics) -> None:
        self.findings = findings
        self.unknown = 0

    def part(self, part: TemplatePart, node: Node) -> None:
        if node.poisoned or (node.value is None and node.key != "pod"):
            return  # null removes the field
        if not part.is_list:
            self.fields(part, node)
        elif node.elements is None:
            self.findings.error(node, f"expected a list, found {describe(node)}")
        else:
            for item in node.elements:
                self.item(part, item)

    def item(self, part: TemplatePart, node: Node) -> None:
        if node.entries is None:
            self.findings.error(node, f"expected a map with the fields of {part.name}, found {describe(node)}")
            return
        self.fields(part, node)
        how = node.get(PATCH)
        if how is not None and how.value == "replace" and len(node.entries) > 1:
            hint = "write `- $patch: replace` as a separate item"
            self.findings.error(how, "this replaces the whole list and drops this item", hint)
        if part.key is not None and node.get(part.key) is None and node.get(PATCH) is None:
            self.findings.missing(node, part.key, f"{part.name} needs `{part.key}`as its merge key")

    def fields(self, part: TemplatePart, node: Node) -> None:
        if node.entries is None:
            self.findings.error(node, f"expected a map with the fields of {part.name}, found {describe(node)}")
            return
        for key, child in node.entries.items():
            if key == PATCH:
                if child.value not in HOW:
                    self.findings.error(child, f"expected one of {', '.join(HOW)}, found {describe(child)}")
            elif key == RETAIN:
                continue
            elif key not in part.fields:
                self.unknown += 1
                hint = did_you_mean(key, part.fields) if self.unknown <= SUGGESTIONS else None
                self.findings.error(child, f"unknown field `{key[:60]}` of {part.name}", hint, at_key=True)
            elif (inner := part.fields[key]) is not None:
                self.part(inner, child)
