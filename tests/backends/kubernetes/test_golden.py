"""What is rendered for Kubernetes, as it was agreed: one file for each case, to be read by people."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from phalanx.backends.contract import Job
from tests.backends.golden import assert_as_agreed
from tests.backends.kubernetes.files import CASES, objects_of, rendered

SHOWN = ("single", "steps", "distributed", "volcano", "kueue", "tensorflow", "elastic", "mpi", "mpi-v1", "trainer")


@pytest.mark.parametrize("name", SHOWN)
def test_it_is_rendered_as_agreed(name: str) -> None:
    objects = [_shortened(one) for one in objects_of(rendered(CASES[name]))]
    text = yaml.safe_dump_all(objects, sort_keys=False, width=120)
    assert_as_agreed(Job({"manifests.yaml": text}, start=""), f"kubernetes/{name}")


def _shortened(one: dict[str, Any]) -> dict[str, Any]:
    """Without what is packed, and without the script that all have."""
    if one["kind"] != "ConfigMap":
        return one
    kept = {key: "…" if key == "start.sh" else _readable(value) for key, value in one.get("data", {}).items()}
    return {**one, "data": kept, "binaryData": dict.fromkeys(one.get("binaryData", {}), "…")}


def _readable(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
