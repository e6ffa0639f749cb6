"""The calling replica: an address may name it, and a run's token is valid only at that run's own address."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Depends, Request

from phalanx.server.auth.credentials import identity_of
from phalanx.server.http.paths import REPLICA_NAME, RUN_ID
from phalanx.server.http.responses import RequestError
from phalanx.server.mlflow.calls import ReplicaAddress

_ATTEMPT = re.compile(r"[1-9]\d{0,8}\Z", re.ASCII)


async def replica_address(request: Request) -> ReplicaAddress | None:
    """Raises RequestError when a run's token is used for anything but its own attempt."""
    identity, found = identity_of(request.scope), None
    if "replica" in request.path_params:
        run_id, attempt, replica = (request.path_params[name] for name in ("run_id", "attempt", "replica"))
        if not (RUN_ID.match(run_id) and _ATTEMPT.match(attempt) and REPLICA_NAME.match(replica)):
            raise RequestError(404, "there is no such replica of a run")
        found = ReplicaAddress(run_id, int(attempt), replica)
    if identity.run_id is not None and (found is None or found[:2] != (identity.run_id, identity.attempt)):
        raise RequestError(403, f"this token is valid only for attempt {identity.attempt} of run {identity.run_id}")
    return found


PrefixAddress = Annotated[ReplicaAddress | None, Depends(replica_address)]
