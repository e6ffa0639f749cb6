"""Loads a Spec from text: read, modernise, merge, resolve params, render, validate. Reports all errors at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from phalanx.errors import Location, SpecErrors
from phalanx.spec import backend_sections, commands
from phalanx.spec.dialects import modernise
from phalanx.spec.layers import merge
from phalanx.spec.matrix import first_values
from phalanx.spec.model import EMPTY, Build, Kind, Search, Spec, Variable, freeze, thaw
from phalanx.spec.params import Params, parse_value, type_fault
from phalanx.spec.pipelines import read_pipeline
from phalanx.spec.schema import (
    ALGORITHMS,
    BUILD_FIELDS,
    HPTUNING,
    RUN_BACKENDS,
    VARIABLE,
    environment,
    installed_sections,
    sections,
)
from phalanx.spec.shapes import INVALID, Field, ListOf
from phalanx.spec.suggestions import did_you_mean, nearest
from phalanx.spec.templates import is_template, names_in
from phalanx.spec.tree import Diagnostics, Mark, Node, Source, from_plain
from phalanx.spec.yaml_reader import decode, describe, read

Inspect = Callable[[Node, Diagnostics], None]

# Sections that are not rendered: they provide the values of templates, or belong to other runs.
UNRENDERED = frozenset(["params", "inputs", "outputs", "hptuning", "ops", "templates", "schedule"])


def load(
    texts: Sequence[tuple[str, bytes]],
    params: Mapping[str, str] | None = None,
    inspect: Inspect | None = None,
) -> Spec:
    """The spec of one or several files, later ones merged over earlier ones, and of params from the command line
    (merged last, as text). Raises SpecErrors with every error found.

    `inspect` may add errors that only another package can detect; they are reported together with ours.
    """
    findings = Diagnostics()
    root = _layers(texts, params or {}, findings)
    return _finish(root, findings, inspect)


def load_document(name: str, document: Mapping[str, Any]) -> Spec:
    """The spec of plain data: a stored document, or one built by a program. Raises SpecErrors."""
    findings = Diagnostics()
    source = Source(name, "")
    root = modernise(from_plain(dict(document), Mark(source, 0, 0, 0, 0)), findings)
    return _finish(root, findings, None)


def _finish(root: Node, findings: Diagnostics, inspect: Inspect | None) -> Spec:
    spec = read_spec(root, findings, inspect)
    if findings.errors or spec is None:
        raise SpecErrors(findings.errors)
    return spec


def _layers(texts: Sequence[tuple[str, bytes]], params: Mapping[str, str], findings: Diagnostics) -> Node:
    faults: list[SpecErrors] = []
    layers: list[Node] = []
    has_framework = False
    for name, data in texts:
        try:
            layer = read(decode(name, data))
        except SpecErrors as fault:
            faults.append(fault)
            continue
        modernise(layer, findings, has_framework=has_framework)
        has_framework = has_framework or layer.get("framework") is not None
        layers.append(layer)
    if faults:
        raise SpecErrors([error for fault in faults for error in fault.errors])
    root = layers[0]
    for layer in layers[1:]:
        root = merge(root, layer)
    if params:
        root = merge(root, _command_line(params, root))
    root.mark = layers[0].mark  # errors about the whole file point at the first one
    return root


def _command_line(params: Mapping[str, str], root: Node) -> Node:
    """`-P name=value` as another layer. A value of a declared text input stays text: `-P id=007`."""
    declared = {
        str(entry.entries["name"].value): entry.entries["type"].value
        for entry in root.items("inputs")
        if entry.entries and "name" in entry.entries and "type" in entry.entries
    }
    section = Node({}, Mark(Source("command line", ""), 0, 0, 0, 0), key="params")
    entries = {}
    for name, value in params.items():
        line = f"-P {name}={value}".replace("\n", " ")
        mark = Mark(Source("command line", line), 0, 0, 0, len(line))
        typed = value if declared.get(name) == "str" else parse_value(value)
        entries[name] = from_plain(typed, mark, section, name)
    section.value = entries
    return Node({"params": section}, section.mark)


def read_spec(root: Node, findings: Diagnostics, inspect: Inspect | None = None) -> Spec | None:
    """The spec of a modernised, merged tree; None after adding the reason to the findings."""
    kind = _kind(root, findings)
    _version(root, findings)
    if kind is Kind.BUILD:
        _flatten_build(root, findings)
    record = sections(kind, _backend_sections(root, kind))
    search = _search(root, findings) if kind is Kind.GROUP else None
    variables = _variables(root, "inputs", findings)
    params = Params(root.get("params"), variables, first_values(search) if search else EMPTY, findings)
    if search is None:
        params.wrong |= _matrix_names(root)  # already reported with the matrix
    _required_inputs(params, root, findings)
    _matrix_suits_inputs(search, variables, root, findings)
    _note_nothings(params, root, findings)
    rendered = _render(root, params)
    values = record.read(rendered, findings)
    _backend(rendered, kind, findings)
    if inspect is not None:
        inspect(rendered, findings)
    command = _command(rendered, findings)
    pipeline = read_pipeline(rendered, values, findings, read_spec) if kind is Kind.PIPELINE else None
    if findings.errors or values is INVALID:
        return None
    document = freeze(root.plain())  # after all old forms were rewritten, also in the templates of a pipeline
    own = {key: values[key] for key in _COPIED if key in values}
    if own.get("build") == Build():
        del own["build"]  # an empty section has no meaning
    if kind is Kind.BUILD:
        own["build"] = Build(**{key: values[key] for key in BUILD_FIELDS if key in values})
        own["backend"] = values.get("backend")
    shown = params.values if search is None else {name: document["params"][name] for name in params.nodes}
    return Spec(
        kind=kind,
        params=freeze(shown),
        inputs=variables,
        outputs=_variables(root, "outputs", findings),
        command=command,
        search=search,
        pipeline=pipeline,
        document=document,
        notes=tuple(sorted(dict.fromkeys(findings.notes), key=lambda note: (note.place.line, note.place.column))),
        places=_places(root),
        **own,
    )


_COPIED = ("name", "description", "tags", "logging", "framework", "backend", "environment", "build")


def _kind(root: Node, findings: Diagnostics) -> Kind:
    """The kind of the file, or else a guess from its sections, so that the rest can be validated."""
    node = root.get("kind")
    guess = Kind.GROUP if root.get("hptuning") else Kind.PIPELINE if root.get("ops") else Kind.EXPERIMENT
    if node is None:
        findings.note(root, f"no `kind`: read as `kind: {guess}`")
        assert root.entries is not None
        root.value = {"kind": root.like(str(guess)), **root.entries}
        return guess
    word = str(node.value).casefold()
    if word in tuple(Kind):
        if word != node.value:
            findings.note(node, f"`{node.value}` read as `{word}`")
            node.value = word
        return Kind(word)
    near = nearest(str(node.value), tuple(Kind))
    hint = f"did you mean `{near}`?" if near else None
    if word == "plugin":
        hint = "Polyaxon 0.1.1 split it: write `kind: notebook` or `kind: tensorboard`"
    elif word in ("component", "operation"):
        hint = "this is a Polyaxon 1.x file; Phalanx reads format version 1, used by the releases 0.x"
    findings.error(node, f"expected one of {', '.join(Kind)}, found {describe(node)}", hint)
    root.entries["kind"] = node.like(near or str(guess))  # type: ignore[index]
    return Kind(near) if near else guess


def _flatten_build(root: Node, findings: Diagnostics) -> None:
    """Move the keys of a section `build` to the top: the form of a build up to 0.4.1."""
    section = root.get("build")
    assert root.entries is not None
    if section is None or section.entries is None:
        return
    del root.entries["build"]
    findings.note(section, "`build` read as the top of the file")
    for key, node in section.entries.items():
        if key in root.entries:
            findings.error(node, f"`{key[:60]}` is both in `build` and at the top of the file", "keep one", at_key=True)
        root.entries.setdefault(key, node)


def _version(root: Node, findings: Diagnostics) -> None:
    node = root.get("version")
    assert root.entries is not None
    if node is None:
        findings.note(root, "no `version`: read as `version: 1`")
        root.value = {"version": root.like(1), **root.entries}
    elif node.value in ("1", "1.0"):
        findings.note(node, f'`"{node.value}"` read as 1')
        node.value = 1
    elif node.value != 1 or isinstance(node.value, bool):
        findings.error(node, f"expected version 1, found {describe(node)}", "write `version: 1`")
        node.value = 1
    else:
        node.value = 1


def _variables(root: Node, key: str, findings: Diagnostics) -> tuple[Variable, ...]:
    """Declared inputs or outputs. Errors are reported when the whole file is validated against its record."""
    node = root.get(key)
    if node is None:
        return ()
    read_quietly = ListOf(VARIABLE).read(node, Diagnostics())
    if read_quietly is INVALID:
        return ()
    seen: set[str] = set()
    for variable, entry in zip(read_quietly, root.items(key), strict=True):
        if variable.name in seen:
            findings.error(entry, f"{key[:-1]} `{variable.name}` is declared twice")
        seen.add(variable.name)
    return tuple(read_quietly)


def _required_inputs(params: Params, root: Node, findings: Diagnostics) -> None:
    entries = {item.entries["name"].value: item for item in root.items("inputs") if item.entries and item.get("name")}
    for name in params.missing():
        where = entries.get(name, root)
        findings.error(where, f"input `{name}` has no value", f"set it in `params` or with -P {name}=...")
        params.wrong.add(name)


def _matrix_suits_inputs(
    search: Search | None, variables: tuple[Variable, ...], root: Node, findings: Diagnostics
) -> None:
    """Check the values of a matrix like params, before a group runs half of its experiments."""
    declared = {variable.name: variable for variable in variables}
    tuning = root.get("hptuning")
    matrix = tuning.get("matrix") if tuning is not None else None
    for dimension in search.matrix if search is not None else ():
        variable = declared.get(dimension.name)
        faults = (type_fault(variable, thaw(value)) for value in dimension.values or ()) if variable else ()
        fault = next((found for found in faults if found), None)
        if fault is not None and matrix is not None:
            findings.error(matrix.get(dimension.name) or matrix, f"{fault}, also in the matrix")


def _note_nothings(params: Params, root: Node, findings: Diagnostics) -> None:
    empty = params.without_value()
    if not empty:
        return
    for node in root.scalars():
        used = names_in(node.value) & empty if isinstance(node.value, str) and is_template(node.value) else ()
        for name in sorted(used):
            findings.note(node, f"input `{name}` has no value: templates render it as `None`")


def _render(root: Node, params: Params) -> Node:
    assert root.entries is not None
    renderer = params.renderer
    result = root.like(None)
    result.value = {key: child if key in UNRENDERED else renderer.tree(child) for key, child in root.entries.items()}
    return result


def _backend_sections(root: Node, kind: Kind) -> Mapping[str, Field]:
    """The sections of `environment` that backends of other packages read."""
    section = root.get("environment")
    known = environment(kind)
    keys = (section.entries or ()) if section is not None else ()
    return EMPTY if all(key in known.fields or key in known.elsewhere for key in keys) else installed_sections()


def _backend(root: Node, kind: Kind, findings: Diagnostics) -> None:
    """Check the run backend: built-in, or from an installed plug-in."""
    node = root.get("backend")
    if node is None or node.poisoned or kind not in (Kind.EXPERIMENT, Kind.GROUP) or not isinstance(node.value, str):
        return
    if node.value in RUN_BACKENDS:
        return
    installed = backend_sections.names()
    if node.value not in installed:
        known = (*RUN_BACKENDS, *(name for name in installed if name not in RUN_BACKENDS))
        hint = did_you_mean(node.value, known) or f"write one of {', '.join(known)}"
        findings.error(node, f"unknown backend `{node.value[:60]}`", hint)


def _command(root: Node, findings: Diagnostics) -> str | None:
    run = root.get("run")
    node = run.get("cmd") if run is not None else None
    if node is None or node.poisoned:
        return None
    parts = node.elements if node.elements is not None else [node]
    texts = [str(part.value) for part in parts if not part.poisoned and not isinstance(part.value, dict | list)]
    if any(commands.has_several_lines(text) for text in texts):
        findings.note(node, "several lines read as one command, as Polyaxon does; write a list to run several")
    line = commands.join(tuple(texts))
    return line or None


def _search(root: Node, findings: Diagnostics) -> Search | None:
    node = root.get("hptuning")
    if node is None:
        return None
    before = len(findings.errors)
    values = HPTUNING.read(node, Diagnostics())  # errors are reported when the whole file is validated
    if values is INVALID:
        return None
    named = [name for name in ALGORITHMS if name in values]
    if len(named) > 1:
        said = " and ".join(f"`{name}`" for name in named)
        findings.error(node.get(named[1]) or node, f"a group has one search; {said} are both set", at_key=True)
    algorithm = named[0] if named else "grid_search"
    settings = values.get(algorithm, EMPTY)
    matrix = values["matrix"]
    continuous = [dimension for dimension in matrix if dimension.is_distribution]
    where = node.get("matrix") or node
    if continuous and algorithm == "grid_search":
        name = continuous[0].name
        if named:
            hint = "write `random_search: {n_experiments: N}`"
            findings.error(where, f"`{name}` is a distribution, which grid search cannot enumerate", hint)
        else:
            algorithm = "random_search"
            findings.note(where, f"`{name}` is a distribution, not enumerable by grid search: read as random search")
    if algorithm == "random_search" and "n_experiments" not in settings and any(d.values is None for d in matrix):
        findings.note(where, "running it requires `random_search: {n_experiments: N}`")
    if algorithm == "bo":
        unfit = next((item for item in continuous if item.values is None and item.kind != "uniform"), None)
        if unfit is not None:
            findings.error(where, f"bo supports only uniform and listed values; `{unfit.name}` is `{unfit.kind}`")
    if len(findings.errors) > before:
        return None
    return Search(
        algorithm=algorithm,
        matrix=matrix,
        concurrency=values.get("concurrency", 1) or 1,
        seed=values.get("seed"),
        n_experiments=settings.get("n_experiments"),
        settings=settings,
        early_stopping=values.get("early_stopping", ()),
    )


def _matrix_names(root: Node) -> set[str]:
    tuning = root.get("hptuning")
    matrix = tuning.get("matrix") if tuning is not None else None
    return set(matrix.entries or ()) if matrix is not None else set()


_PLACED = (
    ("framework",), ("backend",), ("environment",), ("environment", "replicas"),
    ("environment", "replicas", "n_ps"), ("environment", "replicas", "n_workers"),
    ("environment", "replicas", "launcher"), ("environment", "replicas", "master_task"),
    ("environment", "replicas", "processes"), ("environment", "env_vars"),
    ("build", "env_vars"), ("run",), ("run", "cmd"),
)  # fmt: skip


def _places(root: Node) -> Mapping[str, Location]:
    """Locations that the messages of a plan may refer to."""
    places = {"": root.mark.place()}
    for steps in _PLACED:
        node: Node | None = root
        for step in steps:
            node = node.get(step) if node is not None else None
        if node is not None:
            places[".".join(steps)] = node.mark.place()
    return MappingProxyType(places)
