"""Errors in MLflow's format."""

from __future__ import annotations

import json
from typing import Any

from phalanx.naming import has_control_characters
from phalanx.server.http.responses import MLFLOW_CODES

HTTP_STATUS = {
    **{code: status for status, code in MLFLOW_CODES.items()},
    "ENDPOINT_NOT_FOUND": 404,
    "INTERNAL_ERROR": 500,
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


def invalid(name: str, value: Any, expected: str) -> MlflowError:
    """The error for a parameter of the wrong type or size, in MLflow's words."""
    text = json.dumps(value, ensure_ascii=False)
    shown = text if len(text) <= 100 else text[:99] + "…"
    return MlflowError(f"Invalid value {shown} for parameter '{name}' supplied: {expected}")


def check_name(name: str, parameter: str) -> str:
    """Raises MlflowError for a name with line breaks or other control characters."""
    if has_control_characters(name):
        raise invalid(parameter, name, "a name must not contain line breaks or other control characters")
    return name


def truncated(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:99] + "…"
