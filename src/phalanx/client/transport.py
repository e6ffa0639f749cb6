"""HTTP requests to one server, with retries and error messages that say what to do.

RequestRefused(CallError)       the server said no; `status` and `hint` are its own
└── NotFound                    there is no such thing
ServerUnreachable(SystemFault)  no answer, or not now; transient
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from phalanx.client.config import is_loopback
from phalanx.errors import CallError, Location, SpecError, SpecErrors, SystemFault

if TYPE_CHECKING:
    import httpx

API = "/api/v1"
TIMEOUT_S = 30.0
CONNECT_S = 10.0
LONG_S = 600.0  # for a request that queues thousands of runs
PAGE = 1000  # rows per request of a list
TRIES = 3  # of requests that may be retried
PAUSE_S = 0.2  # before the first retry; three times as long before each further one
LONGEST_PAUSE_S = 5.0  # even if the server asks for a longer wait
SAFE = ("GET", "HEAD")
BUSY = (429, 502, 503, 504)


class RequestRefused(CallError):
    def __init__(self, message: str, status: int, hint: str | None = None) -> None:
        super().__init__(f"{message}: {hint}" if hint else message)
        self.message = message
        self.status = status
        self.hint = hint


class NotFound(RequestRefused):
    """There is no such run, file or model."""


class ServerUnreachable(SystemFault):
    """The server does not respond, or cannot serve the request now."""

    def __init__(self, message: str) -> None:
        super().__init__(message, transient=True)


def joined(*steps: str) -> str:
    """A path of the API, with each step quoted, so that names of users stay one step."""
    return API + "".join(f"/{quote(step, safe='')}" for step in steps)


class Transport:
    """An HTTP connection pool for one server. Not thread-safe; close it after use."""

    def __init__(self, url: str, token: str, timeout_s: float = TIMEOUT_S) -> None:
        import httpx

        self.url = url
        self.token = token
        headers = {"User-Agent": "phalanx", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        is_here = is_loopback(url)
        try:
            self._http = httpx.Client(
                base_url=url,
                headers=headers,
                timeout=httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
                trust_env=not is_here,  # proxies and own certificates from the environment
                verify=not is_here or url.startswith("https:"),  # loading all certificates is slow
                follow_redirects=False,  # the token must not go to another server
            )
        except (ValueError, UnicodeError, OSError) as fault:
            raise CallError(f"cannot connect to {url}: {str(fault)[:200] or type(fault).__name__}") from None

    def close(self) -> None:
        self._http.close()

    # requests ----------------------------------------------------------------------------------------------------

    def get(self, path: str, /, **params: Any) -> Any:
        """GET JSON; parameters that are None are omitted. Raises RequestRefused, ServerUnreachable."""
        return self._json(self._request("GET", path, params=_given(params)))

    def rows(self, path: str, name: str, limit: int | None = None, offset: int = 0, /, **params: Any) -> list[Any]:
        """The rows of a list, page by page: all of them unless `limit` is set. `name` is their field in the response.
        Raises as `get` does."""
        found: list[Any] = []
        before: list[Any] | None = None
        while limit is None or len(found) < limit:
            wanted = PAGE if limit is None else min(PAGE, limit - len(found))
            page = list(self.get(path, **params, limit=wanted, offset=offset + len(found))[name])
            if page == before:  # an older server has no pages of this list
                break
            found += page
            before = page
            if len(page) != wanted:
                break
        return found

    def text(self, path: str, /, **params: Any) -> str:
        return str(self._request("GET", path, params=_given(params)).text)

    def send(self, method: str, path: str, body: Any = None, /, **params: Any) -> Any:
        """Send JSON and return JSON. Raises RequestRefused, ServerUnreachable, SpecErrors for errors of a file."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if content is not None else {}
        return self._json(self._request(method, path, params=_given(params), content=content, headers=headers))

    def send_long(self, method: str, path: str, body: Any, /) -> Any:
        """As `send`, for a request that the server needs minutes for."""
        headers = {"Content-Type": "application/json"}
        content = json.dumps(body).encode()
        return self._json(self._request(method, path, content=content, headers=headers, timeout=LONG_S))

    def send_version(self, method: str, path: str, tag: str, body: Any = None, /) -> Any:
        """As `send`, for a change of the version with this tag. Raises RequestRefused (412) if there is a newer one."""
        content = None if body is None else json.dumps(body).encode()
        headers = {"If-Match": tag, **({"Content-Type": "application/json"} if content is not None else {})}
        return self._json(self._request(method, path, content=content, headers=headers))

    def put(self, method: str, path: str, content: Any, length: int | None = None, /, **params: Any) -> Any:
        """Send bytes, or an iterator of bytes, and return JSON. Raises RequestRefused, ServerUnreachable."""
        headers = {"Content-Type": "application/octet-stream"}
        if length is not None:
            headers["Content-Length"] = str(length)  # chunked encoding would hide the size from the server
        return self._json(self._request(method, path, params=_given(params), content=content, headers=headers))

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str] | None = None, /, **params: Any) -> Iterator[httpx.Response]:
        """A response that is read in pieces. Reading may raise httpx.HTTPError: `failed` converts it. Raises as `get`
        does."""
        import httpx

        request = self._http.build_request("GET", path, params=_given(params), headers=dict(headers or {}))
        try:
            response = self._http.send(request, stream=True)
        except httpx.HTTPError as fault:
            raise self.failed(fault) from None
        try:
            if response.status_code >= 300:
                response.read()
                raise self._refusal(response)
            yield response
        finally:
            response.close()

    def _request(self, method: str, path: str, **more: Any) -> httpx.Response:
        import httpx

        pause_s = PAUSE_S
        for left in reversed(range(TRIES)):
            try:
                response = self._http.request(method, path, **more)
            except httpx.HTTPError as fault:
                # a request that may change something is retried only if it was never sent
                if not left or not (method in SAFE or isinstance(fault, httpx.ConnectError)) or "[SSL" in str(fault):
                    raise self.failed(fault) from None
            except (httpx.InvalidURL, UnicodeError) as fault:
                raise CallError(f"invalid request {self.url}{path[:200]}: {fault}") from None
            else:
                may_again = method in SAFE or response.status_code == 429
                if not left or not may_again or response.status_code not in BUSY:
                    if response.status_code >= 300:
                        raise self._refusal(response)
                    return response
                asked = response.headers.get("retry-after", "")
                pause_s = max(pause_s, float(asked) if asked.isdecimal() else 0.0)
            time.sleep(min(pause_s, LONGEST_PAUSE_S))
            pause_s *= 3
        raise AssertionError("the last try returns or raises")

    # responses ---------------------------------------------------------------------------------------------------

    def failed(self, fault: Exception) -> CallError | SystemFault:
        """The error to raise for a failed connection."""
        import httpx

        text = str(fault)[:300] or type(fault).__name__
        untrusted = _certificate_error(fault)
        if untrusted is not None:
            hint = "check the address, or name your own CA certificate with SSL_CERT_FILE"
            return CallError(f"the certificate of {self.url} is not trusted: {untrusted}; {hint}")
        if "[SSL" in text:
            return CallError(f"TLS handshake with {self.url} failed ({text}): use http:// if the server has no TLS")
        if isinstance(fault, httpx.ConnectError | httpx.ConnectTimeout):
            return ServerUnreachable(f"cannot connect to {self.url}: check the address and the server ({text})")
        if isinstance(fault, httpx.ProxyError):
            return ServerUnreachable(f"the proxy for {self.url} refused the connection: {text}")
        if isinstance(fault, httpx.TimeoutException):
            return ServerUnreachable(f"{self.url} timed out: it may be busy; try again")
        if isinstance(fault, httpx.UnsupportedProtocol):
            return CallError(f"invalid server address `{self.url}`: expected something like https://host:8000")
        return ServerUnreachable(f"the connection to {self.url} broke: {text}")

    def _json(self, response: httpx.Response) -> Any:
        try:
            return response.json()
        except ValueError:
            raise self._stranger() from None

    def _stranger(self) -> CallError:
        return CallError(f"the server at {self.url} is not Phalanx: check the address")

    def _refusal(self, response: httpx.Response) -> CallError | SystemFault | SpecErrors:
        """The error to raise for an error response: the server's message and, for common cases, what to do."""
        status = response.status_code
        body = _object(response)
        error = body.get("error")
        if status in (301, 302, 303, 307, 308):
            there = response.headers.get("location", "elsewhere")
            return CallError(f"{self.url} redirects to {there[:200]}: use that address if it is the right one")
        if isinstance(body.get("faults"), list) and body["faults"]:
            return SpecErrors(_faults(body["faults"]))
        if not isinstance(error, dict):
            return self._unworded(status)
        message, hint = str(error.get("message", "")), error.get("hint")
        if status == 401:
            return RequestRefused(
                f"{self.url} rejected the token" if self.token else f"{self.url} needs a token", 401, LOG_IN
            )
        if status in (404, 405) and message in OLD:
            return RequestRefused(f"{self.url} runs an older Phalanx that cannot do this", status, "upgrade the server")
        if status in BUSY:
            return ServerUnreachable(f"{self.url} is unavailable: {message}")
        kind = NotFound if status == 404 else RequestRefused
        return kind(message or f"{self.url} responded with {status}", status, str(hint) if hint else None)

    def _unworded(self, status: int) -> CallError | SystemFault:
        """The error for a response without a Phalanx error body: it comes from a proxy or another server."""
        if status in BUSY:
            return ServerUnreachable(f"{self.url} is unavailable: it, or a proxy, responded with {status}")
        if status in (401, 407):
            return RequestRefused(f"{self.url} needs a token", status, LOG_IN)
        if status == 403:
            return RequestRefused(f"{self.url} denies access", 403, "a proxy in front of it may block the request")
        if status >= 500:
            return RequestRefused(f"{self.url} failed with {status}", status, "see the log of the server")
        return self._stranger()


LOG_IN = "run `phalanx login URL` or set PHALANX_TOKEN; create a token with `phalanx token create` on the server"
# What servers say of a path that they do not know
OLD = (
    "no such path",
    "this path does not support that method",
    "there is nothing at this address",  # 0.2.0
    "this address does not take that method",  # 0.2.0
)


def _given(params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: int(value) if isinstance(value, bool) else value for name, value in params.items() if value is not None
    }


def _object(response: httpx.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _faults(rows: Iterable[Any]) -> Iterator[SpecError]:
    for row in rows:
        place = Location(
            str(row.get("file") or "the file"),
            int(row.get("line") or 0),
            int(row.get("column") or 0),
            int(row.get("width") or 1),
            str(row.get("excerpt") or ""),
        )
        yield SpecError(place, str(row.get("path") or ""), str(row.get("message") or ""), row.get("suggestion"))


def _certificate_error(fault: BaseException | None) -> str | None:
    """Why certificate verification failed, if it did; httpx has it as the cause of a cause."""
    while fault is not None:
        if isinstance(fault, ssl.SSLCertVerificationError):
            return str(fault.verify_message)
        fault = fault.__cause__ or fault.__context__
    return None
