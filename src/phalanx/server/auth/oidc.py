"""Sign-on with OpenID Connect: authorisation code flow with PKCE.

https://openid.net/specs/openid-connect-core-1_0.html, https://www.rfc-editor.org/rfc/rfc7636 (PKCE),
https://www.rfc-editor.org/rfc/rfc9207 (`iss` of responses),
https://openid.net/specs/openid-connect-rpinitiated-1_0.html (sign-out at the provider)
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from phalanx import extras
from phalanx.errors import SystemFault
from phalanx.server.auth.sign_on import OidcSettings, checked_url, groups_in

if TYPE_CHECKING:
    import httpx
    from joserfc.jwk import KeySet

# Signatures with the provider's private key only. `none`, and HMACs with a key that others know, are no proof.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
KEY_TYPES = ("RSA", "EC", "OKP")
METADATA_S = 3600.0  # seconds until discovery and keys are read again
RETRY_S = 30.0  # at least this long between two reads because of an unknown key or a failure
TIMEOUT_S = 10.0
LARGEST_ANSWER = 1 << 20
LEEWAY_S = 60  # between the clocks of the provider and this machine
ATTEMPT_S = 600  # for a user to authenticate at the provider
LONGEST_HINT = 3500  # a browser keeps cookies of up to 4096 bytes
HINT = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)  # what an ID token consists of


class SignOnRefused(Exception):
    """A sign-on that is not accepted. The message is for the administrator's log: it contains no secrets."""


class SignOnAttempt(NamedTuple):
    """One attempt to sign on. The browser that started it holds it in a cookie, and only that one can finish it."""

    state: str
    nonce: str
    verifier: str  # of PKCE
    next: str  # the path to show afterwards
    expires: int

    @classmethod
    def new(cls, path: str) -> SignOnAttempt:
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return cls(state, nonce, verifier, local_path(path), int(time.time()) + ATTEMPT_S)

    def sealed(self, key: bytes) -> str:
        """For the cookie: readable by the browser, but not changeable."""
        content = _base64(json.dumps(self).encode())
        return f"{content}.{_seal(content, key)}"

    @classmethod
    def opened(cls, sealed: str, key: bytes) -> SignOnAttempt:
        """Raises SignOnRefused for one that is forged or too old."""
        content, _, seal = sealed.partition(".")
        if not hmac.compare_digest(_seal(content, key).encode(), seal.encode("utf-8", "replace")):
            raise SignOnRefused("this browser did not start the sign-on, or it was started on another server")
        found = cls(*json.loads(base64.urlsafe_b64decode(f"{content}==")))
        if time.time() > found.expires:
            raise SignOnRefused(f"the sign-on took longer than {ATTEMPT_S // 60} minutes")
        return found


class SignedOn(NamedTuple):
    """A user as the provider describes them. `subject` identifies them for ever; the name may change."""

    subject: str
    name: str
    groups: list[str]
    id_token: str


class Provider:
    """The provider of one server. Its metadata and keys are read when needed and kept for an hour."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], float] = time.monotonic) -> None:
        with extras.needed("oidc", "sign-on with OpenID Connect"):
            import joserfc.jwk  # noqa: F401 - fails now, not when the first user signs on
        self.settings = settings
        self.secret = settings.client_secret()
        self.clock = clock
        self._lock = threading.Lock()
        self._metadata: tuple[float, dict[str, Any]] | None = None
        self._keys: tuple[float, KeySet] | None = None

    # requests to the provider ---------------------------------------------------------------------------------------

    def metadata(self) -> dict[str, Any]:
        """Raises SystemFault when the provider cannot be reached."""
        with self._lock:
            if self._metadata is None or self.clock() - self._metadata[0] > METADATA_S:
                address = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
                found = self._asked("GET", address)
                if found.get("issuer") != self.settings.issuer:
                    raise _unusable(address, f"it describes another issuer than {self.settings.issuer}")
                for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                    if not isinstance(found.get(name), str):
                        raise _unusable(address, f"it has no `{name}`")
                self._metadata = self.clock(), found
            return self._metadata[1]

    def keys(self, *, newer_than: float | None = None) -> tuple[float, KeySet]:
        """The provider's keys, and when they were read. `newer_than`: read them again if they are as old as that,
        because the provider may have rotated them; not more often than every RETRY_S."""
        from joserfc.jwk import KeySet

        address = self.metadata()["jwks_uri"]
        with self._lock:
            kept = self._keys
            is_old = kept is None or self.clock() - kept[0] > METADATA_S
            is_asked = kept is not None and newer_than == kept[0] and self.clock() - kept[0] > RETRY_S
            if kept is None or is_old or is_asked:
                listed = self._asked("GET", address).get("keys")
                rows = [row for row in listed if _is_signing_key(row)] if isinstance(listed, list) else []
                if not rows:
                    raise _unusable(address, "it has no keys for signatures")
                self._keys = kept = self.clock(), KeySet.import_key_set({"keys": rows})
            return kept

    def _asked(self, method: str, address: str, **more: Any) -> dict[str, Any]:
        """The JSON object that the provider answers. Follows no redirects. Raises SystemFault, and SignOnRefused for a
        client error: a code that is wrong or was used before."""
        import httpx

        try:
            with (
                httpx.Client(timeout=TIMEOUT_S, follow_redirects=False) as client,
                client.stream(method, address, **more) as answer,
            ):
                body = _bounded(answer)
                found = json.loads(body) if answer.status_code == 200 else None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as fault:
            raise _unusable(address, f"{type(fault).__name__}: {fault}") from None
        if 400 <= answer.status_code < 500:
            raise SignOnRefused(f"the provider refused a request to {address}: {answer.status_code}")
        if not isinstance(found, dict):
            raise _unusable(address, f"it answered {answer.status_code} instead of a JSON object")
        return found

    # the flow -------------------------------------------------------------------------------------------------------

    def authorisation_url(self, attempt: SignOnAttempt) -> str:
        challenge = _base64(hashlib.sha256(attempt.verifier.encode()).digest())
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.redirect_uri,
            "scope": " ".join(dict.fromkeys(("openid", *self.settings.scopes))),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return _with_query(self.metadata()["authorization_endpoint"], query)

    def finish(self, attempt: SignOnAttempt, response: Mapping[str, str]) -> SignedOn:
        """The user whom the provider's response is about. Raises SignOnRefused, SystemFault."""
        if not hmac.compare_digest(response.get("state", "").encode(), attempt.state.encode()):
            raise SignOnRefused("the state is not that of this browser")
        issuer = response.get("iss")
        is_named = self.metadata().get("authorization_response_iss_parameter_supported") is True
        if (issuer is not None or is_named) and issuer != self.settings.issuer:
            raise SignOnRefused("the response is of another issuer")
        if response.get("error"):
            raise SignOnRefused(f"the provider refused: {response['error'][:100]!r}")
        if not response.get("code"):
            raise SignOnRefused("the response has no code")
        tokens = self._exchange(attempt, response["code"])
        id_token = str(tokens.get("id_token", ""))
        claims = self.verified(id_token, attempt.nonce)
        return self._user(claims, tokens.get("access_token"), id_token)

    def _exchange(self, attempt: SignOnAttempt, code: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.settings.redirect_uri,
            "client_id": self.settings.client_id,
            "code_verifier": attempt.verifier,
        }
        headers = {"Accept": "application/json"}
        methods = self.metadata().get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if self.secret is not None and "client_secret_basic" in methods:
            pair = f"{quote(self.settings.client_id, safe='')}:{quote(self.secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif self.secret is not None:
            form["client_secret"] = self.secret
        return self._asked("POST", self.metadata()["token_endpoint"], data=form, headers=headers)

    def verified(self, id_token: str, nonce: str) -> dict[str, Any]:
        """The claims of an ID token that this provider signed for this client and attempt. Raises SignOnRefused."""
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError

        read_at, keys = self.keys()
        try:
            try:
                found = jwt.decode(id_token, keys, ALGORITHMS)
            except InvalidKeyIdError:  # the provider has a new key
                found = jwt.decode(id_token, self.keys(newer_than=read_at)[1], ALGORITHMS)
            jwt.JWTClaimsRegistry(
                leeway=LEEWAY_S,
                iss={"essential": True, "value": self.settings.issuer},
                aud={"essential": True, "value": self.settings.client_id},
                nonce={"essential": True, "value": nonce},
                sub={"essential": True},
                exp={"essential": True},
                iat={"essential": True},
            ).validate(found.claims)
        except (JoseError, ValueError, TypeError) as fault:
            raise SignOnRefused(f"the ID token is not valid: {type(fault).__name__}: {fault}"[:300]) from None
        claims = found.claims
        others = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        if claims.get("azp", self.settings.client_id) != self.settings.client_id or (
            len(others) > 1 and "azp" not in claims
        ):
            raise SignOnRefused("the ID token was issued to another client")
        return claims

    def sign_out_url(self, hint: str) -> str | None:
        """Where the user signs out of the provider, too; None if it has no such address. `hint`: the ID token of the
        session, or an empty text. Raises SystemFault, SignOnRefused."""
        endpoint = self.metadata().get("end_session_endpoint")
        if not self.settings.sign_out or not isinstance(endpoint, str):
            return None
        try:
            checked_url(endpoint.partition("?")[0])
        except ValueError as fault:
            raise _unusable(endpoint, str(fault)) from None
        query = {"client_id": self.settings.client_id, "post_logout_redirect_uri": self.settings.signed_out_uri}
        if HINT.fullmatch(hint):
            query["id_token_hint"] = hint
        return _with_query(endpoint, query)

    def _user(self, claims: dict[str, Any], access_token: Any, id_token: str) -> SignedOn:
        name_claim, groups_claim = self.settings.name_claim, self.settings.groups_claim
        endpoint = self.metadata().get("userinfo_endpoint")
        is_complete = name_claim in claims and groups_claim in claims
        if not is_complete and isinstance(endpoint, str) and isinstance(access_token, str):
            more = self._asked("GET", endpoint, headers={"Authorization": f"Bearer {access_token}"})
            if more.get("sub") != claims["sub"]:
                raise SignOnRefused("the user information is about another user")
            claims = {**more, **claims}
        name = claims.get(name_claim)
        if name_claim == "email" and claims.get("email_verified") is False:
            raise SignOnRefused("the provider has not verified the email address")
        if not isinstance(name, str):
            raise SignOnRefused(f"the provider sent no claim `{name_claim}`: set `oidc.name_claim`")
        subject = f"{self.settings.issuer} {claims['sub']}"
        return SignedOn(subject, name, groups_in(claims.get(groups_claim)), id_token)


def local_path(path: str) -> str:
    """A path of this server's page; `/` for anything that a browser could read as another address."""
    is_path = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and "\\" not in path
    return path if is_path and len(path) <= 2000 and path.isascii() else "/"


def sign_out_hint(user: SignedOn) -> str:
    """What a cookie keeps for the sign-out; empty if the ID token is too long for one."""
    return user.id_token if len(user.id_token) <= LONGEST_HINT else ""


def _with_query(endpoint: str, query: Mapping[str, str]) -> str:
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def _base64(data: bytes) -> str:
    """Without padding: a cookie with `=` would be quoted."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unusable(address: str, why: str) -> SystemFault:
    return SystemFault(f"the sign-on provider cannot be used: {address}: {why}"[:300], transient=True)


def _seal(content: str, key: bytes) -> str:
    return hmac.new(key, f"sign-on {content}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _is_signing_key(row: Any) -> bool:
    return isinstance(row, dict) and row.get("kty") in KEY_TYPES and row.get("use", "sig") == "sig"


def _bounded(answer: httpx.Response) -> bytes:
    found = b""
    for piece in answer.iter_bytes():
        found += piece
        if len(found) > LARGEST_ANSWER:
            raise ValueError(f"the answer exceeds {LARGEST_ANSWER:,} bytes")
    return found
