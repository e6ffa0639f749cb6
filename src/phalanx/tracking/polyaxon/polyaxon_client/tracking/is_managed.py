from __future__ import annotations

from .. import settings
from ..exceptions import PolyaxonClientException


def ensure_is_managed() -> None:
    """Raise the documented error of Polyaxon: scripts catch it to detect that they were started by hand."""
    if not settings.IS_MANAGED and not settings.IN_CLUSTER:
        raise PolyaxonClientException("This experiment/job is not managed by Polyaxon.")
