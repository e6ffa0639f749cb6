"""A small OpenID Connect provider, which can be told to lie. It approves every user at once."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "phalanx", "s3cret of the client"
Claims = dict[str, Any]


class FakeProvider:
    """`claims`: of the user who signs on next; `change` may change all claims of the next ID token; `sign` replaces its
    signature."""

    def __init__(self) -> None:
        self.claims: Claims = {"sub": "1", "preferred_username": "ana", "groups": ["vision"]}
        self.change: Callable[[Claims], Claims] = lambda claims: claims
        self.sign: Callable[[Claims], str] = self.signed
        self.more: dict[str, Any] = {}  # of the response to the browser
        self.metadata: dict[str, Any] = {}
        self.userinfo: Claims | None = None
        self.keys = [RSAKey.generate_key(2048, {"kid": "first", "use": "sig"}, auto_kid=False)]
        self.codes: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.answer(self, b"")

            def do_POST(self) -> None:
                provider.answer(self, self.rfile.read(int(self.headers["content-length"])))

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def signed(self, claims: Claims) -> str:
        key = self.keys[-1]
        return jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key)

    def rotate(self) -> None:
        self.keys = [RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig"}, auto_kid=False)]

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        address = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(address.query or body.decode()).items()}
        self.asked.append(address.path)
        if address.path == "/authorize":
            handler.send_response(302)
            handler.send_header("Location", self.authorise(query))
            handler.end_headers()
            return
        answers: dict[str, Callable[[], Claims | None]] = {
            "/.well-known/openid-configuration": self.described,
            "/jwks": lambda: {"keys": [key.as_dict(private=False) for key in self.keys]},
            "/token": lambda: self.redeem(query, handler.headers.get("authorization", "")),
            "/userinfo": lambda: self.userinfo,
        }
        found = answers[address.path]()
        handler.send_response(200 if found is not None else 400)
        handler.send_header("Content-Type", "application/json")
        handler.end_headers()
        handler.wfile.write(json.dumps(found or {"error": "invalid_grant"}).encode())

    def described(self) -> dict[str, Any]:
        ends = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "jwks"}
        if self.userinfo is not None:
            ends["userinfo_endpoint"] = "userinfo"
        return {
            "issuer": self.issuer,
            **{name: f"{self.issuer}/{path}" for name, path in ends.items()},
            **self.metadata,
        }

    def authorise(self, query: dict[str, str]) -> str:
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert query["client_id"] == CLIENT
        code = secrets.token_urlsafe(8)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], **self.more})}"

    def end_session(self, address: str, back: str) -> None:
        """Raises AssertionError unless the request is one that a provider carries out without asking the user."""
        parts = urlsplit(address)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{self.issuer}/end"
        assert (query["client_id"], query["post_logout_redirect_uri"]) == (CLIENT, back)
        claims = jwt.decode(query["id_token_hint"], self.keys[-1], ["RS256"]).claims
        assert (claims["aud"], claims["sub"]) == (CLIENT, self.claims["sub"])

    def redeem(self, form: dict[str, str], authorization: str) -> dict[str, Any] | None:
        query = self.codes.pop(form.get("code", ""), None)  # a code is valid once
        expected = base64.b64encode(f"{CLIENT}:{SECRET.replace(' ', '%20')}".encode()).decode()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if query is None or authorization != f"Basic {expected}" or form["redirect_uri"] != query["redirect_uri"]:
            return None
        if challenge.decode() != query["code_challenge"]:
            return None
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 60, "nonce": query["nonce"]}
        token = self.sign(self.change({**claims, **self.claims}))
        return {"access_token": "access", "token_type": "Bearer", "id_token": token}
