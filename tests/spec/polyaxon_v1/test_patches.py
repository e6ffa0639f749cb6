"""Layers are laid over each other as Polyaxon's patch strategies say."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.spec.polyaxon_v1.patches import PatchStrategy, patched, patched_run
from phalanx.spec.tree import Mark, Node, Source, from_plain

MARK = Mark(Source("test", ""), 0, 0, 0, 0)
ORIGINAL = {
    "kind": "job",
    "container": {"image": "a", "args": ["x"], "resources": {"limits": {"memory": 1}}},
    "environment": {"labels": {"a": "1"}},
}
PATCH = {
    "container": {"image": "b", "args": ["y"], "resources": {"limits": {"cpu": 2}}, "workingDir": "/w"},
    "environment": {"labels": {"b": "2"}},
}


def _node(value: Any, key: str | None = None) -> Node:
    return from_plain(value, MARK, None, key)


@pytest.mark.parametrize(
    ("strategy", "image", "args", "limits", "labels"),
    [
        ("post_merge", "b", ["x", "y"], {"memory": 1, "cpu": 2}, {"a": "1", "b": "2"}),
        ("pre_merge", "a", ["y", "x"], {"memory": 1, "cpu": 2}, {"a": "1", "b": "2"}),
        ("replace", "b", ["y"], {"cpu": 2}, {"b": "2"}),
        ("isnull", "a", ["x"], {"memory": 1}, {"a": "1"}),
    ],
)
def test_a_patch_is_laid_over_a_run(
    strategy: str, image: str, args: list[str], limits: dict[str, int], labels: dict[str, str]
) -> None:
    found = patched_run(_node(ORIGINAL, "run"), _node(PATCH, "runPatch"), PatchStrategy(strategy)).plain()
    assert found["container"]["image"] == image
    assert found["container"]["args"] == args
    assert found["container"]["resources"]["limits"] == limits
    assert found["container"]["workingDir"] == "/w"
    assert found["environment"]["labels"] == labels
    assert found["kind"] == "job"


def test_a_patch_without_roles_applies_to_every_replica() -> None:
    run = _node({"kind": "tfjob", "chief": {"replicas": 1}, "worker": {"replicas": 2}}, "run")
    found = patched_run(run, _node({"container": {"image": "b"}}), PatchStrategy.POST_MERGE).plain()
    assert found["chief"]["container"] == found["worker"]["container"] == {"image": "b"}
    assert "container" not in found


def test_a_patch_that_names_a_role_applies_to_it_alone() -> None:
    run = _node({"kind": "tfjob", "chief": {"replicas": 1}, "worker": {"replicas": 2}}, "run")
    found = patched_run(run, _node({"worker": {"replicas": 5}}), PatchStrategy.POST_MERGE).plain()
    assert found == {"kind": "tfjob", "chief": {"replicas": 1}, "worker": {"replicas": 5}}


def test_what_is_missing_on_one_side_comes_from_the_other() -> None:
    value = _node({"a": 1})
    assert patched(None, value, PatchStrategy.ISNULL) is value
    assert patched(value, None, PatchStrategy.REPLACE) is value
