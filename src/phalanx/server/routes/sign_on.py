"""/api/v1/sign-on: sign-on in the browser through an OpenID Connect provider."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from phalanx.errors import CallError, SystemFault
from phalanx.server.auth.credentials import NO_ROLE, cookies_of
from phalanx.server.auth.identities import Identity
from phalanx.server.auth.oidc import ATTEMPT_S, Provider, SignedOn, SignOnAttempt, SignOnRefused, sign_out_hint
from phalanx.server.auth.rate_limits import ConcurrencyGate, RateLimits, address_of
from phalanx.server.auth.sessions import USER
from phalanx.server.auth.sign_on import HOUR_S, SignOnSettings, read_secret
from phalanx.server.context import Context, Here
from phalanx.server.http.error_statuses import refusals
from phalanx.server.http.responses import JsonResponse, RequestError
from phalanx.server.schemas.sign_on import SignOnOptions

PATH = "/api/v1/sign-on"
CALLBACK = f"{PATH}/callback"
HINT_PATH = "/api/v1/session"  # of the only request that the cookie is for
AT_ONCE, WAITING = 4, 32  # requests to the provider: each occupies a thread
MOST_REMEMBERED = 10_000
SORRY = "Sign-on failed. Try again; if it fails again, ask the administrator: the audit log has the reason."
TO_PROVIDER = {303: {"description": "To the provider"}, **refusals(404)}
TO_PAGE = {303: {"description": "To the page, signed in; or to its sign-in, with the reason"}, **refusals(404)}

router = APIRouter(prefix=PATH, tags=["session"])


class SignOn:
    """The sign-on of one server."""

    def __init__(self, settings: SignOnSettings, limits: RateLimits) -> None:
        """Raises CallError, and MissingExtra without the extra `oidc`."""
        self.settings = settings
        self.provider = Provider(settings.oidc) if settings.oidc is not None else None
        self.gate = ConcurrencyGate(AT_ONCE, WAITING, limits.patience_s)
        if settings.proxy is not None and settings.proxy.secret_file is not None:
            read_secret(settings.proxy.secret_file)  # fails now, not at the first request
        self._used: OrderedDict[str, None] = OrderedDict()

    def use_up(self, state: str) -> None:
        """Raises SignOnRefused when the state was used before. The provider refuses to redeem a code twice, too."""
        if state in self._used:
            raise SignOnRefused("the state was used before")
        self._used[state] = None
        while len(self._used) > MOST_REMEMBERED:
            self._used.popitem(last=False)


async def sign_out_url(request: Request, here: Context) -> str | None:
    """Where a user who signed on at the provider signs out there, too. None if there is no such place, or if the
    provider does not answer: the session on this server has ended anyway."""
    found: SignOn | None = request.app.state.sign_on
    hint = cookies_of(request.headers).get(_hint_cookie(here))
    if found is None or found.provider is None or hint is None:
        return None
    try:
        async with found.gate.entered(request.scope["state"]["key"]):
            return await run_in_threadpool(found.provider.sign_out_url, hint)
    except (SystemFault, SignOnRefused, RequestError):
        return None


def _provider(request: Request) -> tuple[SignOn, Provider]:
    found: SignOn | None = request.app.state.sign_on
    if found is None or found.provider is None:
        raise RequestError(404, "this server has no sign-on provider", "see `phalanx serve --sign-on`")
    return found, found.provider


@router.get("", response_model=SignOnOptions)
async def show_options(request: Request) -> JsonResponse:
    """How users can sign on, besides with a token or a password."""
    found: SignOn | None = request.app.state.sign_on
    oidc = found.settings.oidc if found is not None else None
    return JsonResponse({"oidc": oidc.label if oidc is not None else None})


@router.get("/start", status_code=303, response_class=RedirectResponse, responses=TO_PROVIDER)
async def start(
    request: Request,
    here: Here,
    next: Annotated[str, Query(max_length=2000)] = "/",  # noqa: A002 - its usual name
) -> Response:
    """Redirect the browser to the provider. `next` is the path of the page to show afterwards."""
    sign_on, provider = _provider(request)
    attempt = SignOnAttempt.new(next)
    try:
        async with sign_on.gate.entered(request.scope["state"]["key"]):
            address = await run_in_threadpool(provider.authorisation_url, attempt)
    except (SystemFault, SignOnRefused) as fault:
        return await _refused(request, here, str(fault), status=503)
    answer = _to(address)
    answer.set_cookie(
        _cookie(here),
        attempt.sealed(here.sessions.key),
        max_age=ATTEMPT_S,
        path=PATH,
        secure=provider.settings.url.startswith("https:"),
        httponly=True,
        samesite="lax",  # the provider's redirect comes from another site
    )
    return answer


@router.get("/callback", status_code=303, response_class=RedirectResponse, responses=TO_PAGE)
async def finish(request: Request, here: Here) -> Response:
    """The provider redirects here. Signs the user in and redirects to the page."""
    sign_on, provider = _provider(request)
    address = address_of(request.scope)
    caller = f"sign-on from {address}"
    here.credentials.failures.begin(caller, address)
    try:
        attempt = SignOnAttempt.opened(cookies_of(request.headers).get(_cookie(here), ""), here.sessions.key)
        sign_on.use_up(attempt.state)
        response = {name: value for name, value in request.query_params.multi_items() if len(value) < 10_000}
        if len(response) != len(request.query_params.multi_items()):
            raise SignOnRefused("a parameter of the response is repeated or too long")
        async with sign_on.gate.entered(request.scope["state"]["key"]):
            user = await run_in_threadpool(provider.finish, attempt, response)
    except SignOnRefused as refusal:
        return await _refused(request, here, str(refusal))
    except SystemFault as fault:
        here.credentials.failures.was_right(caller, address)  # not the user's fault
        return await _refused(request, here, str(fault), status=503)
    here.credentials.failures.was_right(caller, address)
    return await _signed_in(request, here, user, attempt.next)


async def _signed_in(request: Request, here: Context, user: SignedOn, path: str) -> Response:
    sign_on, provider = _provider(request)
    roles = sign_on.settings.roles_of(user.groups)
    if not roles:
        return await _refused(request, here, f"{user.name[:100]!r} has no role", NO_ROLE)
    try:
        found = await run_in_threadpool(here.accounts.signed_on, user.subject, user.name, roles)
        # A session that another person may have opened in this browser does not go on.
        await run_in_threadpool(here.sessions.end, cookies_of(request.headers).get(here.sessions.cookie, ""))
    except CallError as fault:
        return await _refused(request, here, f"{user.name[:100]!r}: {fault}", str(fault))
    life_s = sign_on.settings.session_hours * HOUR_S
    answer = _to(path)
    answer.set_cookie(
        here.sessions.cookie,
        here.sessions.open(USER, found.name, life_s),
        max_age=int(life_s),
        path="/",
        secure=provider.settings.url.startswith("https:"),
        httponly=True,
        samesite="strict",
    )
    answer.set_cookie(
        _hint_cookie(here),
        sign_out_hint(user),
        max_age=int(life_s),
        path=HINT_PATH,
        secure=provider.settings.url.startswith("https:"),
        httponly=True,
        samesite="strict",
    )
    _forget_attempt(answer, here)
    caller = Identity(found.name, found.roles, kind="sign-on")
    note = partial(here.audit.note, caller, f"GET {CALLBACK}", CALLBACK, 303, address_of(request.scope))
    await run_in_threadpool(note)
    return answer


async def _refused(request: Request, here: Context, reason: str, shown: str = SORRY, status: int = 403) -> Response:
    """Back to the page's sign-in. The reason is in the audit log: it may tell an attacker what to try next."""
    action = f"GET {request.scope['path']}"
    about = {"kind": "sign-on", "reason": reason}
    note = partial(here.audit.note_refusal, None, action, request.scope["path"], status, address_of(request.scope))
    await run_in_threadpool(partial(note, **about))
    answer = _to(f"/login?{urlencode({'why': shown})}")
    _forget_attempt(answer, here)
    return answer


def _to(address: str) -> RedirectResponse:
    headers = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return RedirectResponse(address, 303, headers)


def forget_hint(request: Request, answer: Response, here: Context) -> None:
    if _hint_cookie(here) in cookies_of(request.headers):
        answer.delete_cookie(_hint_cookie(here), path=HINT_PATH, httponly=True, samesite="strict")


def _hint_cookie(here: Context) -> str:
    """The cookie of a session that a sign-on has opened; it holds the ID token."""
    return f"{here.sessions.cookie}-id"


def _cookie(here: Context) -> str:
    return f"{here.sessions.cookie}-sign-on"


def _forget_attempt(answer: Response, here: Context) -> None:
    answer.delete_cookie(_cookie(here), path=PATH, httponly=True, samesite="lax")
