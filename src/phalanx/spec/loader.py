"""Loads a Spec from text: read, modernise, merge, resolve params, render, validate. Reports all errors at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from phalanx.errors import Location, SpecErrors
from phalanx.spec import backend_sections, commands
from phalanx.spec.dialects import modernise
from phalanx.spec.matrix import SEED, first_values
from phalanx.spec.model import EMPTY, Build, CollectOptions, Kind, Search, Spec, Variable, freeze, thaw
from phalanx.spec.params import Params, declared_value, parse_value, type_fault
from phalanx.spec.schema import (
    BUILD_FIELDS,
    BUILD_TO,
    RUN_BACKENDS,
    VARIABLE,
    environment,
    installed_sections,
    sections,
)
from phalanx.spec.section_fields import ALGORITHMS, HPTUNING
from phalanx.spec.shapes import INVALID, Field
from phalanx.spec.suggestions import did_you_mean, nearest
from phalanx.spec.templates import is_template, names_in
from phalanx.spec.tree import Diagnostics, Mark, Node, Source, from_plain, merge
from phalanx.spec.yaml_reader import MAX_DEPTH, decode, describe, read

if TYPE_CHECKING:
    from phalanx.spec.polyaxon_v1 import References

Inspect = Callable[[Node, Diagnostics], None]

# Sections that are not rendered: they provide the values of templates, or belong to other runs.
UNRENDERED = frozenset(["params", "inputs", "outputs", "hptuning", "ops", "templates", "schedule"])


def load(
    texts: Sequence[tuple[str, bytes]],
    params: Mapping[str, str] | None = None,
    inspect: Inspect | None = None,
    references: References | None = None,
) -> Spec:
    """The spec of one or several files, later ones merged over earlier ones, and of params from the command line
    (merged last, as text). Raises SpecErrors with every error found.

    `inspect` may add errors that only another package can detect; they are reported together with ours. `references`
    reads the files that a file of Polyaxon 1.x or 2.x, or an op of a pipeline, refers to.
    """
    findings = Diagnostics()
    root = _layers(texts, params or {}, findings, references)
    return _finish(root, findings, inspect)


def load_document(name: str, document: Mapping[str, Any]) -> Spec:
    """The spec of plain data: a stored document, or one built by a program. Raises SpecErrors."""
    findings = Diagnostics()
    source = Source(name, "")
    root = modernise([from_plain(dict(document), Mark(source, 0, 0, 0, 0))], findings)
    return _finish(root, findings, None)


def _finish(root: Node, findings: Diagnostics, inspect: Inspect | None) -> Spec:
    spec = read_spec(root, findings, inspect)
    if findings.errors or spec is None:
        raise SpecErrors(findings.errors)
    return spec


def _layers(
    texts: Sequence[tuple[str, bytes]], params: Mapping[str, str], findings: Diagnostics, references: References | None
) -> Node:
    faults: list[SpecErrors] = []
    layers: list[Node] = []
    for name, data in texts:
        try:
            layers.append(read(decode(name, data)))
        except SpecErrors as fault:
            faults.append(fault)
    if faults:
        raise SpecErrors([error for fault in faults for error in fault.errors])
    for layer in layers:
        if references is not None and layer.get("ops") is not None:
            from phalanx.spec.pipelines import template_files

            if template_files.names_files(layer):
                template_files.include(layer, findings, references)
    forms, given = _later_format(layers, params, findings, references)
    root = modernise(forms, findings)
    params = {name: value for name, value in params.items() if name not in given}
    if params:
        mark = root.mark
        root = merge(root, _command_line(params, root))
        root.mark = mark
    _refuse_deep(root, findings)
    return root


def _refuse_deep(root: Node, findings: Diagnostics) -> None:
    """Report what older forms and params nest deeper than a file may be: `convert` could not write it."""
    level = [root]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            for child in ((node.entries or {}).values() if node.elements is None else node.elements)
            if isinstance(child.value, dict | list)
        ]
    if level:
        findings.error(level[0], f"nested more than {MAX_DEPTH} levels deep")


def _later_format(
    layers: Sequence[Node], params: Mapping[str, str], findings: Diagnostics, references: References | None
) -> tuple[Sequence[Node], Collection[str]]:
    """The layers, with those of Polyaxon 1.x or 2.x in the modern form, and the params that the inputs of a dag took.
    Raises SpecErrors if such a file is laid over one of ours."""
    if not any(_may_be_later(layer) for layer in layers):
        return layers, ()
    from phalanx.spec import polyaxon_v1

    signs = [polyaxon_v1.sign_of_format(layer) for layer in layers]
    if signs[0] is not None:
        typed = {name: parse_value(value) for name, value in params.items()}
        ours = [layer for layer in layers[1:] if polyaxon_v1.is_modern(layer)]
        theirs = [layer for layer in layers if not any(layer is own for own in ours)]
        root = polyaxon_v1.modern_tree(theirs, findings, references, typed)
        kind = root.get("kind")
        return [root, *ours], params if kind is not None and kind.value == Kind.PIPELINE else ()
    for sign in filter(None, signs):
        wrong = Diagnostics()
        message = "a file of Polyaxon 1.x cannot be laid over a file of another format"
        wrong.error(sign, message, "convert it first: phalanx convert -f FILE", at_key=True)
        raise SpecErrors(wrong.errors)
    return layers, ()


_SIGNS = frozenset(
    (
        *("component", "pathRef", "urlRef", "hubRef", "dagRef", "runPatch", "isPreset", "patchStrategy", "container"),
        "apiVersion",
        *("patch_strategy", "is_preset", "run_patch"),
    )
)


def _may_be_later(layer: Node) -> bool:
    """Whether to look closer: most files need none of the code for other formats."""
    version, kind, run = layer.get("version"), layer.get("kind"), layer.get("run")
    return (
        (version is not None and str(version.value) in ("1.1", "1.05"))
        or (kind is not None and str(kind.value).casefold() in ("component", "operation"))
        or (run is not None and (run.get("container") is not None or run.get("kind") is not None))
        or not _SIGNS.isdisjoint(layer.entries or ())
    )


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
    record = sections(kind, _backend_sections(root, kind))
    search = _search(root, findings) if kind is Kind.GROUP else None
    variables = _variables(root, "inputs", findings)
    fixed = first_values(search) if search else EMPTY
    is_complete = len(variables) >= len(root.items("inputs"))
    params = Params(root.get("params"), variables, fixed, findings, is_complete=is_complete)
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
    pipeline = None
    if kind is Kind.PIPELINE:
        from phalanx.spec.pipelines.reader import read_pipeline

        pipeline = read_pipeline(rendered, values, findings, read_spec)
    if findings.errors or values is INVALID:
        return None
    document = freeze(root.written())  # after all old forms were rewritten, also in the templates of a pipeline
    own = {key: values[key] for key in _COPIED if key in values}
    if own.get("build") == Build():
        del own["build"]  # an empty section has no meaning
    if kind is Kind.BUILD:
        own["build"] = Build(**{key: values[key] for key in (*BUILD_FIELDS, *BUILD_TO) if key in values})
        own["backend"] = values.get("backend")
    if isinstance(values.get("outputs"), CollectOptions):
        own["collect"] = values["outputs"]
    shown = params.values if search is None else {name: thaw(document["params"][name]) for name in params.nodes}
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


_COPIED = (
    *("name", "description", "tags", "after", "logging", "framework", "backend"),
    *("models", "notify", "environment", "build"),
)


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
    findings.error(node, f"expected one of {', '.join(Kind)}, found {describe(node)}", hint)
    root.entries["kind"] = node.like(near or str(guess))  # type: ignore[index]
    return Kind(near) if near else guess


def _version(root: Node, findings: Diagnostics) -> None:
    node = root.get("version")
    assert root.entries is not None
    if node is None:
        findings.note(root, "no `version`: read as `version: 1`")
        root.value = {"version": root.like(1), **root.entries}
    elif node.value in ("1", "1.0"):
        findings.note(node, f'`"{node.value}"` read as 1')
        node.value, node.text = 1, None
    elif node.value != 1 or isinstance(node.value, bool):
        findings.error(node, f"expected version 1, found {describe(node)}", "write `version: 1`")
        node.value, node.text = 1, None
    else:
        node.value, node.text = 1, None  # also for `1.0`


def _variables(root: Node, key: str, findings: Diagnostics) -> tuple[Variable, ...]:
    """Declared inputs or outputs. Errors are reported when the whole file is validated against its record."""
    node = root.get(key)
    if node is None:
        return ()
    found: dict[str, Variable] = {}
    for entry in root.items(key):
        variable = VARIABLE.read(entry, Diagnostics())
        if variable is INVALID:
            name = entry.get("name")
            if name is None or not isinstance(name.value, str):
                continue
            variable = Variable(name=name.value, is_optional=True)  # so that the errors of its uses are found, too
        if variable.name in found:
            findings.error(entry, f"{key[:-1]} `{variable.name}` is declared twice", "keep one of the two")
        found[variable.name] = variable
    return tuple(found.values())


def _required_inputs(params: Params, root: Node, findings: Diagnostics) -> None:
    entries = {str(named.value): item for item in root.items("inputs") if (named := item.get("name")) is not None}
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
        variable, values = declared.get(dimension.name), dimension.values or ()
        faults = (type_fault(variable, declared_value(variable, value)) for value in values) if variable else ()
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
    fixed = UNRENDERED - ({"outputs"} if not root.items("outputs") else set())  # a map of them has patterns to render
    result.value = {key: child if key in fixed else renderer.tree(child) for key, child in root.entries.items()}
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
    script = run.get("script") if run is not None else None
    if script is not None and isinstance(script.value, str) and not script.poisoned:
        return script.value.strip("\n") if script.value.strip() else None
    node = run.get("cmd") if run is not None else None
    if node is None or node.poisoned:
        return None
    parts = node.elements if node.elements is not None else [node]
    texts = [part.take_text() for part in parts if not part.poisoned and not isinstance(part.value, dict | list)]
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
        message = f"a group has one search; {said} are both set"
        findings.error(node.get(named[1]) or node, message, "keep one", at_key=True)
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
    taken = {*(dimension.name for dimension in matrix), settings.get("resource", EMPTY).get("name")}
    if "repeat" in values and SEED in taken:
        message = f"`repeat` sets the param `{SEED}`, which the search sets, too"
        findings.error(node.get("repeat") or node, message, "rename the other one, or drop `repeat`", at_key=True)
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
        metric=settings.get("metric") or values.get("metric"),
        max_failed=values.get("max_failed"),
        budget=values.get("budget"),
        warm_start=values.get("warm_start", ()),
        reuse=values.get("reuse", False),
        slurm=values.get("slurm", EMPTY),
        repeat=values.get("repeat"),
    )


def _matrix_names(root: Node) -> set[str]:
    tuning = root.get("hptuning")
    matrix = tuning.get("matrix") if tuning is not None else None
    return set(matrix.entries or ()) if matrix is not None else set()


_PLACED = (
    ("notify",), ("framework",), ("backend",), ("environment",), ("environment", "replicas"),
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
    run = root.get("run")
    script = run.get("script") if run is not None else None
    if script is not None:
        places["run.cmd"] = script.mark.place()  # the messages of a plan are about either
    return MappingProxyType(places)
