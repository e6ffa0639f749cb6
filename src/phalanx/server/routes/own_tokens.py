"""/api/v1/session/tokens: tokens that users create for themselves, for the command line and other programs."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Request

from phalanx.server.auth.identities import Identity
from phalanx.server.auth.tokens import Token
from phalanx.server.context import Caller, Context, Here
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.request_models import json_body
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.schemas.sign_on import NewToken, OwnTokens, TokenOrder

MOST_TOKENS = 20  # of one user
SIGNED_IN_KINDS = ("session", "proxy")

router = APIRouter(prefix="/api/v1/session/tokens", tags=["session"])


@router.get("", response_model=OwnTokens)
def list_own(here: Here, caller: Caller) -> JsonResponse:
    """The caller's own tokens that are valid."""
    return JsonResponse({"tokens": [_row(token) for token in _own(here, caller)]})


@router.post("", status_code=201, response_model=NewToken, responses=refusals(409))
def create_own(
    request: Request, body: Annotated[TokenOrder, json_body(TokenOrder)], here: Here, caller: Caller
) -> JsonResponse:
    """Create a token for the signed-in user: `phalanx login` asks for it. Only a user who has signed in can: a token
    creates no other tokens."""
    if not _is_user(here, caller):
        hint = "sign in as a user; an administrator can use `phalanx token create`"
        raise RequestError(409, "a session or request with a token cannot create another token", hint)
    if len(_own(here, caller)) >= MOST_TOKENS:
        raise RequestError(409, f"you have {MOST_TOKENS} tokens", "delete one that you no longer use")
    name = f"{caller.name[:80]}-{secrets.token_hex(4)}"
    secret = here.tokens.create(name, body.role, body.days, user=caller.name)
    request.scope["state"]["about"] = {"made": name}
    made = next(token for token in here.tokens.known() if token.name == name)
    return JsonResponse({**_row(made), "token": secret}, 201)


@router.delete("/{name}", response_model=OwnTokens)
def delete_own(name: str, here: Here, caller: Caller) -> JsonResponse:
    """Revoke one of the caller's own tokens, and list the others."""
    if name not in (token.name for token in _own(here, caller)):
        raise RequestError(404, f"you have no token `{name[:100]}`")
    here.tokens.revoke(name)
    return list_own(here, caller)


def _is_user(here: Context, caller: Identity) -> bool:
    """A session does not tell whether a user or a token opened it: a name that both have does not count as a user's."""
    if caller.kind == "session" and any(token.name == caller.name for token in here.tokens.known()):
        return False
    return caller.kind in SIGNED_IN_KINDS and here.accounts.find(caller.name) is not None


def _own(here: Context, caller: Identity) -> list[Token]:
    if caller.kind != "user" and not _is_user(here, caller):
        return []
    return [token for token in here.tokens.known() if token.user == caller.name and not token.is_over]


def _row(token: Token) -> dict[str, Any]:
    return {
        "name": token.name,
        "role": token.role,
        "created": token.created,
        "expires": token.expires,
    }
