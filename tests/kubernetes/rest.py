"""The API of a cluster as plain requests: for tests, kubelet and operators, apart from the client under test."""

from __future__ import annotations

import json
import os
import ssl
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import yaml

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
CORE = "/api/v1"
TRIES = 3
PLURALS = {  # of kinds whose plural is not the name in small letters with an s
    "NetworkPolicy": "networkpolicies",
    "StorageClass": "storageclasses",
    "PriorityClass": "priorityclasses",
    "Ingress": "ingresses",
}


class Answered(Exception):
    """The API server said no."""

    def __init__(self, code: int, status: dict[str, Any]) -> None:
        super().__init__(f"{code} {status.get('reason', '')}: {status.get('message', '')}")
        self.code = code
        self.status = status


class Rest:
    """One identity at one API server. Objects are plain dicts. Safe for threads."""

    def __init__(self, server: str, token: str | None = None, verify: ssl.SSLContext | bool = True, **options: Any):
        self.server = server
        self.token = token
        self.verify = verify
        self.anonymous = verify  # the same trust, without a certificate of its own
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._http = httpx.Client(
            base_url=server, headers=headers, verify=verify, timeout=30.0, limits=limits, trust_env=False, **options
        )

    @classmethod
    def of(cls, kubeconfig: Path, context: str | None = None) -> Rest:
        """With tokens or certificates, as most kubeconfigs have them."""
        content = yaml.safe_load(kubeconfig.read_text())
        chosen = _named(content["contexts"], context or content["current-context"])["context"]
        cluster = _named(content["clusters"], chosen["cluster"])["cluster"]
        user = _named(content["users"], chosen["user"])["user"]
        if cluster["server"].startswith("http://"):
            return cls(cluster["server"], user.get("token"))
        verify, anonymous = (_trust(_data(cluster, "certificate-authority")) for _ in range(2))
        if certificate := _data(user, "client-certificate"):
            with tempfile.NamedTemporaryFile() as both:  # ssl reads files only
                both.write(certificate + b"\n" + (_data(user, "client-key") or b""))
                both.flush()
                verify.load_cert_chain(both.name)
        found = cls(cluster["server"], user.get("token"), verify)
        found.anonymous = anonymous
        return found

    def ask(self, method: str, path: str, body: Any = None, *, kind: str = "application/json", **query: Any) -> Any:
        """The object in the answer; `Answered` when it is a refusal."""
        content = None if body is None else json.dumps(body).encode()
        answer = self._answer(method, path, content=content, params=query, headers={"Content-Type": kind})
        if answer.is_error:
            raise Answered(answer.status_code, _status(answer.content))
        return answer.json()

    def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Questions are asked again where a kept connection turns out to be dead."""
        for _ in range(TRIES if method == "GET" else 0):
            with suppress(httpx.RemoteProtocolError, httpx.ReadError):
                return self._http.request(method, path, **options)
        return self._http.request(method, path, **options)

    def get(self, path: str, **query: Any) -> Any:
        return self.ask("GET", path, **query)

    def find(self, path: str) -> Any:
        """None when there is no such thing."""
        with suppress_code(404):
            return self.get(path)
        return None

    def items(self, path: str, **query: Any) -> list[dict[str, Any]]:
        return list(self.get(path, **query).get("items") or ())

    def text(self, path: str, **query: Any) -> str:
        answer = self._answer("GET", path, params=query)
        if answer.is_error:
            raise Answered(answer.status_code, _status(answer.content))
        return answer.text

    def create(self, thing: dict[str, Any], namespace: str = "default") -> Any:
        namespace = thing["metadata"].get("namespace", namespace)
        return self.ask("POST", collection(thing, namespace), thing)

    def ensure(self, thing: dict[str, Any], namespace: str = "default") -> None:
        with suppress_code(409):
            self.create(thing, namespace)

    def patch(self, path: str, change: dict[str, Any], kind: str = MERGE) -> Any:
        return self.ask("PATCH", path, change, kind=kind)

    def delete(self, path: str, **options: Any) -> None:
        """Nothing happens when it is gone already."""
        with suppress_code(404):
            self.ask("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})

    def watch(self, path: str, **query: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """All that is there as ADDED, then what changes, until the server ends it."""
        listed = self.get(path, **query)
        kind = listed["kind"].removesuffix("List")
        for item in listed.get("items") or ():
            yield "ADDED", {"kind": kind, "apiVersion": listed["apiVersion"], **item}
        version = listed["metadata"]["resourceVersion"]
        options = {**query, "watch": "1", "resourceVersion": version, "timeoutSeconds": "300"}
        timeout = httpx.Timeout(30.0, read=330.0)
        with self._http.stream("GET", path, params=options, timeout=timeout) as answer:
            for line in answer.iter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["type"], event["object"]

    def close(self) -> None:
        self._http.close()


class suppress_code(suppress):  # noqa: N801 - it is used as `suppress` is
    """As `contextlib.suppress`, for answers of these codes."""

    def __init__(self, *codes: int) -> None:
        super().__init__(Answered)
        self.codes = codes

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        return isinstance(error, Answered) and error.code in self.codes


def collection(thing: dict[str, Any], namespace: str) -> str:
    """Where objects of its kind are kept."""
    kind, version = thing["kind"], thing["apiVersion"]
    plural = PLURALS.get(kind, kind.lower() + "s")
    root = CORE if version == "v1" else f"/apis/{version}"
    cluster_wide = ("Namespace", "Node", "PersistentVolume", "ClusterRole", "ClusterRoleBinding", "PriorityClass")
    if kind in (*cluster_wide, "CustomResourceDefinition", "StorageClass"):
        return f"{root}/{plural}"
    return f"{root}/namespaces/{namespace}/{plural}"


def kubeconfig(
    path: Path,
    server: str,
    *,
    token: str = "",
    certificate: Path | None = None,
    namespace: str = "default",
    authority: Path | None = None,
) -> Path:
    """A file as kubectl reads it, for nobody else's eyes. `certificate`: of the user, with its key beside it."""
    user = {"token": token}
    if certificate is not None:
        both = {"client-certificate": certificate, "client-key": certificate.with_suffix(".key")}
        user = {f"{name}-data": b64encode(file.read_bytes()).decode() for name, file in both.items()}
    cluster = {"server": server, **({"certificate-authority": str(authority)} if authority else {})}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
    }
    part = path.with_suffix(".part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file)
    return part.replace(path)


def _trust(authority: bytes | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED if authority else ssl.CERT_NONE
    return context


def _named(things: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(thing for thing in things if thing["name"] == name)


def _data(where: dict[str, Any], name: str) -> bytes | None:
    if inline := where.get(f"{name}-data"):
        return b64decode(inline)
    return Path(where[name]).read_bytes() if where.get(name) else None


def _status(content: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(content)
        if isinstance(found, dict):
            return found
    return {"message": content.decode(errors="replace")[:500]}
