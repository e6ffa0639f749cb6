"""/api/v1/session: browser sign-in, the current identity, and sign-out. /api/v1/audit: the audit log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from phalanx.errors import CallError, SystemFault
from phalanx.server.auth.identities import ALL, Identity
from phalanx.server.auth.rate_limits import address_of
from phalanx.server.auth.sessions import LIFE_S, TOKEN, USER
from phalanx.server.context import Caller, Context, Here
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.pagination import Limit, Offset
from phalanx.server.http.request_models import json_body
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.routes.sign_on import forget_hint, sign_out_url
from phalanx.server.schemas.session import AuditPage, Session, SignedOut, SignIn

LARGEST_BODY = 16 << 10

router = APIRouter(prefix="/api/v1", tags=["session"])


@router.post("/session", response_model=Session, responses=refusals(401))
async def sign_in(
    request: Request, body: Annotated[SignIn, json_body(SignIn, LARGEST_BODY)], here: Here
) -> JsonResponse:
    """Sign in with `token`, or with `user` and `password`. The response sets the session cookie of the page."""
    token, name, password = (value or "" for value in (body.token, body.user, body.password))
    # For the audit log. The name of an unknown user may be a password that was typed into the wrong field.
    about = request.scope["state"]["about"] = {"kind": TOKEN if token else USER}
    try:
        if not token and here.accounts.find(name) is not None:
            about["who"] = name
        if token:
            found, kind = here.credentials.of_token(token.strip()), TOKEN
        elif name and password:
            found, kind = await here.credentials.of_password(name, password, address_of(request.scope)), USER
        else:
            raise RequestError(400, "a `token`, or a `user` and a `password`, is required")
    except (CallError, SystemFault) as fault:
        raise RequestError(503, str(fault)) from None
    about["who"] = found.name
    if found.run_id is not None:
        raise RequestError(403, "the token of a run cannot be used to sign in")
    answer = JsonResponse(_row(here, found._replace(kind="session")))
    answer.set_cookie(
        here.sessions.cookie,
        here.sessions.open(kind, found.name),
        max_age=LIFE_S,
        path="/",
        secure=_is_encrypted(request),
        httponly=True,
        samesite="strict",
    )
    forget_hint(request, answer, here)  # that of another user
    return answer


@router.get("/session", response_model=Session)
def whoami(here: Here, caller: Caller) -> JsonResponse:
    """The caller's name and permissions, and the name and expiry of the token."""
    return JsonResponse(_row(here, caller))


@router.delete("/session", response_model=SignedOut, responses=refusals(401))
async def sign_out(request: Request, here: Here) -> JsonResponse:
    """Sign out: the session ends, and the browser deletes its cookie. `next` is where to sign out of the identity
    provider, too."""
    cookie = request.cookies.get(here.sessions.cookie, "")
    is_valid = await run_in_threadpool(here.sessions.identify, cookie) is not None
    await run_in_threadpool(here.sessions.end, cookie)
    answer = JsonResponse({"ok": True, "next": await sign_out_url(request, here) if is_valid else None})
    answer.delete_cookie(here.sessions.cookie, path="/", httponly=True, samesite="strict")
    forget_hint(request, answer, here)
    return answer


@router.get("/audit", response_model=AuditPage)
def show_audit(here: Here, limit: Limit = 100, offset: Offset = 0) -> JsonResponse:
    """A page of the audit log: changes and rejected authentication attempts, newest first."""
    return JsonResponse({"count": here.audit.count(), "entries": here.audit.last(limit, offset)})


def _row(here: Context, identity: Identity) -> dict[str, object]:
    role = identity.roles.get(ALL)
    mine = (one for one in here.tokens.known() if identity.kind == "token" and one.name == identity.name)
    token = next(mine, None)
    expires = token.expires if token is not None else None
    return {
        "name": identity.name,
        "kind": identity.kind,
        "role": role.word if role is not None else None,
        "roles": {project: given.word for project, given in identity.roles.items()},
        "user": identity.user,
        "token": token.name if token is not None else None,
        "expires": None if expires is None else datetime.fromtimestamp(expires, UTC).isoformat(),
    }


def _is_encrypted(request: Request) -> bool:
    """Whether the browser uses HTTPS: a proxy may have terminated the encryption."""
    said = (request.headers.get("x-forwarded-proto", ""), request.headers.get("origin", "").partition(":")[0])
    return request.url.scheme == "https" or "https" in said
