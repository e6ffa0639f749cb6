"""Who the caller is, and the audit log."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from phalanx.server.http.request_models import RequestModel
from phalanx.server.schemas.base import Page, ResponseModel, Time

RoleName = Literal["viewer", "editor", "admin"]


class Session(ResponseModel):
    name: str
    kind: str
    role: Annotated[RoleName | None, Field(description="the role on all projects")]
    roles: Annotated[dict[str, RoleName], Field(description="by project, and those nested in it; `*` means all")]
    user: Annotated[str | None, Field(description="the user, or the owner of the token")]
    token: Annotated[str | None, Field(description="the name of the token")]
    expires: Annotated[Time | None, Field(description="when the token expires")]


class Done(ResponseModel):
    ok: bool


class SignedOut(Done):
    next: Annotated[str | None, Field(description="where to sign out of the identity provider, too")]


class AuditEntry(ResponseModel):
    """A change or a refused request. Entries of other versions may have more fields."""

    model_config = ConfigDict(extra="allow")

    at: Time
    who: str | None
    kind: str | None
    from_: Annotated[str | None, Field(alias="from", description="the client's address")]
    action: str
    target: str
    outcome: str | int
    run: str | None = None
    made: str | None = None
    count: Annotated[str, Field(description="number of new runs; `run` is the first")] | None = None
    left_out: Annotated[int, Field(description="refusals that were not logged before this one")] | None = None


class AuditPage(Page):
    entries: list[AuditEntry]


class SignIn(RequestModel):
    """A `token`, or a `user` and a `password`."""

    token: str | None = None
    user: str | None = None
    password: str | None = None
