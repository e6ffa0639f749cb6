"""Reads the settings of a Kubernetes cluster for all runs: a small YAML file. Text to plain values."""

from __future__ import annotations

from typing import Any

from phalanx.errors import SpecError, SpecErrors
from phalanx.spec import quantities, yaml_reader
from phalanx.spec.pod_templates import PodTemplate
from phalanx.spec.shapes import INVALID, Boolean, Field, MapOf, Quantity, RecordShape, TextShape
from phalanx.spec.tree import Diagnostics, Node

FILE = "kubernetes.yml"  # in the home
MAX_READ = (1 << 20) + 1  # one byte more than such a file may have, so that the reader detects a larger one

_DNS = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_OBJECT = TextShape(
    pattern=rf"(?=.{{1,253}}$){_DNS}(\.{_DNS})*\Z", what="a name of small letters, digits, `-` and `.`", numbers=True
)
_NAMESPACE = TextShape(pattern=rf"{_DNS}\Z", what="a namespace: small letters, digits and `-`", numbers=True)
_IMAGE = TextShape(pattern=r"[\w.][\w.:/@-]*\Z", what="the name of an image")
_PATH = TextShape(pattern=r"[^\x00-\x1f\x7f]+\Z", what="a path")
_INSIDE = TextShape(pattern=r"(?!.*(?:^|/)\.\.(?:/|$))[^\x00-\x1f\x7f]*\Z", what="a path inside a volume, without `..`")
_FOLDER = TextShape(pattern=r"/[^\x00-\x1f\x7f]*\Z", what="the whole path of a folder")
_ADDRESS = TextShape(pattern=r"https?://[^\s/@?#]+[^\s@?#]*\Z", what="an address such as https://phalanx.example")
_TIME = Quantity(quantities.seconds, 'a time (seconds, or "24h", "5m")')
_DEVICE = TextShape(
    pattern=rf"(?=.{{1,253}}/){_DNS}(\.{_DNS})*/[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?\Z",
    what="the name of a device, such as nvidia.com/gpu",
)


def _one_source(values: dict[str, Any], node: Node, findings: Diagnostics) -> None:
    named = [key for key in ("claim", "host_path", "volume") if key in values]
    if len(named) > 1:
        said = " and ".join(f"`{key}`" for key in named)
        findings.error(node.get(named[1]) or node, f"{said} exclude each other", "keep one", at_key=True)
    elif not any(node.get(key) for key in ("claim", "host_path", "volume")):
        findings.error(node, "the location is missing", "write `claim:`, `host_path:` or `volume:`")


STORE = RecordShape(
    "a store",
    {
        "claim": Field(_OBJECT, "The PersistentVolumeClaim that holds it."),
        "host_path": Field(_FOLDER, "The folder on the nodes that holds it."),
        "volume": Field(MapOf(), "Any other volume, in Kubernetes syntax: `{nfs: {server: ..., path: ...}}`."),
        "path": Field(_INSIDE, "The folder inside the volume."),
        "read_only": Field(Boolean(), "Mount it read-only."),
    },
    dict,
    _one_source,
)
SETTINGS = RecordShape(
    FILE,
    {
        "kubeconfig": Field(_PATH, "The kubeconfig file. Default: the same as for kubectl."),
        "context": Field(TextShape(), "The context in the kubeconfig file."),
        "namespace": Field(_NAMESPACE, "The namespace to run in."),
        "image": Field(_IMAGE, "The image for files that set none."),
        "git_image": Field(_IMAGE, "The image that fetches code from Git."),
        "devices": Field(
            RecordShape(
                "devices",
                {"gpu": Field(_DEVICE, "Resource name of a GPU."), "tpu": Field(_DEVICE, "Resource name of a TPU.")},
            ),
            "Resource names of devices on these nodes: `{gpu: nvidia.com/gpu}`.",
        ),
        "stores": Field(MapOf(STORE), "Stores of data and outputs, by their names in `data_refs` and `artifact_refs`."),
        "home_claim": Field(_OBJECT, "A claim that holds this home; pods then write directly into it."),
        "home_path": Field(_INSIDE, "The folder of this home inside that claim."),
        "server": Field(_ADDRESS, "The URL at which pods reach the server of this home."),
        "queue": Field(_OBJECT, "The Kueue LocalQueue for files that set none."),
        "gang": Field(
            TextShape(choices=("kueue", "volcano", "scheduler-plugins", "none")),
            "The gang scheduler: it starts all replicas together or none. Default: the one the cluster has.",
        ),
        "registry": Field(_IMAGE, "Where to push built images: `registry.example/team`."),
        "registry_secret": Field(_OBJECT, "The Secret with push access to it."),
        "builder": Field(TextShape(choices=("buildkit", "kaniko")), "The image builder."),
        "give_up": Field(
            _TIME,
            "How long a replica may fail to start for a permanent reason, such as a missing image, before it counts "
            "as failed. Waiting for free resources never counts. Default: 10 minutes.",
        ),
        "pod": Field(PodTemplate(), "A patch for the template of every pod, applied before the one of a file."),
    },
)


def load(name: str, data: bytes) -> dict[str, Any]:
    """The settings by key. Raises SpecErrors with every error found."""
    try:
        root = yaml_reader.read(yaml_reader.decode(name, data))
    except SpecErrors as fault:
        raise SpecErrors(map(_about_settings, fault.errors)) from None
    findings = Diagnostics()
    values = SETTINGS.read(root, findings)
    if findings.errors or values is INVALID:
        raise SpecErrors(findings.errors)
    found: dict[str, Any] = values
    return found


def _about_settings(error: SpecError) -> SpecError:
    """Reword an error of the polyaxonfile reader for this file."""
    hint = None if error.suggestion and "phalanx init" in error.suggestion else error.suggestion
    words = error.message.replace("a polyaxonfile", FILE).replace("polyaxonfile", FILE)
    return SpecError(error.place, error.path, words.replace("`version: 1`", "`namespace: research`"), hint)
