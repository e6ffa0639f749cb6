"""Errors in MLflow's format."""

from __future__ import annotations

from typing import Any

HTTP_STATUS = {
    "RESOURCE_DOES_NOT_EXIST": 404,
    "ENDPOINT_NOT_FOUND": 404,
    "PERMISSION_DENIED": 403,
    "RESOURCE_CONFLICT": 409,
    "INTERNAL_ERROR": 500,
    "NOT_IMPLEMENTED": 501,
    "TEMPORARILY_UNAVAILABLE": 503,
}


class MlflowError(Exception):
    """An error in MLflow's format: one of its error codes, and a message."""

    def __init__(self, message: str, code: str = "INVALID_PARAMETER_VALUE") -> None:
        super().__init__(message)
        self.message = message
        self.code = code

    @property
    def status(self) -> int:
        return HTTP_STATUS.get(self.code, 400)

    def body(self) -> dict[str, str]:
        return {"error_code": self.code, "message": self.message}


def not_found(what: str) -> MlflowError:
    return MlflowError(what, "RESOURCE_DOES_NOT_EXIST")


def truncated(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:99] + "…"
