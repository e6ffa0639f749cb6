"""Errors of a file that only frameworks can detect, reported together with all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from phalanx import spec
from phalanx.plan import frameworks
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Diagnostics, Node

if TYPE_CHECKING:
    from phalanx.spec.polyaxon_v1 import References

Fault = tuple[str, str, str]  # path, message, suggestion


def wired_as(framework: str | None, backend: str | None) -> str | None:
    """The framework that decides the wiring: MPI with `backend: mpi`, for any framework of the ranks."""
    return "mpi" if backend == "mpi" else framework


def replicas_fault(name: str | None, n_ps: int, processes: int) -> Fault | None:
    """Why a run with replicas cannot be wired; None when it can."""
    if name is None:
        hint = f"add `framework:`, one of {', '.join(frameworks.known())}"
        return "environment.replicas", "replicas require a framework to find each other", hint
    found = frameworks.find(name)
    if found is None:
        known = frameworks.known()
        hint = did_you_mean(name, known) or f"write one of {', '.join(known)}"
        return "framework", f"`{name[:60]}` cannot be distributed over replicas", hint
    if n_ps and found.ps_role is None:
        hint = "remove `n_ps`, or use tensorflow or mxnet"
        return "environment.replicas.n_ps", f"{name} has no parameter servers", hint
    if processes > 1 and found.launchers is None:
        hint = "remove `processes` and use more workers instead"
        return "environment.replicas.processes", f"a replica of {name} is one process", hint
    return None


def load(
    texts: Sequence[tuple[str, bytes]], params: Mapping[str, str], references: References | None = None
) -> tuple[spec.Spec, Node]:
    """The spec, and the tree that it was read from, which holds all locations. Reports all errors at once.
    `references` reads the files that these refer to. Raises SpecErrors."""
    trees: list[Node] = []

    def keep(root: Node, findings: Diagnostics) -> None:
        trees.append(root)
        inspect(root, findings)

    return spec.load(texts, params, inspect=keep, references=references), trees[0]


def inspect(root: Node, findings: Diagnostics) -> None:
    """Add these errors for a tree that may have others; for `spec.load`."""
    replicas = _below(root, "environment", "replicas")
    counted = ("n_workers", "n_ps", "processes")
    n_workers, n_ps, processes = (_count(replicas.get(key)) if replicas is not None else 0 for key in counted)
    framework, backend = _text(root.get("framework")), _text(root.get("backend"))
    is_poisoned = any(node is not None and node.poisoned for node in (root.get("framework"), replicas))
    if is_poisoned or not (n_workers or n_ps or processes > 1):
        return
    fault = replicas_fault(wired_as(framework, backend), n_ps, processes)
    if fault is not None:
        path, message, hint = fault
        findings.error(_below(root, *path.split(".")) or replicas or root, message, hint)


def _below(root: Node, *steps: str) -> Node | None:
    node: Node | None = root
    for step in steps:
        node = node.get(step) if node is not None else None
    return node


def _count(node: Node | None) -> int:
    return node.value if node is not None and isinstance(node.value, int) else 0


def _text(node: Node | None) -> str | None:
    return node.value if node is not None and isinstance(node.value, str) else None
