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


class BadRequestError(PolyaxonHTTPError):
    status_code = 400


class AuthenticationError(PolyaxonHTTPError):
    status_code = 401


class AuthorizationError(PolyaxonHTTPError):
    status_code = 403


class NotFoundError(PolyaxonHTTPError):
    status_code = 404


class OverLimitError(PolyaxonHTTPError):
    status_code = 429


class ServerError(PolyaxonHTTPError):
    status_code = 500


class BadGatewayError(PolyaxonHTTPError):
    status_code = 502


class ServiceUnavailableError(PolyaxonHTTPError):
    status_code = 503


class GatewayTimeoutError(PolyaxonHTTPError):
    status_code = 504


class SSLHandshakeError(PolyaxonHTTPError):
    status_code = 525


ERRORS_MAPPING: dict[str | int | None, type[PolyaxonClientException]] = {
    "base": PolyaxonClientException,
    "http": PolyaxonHTTPError,
    **{kind.status_code: kind for kind in PolyaxonHTTPError.__subclasses__()},
}
