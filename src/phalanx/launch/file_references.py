"""The files of a call with those they refer to, read from this machine: `pathRef` of Polyaxon 1.x and 2.x, and
templates of pipelines by `path`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from phalanx.spec import Spec
    from phalanx.spec.tree import Node

Texts = Sequence[tuple[str, bytes]]
MOST_BYTES = 1 << 20


class FileReferences:
    """Reads referenced files inside the folder of the file that has the reference, or inside the current folder."""

    def __init__(self) -> None:
        self.used: list[str] = []

    def read_path(self, base: str, path: str) -> tuple[str, bytes]:
        """Raises ReferenceFault."""
        from phalanx.spec.polyaxon_v1 import ReferenceFault

        folder = Path(base).parent
        try:
            found = (folder / path).resolve(strict=True)
            if not any(found.is_relative_to(root.resolve()) for root in (folder, Path.cwd())):
                hint = "call phalanx from a folder that contains both files"
                raise ReferenceFault(f"`{path[:200]}` is outside of the folder of this file", hint)
            if not found.is_file():
                raise ReferenceFault(f"`{path[:200]}` is not a file", "name a file")
            with found.open("rb") as stream:
                data = stream.read(MOST_BYTES + 1)
        except (OSError, ValueError, RuntimeError) as fault:
            reason = fault.strerror.lower() if isinstance(fault, OSError) and fault.strerror else "not a valid path"
            hint = "name a file relative to the one that refers to it"
            raise ReferenceFault(f"`{path[:200]}` cannot be read: {reason}", hint) from None
        self.used.append(path)
        try:
            return str(found.relative_to(Path.cwd())), data
        except ValueError:
            return str(found), data

    def read_url(self, base: str, url: str) -> tuple[str, bytes]:
        """Raises ReferenceFault."""
        from phalanx.spec.polyaxon_v1 import NoReferences

        return NoReferences().read_url(base, url)


class LoadedFiles(NamedTuple):
    """A spec, the tree with all locations, and what to send to a server: files that refer to no others."""

    spec: Spec
    tree: Node
    files: Texts
    params: Mapping[str, str]


def load_files(texts: Texts, params: Mapping[str, str]) -> LoadedFiles:
    """Reports all errors at once. Raises SpecErrors."""
    from phalanx.plan.framework_checks import load

    references = FileReferences()
    spec, tree = load(texts, params, references)
    if not references.used:
        return LoadedFiles(spec, tree, texts, params)
    from phalanx.spec.yaml_writer import modern_document, to_yaml

    return LoadedFiles(spec, tree, [(texts[0][0], to_yaml(modern_document(spec)).encode())], {})
