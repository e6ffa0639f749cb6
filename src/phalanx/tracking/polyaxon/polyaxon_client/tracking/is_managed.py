from __future__ import annotations

from .. import settings
from ..exceptions import PolyaxonClientException


def ensure_is_managed() -> None:
    """Raises what Polyaxon's documentation says: scripts catch it to find out that they were started by hand."""
    if not settings.IS_MANAGED and not settings.IN_CLUSTER:
        raise PolyaxonClientException("This experiment/job is not managed by Polyaxon.")
