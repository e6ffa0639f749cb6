"""Image builds: `build` sections and operations that run one of Polyaxon's build components."""

from __future__ import annotations

from phalanx.spec.model import Kind
from phalanx.spec.polyaxon_v1.contexts import TemplateContext
from phalanx.spec.polyaxon_v1.init_steps import Prepared
from phalanx.spec.polyaxon_v1.variables import GivenParams
from phalanx.spec.rewrites import Map
from phalanx.spec.tree import Diagnostics, Node

BUILDERS = ("kaniko", "dockerizer", "dokerizer", "docker")
_NOTEBOOKS = ("jupyterlab", "notebook", "jupyter", "jupyter-hub", "vscode", "rstudio")
_DOCKERFILE = {"image": "image", "run": "build_steps", "langEnv": "lang_env", "lang_env": "lang_env"}


def hub_name(node: Node) -> str:
    """`org/name:tag` as `name`."""
    return str(node.value).rpartition("/")[2].partition(":")[0]


def build_file(hub: Node, steps: Prepared, values: GivenParams, findings: Diagnostics) -> tuple[Kind, Map] | None:
    """What an operation with a `hubRef` is here; None after adding the reason to the findings."""
    name = hub_name(hub)
    if name in BUILDERS:
        findings.note(hub, f"`hubRef: {hub.value}` read as `kind: build`")
        return Kind.BUILD, _build_keys(steps.dockerfile, values, findings)
    if name == "tensorboard":
        findings.note(hub, f"`hubRef: {hub.value}` read as `kind: tensorboard`; see `phalanx tensorboard RUN`")
        return Kind.TENSORBOARD, {}
    if name in _NOTEBOOKS[:4]:
        findings.note(hub, f"`hubRef: {hub.value}` read as `kind: notebook`")
        backend = hub.like("lab" if "lab" in name else "notebook")
        return Kind.NOTEBOOK, {"backend": backend}
    hint = "write the component into the file, or into another one for `pathRef`"
    findings.error(
        hub, f"`{str(hub.value)[:80]}` is in Polyaxon's component hub, which is not reachable from here", hint
    )
    return None


def _build_keys(dockerfile: Node | None, values: GivenParams, findings: Diagnostics) -> Map:
    body: Map = _steps_of(dockerfile, findings) if dockerfile is not None else {}
    for name, ours in (("context", "context"), ("nocache", "nocache")):
        value = values.values.get(name)
        if value is not None and value.value not in (None, ""):
            body[ours] = value
    named = values.values.get("dockerfile")
    if named is not None and isinstance(named.value, str) and "image" not in body:
        body["dockerfile"] = named
    destination = values.values.get("destination")
    if destination is not None:
        findings.note(destination, "`destination` is not used: the image is pushed where the backend is configured to")
    return body


def _steps_of(node: Node, findings: Diagnostics) -> Map:
    body: Map = {}
    for key, child in (node.entries or {}).items():
        if key in _DOCKERFILE:
            body[_DOCKERFILE[key]] = child
        elif key == "env":
            body["env_vars"] = _pairs(child)
        else:
            findings.note(child, f"`{key[:60]}` of `dockerfile` is not used")
    return body


def _pairs(node: Node) -> Node:
    if node.elements is None:
        return node
    found: Map = {}
    for entry in node.elements:
        name, value = entry.get("name"), entry.get("value")
        if entry.elements is not None and len(entry.elements) == 2:
            name, value = entry.elements
        if name is not None and value is not None:
            found[str(name.value)] = value
    return node.like(dict(found))


def build_section(
    section: Node | None, image: Node | None, context: TemplateContext, findings: Diagnostics
) -> Node | None:
    """`build` of a run: the steps of its build, else the image of its container."""
    body: Map = {} if image is None else {"image": image}
    if section is None:
        return image.like(dict(body)) if image is not None else None
    hub = section.get("hubRef")
    if hub is not None and hub_name(hub) not in BUILDERS:
        hint = f"use one of {', '.join(BUILDERS[:2])}, or write the image as `container.image`"
        findings.error(hub, f"`{str(hub.value)[:60]}` is not a build that is known here", hint)
    patch = section.get("runPatch")
    dockerfile = next(
        (found for entry in (patch.items("init") if patch else ()) if (found := entry.get("dockerfile"))), None
    )
    if dockerfile is not None:
        body |= _steps_of(context.tree(dockerfile, findings), findings)
    findings.note(section, "`build` read as the build steps of this run")
    return section.like(dict(body)) if body else None
