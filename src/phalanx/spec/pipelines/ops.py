"""An op of a pipeline as a file of its own, with the values of params that were outputs of other ops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from phalanx.spec.loader import load_document
from phalanx.spec.model import Operation, Spec, thaw_written


def op_spec(op: Operation, values: Mapping[str, Any]) -> Spec:
    """The spec that an op runs. Raises SpecErrors if a value does not suit it."""
    assert op.spec is not None, "its template is in the file"
    if not values:
        return op.spec
    document = thaw_written(op.spec.document)
    document["params"] = {**(document.get("params") or {}), **values}
    return replace(load_document(op.spec.file, document), places=op.spec.places)
