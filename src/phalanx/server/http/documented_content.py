"""Bodies that are not JSON, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from phalanx.server.http.error_statuses import refusals

Responses = dict[int | str, dict[str, Any]]
_BINARY = {"schema": {"type": "string", "format": "binary"}}


def content(kind: str, *, status: int = 200, description: str = "Successful Response", **schema: str) -> Responses:
    """For `responses` of a route whose response has this media type."""
    found = {"schema": schema} if schema else _BINARY
    return {status: {"description": description, "content": {kind: found}}}


# A file, of the type that its name or content says.
FILE: Responses = {
    **content("*/*", description="The file."),
    **content("*/*", status=206, description="The part that the `Range` header requests."),
    **refusals(416),
}
# For `openapi_extra` of a route that reads bytes.
BINARY_BODY = {"requestBody": {"required": True, "content": {"application/octet-stream": _BINARY}}}
