"""A tool of the Model Context Protocol: its arguments, what it returns, and whether it changes anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from phalanx.cli.mcp.bounds import LEFT_OUT

Document = dict[str, Any]

RUN = "an id, a name (the newest run of that name), or the first characters of an id"
RunName = Annotated[str, Field(min_length=1, max_length=500, description=f"The run: {RUN}.")]
RunNames = Annotated[list[str], Field(min_length=1, max_length=100, description=f"The runs, each {RUN}.")]


class Arguments(BaseModel):
    """The base of arguments: an unknown one is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Tool:
    """`call` works in a thread of its own, and raises the errors of Phalanx. `text` makes text for models out of the
    document, where that reads better than its JSON."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    call: Callable[[Any], Document]
    output: Mapping[str, Any]
    is_change: bool = False
    is_idempotent: bool = True
    text: Callable[[Document], str] | None = None

    def input_schema(self) -> Document:
        return self.arguments.model_json_schema()


def fields(**descriptions: str) -> Document:
    """The JSON Schema of a document: `name="type: description"`. A name that ends with `_or_not` may be missing."""
    properties: Document = {}
    for name, text in descriptions.items():
        kinds, _, words = text.partition(": ")
        kind = kinds.split("|")
        properties[name.removesuffix("_or_not")] = {"type": kind if len(kind) > 1 else kind[0], "description": words}
    required = [name for name in descriptions if not name.endswith("_or_not")]
    properties[LEFT_OUT] = {"type": "object", "description": "what was left out to keep the result short, by path"}
    return {"type": "object", "properties": properties, "required": required}
