"""Settings from the environment, read once. Scripts read these names, and some set them."""

from __future__ import annotations

import os


def _flag(name: str, default: bool = False) -> bool:
    text = os.environ.get(name, "").strip().lower()
    return text in ("1", "true", "t", "yes", "y", "on") if text else default


def _number(name: str, default: int | None = None) -> int | None:
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return default


NO_OP = _flag("POLYAXON_NO_OP")  # every call of the tracking does nothing
IS_OFFLINE = _flag("POLYAXON_IS_OFFLINE")  # nothing is recorded; params, paths and artifacts still work
IS_LOCAL = _flag("POLYAXON_IS_LOCAL")
IS_MANAGED = _flag("POLYAXON_IS_MANAGED")
# Scripts use this to detect whether they were started by hand, so it is true in any managed run.
IN_CLUSTER = _flag("POLYAXON_IN_CLUSTER", default=IS_MANAGED)

API_HOST = os.environ.get("POLYAXON_API_HOST")
API_HTTP_HOST = os.environ.get("POLYAXON_API_HTTP_HOST")
API_WS_HOST = os.environ.get("POLYAXON_API_WS_HOST")
API_VERSION = os.environ.get("POLYAXON_API_VERSION", "v1")
AUTHENTICATION_TYPE = os.environ.get("POLYAXON_AUTHENTICATION_TYPE", "Token")
HTTP_PORT = _number("POLYAXON_HTTP_PORT")
WS_PORT = _number("POLYAXON_WS_PORT", HTTP_PORT)
USE_HTTPS = _flag("POLYAXON_USE_HTTPS")
VERIFY_SSL = _flag("POLYAXON_VERIFY_SSL")
SCHEMA_RESPONSE = _flag("POLYAXON_SCHEMA_RESPONSE")
HASH_LENGTH = _number("POLYAXON_HASH_LENGTH", 12)
TIMEOUT = _number("POLYAXON_TIMEOUT", 20)
REQUEST_TIMEOUT = _number("POLYAXON_REQUEST_TIMEOUT", 25)
LONG_REQUEST_TIMEOUT = _number("POLYAXON_LONG_REQUEST_TIMEOUT", 3600)
INTERVAL = _number("POLYAXON_INTERVAL", 1)
HEALTH_CHECK_INTERVAL = _number("HEALTH_CHECK_INTERVAL", 60)
WARN_UPLOAD_SIZE = _number("POLYAXON_WARN_UPLOAD_SIZE", 10 << 20)
MAX_UPLOAD_SIZE = _number("POLYAXON_MAX_UPLOAD_SIZE", 150 << 20)
