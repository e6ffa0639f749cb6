"""Templates of pipelines that are files: `template: {path: train.yml}`, relative to the file that names them."""

from __future__ import annotations

from itertools import chain, count
from pathlib import PurePath

from phalanx.errors import SpecErrors
from phalanx.spec.polyaxon_v1.references import ReferenceFault, References
from phalanx.spec.tree import Diagnostics, Node
from phalanx.spec.yaml_reader import decode, read

MOST_FILES = 200
MOST_BYTES = 4 << 20  # of all files together


def names_files(layer: Node) -> bool:
    """Whether any op of a file has a template by path."""
    return any((template := op.get("template")) is not None and template.get("path") for op in layer.items("ops"))


def include(layer: Node, findings: Diagnostics, references: References) -> None:
    """Add the files to the templates of their pipeline, and let ops name them. Faults are findings."""
    assert layer.entries is not None
    listed = layer.get("templates")
    if listed is None:
        listed = layer.entries["templates"] = layer.like([])
    if listed.elements is None:
        return  # reported by the record of the whole file
    taken = {str(name.value) for one in listed.elements if (name := one.get("name")) is not None}
    found: dict[str, str | None] = {}  # names of templates by the names of files; None: the file has a fault
    left = MOST_BYTES
    for op in layer.items("ops"):
        template = op.get("template")
        path = template.get("path") if template is not None else None
        if template is None or template.entries is None or len(template.entries) != 1 or path is None:
            continue
        try:
            file, data = references.read_path(path.mark.source.name, str(path.value))
            if file not in found:
                left -= len(data)
                if left < 0 or len(found) >= MOST_FILES:
                    raise ReferenceFault(
                        f"a pipeline may have at most {MOST_FILES} files of {MOST_BYTES >> 20} MiB together",
                        "write some of them into `templates`",
                    )
                found[file] = None  # unless it can be read
                found[file] = _add(listed, read(decode(file, data)), PurePath(file).stem, taken, findings)
        except ReferenceFault as fault:
            findings.error(path, str(fault), fault.suggestion)
            path.poisoned = True
            continue
        except SpecErrors as faults:
            findings.errors += faults.errors
        template.value = {"name": path.like(found[file] or file)}


def _add(listed: Node, file: Node, stem: str, taken: set[str], findings: Diagnostics) -> str | None:
    """The name of the new template: that of the file, if it has one that is free. None if it is no template."""
    if file.entries is None:
        findings.error(file, "a template is a map: write a polyaxonfile")
        return None
    own = file.get("name")
    wanted = str(own.value) if own is not None else stem
    more = (f"{wanted}-{number}" for number in count(2))
    name = next(each for each in chain([wanted], more) if each not in taken)
    if own is None or name != wanted:
        file.entries["name"] = file.like(name) if own is None else own.like(name)
    taken.add(name)
    assert listed.elements is not None
    listed.elements.append(file)
    return name
