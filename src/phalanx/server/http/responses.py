"""JSON responses without NaN, and error responses that state what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from phalanx import strict_json


class RequestError(Exception):
    """A request that is rejected: its HTTP status, what is wrong, and optionally what to do."""

    def __init__(self, status: int, message: str, hint: str | None = None, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint
        self.more = more
        self.headers: dict[str, str] = {}

    def with_headers(self, headers: Mapping[str, str]) -> RequestError:
        self.headers.update(headers)
        return self

    def body(self) -> dict[str, Any]:
        error = {"message": self.message, **({"hint": self.hint} if self.hint else {})}
        return {"error": error, **self.more}


def encoded(data: Any) -> bytes:
    return strict_json.dumps(data, separators=(",", ":")).encode()


class JsonResponse(Response):
    """A JSON response that only the caller may cache."""

    media_type = "application/json"

    def __init__(self, content: Any = None, status_code: int = 200, **more: Any) -> None:
        super().__init__(content, status_code, **more)
        self.headers["Cache-Control"] = "no-store"
        self.headers["X-Content-Type-Options"] = "nosniff"

    def render(self, content: Any) -> bytes:
        return encoded(content)


class EncodedJsonResponse(JsonResponse):
    """A response of already encoded JSON."""

    def render(self, content: bytes) -> bytes:
        return content


def busy() -> RequestError:
    return RequestError(503, "too many concurrent requests of this kind", "retry later").with_headers(
        {"Retry-After": "2"}
    )


def refusal_answer(refusal: RequestError, path: str) -> JsonResponse:
    """MLflow's clients look for an error code and a message in other fields than ours: the response has both."""
    body = refusal.body()
    if "mlflow" in path:
        code = MLFLOW_CODES.get(refusal.status, "INVALID_PARAMETER_VALUE" if refusal.status < 500 else "INTERNAL_ERROR")
        hint = f" ({refusal.hint})" if refusal.hint else ""
        body = {"error_code": code, "message": refusal.message + hint, **body}
    return JsonResponse(body, refusal.status, headers=refusal.headers)


MLFLOW_CODES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    409: "RESOURCE_CONFLICT",
    429: "REQUEST_LIMIT_EXCEEDED",
    501: "NOT_IMPLEMENTED",
    503: "TEMPORARILY_UNAVAILABLE",
}
