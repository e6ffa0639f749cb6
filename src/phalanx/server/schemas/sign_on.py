"""Responses and requests about sign-on and a user's own tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from phalanx.server.http.request_models import RequestModel
from phalanx.server.schemas.base import ResponseModel, Seconds

MOST_DAYS = 90


class SignOnOptions(ResponseModel):
    oidc: Annotated[str | None, Field(description="the label of the sign-on button; null without a provider")]


class OwnToken(ResponseModel):
    name: str
    role: Literal["viewer", "editor", "admin"]
    created: Seconds
    expires: Seconds | None


class OwnTokens(ResponseModel):
    tokens: list[OwnToken]


class NewToken(OwnToken):
    token: Annotated[str, Field(description="the secret: it is shown only now")]


class TokenOrder(RequestModel):
    role: Annotated[
        Literal["viewer", "editor", "admin"], Field(description="the token never exceeds the user's own roles")
    ] = "viewer"
    days: Annotated[int, Field(ge=1, le=MOST_DAYS)] = 30
