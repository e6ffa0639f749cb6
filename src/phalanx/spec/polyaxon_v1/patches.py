"""How one layer is laid over another: the four patch strategies of Polyaxon."""

from __future__ import annotations

from enum import StrEnum

from phalanx.spec.polyaxon_v1.sections import ROLES, RUN_SHARED
from phalanx.spec.tree import Diagnostics, Node


class PatchStrategy(StrEnum):
    """Which side wins where both layers have a value."""

    POST_MERGE = "post_merge"  # the patch; lists are appended
    PRE_MERGE = "pre_merge"  # the original; lists of the patch come first
    REPLACE = "replace"  # the patch, for whole fields
    ISNULL = "isnull"  # the original; the patch only fills in fields that are missing


# Sections whose fields are replaced one by one; every other value is replaced as a whole.
_FIELDS = frozenset(
    (
        *("run", "container", "environment", "termination", "plugins", "cache", "build", "params"),
        *(role for roles in ROLES.values() for role in roles),
    )
)


def strategy_of(layer: Node, findings: Diagnostics) -> PatchStrategy:
    node = layer.get("patchStrategy") or layer.get("patch_strategy")
    if node is None:
        return PatchStrategy.POST_MERGE
    try:
        return PatchStrategy(str(node.value).casefold())
    except ValueError:
        findings.error(
            node, f"unknown patch strategy `{str(node.value)[:60]}`", f"use one of {', '.join(PatchStrategy)}"
        )
        return PatchStrategy.POST_MERGE


def patched(original: Node | None, patch: Node | None, strategy: PatchStrategy) -> Node | None:
    """One value with another laid over it. Changes neither."""
    if original is None or original.value is None or patch is None or patch.value is None:
        return patch if original is None or original.value is None else original
    if original.entries is not None and patch.entries is not None:
        if strategy in (PatchStrategy.REPLACE, PatchStrategy.ISNULL) and original.key not in (None, *_FIELDS):
            return patch if strategy is PatchStrategy.REPLACE else original
        return _patched_map(original, patch, strategy)
    if original.elements is not None and patch.elements is not None:
        if strategy is PatchStrategy.POST_MERGE:
            return original.like([*original.elements, *patch.elements])
        if strategy is PatchStrategy.PRE_MERGE:
            return original.like([*patch.elements, *original.elements])
    return patch if strategy in (PatchStrategy.POST_MERGE, PatchStrategy.REPLACE) else original


def _patched_map(original: Node, patch: Node, strategy: PatchStrategy) -> Node:
    assert original.entries is not None
    assert patch.entries is not None
    entries = dict(original.entries)
    for key, child in patch.entries.items():
        found = patched(entries.get(key), child, strategy)
        if found is not None:
            entries[key] = found
    return original.like(entries)


def patched_run(run: Node, patch: Node, strategy: PatchStrategy) -> Node:
    """A run section with a `runPatch`. For a distributed run, a patch that names no replicas applies to all of them."""
    roles = [role for role in ROLES.get(_kind_of(run), ()) if run.get(role) is not None]
    if roles and patch.entries is not None and not any(role in patch.entries for role in roles):
        shared = {key: child for key, child in patch.entries.items() if key in RUN_SHARED}
        rest = {key: child for key, child in patch.entries.items() if key not in RUN_SHARED}
        patch = patch.like({**rest, **{role: patch.like(shared) for role in roles}} if shared else rest)
    return patched(run, patch, strategy) or run


def _kind_of(run: Node) -> str:
    kind = run.get("kind")
    return str(kind.value) if kind is not None else ""
