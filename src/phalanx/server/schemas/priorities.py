"""The body that changes a run's priority."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from phalanx.server.http.request_models import RequestModel
from phalanx.submission.checks import LARGEST_PRIORITY


class PriorityChange(RequestModel):
    priority: Annotated[int, Field(ge=-LARGEST_PRIORITY, le=LARGEST_PRIORITY)]
