"""Turns the suggestions of a group into experiments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from phalanx.spec.loader import load_document
from phalanx.spec.matrix import first_values
from phalanx.spec.model import Kind, Spec, thaw_written


def suggestion(group: Spec, values: Mapping[str, Any]) -> Spec:
    """The experiment that runs one point of a group's matrix. Its values override params of the same name."""
    document = thaw_written(group.document)
    document.pop("hptuning", None)
    document["kind"] = str(Kind.EXPERIMENT)
    document["params"] = {**(document.get("params") or {}), **thaw_written(values)}
    declared = {entry["name"] for entry in document.get("inputs") or []}
    if declared:
        document["inputs"] += [{"name": name} for name in values if name not in declared]
    return replace(load_document(group.file, document), places=group.places)


def first_suggestion(group: Spec) -> Spec:
    """The experiment that a plan of the group shows before anything runs."""
    assert group.search is not None
    return suggestion(group, first_values(group.search))
