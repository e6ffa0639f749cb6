"""Request bodies for the OpenAPI document. Handlers validate bodies themselves with `fields`, for clear messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TEXT: dict[str, Any] = {"type": "string"}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}
NUMBER: dict[str, Any] = {"type": "number"}
SECONDS: dict[str, Any] = {"type": "number", "description": "since 1970"}
WHOLE: dict[str, Any] = {"type": "integer"}
FLAG: dict[str, Any] = {"type": "boolean"}
ANYTHING: dict[str, Any] = {"type": "object"}
FILES: dict[str, Any] = {
    "type": "array",
    "items": {"type": "object", "required": ["name", "text"], "properties": {"name": TEXT, "text": TEXT}},
}


def body(properties: Mapping[str, Any], *needed: str) -> dict[str, Any]:
    """For a route's `openapi_extra`."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    if needed:
        schema["required"] = list(needed)
    return {"requestBody": {"required": bool(needed), "content": {"application/json": {"schema": schema}}}}


def binary(kind: str) -> dict[str, Any]:
    content = {kind: {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "content": content}}
