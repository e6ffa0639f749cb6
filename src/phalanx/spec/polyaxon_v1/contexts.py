"""Rewrites the templates of Polyaxon 1.x: `params.x.as_arg`, `globals.run_outputs_path` and the other contexts.

A value that only the run knows becomes one of its variables, such as `${PHALANX_OUTPUTS}`: bash fills it in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from phalanx.spec.model import EMPTY
from phalanx.spec.suggestions import did_you_mean
from phalanx.spec.templates import RESERVED, is_template
from phalanx.spec.tree import Diagnostics, Node

CODE = "${PWD}"
CODE_BEFORE = "${OLDPWD}"  # after `cd`
OF_RUN = re.compile(r"\$\{(?:PHALANX_[A-Z_]+|PWD|OLDPWD)\}")
_GLOBALS = {
    "run_outputs_path": "${PHALANX_OUTPUTS}",
    "run_artifacts_path": "${PHALANX_OUTPUTS}",
    "artifacts_path": CODE,
    "context_path": CODE,
    "uuid": "${PHALANX_RUN_ID}",
    "name": "${PHALANX_RUN_NAME}",
    "run_info": "${PHALANX_PROJECT}.runs.${PHALANX_RUN_ID}",
    "project_name": "${PHALANX_PROJECT}",
    "project_unique_name": "${PHALANX_PROJECT}",
}
_BLOCK = re.compile(r"(\{\{.*?\}\}|\{%.*?%\})", re.DOTALL)
_GLOBAL = re.compile(r"(?<![\w.'\"])globals(?:\.(\w+)|\[\s*['\"](\w+)['\"]\s*\])(?:\[(\d+)\])?")
_PARAM = re.compile(r"(?<![\w.'\"])params\.(\w+)(?:\.(value|as_str|as_arg|type))?(?![\w.])")
_OWN = re.compile(r"(?<![\w.'\"])(?:inputs|outputs)\.(\w+)")
_DAG = re.compile(r"(?<![\w.'\"])dag\.inputs?\.(\w+)")
_CONNECTION = re.compile(r"(?<![\w.'\"])(?:connections|init)\b\s*(?:\.|\[)|(?<![\w'\"])\w+\.connection\b")
_MAYBE_CONNECTED = re.compile(r"\bin\s+connections\b")
_NAMED_CONNECTION = re.compile(r"(?<![\w.'\"])(?:params\.)?\w+\.connection\b")
_AS_TEXT = re.compile(r"\|\s*map\(\s*['\"]string['\"]\s*\)")
_PLACED = re.compile(r"\s*(?:\$\{PWD\}|\$\{OLDPWD\})")


class TemplateContext(NamedTuple):
    """What the templates of one operation can name. `arguments`: each declared input as a command-line argument.
    `folders`: where Polyaxon would clone repositories, all of which are the folder of the code here. `dag`: the inputs
    of the dag around it. `names`: all names with a value, if they are known."""

    arguments: Mapping[str, str] = EMPTY
    folders: tuple[str, ...] = ()
    dag: Mapping[str, Node] = EMPTY
    ports: tuple[str, ...] = ()  # of a service
    names: frozenset[str] | None = None

    def rewritten(self, node: Node, findings: Diagnostics) -> Node:
        """A scalar with templates that we know."""
        if not isinstance(node.value, str) or not is_template(node.value):
            return node
        return node.like(self.text(node, findings))

    def text(self, node: Node, findings: Diagnostics) -> str:
        parts = _BLOCK.split(str(node.value))
        parts[1::2] = [_Rewriting(self, node, findings).block(part) for part in parts[1::2]]
        text = "".join(parts)
        for folder in self.folders:
            text = text.replace(f"{CODE}/{folder}/", f"{CODE}/") if folder else text
            text = text.removesuffix(f"/{folder}") if text.endswith(f"{CODE}/{folder}") else text
        return text

    def tree(self, node: Node, findings: Diagnostics) -> Node:
        """The same with every scalar below."""
        if node.entries is not None:
            return node.like({key: self.tree(child, findings) for key, child in node.entries.items()})
        if node.elements is not None:
            return node.like([self.tree(child, findings) for child in node.elements])
        return self.rewritten(node, findings)


class _Rewriting:
    """The rewriting of one text."""

    def __init__(self, context: TemplateContext, node: Node, findings: Diagnostics) -> None:
        self.context, self.node, self.findings = context, node, findings

    def block(self, text: str) -> str:
        inner = text[2:-2].strip()
        whole = self._whole(inner) if text.startswith("{{") else None
        if whole is not None:
            return whole
        if text.startswith("{{") and self._is_undefined(inner):
            message = f"`{inner}` has no value: read as an empty text, as Polyaxon does; declare it in `inputs`"
            self.findings.note(self.node, message)
            return ""
        if _MAYBE_CONNECTED.search(inner):
            self.findings.note(self.node, "no connection is configured here: read without one")
            inner = _NAMED_CONNECTION.sub("''", inner).replace("connections", "{}")
        elif _CONNECTION.search(inner):
            message = f"`{inner[:80]}` names a connection, which is configured in Polyaxon's server, not in this file"
            self.findings.error(self.node, message, "write its value here, such as the address or the bucket")
            return ""
        original = text[2:-2].strip()
        changed = _GLOBAL.sub(self._global_text, _PARAM.sub(r"\1", _OWN.sub(r"\1", inner)))
        changed = _AS_TEXT.sub("", _DAG.sub(self._dag_text, changed))
        return text if changed == original else f"{text[:2]} {changed} {text[-2:]}"

    def _whole(self, inner: str) -> str | None:
        """The text of a block that is a single name of a context."""
        if inner == "params.as_args":
            return " ".join(self.context.arguments.values())
        found = _PARAM.fullmatch(inner)
        if found is not None and found[2] == "as_arg":
            return self.context.arguments.get(found[1], f"--{found[1]}={{{{ {found[1]} }}}}")
        named = _GLOBAL.fullmatch(inner)
        if named is not None:
            return self._known_global(named)
        below = _DAG.fullmatch(inner)
        if below is not None and below[1] in self.context.dag:
            value = self.context.dag[below[1]].value
            return str(value) if not isinstance(value, dict | list) else None
        return None

    def _is_undefined(self, inner: str) -> bool:
        """Whether a block is a name without a value. One that is nearly that of an input is an error, not that."""
        names = self.context.names
        if names is None or inner in names or inner in RESERVED or not inner.isidentifier():
            return False
        return did_you_mean(inner, names) is None

    def _known_global(self, found: re.Match[str]) -> str:
        name, index = found[1] or found[2], int(found[3] or 0)
        if name == "ports" and index < len(self.context.ports):
            return self.context.ports[index]
        if name == "base_url" and self.context.ports:
            return "/"
        if name not in _GLOBALS:
            message = f"`globals.{name}` is not known here: it belongs to Polyaxon's server"
            self.findings.error(self.node, message, "write the value itself, or make it an input")
            return ""
        return _GLOBALS[name]

    def _global_text(self, found: re.Match[str]) -> str:
        return f"'{self._known_global(found)}'"

    def _dag_text(self, found: re.Match[str]) -> str:
        node = self.context.dag.get(found[1])
        return found[0] if node is None or isinstance(node.value, dict | list) else repr(node.value)


def argument(name: str, *, is_flag: bool, has_value: bool, is_nested: bool, written: str | None) -> str:
    """An input as Polyaxon's `as_arg` renders it."""
    if is_flag:
        return f"{{{{ {name} }}}}"
    value = f"{name}|tojson" if is_nested else name
    text = f"--{name}={{{{ {value} }}}}" if written is None else written
    return text if has_value else f"{{% if {name} is not none %}}{text}{{% endif %}}"


def below_code(text: str) -> str | None:
    """The path below the folder of the code; None for any other path."""
    found = _PLACED.match(text)
    return text[found.end() :].strip("/") if found is not None else None
