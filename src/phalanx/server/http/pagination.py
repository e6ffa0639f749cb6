"""Pages of lists, the same for every route: `limit` and `offset` select, `count` of the response is the total."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

MOST = 10_000
Limit = Annotated[int, Query(ge=0, le=MOST, description="the most entries of the page; 0: only the count")]
Offset = Annotated[int, Query(ge=0, le=2**53, description="how many entries to skip")]
