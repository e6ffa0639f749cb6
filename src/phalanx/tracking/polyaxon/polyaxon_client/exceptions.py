"""The errors that scripts catch.

PolyaxonClientException
├── PolyaxonShouldExitError
└── PolyaxonHTTPError          with one class for each code; nothing of ours raises them, there are no requests
"""

from __future__ import annotations

from typing import Any


class PolyaxonClientException(Exception):
    def __init__(self, message: str | None = None) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message or ""


class PolyaxonShouldExitError(PolyaxonClientException):
    pass


class PolyaxonHTTPError(PolyaxonClientException):
    status_code: int | None = None

    def __init__(
        self, endpoint: str, response: Any = None, message: str | None = None, status_code: int | None = None
    ) -> None:
        super().__init__(message)
        self.endpoint = endpoint
        self.response = response
        if status_code is not None:
            self.status_code = status_code

    def __str__(self) -> str:
        return f"{self.status_code} on {self.endpoint}."


def _error(name: str, code: int) -> type[PolyaxonHTTPError]:
    return type(name, (PolyaxonHTTPError,), {"status_code": code, "__module__": __name__})


BadRequestError = _error("BadRequestError", 400)
AuthenticationError = _error("AuthenticationError", 401)
AuthorizationError = _error("AuthorizationError", 403)
NotFoundError = _error("NotFoundError", 404)
OverLimitError = _error("OverLimitError", 429)
ServerError = _error("ServerError", 500)
BadGatewayError = _error("BadGatewayError", 502)
ServiceUnavailableError = _error("ServiceUnavailableError", 503)
GatewayTimeoutError = _error("GatewayTimeoutError", 504)
SSLHandshakeError = _error("SSLHandshakeError", 525)

ERRORS_MAPPING: dict[str | int | None, type[PolyaxonClientException]] = {
    "base": PolyaxonClientException,
    "http": PolyaxonHTTPError,
    **{kind.status_code: kind for kind in PolyaxonHTTPError.__subclasses__()},
}
