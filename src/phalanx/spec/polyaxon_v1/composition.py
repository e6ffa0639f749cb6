"""Composes a file from its layers: the component, the operation that runs it, and presets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.errors import SpecErrors
from phalanx.spec.polyaxon_v1.patches import PatchStrategy, patched, patched_run, strategy_of
from phalanx.spec.polyaxon_v1.references import ReferenceFault, References
from phalanx.spec.polyaxon_v1.sections import FILE, REFERENCES, SHORTCUTS, known_keys
from phalanx.spec.rewrites import Map
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.tree import Diagnostics, Node
from phalanx.spec.yaml_reader import decode, read

MOST_REFERENCES = 50  # in one file, and one after another
MOST_REFERENCED = 4 << 20  # characters of all referenced files
_OF_OPERATION = frozenset(
    (
        *("params", "matrix", "schedule", "events", "joins", "dependencies", "trigger", "conditions"),
        *("skipOnUpstreamSkip", "contexts"),
    )
)
_OF_COMPONENT = frozenset(("inputs", "outputs", "run"))
_UNMERGED = frozenset(("version", "kind", "runPatch", "patchStrategy", "isPreset", *REFERENCES))


class Composer:
    """Composes operations. `components`: those of a dag, by name."""

    def __init__(self, findings: Diagnostics, references: References) -> None:
        self.findings = findings
        self.references = references
        self.count = 0
        self.size = 0

    def compose(self, layers: Sequence[Node], components: Mapping[str, Node] | None = None) -> Node:
        """One map of sections: the first layer, with its reference resolved, and each further one laid over it."""
        composed = self._resolved(layers[0], components or {}, ())
        for layer in layers[1:]:
            entries = self._entries(layer)
            strategy = strategy_of(layer, self.findings)
            composed = self._laid_over(composed, layer.like(dict(entries)), strategy)
        return composed

    def _entries(self, layer: Node) -> Map:
        """The sections of a layer; shortcuts of 2.18 are moved into its run section."""
        entries = known_keys(layer, FILE, "the file" if layer.parent is None else "an operation", self.findings)
        short = {key: entries.pop(key) for key in SHORTCUTS if key in entries}
        if short:
            target = "runPatch" if "run" not in entries and any(key in entries for key in REFERENCES) else "run"
            entries[target] = _with_shortcuts(entries.get(target), short, layer)
        return entries

    def _resolved(self, layer: Node, components: Mapping[str, Node], chain: tuple[str, ...]) -> Node:
        entries = self._entries(layer)
        named = [key for key in REFERENCES if key in entries]
        if named == ["component", "hubRef"]:  # a hub component that was already inserted
            entries.pop(named.pop())
        if len(named) > 1:
            message = f"`{named[0]}` and `{named[1]}` exclude each other"
            self.findings.error(entries[named[1]], message, "keep one", at_key=True)
        own = layer.like(dict(entries))
        if not named:
            return self._patched_alone(own)
        component = self._component(named[0], entries[named[0]], components, chain)
        if component is None:
            return own
        return self._laid_over(component, own, strategy_of(layer, self.findings))

    def _patched_alone(self, layer: Node) -> Node:
        """A layer without a reference: its `runPatch` is for its own run section, or a preset has nothing else."""
        assert layer.entries is not None
        run, patch = layer.get("run"), layer.entries.pop("runPatch", None)
        if patch is not None and run is not None:
            layer.entries["run"] = patched_run(run, patch, strategy_of(layer, self.findings))
        elif patch is not None:
            layer.entries["run"] = patch
        return layer

    def _component(self, key: str, node: Node, components: Mapping[str, Node], chain: tuple[str, ...]) -> Node | None:
        if key == "component":
            return self._resolved(node, components, chain)
        if key == "hubRef":
            return None  # the run kinds of the hub that we know are read by their names
        text = str(node.value)
        if key == "dagRef":
            if text in components:
                return self._resolved(components[text], components, chain)
            hint = did_you_mean(text, components) or "add it to `components`"
            self.findings.error(node, f"unknown component `{text[:60]}`", hint)
            return _nothing(node)
        return self._referenced(key, node, text, chain)

    def _referenced(self, key: str, node: Node, text: str, chain: tuple[str, ...]) -> Node | None:
        base = node.mark.source.name
        self.count += 1
        if self.count > MOST_REFERENCES:
            self.findings.error(node, f"more than {MOST_REFERENCES} references in one file")
            return _nothing(node)
        try:
            reader = self.references.read_path if key == "pathRef" else self.references.read_url
            name, data = reader(base, text)
            self.size += len(data)
            if self.size > MOST_REFERENCED:
                raise ReferenceFault("the referenced files are too large", "copy the component into this file")
            if name in (base, *chain):
                raise ReferenceFault(f"`{text[:200]}` refers to itself", "name the file of a component")
            layer = read(decode(name, data))
        except ReferenceFault as fault:
            self.findings.error(node, str(fault), fault.suggestion)
            return _nothing(node)
        except SpecErrors as faults:
            self.findings.errors += faults.errors
            return _nothing(node)
        return self._resolved(layer, {}, (*chain, base))

    def _laid_over(self, composed: Node, layer: Node, strategy: PatchStrategy) -> Node:
        """A component with an operation or a preset laid over it."""
        assert composed.entries is not None
        assert layer.entries is not None
        result = dict(composed.entries)
        for key, child in layer.entries.items():
            if key in _UNMERGED:
                continue
            found = child if key in _OF_OPERATION and key not in result else patched(result.get(key), child, strategy)
            if found is not None:
                result[key] = found
        patch, run = layer.get("runPatch"), result.get("run")
        if patch is not None:
            result["run"] = patched_run(run, patch, strategy) if run is not None else patch
        if "hubRef" in layer.entries:
            result["hubRef"] = layer.entries["hubRef"]
        return layer.like(
            {**{key: layer.entries[key] for key in ("version", "kind") if key in layer.entries}, **result}
        )


def _nothing(node: Node) -> Node:
    """What stands for a component that cannot be read, which is reported."""
    result = node.like({})
    result.poisoned = True
    return result


def _with_shortcuts(run: Node | None, short: Map, layer: Node) -> Node:
    entries = dict(run.entries or {}) if run is not None else {}
    origin = next(iter(short.values()))
    if run is None:
        entries["kind"] = origin.like("service" if "ports" in short else "job")
    container = entries.get("container") or short.pop("container", None)
    inner: Map = dict(container.entries or {}) if container is not None else {}
    command, variables, resources = (short.pop(key, None) for key in ("cmd", "env", "resources"))
    if command is not None:
        lines = [str(line.value) for line in command.elements] if command.elements is not None else [str(command.value)]
        inner["command"] = command.like([command.like("/bin/sh"), command.like("-c")])
        inner["args"] = command.like([command.like("set -e\n" + "\n".join(lines))])
    if variables is not None and variables.entries is not None:
        pairs = [child.like({"name": child.like(name), "value": child}) for name, child in variables.entries.items()]
        inner["env"] = variables.like([*(inner["env"].elements or [] if "env" in inner else []), *pairs])
    if resources is not None:
        inner["resources"] = _short_resources(resources)
    if inner:
        entries["container"] = (container or origin).like(inner)
    return (run or layer).like({**entries, **short})


def _short_resources(resources: Node) -> Node:
    """`{cpu: "1..2", gpu: 1}` as requests and limits: CPUs and memory alone are a request, devices are both."""
    requests: Map = {}
    limits: Map = {}
    if resources.entries is None or "requests" in resources.entries or "limits" in resources.entries:
        return resources
    for name, child in resources.entries.items():
        low, dots, high = str(child.value).partition("..")
        key = "nvidia.com/gpu" if name == "gpu" else name
        if low:
            requests[key] = child.like(low) if dots else child
        if dots and high:
            limits[key] = child.like(high)
        elif not dots and name not in ("cpu", "memory"):
            limits[key] = child
    return resources.like({"requests": resources.like(requests), "limits": resources.like(limits)})
