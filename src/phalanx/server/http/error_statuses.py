"""The statuses of error responses, and what each means."""

from __future__ import annotations

from typing import Any

STATUSES = {
    400: "A parameter or the body is invalid; `fields` names each fault.",
    401: "The token or session is missing, invalid or expired.",
    403: "The caller may not do this, or the request came from the page of another site.",
    404: "There is no such thing, or the caller may not see it.",
    408: "The body arrived too slowly.",
    409: "The current state does not allow it.",
    412: "Someone else has changed it since the version in `If-Match`; `ETag` is the current version.",
    413: "The body is too large.",
    414: "The URL is too long.",
    415: "The body is not JSON.",
    416: "The file has no such range.",
    421: "The server does not answer to this host name.",
    422: "The submitted file is invalid; `faults` has the position of each fault.",
    428: "The header `If-Match` is missing.",
    429: "Too many requests; retry after the seconds in `Retry-After`.",
    431: "The headers are too long.",
    500: "An unexpected error of the server.",
    503: "A cluster, disk or database did not do its part, or too many requests are active; retry later.",
    507: "The disk is full.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For `responses` of a route: errors besides those that every route may answer with."""
    return {status: {"description": STATUSES[status]} for status in statuses}
