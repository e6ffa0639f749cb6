"""Containers and their surroundings: image, command, variables, resources, placement and volumes of one replica."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from phalanx.spec.polyaxon_v1.command_lines import CommandLine, command_line, quoted, with_steps
from phalanx.spec.polyaxon_v1.contexts import CODE, CODE_BEFORE, OF_RUN, TemplateContext, below_code
from phalanx.spec.polyaxon_v1.sections import CONTAINER, ENVIRONMENT, camel_case, known_keys
from phalanx.spec.polyaxon_v1.variables import Declared
from phalanx.spec.rewrites import Map
from phalanx.spec.templates import is_template
from phalanx.spec.tree import Diagnostics, Node

_BARE = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?\Z")
_NAME = re.compile(r"\s*\{\{\s*([A-Za-z_]\w*)\s*\}\}\s*\Z")
_DEVICES = {"gpu": "gpu", "tpu": "tpu", "nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu", "google.com/tpu": "tpu"}
_SETTINGS = {  # of `environment`, that a replica of ours has
    "labels": "labels",
    "annotations": "annotations",
    "nodeSelector": "node_selector",
    "affinity": "affinity",
    "tolerations": "tolerations",
    "serviceAccountName": "service_account",
    "imagePullSecrets": "image_pull_secrets",
}
_KUBERNETES = {"priorityClassName": "priority_class", "schedulerName": "scheduler"}
_POD_CONTAINER = frozenset(
    (
        *("volumeMounts", "volumeDevices", "securityContext", "livenessProbe", "readinessProbe", "startupProbe"),
        *("lifecycle", "imagePullPolicy"),
    )
)


class ReplicaType(NamedTuple):
    """One replica type in the modern form. `settings`: fields of `environment` or of `default_worker`. `kubernetes`:
    fields of `environment.kubernetes`, which all replicas share."""

    number: Node | None
    command: CommandLine | None
    place: Node | None
    image: Node | None
    settings: Map
    kubernetes: Map


class ReplicaReader:
    """Reads the section of one replica type, or the run section of a job."""

    def __init__(self, context: TemplateContext, inputs: Declared, findings: Diagnostics) -> None:
        self.context, self.inputs, self.findings = context, inputs, findings
        self.origin: Node

    def read(self, section: Map, origin: Node, variables: Mapping[str, str], steps: list[str]) -> ReplicaType:
        """`variables`: environment variables that inputs set. `steps`: what runs before the command."""
        self.origin = origin
        node = section.get("container")
        container = known_keys(node, CONTAINER, "container", self.findings) if node is not None else {}
        settings: Map = {}
        kubernetes: Map = {}
        pod: Map = {}
        self._environment(section.get("environment"), settings, kubernetes, pod)
        exports = self._variables(container, variables, settings, pod)
        self._resources(container.get("resources"), settings)
        self._connections(section)
        self._pod(section, container, pod)
        if pod:
            kubernetes["pod"] = (node or origin).like(dict(pod))
        image = container.get("image")
        image = self.context.rewritten(image, self.findings) if image is not None else None
        if image is not None and isinstance(image.value, str) and OF_RUN.search(image.value):
            self.findings.error(image, "the image is needed before the run has a name or a folder", "write its name")
        command = self._command(container, exports, steps)
        return ReplicaType(section.get("replicas"), command, node, image, settings, kubernetes)

    # The command

    def _command(self, container: Map, exports: list[str], steps: list[str]) -> CommandLine | None:
        command, args = container.get("command"), container.get("args")
        words = [*self._words(command), *self._words(args)]
        if command is None and args is not None:
            message = "`args` without `command`: the entrypoint of the image is not known, so they are the command"
            self.findings.note(args, message)
        main = command_line(words, self.inputs.quoting)
        given = command or args
        if given is not None and given.entries is None and _is_line(command, words):
            self.findings.note(given, "read as a command line; Polyaxon takes the whole text for the name of a program")
            rest = command_line(words[1:], self.inputs.quoting)
            main = CommandLine(f"{words[0].strip()} {rest.text}" if rest else words[0].strip()) if words else None
        if main is None:
            return None
        folder = self._folder(container.get("workingDir"))
        if folder is not None:
            main = main._replace(text=main.text.replace(CODE, CODE_BEFORE))
            exports = [*exports, f"cd {folder}"]
        return with_steps([*steps, *exports], main)

    def _words(self, node: Node | None) -> list[str]:
        if node is None or node.entries is not None:
            if node is not None:
                self.findings.error(node, f"`{node.key}` must be a list of words", 'write `["python", "train.py"]`')
            return []
        words: list[str] = []
        for item in node.elements if node.elements is not None else [node]:
            if isinstance(item.value, dict | list):
                hint = 'quote templates: `"{{ name }}"`'
                self.findings.error(item, "a word of a command must be text", hint)
            elif isinstance(item.value, str) and item.value.strip() in ("{{ params.as_args }}", "{{params.as_args}}"):
                words += self.inputs.arguments.values()
            elif node is item and (name := _NAME.match(str(item.value))):  # a list of words, if the input is one
                words.append(f"{{{{ {name[1]}|quote }}}}")
            elif item.value is not None and item.value != "":
                words.append(self.context.text(item.like(item.take_text()), self.findings))
        return words

    def _folder(self, node: Node | None) -> str | None:
        """The working folder as a word of bash; None for the folder of the code."""
        if node is None or not isinstance(node.value, str):
            return None
        text = self.context.text(node, self.findings)
        below = below_code(text)
        if below is None:
            self.findings.note(node, f"`{node.value}` must exist where the command runs: it is entered before")
            return quoted(text)
        if not below:
            return None
        self.findings.note(node, f"`{node.value}` read as `{below}` in the folder of the code")
        return quoted(below)

    # Variables and resources

    def _variables(self, container: Map, variables: Mapping[str, str], settings: Map, pod: Map) -> list[str]:
        """Write `env_vars`. Returns the statements that set variables whose values only the run knows."""
        pairs: dict[str, Node] = {}
        exports: list[str] = []
        from_pod: list[Node] = []
        for entry in container["env"].elements or () if "env" in container else ():
            name, value = entry.get("name"), entry.get("value")
            if name is None:
                self.findings.missing(entry, "name", "a variable requires a `name`")
            elif entry.get("valueFrom") is not None or entry.get("value_from") is not None:
                from_pod.append(entry)
                self.findings.note(entry, f"`{name.value}` is set on Kubernetes only: its value is in the cluster")
            elif value is not None:
                pairs[str(name.value)] = self.context.rewritten(value, self.findings)
        for variable, given in variables.items():
            pairs.setdefault(variable, self.origin.like(f"{{{{ {given} }}}}"))
        for variable, child in list(pairs.items()):
            if isinstance(child.value, str) and OF_RUN.search(child.value):
                exports.append(f"export {variable}={quoted(child.value)}")
                del pairs[variable]
        if pairs:
            origin = container.get("env") or next(iter(pairs.values()))
            settings["env_vars"] = origin.like(dict(pairs))
        if from_pod:
            _container_of(pod, from_pod[0])["env"] = from_pod[0].like(list(from_pod))
        self._whole_sources(container.get("envFrom"), settings)
        return exports

    def _whole_sources(self, node: Node | None, settings: Map) -> None:
        found: dict[str, list[Node]] = {}
        for entry in node.elements or () if node is not None else ():
            for key, ours in (("secretRef", "secret_refs"), ("configMapRef", "config_map_refs")):
                source = entry.get(key)
                name = source.get("name") if source is not None else None
                if name is not None:
                    found.setdefault(ours, []).append(name)
        for ours, names in found.items():
            assert node is not None
            settings[ours] = node.like(list(names))

    def _resources(self, node: Node | None, settings: Map) -> None:
        if node is None or node.entries is None:
            if node is not None and node.value is not None:
                self.findings.error(node, "`resources` must be a map of `requests` and `limits`")
            return
        if not {"requests", "limits"} & set(node.entries):
            self.findings.note(node, "`resources` read as in Polyaxon 0.x; clusters of 1.x ignore this form")
            known = {_DEVICES.get(key, key): child for key, child in node.entries.items()}
            settings["resources"] = self.context.tree(node.like(dict(known)), self.findings)
            return
        amounts: dict[str, Map] = {}
        for side in ("requests", "limits"):
            section = node.get(side)
            for key, child in (section.entries or {}).items() if section is not None else ():
                name = "tpu" if key.startswith("cloud-tpus.google.com/") else _DEVICES.get(key, key)
                if name not in ("cpu", "memory", "gpu", "tpu"):
                    self.findings.note(child, f"the resource `{key[:60]}` is not used")
                elif child.value is not None:
                    value = self.context.rewritten(child, self.findings)
                    amounts.setdefault(name, {})[side] = _bytes(value) if name == "memory" else value
        unknown = [child for key, child in node.entries.items() if key not in ("requests", "limits", "claims")]
        for child in unknown:
            self.findings.note(child, f"`{child.key}` beside `requests` and `limits` is not used")
        if amounts:
            settings["resources"] = node.like({name: node.like(dict(sides)) for name, sides in amounts.items()})

    # The surroundings

    def _environment(self, node: Node | None, settings: Map, kubernetes: Map, pod: Map) -> None:
        entries = known_keys(node, ENVIRONMENT, "environment", self.findings) if node is not None else {}
        for key, child in entries.items():
            value = self.context.tree(child, self.findings)
            if key in _SETTINGS:
                settings[_SETTINGS[key]] = _names(value) if key == "imagePullSecrets" else value
            elif key in _KUBERNETES:
                kubernetes[_KUBERNETES[key]] = value
            elif key == "restartPolicy":
                if child.value == "OnFailure":
                    kubernetes["restart_policy"] = value
                elif child.value != "Never":
                    self.findings.note(child, "`restartPolicy` is not used: `termination.maxRetries` restarts the run")
            else:
                pod.setdefault("spec", child.like({}))
                _entries(pod["spec"])[key] = value

    def _connections(self, section: Map) -> None:
        node = section.get("connections")
        for entry in node.elements or () if node is not None else ():
            message = f"the connection `{str(entry.value)[:60]}` is not configured here"
            self.findings.note(
                entry, f"{message}: name stores with `environment.data_refs`, secrets with `secret_refs`"
            )

    def _pod(self, section: Map, container: Map, pod: Map) -> None:
        """Volumes, mounts and sidecars: a patch for the pods, without effect elsewhere."""
        parts = {key: child for key, child in container.items() if key in _POD_CONTAINER - {"imagePullPolicy"}}
        if parts:
            found = _container_of(pod, next(iter(parts.values())))
            found |= {key: _camel_keys(self.context.tree(child, self.findings)) for key, child in parts.items()}
        for key, ours in (("volumes", "volumes"), ("sidecars", "containers")):
            node = section.get(key)
            if node is None or node.elements is None:
                continue
            self.findings.note(node, f"`{key}` is used on Kubernetes only")
            pod.setdefault("spec", node.like({}))
            spec = _entries(pod["spec"])
            before = spec[ours].elements or [] if ours in spec else []
            added = [_camel_keys(self.context.tree(child, self.findings)) for child in node.elements]
            spec[ours] = node.like([*before, *added])


def _is_line(command: Node | None, words: list[str]) -> bool:
    """Whether a command is a text with several words, which no program is called like."""
    if command is not None and command.elements is None:
        return True
    return len(words) == 1 and len(words[0].split()) > 1 and not is_template(words[0])


def _container_of(pod: Map, origin: Node) -> Map:
    """Our container in the patch of a pod."""
    spec = _entries(pod.setdefault("spec", origin.like({})))
    containers = spec.setdefault("containers", origin.like([]))
    assert containers.elements is not None
    for entry in containers.elements:
        name = entry.get("name")
        if name is not None and name.value == "phalanx":
            return _entries(entry)
    made = origin.like({"name": origin.like("phalanx")})
    containers.elements.append(made)
    return _entries(made)


def _entries(node: Node) -> Map:
    assert node.entries is not None
    return node.entries


def _names(node: Node) -> Node:
    """`[{name: x}]` of Kubernetes as `[x]`."""
    if node.elements is None:
        return node
    return node.like([entry.get("name") or entry for entry in node.elements])


def _bytes(node: Node) -> Node:
    """A bare number of bytes with a unit: without one, it would be MiB."""
    text = str(node.value).strip()
    if not _BARE.match(text):
        return node
    return node.like(f"{float(text) / 1024:.12g}Ki")


def _camel_keys(node: Node) -> Node:
    """Keys as Kubernetes writes them: the Python client of 1.x also took `mount_path`."""
    if node.elements is not None:
        return node.like([_camel_keys(child) for child in node.elements])
    if node.entries is None or node.key in ("matchLabels", "labels", "annotations", "nodeSelector"):
        return node
    return node.like({camel_case(key): _camel_keys(child) for key, child in node.entries.items()})
