"""Tools about the polyaxonfile: its fields, and checks of a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from phalanx.cli.mcp.tool import Arguments, Document, Tool, fields
from phalanx.errors import CallError, SpecErrors

if TYPE_CHECKING:
    from phalanx.spec.shapes import RecordShape

MOST_ERRORS = 50
MOST_TEXT = 1 << 20
FILE_NAME = "polyaxonfile.yml"

FileText = Annotated[str, Field(min_length=1, max_length=MOST_TEXT, description="The text of the polyaxonfile (YAML).")]
Params = Annotated[
    dict[str, str | int | float | bool],
    Field(default_factory=dict, max_length=1_000, description="Params that override those of the file."),
]


class FormatArguments(Arguments):
    kind: Literal["experiment", "group", "job", "build", "notebook", "tensorboard", "pipeline"] = "experiment"
    section: Annotated[
        str,
        Field(max_length=200, description="Path of a section, such as `environment.resources`. Default: all sections."),
    ] = ""


def describe_format(asked: FormatArguments) -> Document:
    from phalanx.spec.model import Kind
    from phalanx.spec.schema import installed_sections, sections

    record: RecordShape = sections(Kind(asked.kind), installed_sections())
    for step in filter(None, asked.section.split(".")):
        found = record.fields.get(step)
        if found is None:
            from phalanx.spec.suggestions import did_you_mean

            known = did_you_mean(step, record.fields) or f"the fields are {', '.join(record.fields)}"
            raise CallError(f"{record.name} has no field `{step[:100]}`: {known}")
        inner = next(_records(found.shape), None)
        if inner is None:
            raise CallError(f"`{step}` has no fields of its own: it is {found.shape.words()}")
        record = inner
    rows = [
        {
            "name": name,
            "type": field.shape.words(),
            "required": field.required,
            "description": field.doc,
            "has_fields": next(_records(field.shape), None) is not None,
        }
        for name, field in record.fields.items()
    ]
    return {"ok": True, "kind": asked.kind, "section": asked.section, "fields": rows}


def _records(shape: Any) -> Iterator[RecordShape]:
    """The sections inside of a shape: of a list, of a map, of a list that may be a map."""
    from phalanx.spec.shapes import ListOf, ListOrMap, MapOf, RecordShape

    if isinstance(shape, RecordShape):
        yield shape
    elif isinstance(shape, ListOf):
        yield from _records(shape.item)
    elif isinstance(shape, ListOrMap):
        yield from _records(shape.items)
        yield shape.fields
    elif isinstance(shape, MapOf):
        yield from _records(shape.value)


class CheckArguments(Arguments):
    text: FileText
    params: Params
    on: Annotated[
        str | None, Field(description="Also what this backend would reject or delay: `slurm`, `kubernetes`.")
    ] = None


def check_file(asked: CheckArguments) -> Document:
    from phalanx.cli.commands.check import check_files

    try:
        checked = check_files([(FILE_NAME, asked.text.encode())], texts_of(asked.params), asked.on, None)
    except SpecErrors as fault:
        rows = [error.as_json() for error in fault.errors]
        return {"ok": False, "errors": rows[:MOST_ERRORS], "error_count": len(rows)}
    found = checked.as_json()
    errors = found.get("errors") or []
    return {**found, "errors": errors, "error_count": len(errors)}


def texts_of(params: Params) -> dict[str, str]:
    """Params as `-P NAME=VALUE` has them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in params.items()}


TOOLS = (
    Tool(
        "describe_format",
        "Describe the file format",
        "Describe the fields of a polyaxonfile, the YAML file that describes an experiment, group, pipeline or job: "
        "name, type, description. Name a `section` for its own fields. Check what you write with `check_file`.",
        FormatArguments,
        describe_format,
        fields(
            ok="boolean: always true",
            kind="string: the kind of file",
            section="string: the path of the section",
            fields="array: name, type, required, description, has_fields (name it as `section` for more)",
        ),
    ),
    Tool(
        "check_file",
        "Check a file",
        "Check the text of a polyaxonfile without running it. An invalid file gives all errors with line, column and a "
        "suggestion; a valid one what would run: replicas, resources, command and params.",
        CheckArguments,
        check_file,
        fields(
            ok="boolean: whether the file is valid",
            errors="array: file, line, column, path, message, suggestion",
            error_count="integer: how many errors there are",
            kind_or_not="string: the kind of a valid file",
            replicas_or_not="object: the number of replicas by role",
            resources_or_not="object: the resources of all replicas",
            command_or_not="string|null: the command",
        ),
    ),
)
