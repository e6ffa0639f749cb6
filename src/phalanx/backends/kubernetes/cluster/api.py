"""A client of the Kubernetes API server: JSON requests and streams, with the credentials that kubectl would use.

The official package supplies the server and the credentials (`phalanx.backends.kubernetes.cluster.credentials`).
Requests and responses are plain dictionaries, so custom kinds are no harder than pods.
"""

from __future__ import annotations

import copy
import json
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote, urlencode

import phalanx
from phalanx.backends.kubernetes.cluster.credentials import ClusterIdentity, load
from phalanx.backends.kubernetes.target import Settings
from phalanx.errors import CallError, SystemFault

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

Document = dict[str, Any]
Documents = list[Document]
Query = Mapping[str, str | int | bool | None]
MAX_REQUESTS = 16  # concurrent; streams are not counted
TRIES = 5
LONGEST_PAUSE_S = 10.0
CONNECT_S = 10.0
PAGE = 500
LONGEST_LINE = 16 << 20
_REPEATABLE = ("GET", "PUT", "DELETE")  # idempotent


class ResourceKind(NamedTuple):
    """A kind of object and its place in the API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str | None = None, part: str = "") -> str:
        steps = ["apis", self.group, self.version] if self.group else ["api", self.version]
        steps += ["namespaces", namespace] if self.namespaced and namespace else []
        steps += [self.plural, *([name] if name else []), *([part] if part else [])]
        return "/" + "/".join(quote(step, safe="") for step in steps)


PODS = ResourceKind("", "v1", "pods", "Pod")
CONFIG_MAPS = ResourceKind("", "v1", "configmaps", "ConfigMap")
EVENTS = ResourceKind("", "v1", "events", "Event")
NODES = ResourceKind("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = ResourceKind("", "v1", "namespaces", "Namespace", namespaced=False)
JOBS = ResourceKind("batch", "v1", "jobs", "Job")


def kind_named(api_version: str, kind: str) -> ResourceKind:
    """Find a kind by the names that a manifest uses. All kinds used here have a regular plural."""
    group, _, version = api_version.rpartition("/")
    return ResourceKind(group, version, f"{kind.lower()}s", kind)


def kind_of(document: Mapping[str, Any]) -> ResourceKind:
    return kind_named(document["apiVersion"], document["kind"])


def named(kind: ResourceKind, document: Document) -> Document:
    """Add kind and version: list items lack them."""
    return {**document, "apiVersion": kind.api_version, "kind": kind.kind}


class ApiFault(SystemFault):
    """The server responded with an error: 403 Forbidden, 404 NotFound, 409 AlreadyExists or Conflict, 410 Expired, 422
    Invalid, or a 429 or 5xx that outlasted the retries."""

    def __init__(
        self, code: int, reason: str, message: str, details: Mapping[str, Any], retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{message or reason} ({code})", transient=code == 429 or code >= 500)
        self.code, self.reason, self.message, self.details = code, reason, message, details
        self.retry_after_s = retry_after_s


class ApiUnreachable(SystemFault):
    """No response arrived. The request may have taken effect all the same, unless `was_sent` is false."""

    def __init__(self, message: str, *, was_sent: bool = True, root: BaseException | None = None) -> None:
        super().__init__(message, transient=True)
        self.was_sent, self.root = was_sent, root


class ListedObjects(NamedTuple):
    items: Sequence[Document]
    version: str  # a watch continues from here


class Api:
    """An API server as one user sees it. Every method is thread-safe and may raise ApiFault or ApiUnreachable.

    `sent`: the number of requests so far, streams included.
    """

    def __init__(
        self, settings: Settings, identity: ClusterIdentity, *, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self.namespace, self.context, self.server, self.user = identity[:4]
        self.sent = 0
        self._settings = settings._replace(context=identity.context)  # the current context may change
        self._identity = identity
        self._guard = threading.Lock()
        self._room = threading.BoundedSemaphore(MAX_REQUESTS)
        self._sleep = sleep
        self._on_warning: Callable[[str], object] = lambda _: None

    @property
    def key(self) -> tuple[str, str, str]:
        """Equal for clients that see the same objects."""
        return self.server, self.namespace, self.user

    def with_warnings(self, on_warning: Callable[[str], object]) -> Api:
        """The same client, which also passes the server's warnings to `on_warning`: unknown fields that it drops,
        deprecated versions, pods that violate the namespace's pod security. Any thread may make the call."""
        other = copy.copy(self)
        other._on_warning = on_warning
        return other

    def request(  # noqa: PLR0913 - what a request has
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Query | None = None,
        content_type: str = "application/json",
        timeout_s: float = 30.0,
        tries: int = TRIES,
    ) -> Any:
        """Return the response's JSON. Transient failures are retried: refused connections and 429 always, others only
        for idempotent methods. A creation without a response raises ApiUnreachable, because the object may exist: the
        caller decides."""
        for left in reversed(range(tries)):
            try:
                return self._once(method, path, body, query, content_type, timeout_s)
            except ApiUnreachable as fault:
                if not left or (fault.was_sent and method not in _REPEATABLE):
                    raise
                pause_s = _backoff(tries - left)
            except ApiFault as fault:
                if not left or not (fault.code == 429 or (fault.transient and method in _REPEATABLE)):
                    raise
                asked = fault.retry_after_s
                pause_s = min(asked, LONGEST_PAUSE_S) if asked is not None else _backoff(tries - left)
            self._sleep(pause_s)
        raise AssertionError("at least one try")

    def get(self, kind: ResourceKind, name: str) -> Document:
        answer: Document = self.request("GET", self._path(kind, name))
        return answer

    def list(self, kind: ResourceKind, *, selector: str = "", tries: int = TRIES) -> ListedObjects:
        """List all objects of a kind, page by page."""
        query = {"labelSelector": selector or None, "limit": PAGE}
        items: Documents = []
        token = ""
        for _ in range(10_000):
            try:
                page = self.request("GET", self._path(kind), query={**query, "continue": token or None}, tries=tries)
            except ApiFault as fault:
                if fault.code != 410 or not token:
                    raise
                items, token = [], ""  # the page token expired: restart
                continue
            items += (named(kind, item) for item in page.get("items") or ())
            token = page["metadata"].get("continue") or ""
            if not token:
                return ListedObjects(items, page["metadata"].get("resourceVersion", ""))
        raise ApiUnreachable(f"the list of {kind.plural} does not end")

    def create(self, kind: ResourceKind, document: Mapping[str, Any], *, dry: bool = False) -> Document:
        answer: Document = self.request("POST", self._path(kind), document, query={"dryRun": "All" if dry else None})
        return answer

    def delete(self, kind: ResourceKind, name: str, *, grace_s: int | None = None, uid: str | None = None) -> Document:
        """`uid`: delete only the object with this uid; otherwise 409."""
        options: Document = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        options |= {"gracePeriodSeconds": grace_s} if grace_s is not None else {}
        options |= {"preconditions": {"uid": uid}} if uid is not None else {}
        answer: Document = self.request("DELETE", self._path(kind, name), options)
        return answer

    def stream(self, path: str, query: Query | None = None, *, idle_s: float = 330.0, accept: str = "*/*") -> Stream:
        """Stream the lines of a response. After `idle_s` without data it raises ApiUnreachable. Nothing is retried."""
        import urllib3

        answer = self._send("GET", path, query, None, {"Accept": accept}, idle_s, is_stream=True)
        if answer.status >= 300:
            said = b""
            with suppress(urllib3.exceptions.HTTPError, OSError):
                said = answer.read(1 << 20)
            answer.close()
            raise _fault(answer.status, answer.headers, said)
        return Stream(answer)

    def watch(self, kind: ResourceKind, version: str, *, selector: str = "", timeout_s: int = 300) -> Stream:
        """Stream the events of a kind after this version, one per line."""
        query: dict[str, str | int | bool | None] = {"labelSelector": selector or None, "watch": True}
        query |= {"allowWatchBookmarks": True, "resourceVersion": version, "timeoutSeconds": timeout_s}
        return self.stream(self._path(kind), query, idle_s=timeout_s + 30.0, accept="application/json")

    def log(  # noqa: PLR0913 - what a log has
        self,
        pod: str,
        container: str,
        *,
        follow: bool = False,
        since: str | None = None,
        timestamps: bool = True,
        tail: int | None = None,
        idle_s: float = 3600.0,
    ) -> Stream:
        """Stream the log of a container, line by line. `since`: a time in the format of timestamps; kubelets only know
        whole seconds, so lines of that second repeat. A line longer than LONGEST_LINE comes in pieces."""
        query: Query = {
            "container": container,
            "follow": follow or None,
            "timestamps": timestamps or None,
            "sinceTime": since,
            "tailLines": tail,
        }
        return self.stream(self._path(PODS, pod, "log"), query, idle_s=idle_s)

    def greet(self) -> Document:
        """The server's version, by one request. Raises CallError and SystemFault with words for people."""
        at = f"{self.server} (context `{self.context}`)"
        try:
            answer: Document = self.request("GET", "/version", tries=2)
        except ApiUnreachable as fault:
            if isinstance(fault.root, ssl.SSLError):
                raise CallError(
                    f"{at}: its certificate is not trusted: {fault}; the `certificate-authority` of the kubeconfig "
                    f"belongs to another server, or one of the two has expired"
                ) from None
            raise SystemFault(
                f"no response from {at}: {fault}; check that the cluster is up and reachable from here: "
                f"`kubectl version` should work",
                transient=True,
            ) from None
        except ApiFault as fault:
            if fault.code == 401:
                raise CallError(
                    f"{at} rejects the credentials of `{self.user}`: they have expired or are wrong; log in "
                    f"again, until `kubectl get pods` works"
                ) from None
            raise SystemFault(f"{at} does not return its version: {fault}", transient=fault.transient) from None
        return answer

    def close(self) -> None:
        """Close idle connections. Callers close their own streams."""
        self._identity.pool.clear()

    # inside

    def _path(self, kind: ResourceKind, name: str | None = None, part: str = "") -> str:
        return kind.path(self.namespace, name, part)

    def _once(  # noqa: PLR0913, PLR0917 - what a request has
        self, method: str, path: str, body: Any, query: Query | None, content_type: str, timeout_s: float
    ) -> Any:
        headers = {"Accept": "application/json", "Content-Type": content_type, "Accept-Encoding": "gzip"}
        data = json.dumps(body, separators=(",", ":")).encode() if body is not None else None
        with self._room:
            answer = self._send(method, path, query, data, headers, timeout_s)
        for said in _warnings(answer.headers.getlist("Warning")):
            self._on_warning(said)
        if answer.status >= 300:
            raise _fault(answer.status, answer.headers, answer.data)
        try:
            return json.loads(answer.data)
        except ValueError:
            raise ApiUnreachable(f"{self.server} responded, but not like an API server") from None

    def _send(  # noqa: PLR0913, PLR0917 - what a request has
        self,
        method: str,
        path: str,
        query: Query | None,
        data: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
        *,
        is_stream: bool = False,
    ) -> BaseHTTPResponse:
        """Return one response. Rejected credentials are reloaded once."""
        import urllib3

        text = urlencode({key: _text(value) for key, value in (query or {}).items() if value is not None})
        for is_last in (False, True):
            identity = self._identity
            try:
                with self._guard:  # this may fetch a token, which must not happen in two threads at once
                    self.sent += 1
                    sent_headers = {**headers, **identity.headers(), "User-Agent": f"phalanx/{phalanx.__version__}"}
                answer: BaseHTTPResponse = identity.pool.request(
                    method,
                    f"{identity.server}{path}{'?' if text else ''}{text}",
                    body=data,
                    headers=sent_headers,
                    timeout=urllib3.Timeout(connect=min(CONNECT_S, timeout_s), read=timeout_s),
                    retries=False,
                    redirect=False,
                    preload_content=not is_stream,
                )
            except (urllib3.exceptions.HTTPError, OSError) as fault:
                raise _unreachable(fault) from fault
            if answer.status != 401 or is_last or not self._renew(identity):
                return answer
            answer.close()
        raise AssertionError("one of two tries is the last")

    def _renew(self, old: ClusterIdentity) -> bool:
        """Return whether the credentials changed: reloaded now, or by another thread meanwhile."""
        with self._guard:
            if self._identity is old:
                with suppress(CallError):
                    fresh = load(self._settings)
                    if fresh.server == old.server:
                        self._identity = fresh
            return self._identity is not old


class Stream:
    """Lines with their line ends, as they arrive. A broken connection raises ApiUnreachable. `close` may be called from
    any thread; it also wakes a thread that waits for the next line."""

    def __init__(self, answer: BaseHTTPResponse) -> None:
        self._answer = answer
        self._pieces = answer.stream(1 << 16)
        self._lines: Iterator[bytes] = iter(())
        self._begun = bytearray()  # an incomplete line
        self._closed = threading.Event()
        self._reading = threading.Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        while True:
            line = next(self._lines, None)
            if line is not None:
                return line
            with self._reading:
                piece = self._piece()
            if piece is None:
                rest, self._begun = bytes(self._begun), bytearray()
                if rest and not self._closed.is_set():
                    return rest
                raise StopIteration
            self._lines = iter(self._split(piece))

    def _piece(self) -> bytes | None:
        """The next chunk; None at the end."""
        import urllib3

        if self._closed.is_set():
            self._release()
            return None
        try:
            piece = next(self._pieces, None)
        # reading from a socket that another thread shut down fails in many ways
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as fault:
            self._release()
            if self._closed.is_set():
                return None
            raise _unreachable(fault) from fault
        if piece is None:
            self._release()
        return piece

    def _split(self, piece: bytes) -> list[bytes]:
        lines = piece.split(b"\n")
        if len(lines) > 1:
            lines[0] = bytes(self._begun) + lines[0]
            self._begun = bytearray(lines.pop())
            return [line + b"\n" for line in lines]
        self._begun += piece
        if len(self._begun) <= LONGEST_LINE:
            return []
        whole, self._begun = bytes(self._begun), bytearray()
        return [whole]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed.set()
        if not self._reading.acquire(blocking=False):
            with suppress(OSError, ValueError, RuntimeError, AttributeError):
                if hasattr(self._answer, "shutdown"):
                    self._answer.shutdown()
                else:  # urllib3 before 2.3
                    connection: Any = self._answer.connection
                    connection.sock.shutdown(socket.SHUT_RD)
            return  # the reading thread wakes up and releases
        try:
            self._release()
        finally:
            self._reading.release()

    def _release(self) -> None:
        with suppress(OSError, ValueError, AttributeError):
            self._answer.close()  # the rest of the response is of no use to the next request
            self._answer.release_conn()


def connect(settings: Settings, *, ask: bool = True) -> Api:
    """Connect to the cluster that the settings name. `ask`: check with one request that it responds and accepts the
    CallError and SystemFault with words for people."""
    api = Api(settings, load(settings))
    if ask:
        api.greet()
    return api


def _backoff(tried: int) -> float:
    return float(min(4.0, 0.1 * 2**tried) * random.uniform(0.5, 1.0))  # noqa: S311 - no secret


def _text(value: str | int | bool | None) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _warnings(headers: Sequence[str]) -> Iterator[str]:
    """Parse the server's format: `299 - "unknown field \\"spec.nonsense\\""`."""
    for found in re.finditer(r'299 \S+ "((?:[^"\\]|\\.)*)"', ", ".join(headers)):
        yield re.sub(r"\\(.)", r"\1", found[1])


def _fault(code: int, headers: Mapping[str, str], data: bytes) -> ApiFault:
    """Parse an error response: a Status, or plain text from a proxy."""
    try:
        status = json.loads(data)
    except ValueError:
        status = None
    if not isinstance(status, dict):
        status = {"message": data[:500].decode("utf-8", "replace").strip()}
    details = status.get("details") or {}
    asked = headers.get("Retry-After") or details.get("retryAfterSeconds")
    retry_after_s = float(asked) if asked is not None and str(asked).isdigit() else None
    return ApiFault(code, status.get("reason") or "", status.get("message") or "", details, retry_after_s)


def _unreachable(fault: Exception) -> ApiUnreachable:
    import urllib3

    refused = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
    was_sent = not isinstance(fault, (*refused, urllib3.exceptions.SSLError, urllib3.exceptions.ProxyError))
    cause: BaseException = fault
    while cause.__cause__ is not None or isinstance(cause.args[-1:] and cause.args[-1], BaseException):
        cause = cause.__cause__ or cause.args[-1]
    return ApiUnreachable(_in_words(cause), was_sent=was_sent, root=cause)


def _in_words(cause: BaseException) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return cause.verify_message
    if isinstance(cause, ssl.SSLError):
        return (cause.reason or str(cause)).lower().replace("_", " ")
    if isinstance(cause, socket.gaierror):
        return "no such host"
    if isinstance(cause, TimeoutError):
        return "timed out"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    # urllib3 puts the repr of an object first
    return str(cause).rpartition("object at")[2].rpartition(">: ")[2] or type(cause).__name__
