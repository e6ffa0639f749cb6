"""The API of a later Kubernetes before an API server of 1.20: it says that version, and knows the Jobs of it.

    python -m tests.kubernetes.face <state of the cluster>

What the API server behind it would drop of a Job lies in an annotation there, and is a field again for whoever looks
through here, in lists and watches too. What these fields do is done by jobs.py. Nothing else is changed.
"""

from __future__ import annotations

import json
import re
import ssl
import sys
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.kubernetes.cluster import Settings
from tests.kubernetes.proxy import Proxy, Refusal, listening

KEPT = "phalanx.test/kept"
SPEC = (
    "completionMode",
    "suspend",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "podFailurePolicy",
    "podReplacementPolicy",
    "successPolicy",
    "managedBy",
    "ttlSecondsAfterFinished",
)
STATUS = ("completedIndexes", "failedIndexes", "ready", "terminating", "uncountedTerminatedPods")
FIELDS = {"spec": SPEC, "status": STATUS}
PER_INDEX_SINCE = (1, 29)
NO_LIMIT = 2**31 - 1
_JOBS = re.compile(r"/apis/batch/v1/(namespaces/[^/]+/)?jobs(/[^/]+)?(/status)?")


class Later:
    """`version`: what is said, as `1.34`. Fields that it does not have yet are dropped, as ever."""

    def __init__(self, version: str) -> None:
        self.major, self.minor = (int(part) for part in version.split("."))
        has_indexes = (self.major, self.minor) >= PER_INDEX_SINCE
        self.unknown = () if has_indexes else ("backoffLimitPerIndex", "maxFailedIndexes", "failedIndexes")

    def inward(self, method: str, path: str, body: bytes, ask: Callable[[str], Any]) -> bytes:
        found = _JOBS.fullmatch(urlsplit(path).path)
        if found is None or method not in ("POST", "PUT", "PATCH"):
            return body
        document = json.loads(body)
        if method == "POST":
            self._default(document)
        kept = self._taken(document)
        if kept or method == "PUT":
            before = {} if method == "POST" else _kept(ask(_of_the_job(urlsplit(path).path)))
            for part, fields in kept.items():
                before[part] = _merged(before.get(part) or {}, fields)
            meta = document.setdefault("metadata", {})
            meta["annotations"] = {**(meta.get("annotations") or {}), KEPT: json.dumps(before)}
        return json.dumps(document).encode()

    def outward(self, path: str) -> Callable[[Any], Any] | None:
        asked = urlsplit(path).path
        if asked == "/version":
            return self._versioned
        return _seen if _JOBS.fullmatch(asked) else None

    def _versioned(self, answer: dict[str, Any]) -> dict[str, Any]:
        said = f"v{self.major}.{self.minor}.0"
        return {**answer, "major": str(self.major), "minor": str(self.minor), "gitVersion": said}

    def _default(self, job: dict[str, Any]) -> None:
        """As its API server would. Raises Refusal."""
        spec = job.get("spec") or {}
        for field in self.unknown:
            spec.pop(field, None)
        is_indexed = spec.setdefault("completionMode", "NonIndexed") == "Indexed"
        if is_indexed and spec.get("completions") is None:
            raise Refusal(422, _invalid(job, "completions: Required value: when completion mode is Indexed"))
        if spec.get("backoffLimitPerIndex") is not None:
            if not is_indexed:
                limit = spec["backoffLimitPerIndex"]
                words = f"backoffLimitPerIndex: Invalid value: {limit}: requires indexed completion mode"
                raise Refusal(422, _invalid(job, words))
            spec.setdefault("backoffLimit", NO_LIMIT)
        spec.setdefault("suspend", False)
        spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")

    def _taken(self, document: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """What the API server would drop, out of the document."""
        found: dict[str, dict[str, Any]] = {}
        for part, fields in FIELDS.items():
            asked = document.get(part)
            if isinstance(asked, dict):
                taken = {field: asked.pop(field) for field in fields if field in asked}
                if taken:
                    found[part] = {field: value for field, value in taken.items() if field not in self.unknown}
        return found


def _seen(answer: Any) -> Any:
    """A Job, a list of them, an event of a watch, or what else is answered there."""
    if isinstance(answer.get("object"), dict) and "type" in answer:
        return {**answer, "object": _seen(answer["object"])}
    if answer.get("kind") == "JobList":
        return {**answer, "items": [_whole(job) for job in answer.get("items") or ()]}
    return _whole(answer) if answer.get("kind") == "Job" else answer


def _whole(job: dict[str, Any]) -> dict[str, Any]:
    kept = _kept(job)
    annotations = {key: value for key, value in (job["metadata"].get("annotations") or {}).items() if key != KEPT}
    meta = {**job["metadata"], "annotations": annotations}
    if not annotations:
        meta.pop("annotations")
    return {**job, "metadata": meta, **{part: {**(job.get(part) or {}), **kept.get(part, {})} for part in FIELDS}}


def _kept(job: dict[str, Any]) -> dict[str, Any]:
    annotations = (job.get("metadata") or {}).get("annotations") or {}
    kept: dict[str, Any] = json.loads(annotations.get(KEPT) or "{}")
    return kept


def _merged(before: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**before, **change}.items() if value is not None}


def _of_the_job(path: str) -> str:
    return path.removesuffix("/status")


def _invalid(job: dict[str, Any], words: str) -> str:
    return f'Job.batch "{(job.get("metadata") or {}).get("name", "")}" is invalid: spec.{words}'


class Face(Proxy):
    """With TLS, at a port of its own; everybody is who they say."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.settings = Settings(**json.loads((state / "settings.json").read_text()))
        super().__init__(state / "inner.kubeconfig")
        self.lens = Later(self.settings.version)
        self.lends_identity = False

    def _listening(self) -> ThreadingHTTPServer:
        certificates = self.state / "certificates"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
        server = listening(self, self.settings.face_port)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        return server


if __name__ == "__main__":
    Face(Path(sys.argv[1]))
    threading.Event().wait()
