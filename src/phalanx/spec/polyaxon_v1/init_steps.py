"""The steps of `init`: cloned repositories, written files, and what belongs to Polyaxon's server."""

from __future__ import annotations

import re
from typing import NamedTuple

from phalanx.spec.polyaxon_v1.command_lines import file_step
from phalanx.spec.polyaxon_v1.contexts import CODE, TemplateContext, below_code
from phalanx.spec.polyaxon_v1.sections import INIT, known_keys
from phalanx.spec.rewrites import Map
from phalanx.spec.templates import is_template
from phalanx.spec.tree import Diagnostics, Node

_MODE = re.compile(r"[ugoa]*[-+=]?[rwxX0-7]+\Z")


class Prepared(NamedTuple):
    """What `init` comes to. `folders`: where repositories are cloned. `steps`: statements before the command.
    `kubernetes`: fields of `environment.kubernetes`. `dockerfile`: how an image is built."""

    folders: tuple[str, ...] = ()
    files: tuple[Node, ...] = ()
    kubernetes: tuple[tuple[str, Node], ...] = ()
    dockerfile: Node | None = None


def prepared(section: Node | None, findings: Diagnostics) -> Prepared:
    folders: list[str] = []
    files: list[Node] = []
    kubernetes: Map = {}
    dockerfile: Node | None = None
    if section is not None and section.elements is None:
        findings.error(section, "`init` must be a list")
    for entry in section.elements or () if section is not None else ():
        entries = known_keys(entry, INIT, "init", findings)
        connection = entries.get("connection")
        git = entries.get("git")
        if git is not None:
            folders.append(_repository(entries, git, kubernetes, findings))
        elif "file" in entries:
            files.append(entry)
        elif "dockerfile" in entries:
            dockerfile = entries["dockerfile"]
        elif connection is not None and set(entries) <= {"connection", "path"}:
            folders.append(_below(entries.get("path")) or str(connection.value))
            message = f"the connection `{str(connection.value)[:60]}` is not configured here"
            findings.note(connection, f"{message}: put its files into the folder of the code")
        else:
            _unused(entry, entries, findings)
    return Prepared(tuple(folders), tuple(files), tuple(kubernetes.items()), dockerfile)


def _repository(entries: Map, git: Node, kubernetes: Map, findings: Diagnostics) -> str:
    url, revision = git.get("url"), git.get("revision")
    if url is None:
        connection = entries.get("connection")
        name = str(connection.value) if connection is not None else ""
        findings.note(git, "the repository of a connection is not known: the code is the folder of the call")
        return _below(entries.get("path")) or name
    if not is_template(url.value):
        findings.note(git, f"`{url.value}`: pods clone it; elsewhere the code is the folder of the call")
        kubernetes["repository"] = url
        if revision is not None:
            kubernetes["revision"] = revision
    name = str(url.value).rstrip("/").rpartition("/")[2].removesuffix(".git")
    return _below(entries.get("path")) or name


def _below(path: Node | None) -> str | None:
    """The folder below the artifacts of a step with its own path."""
    if path is None:
        return None
    text = re.sub(r"\{\{\s*globals\.(?:artifacts_path|context_path)\s*\}\}", CODE, str(path.value))
    found = below_code(text)
    return found if found is not None else text.strip("/")


def _unused(entry: Node, entries: Map, findings: Diagnostics) -> None:
    named = next((key for key in entries if key not in ("path", "connection")), "init")
    where = entries.get(named, entry)
    if named == "container":
        findings.note(where, "a container of `init` is not used: run its command before yours")
    elif named == "tensorboard":
        findings.note(
            where, "`tensorboard` of `init` is not used: `phalanx tensorboard RUN` shows the runs that you name"
        )
    else:
        message = f"`{named}` of `init` is not used: it names files of Polyaxon's store"
        findings.note(where, f"{message}; name earlier runs with `environment.outputs`")


def file_steps(files: tuple[Node, ...], context: TemplateContext, findings: Diagnostics) -> list[str]:
    """Statements that write the files of `init.file`."""
    steps = []
    for entry in files:
        spec, path = entry.get("file"), entry.get("path")
        content = spec.get("content") if spec is not None else None
        name = spec.get("filename") if spec is not None else None
        if spec is None or content is None or not isinstance(content.value, str):
            findings.error(entry, "a file of `init` needs `content`", "write `file: {filename: run.sh, content: ...}`")
            continue
        folder = _below(path) or ""
        target = f"{folder}/{name.value if name is not None else 'file'}".lstrip("/")
        mode = spec.get("chmod")
        if mode is not None and not _MODE.match(str(mode.value)):
            findings.error(mode, f"`{str(mode.value)[:40]}` is not a mode", "write `+x`")
            mode = None
        if ".." in target.split("/"):
            findings.error(name or entry, "the file must be in the folder of the code")
            continue
        findings.note(entry, f"`{target}` is written into the folder of the code before the command")
        steps.append(file_step(target, context.text(content, findings), str(mode.value) if mode is not None else None))
    return steps
