"""Reads a file of Polyaxon 1.x or 2.x, or a manifest, with the presets laid over it, into the modern form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.spec.model import EMPTY
from phalanx.spec.polyaxon_v1.composition import Composer
from phalanx.spec.polyaxon_v1.conversion import OperationConverter
from phalanx.spec.polyaxon_v1.dags import pipeline
from phalanx.spec.polyaxon_v1.manifests import component_of
from phalanx.spec.polyaxon_v1.references import NoReferences, References
from phalanx.spec.tree import Diagnostics, Node

_VERSIONS = (1.1, "1.1")


def modern_tree(
    layers: Sequence[Node],
    findings: Diagnostics,
    references: References | None = None,
    given: Mapping[str, object] = EMPTY,
) -> Node:
    """The modern form of a file and the presets laid over it. `given`: params of the command line, which the inputs of
    a dag take."""
    if layers[0].get("apiVersion") is not None:
        layers = [component_of(layers[0], findings), *layers[1:]]
    composer = Composer(findings, references or NoReferences())
    _check_header(layers[0], findings)
    composed = composer.compose(layers)
    converter = OperationConverter(composed, composer, findings)
    return pipeline(converter, given) if converter.run_kind == "dag" else converter.tree()


def _check_header(layer: Node, findings: Diagnostics) -> None:
    version, kind = layer.get("version"), layer.get("kind")
    if version is None or version.value not in _VERSIONS:
        findings.note(version or layer, "read as `version: 1.1` of Polyaxon")
    if kind is not None and kind.value not in ("component", "operation"):
        findings.error(
            kind, f"expected component or operation, found `{str(kind.value)[:60]}`", "write `kind: component`"
        )
