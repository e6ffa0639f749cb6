"""Regenerates the generated parts of the docs: the fields of the file, the help of every verb, the operations of REST.

Generated text is between `<!-- generated: NAME -->` and `<!-- end -->`; the rest of a page is written by hand.
--check writes nothing and fails if a page is out of date.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from phalanx.cli import VERBS, phalanx
from phalanx.home.home import Home
from phalanx.server.api_document import document
from phalanx.server.app import make_app
from phalanx.server.context import Context
from phalanx.sites.kubernetes_profile import SETTINGS
from phalanx.spec.cluster_fields import KUBERNETES
from phalanx.spec.matrix import FORMS
from phalanx.spec.model import Kind
from phalanx.spec.pipelines.fields import OP
from phalanx.spec.schema import (
    BUILD,
    LOGGING,
    REPLICAS,
    RESOURCES,
    RUN,
    VARIABLE,
    environment,
    sections,
)
from phalanx.spec.section_fields import ALGORITHMS, COLLECT, EARLY_STOPPING, HPTUNING, MODEL
from phalanx.spec.shapes import RecordShape

DOCS = Path(__file__).resolve().parent.parent / "docs"
BLOCK = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fields_of(record: RecordShape) -> str:
    rows = ["| key | is | |", "|---|---|---|"]
    for key, field in record.fields.items():
        words = field.shape.words().replace("|", "\\|")
        needed = "**required**: " if field.required else ""
        rows.append(f"| `{key}` | {words} | {needed}{field.doc.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


def kinds() -> str:
    names = list(dict.fromkeys(key for kind in Kind for key in sections(kind).fields))
    rows = ["| section | " + " | ".join(Kind) + " |", "|---" * (len(Kind) + 1) + "|"]
    for name in names:
        marks = ["✓" if name in sections(kind).fields else "" for kind in Kind]
        rows.append(f"| `{name}` | " + " | ".join(marks) + " |")
    return "\n".join(rows)


def matrix() -> str:
    rows = ["| form | numbers | |", "|---|---|---|"]
    for name, form in FORMS.items():
        numbers = ":".join(form.names) + "".join(f"[:{extra}]" for extra in form.optional)
        kind = "values" if form.unfold or name == "values" else "distribution"
        rows.append(f"| `{name}` | {f'`{numbers}`' if numbers else 'a list'} | {kind} |")
    return "\n".join(rows)


def searches() -> str:
    return "\n\n".join(f"`{name}`:\n\n{fields_of(record)}" for name, record in ALGORITHMS.items())


def verbs() -> str:
    return "\n".join(_help())


def _help() -> Iterator[str]:
    settings: dict[str, Any] = {"terminal_width": 100, "max_content_width": 100, "help_option_names": ["-h", "--help"]}
    context = click.Context(phalanx, info_name="phalanx", **settings)
    yield f"```text\n{phalanx.get_help(context)}\n```\n"
    for name in VERBS:
        command = phalanx.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, **settings)
        yield f"## phalanx {name}\n\n```text\n{command.get_help(inner)}\n```\n"
        for below in command.commands.values() if isinstance(command, click.Group) else ():
            deeper = click.Context(below, info_name=below.name, parent=inner, **settings)
            yield f"```text\n{below.get_help(deeper)}\n```\n"


def operations() -> str:
    """Every operation of the REST API, in the order of its paths."""
    rows = ["| operation | parameters | body | returns |", "|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        made = document(make_app(Context(Home(Path(folder) / "home"))))
    for path, methods in sorted(made["paths"].items()):
        for method, operation in methods.items():
            parameters = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
            named = ", ".join(f"`{name}`" for name in parameters)
            body = _content(operation.get("requestBody", {}))
            answers = [_content(answer) for status, answer in operation["responses"].items() if status.startswith("2")]
            returned = answers[0] if answers else "a redirect"
            rows.append(f"| `{method.upper()} {path}` | {named} | {body} | {returned} |")
    return "\n".join(rows)


def _content(found: Mapping[str, Any]) -> str:
    """The model of a JSON body, or its media type."""
    for kind, content in found.get("content", {}).items():
        model = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        return f"`{model}`" if model else "an object" if kind == "application/json" else f"`{kind}`"
    return ""


BLOCKS: dict[str, Callable[[], str]] = {
    "kinds": kinds,
    "environment": lambda: fields_of(environment(Kind.EXPERIMENT)),
    "resources": lambda: fields_of(RESOURCES),
    "replicas": lambda: fields_of(REPLICAS),
    "build": lambda: fields_of(BUILD),
    "run": lambda: fields_of(RUN),
    "logging": lambda: fields_of(LOGGING),
    "kubernetes": lambda: fields_of(KUBERNETES),
    "kubernetes-settings": lambda: fields_of(SETTINGS),
    "variable": lambda: fields_of(VARIABLE),
    "collect": lambda: fields_of(COLLECT),
    "models": lambda: fields_of(MODEL),
    "hptuning": lambda: fields_of(HPTUNING),
    "early-stopping": lambda: fields_of(EARLY_STOPPING),
    "searches": searches,
    "matrix": matrix,
    "op": lambda: fields_of(OP),
    "verbs": verbs,
    "operations": operations,
}


def current(text: str) -> str:
    return BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match[2]]()}\n{match[3]}", text)


def stale_pages() -> list[Path]:
    return [page for page in sorted(DOCS.glob("**/*.md")) if current(page.read_text()) != page.read_text()]


def main() -> int:
    stale = stale_pages()
    if "--check" in sys.argv:
        for page in stale:
            print(f"{page.name} is out of date: run `make docs`")
        return 1 if stale else 0
    for page in stale:
        page.write_text(current(page.read_text()))
        print(f"wrote {page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
