"""A small API server over real HTTP, for tests that have no cluster: it keeps objects, lists and watches them, and
refuses as the real one does. It runs no controllers, but `spawn_pods` and `set_pod_phase` do what they would have done.

    with FakeApiServer() as server:
        server.kubeconfig(tmp_path / "config")
        server.put({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": "default"}})
        server.fail_next(429, retry_after=1, method="GET")

Whatever it answers otherwise than a real API server is a bug of this file.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from tests.backends.kubernetes.apiserver_objects import (
    RESOURCES,
    Document,
    Failure,
    Objects,
    Resource,
    Watch,
    now,
    resource_of,
    success,
)

ENDED = ("Succeeded", "Failed")
FIRST_LINE_AT = datetime(2026, 1, 1, tzinfo=UTC)  # of every log; each further line is a millisecond later


class Request(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    headers: Mapping[str, str]

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in ("1", "true")


class Fault(NamedTuple):
    """What goes wrong with the next request of that method whose path has that text in it. `drop`: the connection
    ends without an answer; `after`: but only once the request has been done."""

    code: int
    method: str | None
    path: str
    retry_after: int | None
    reason: str
    message: str
    drop: bool
    after: bool


class FakeApiServer:
    """`operators`: whose kinds are served besides those of Kubernetes itself, by the names of RESOURCES. `denied`:
    (verb, resource) that nobody may do, such as ("list", "nodes")."""

    def __init__(
        self, *, version: str = "1.34", operators: Iterable[str] = ("training-operator", "mpi"), token: str = "secret"
    ) -> None:
        self.version, self.token = version, token
        self.objects = Objects([*RESOURCES["kubernetes"], *(one for name in operators for one in RESOURCES[name])])
        self.requests: list[Request] = []
        self.logs: dict[str, bytes] = {}  # by the names of pods
        self.denied: set[tuple[str, str]] = set()
        self.faults: list[Fault] = []
        self.warnings: list[str] = []  # of whatever is created
        self.most_at_once = 0  # requests; streams are not counted
        self.is_graceful = False  # deleted pods that run stay until they have ended, as where there is a kubelet
        self._port = 0
        self._server: _Server | None = None
        self._suffix = 0
        for name in ("default", "kube-system"):
            self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def __enter__(self) -> FakeApiServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._server = _Server(self, self._port)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """As when the process is killed: every connection ends. `start` brings it back, with all its objects."""
        if self._server is not None:
            self._server.end()
            self._server = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def kubeconfig(self, path: Path, *, namespace: str | None = "default", context: str = "fake") -> Path:
        """Written there: how to reach this server."""
        within = {"cluster": context, "user": context, **({"namespace": namespace} if namespace else {})}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": context,
            "clusters": [{"name": context, "cluster": {"server": self.url}}],
            "users": [{"name": context, "user": {"token": self.token}}],
            "contexts": [{"name": context, "context": within}],
        }
        path.write_text(json.dumps(document))
        path.chmod(0o600)
        return path

    # faults

    def fail_next(  # a fault has many faces
        self,
        code: int = 500,
        *,
        times: int = 1,
        method: str | None = None,
        path: str = "",
        retry_after: int | None = None,
        reason: str = "",
        message: str = "",
        drop: bool = False,
        after: bool = False,
    ) -> None:
        self.faults += [Fault(code, method, path, retry_after, reason, message, drop, after)] * times

    def fault_for(self, method: str, path: str) -> Fault | None:
        with self.objects.changed:
            for fault in self.faults:
                if fault.method in (None, method) and fault.path in path:
                    self.faults.remove(fault)
                    return fault
        return None

    def deny(self, verb: str, resource: str) -> None:
        """From now on forbidden: deny("list", "nodes"), deny("*", "jobs"), deny("get", "pods/log")."""
        self.denied.add((verb, resource))

    def may(self, verb: str, resource: str) -> bool:
        return not {(verb, resource), ("*", resource), (verb, "*")} & self.denied

    def drop_connections(self) -> None:
        """Every connection there is ends now; new ones are welcome."""
        if self._server is not None:
            self._server.drop()

    def expire_watches(self) -> None:
        """What happened so far is forgotten: watches that go on from before it are told that they are too old."""
        self.objects.forget()

    # what others do in a cluster

    def serve(self, group: str, version: str, plural: str, kind: str, *, namespaced: bool = True) -> None:
        """One more kind, as by a new CRD."""
        self.objects.resources.append(Resource(group, version, plural, kind, namespaced))

    def unserve(self, kind: str) -> None:
        """A kind is no more, as when its CRD is deleted, and its objects with it."""
        for one in self.objects.all_of(kind, ""):
            self.remove(kind, one["metadata"]["name"], one["metadata"].get("namespace", ""))
        self.objects.resources = [one for one in self.objects.resources if one.kind != kind]

    def put(self, document: Mapping[str, Any]) -> Document:
        """The object there, new or changed, by nobody's leave; its status, too."""
        return self.objects.put(document)

    def get(self, kind: str, name: str, namespace: str = "default") -> Document | None:
        return self.objects.find(kind, name, namespace)

    def names(self, kind: str, namespace: str = "default") -> list[str]:
        return [one["metadata"]["name"] for one in self.objects.all_of(kind, namespace)]

    def remove(self, kind: str, name: str, namespace: str = "default") -> None:
        """As by the garbage collector or somebody else: at once, and all that it owns."""
        resource = next(one for one in self.objects.resources if one.kind == kind)
        self.objects.delete(resource, namespace if resource.namespaced else "", name, {"gracePeriodSeconds": 0})

    def spawn_pods(self, job: str, namespace: str = "default") -> list[str]:
        """The pods of a Job, as its controller makes them."""
        owner = self.get("Job", job, namespace)
        assert owner is not None, f"there is no Job {job}"
        spec, made = owner["spec"], []
        is_indexed = spec.get("completionMode") == "Indexed"
        for index in range(spec.get("parallelism", 1)):
            self._suffix += 1
            template = json.loads(json.dumps(spec["template"]))
            name = f"{job}-{index}-{self._suffix:05x}" if is_indexed else f"{job}-{self._suffix:05x}"
            meta = template.setdefault("metadata", {})
            uid = owner["metadata"]["uid"]
            labels = {"batch.kubernetes.io/job-name": job, "job-name": job, "controller-uid": uid}
            if is_indexed:
                key = "batch.kubernetes.io/job-completion-index"
                labels[key] = str(index)
                meta["annotations"] = {**meta.get("annotations", {}), key: str(index)}
                template["spec"]["hostname"] = f"{job}-{index}"
            meta |= {"name": name, "namespace": namespace, "labels": {**meta.get("labels", {}), **labels}}
            reference = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid}
            meta["ownerReferences"] = [{**reference, "controller": True, "blockOwnerDeletion": True}]
            self.put({"apiVersion": "v1", "kind": "Pod", **template, "status": {"phase": "Pending"}})
            made.append(name)
        self._count_pods(owner)
        return made

    def set_pod_phase(
        self,
        name: str,
        phase: str,
        *,
        namespace: str = "default",
        exit_code: int | None = None,
        why: str | None = None,
        message: str | None = None,
        waiting: str | None = None,
        container_why: str | None = None,
        node: str = "node-1",
        conditions: Iterable[Mapping[str, Any]] = (),
    ) -> Document:
        """A pod's status as its kubelet would say it; the Job that owns it counts on. `why`: the pod's reason, such as
        Evicted; `container_why`: the container's, such as OOMKilled; `waiting`: why a container waits."""
        pod = self.get("Pod", name, namespace)
        assert pod is not None, f"there is no pod {name}"
        statuses = []
        for container in pod["spec"].get("containers", [{"name": "main", "image": ""}]):
            state: Document = {"running": {"startedAt": now()}}
            if phase in ENDED:
                code = exit_code if exit_code is not None else int(phase == "Failed")
                said = container_why or ("Completed" if code == 0 else "Error")
                state = {"terminated": {"exitCode": code, "reason": said, "startedAt": now(), "finishedAt": now()}}
            elif phase == "Pending":
                state = {
                    "waiting": {"reason": waiting or "ContainerCreating", **({"message": message} if message else {})}
                }
            status = {"name": container["name"], "image": container.get("image", ""), "restartCount": 0, "imageID": ""}
            statuses.append({**status, "state": state, "lastState": {}, "ready": phase == "Running"})
        if phase != "Pending" or waiting:
            pod["spec"]["nodeName"] = node
        pod["status"] = {"phase": phase, "containerStatuses": statuses, "conditions": [dict(one) for one in conditions]}
        pod["status"] |= {key: value for key, value in (("reason", why), ("message", message)) if value}
        self.put(pod)
        if phase in ENDED and pod["metadata"].get("deletionTimestamp"):
            self.remove("Pod", name, namespace)
        for reference in pod["metadata"].get("ownerReferences", ()):
            owner = self.get("Job", reference["name"], namespace) if reference["kind"] == "Job" else None
            if owner is not None:
                self._count_pods(owner)
        return pod

    def _count_pods(self, job: Document) -> None:
        """A Job's status, from its pods: one failure is the end of it, as with backoffLimit 0."""
        mine = [
            pod
            for pod in self.objects.all_of("Pod", job["metadata"]["namespace"])
            if any(one["uid"] == job["metadata"]["uid"] for one in pod["metadata"].get("ownerReferences", ()))
        ]
        phases = [pod.get("status", {}).get("phase") for pod in mine]
        counts = {"succeeded": phases.count("Succeeded"), "failed": phases.count("Failed")}
        status: Document = {"startTime": now(), "active": len(phases) - sum(counts.values()), **counts}
        condition: Document = {"status": "True", "lastTransitionTime": now()}
        if counts["failed"]:
            why = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
            status["conditions"] = [{**condition, "type": "Failed", **why}]
        elif counts["succeeded"] == job["spec"].get("completions", 1):
            status |= {"conditions": [{**condition, "type": "Complete"}], "completionTime": now()}
        self.put({**job, "status": {key: value for key, value in status.items() if value != 0}})

    def event(self, about: Document, reason: str, message: str, *, kind: str = "Warning") -> Document:
        """Something that a component says of an object."""
        meta = about["metadata"]
        self._suffix += 1
        involved = {"kind": about["kind"], "apiVersion": about["apiVersion"], "name": meta["name"], "uid": meta["uid"]}
        document = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{self._suffix:016x}", "namespace": meta["namespace"]},
            "involvedObject": {**involved, "namespace": meta["namespace"]},
            "reason": reason,
            "message": message,
            "type": kind,
            "count": 1,
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "source": {"component": "test"},
        }
        return self.put(document)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, fake: FakeApiServer, port: int) -> None:
        self.fake = fake
        self.is_ended = False
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        self._at_work = 0
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    @contextmanager
    def counted(self, *, is_stream: bool) -> Iterator[None]:
        with self._guard:
            self._at_work += not is_stream
            self.fake.most_at_once = max(self.fake.most_at_once, self._at_work)
        try:
            yield
        finally:
            with self._guard:
                self._at_work -= not is_stream

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are no news."""

    def drop(self) -> None:
        with self._guard:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        self.is_ended = True
        self.shutdown()
        self.server_close()
        self.drop()
        with self.fake.objects.changed:
            self.fake.objects.changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        with self.server.counted(is_stream="watch=" in self.path or "/log" in self.path):
            self._answer()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the names that http.server looks for

    def _answer(self) -> None:
        fake = self.server.fake
        parts = urlsplit(self.path)
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.body: Any = None
        with suppress(ValueError):
            self.body = json.loads(raw) if raw else None
        fake.requests.append(Request(self.command, parts.path, self.query, self.body, dict(self.headers)))
        fault = fake.fault_for(self.command, parts.path)
        if fault is not None and not fault.after:
            return self._fail(fault)
        try:
            if self.headers.get("Authorization") != f"Bearer {fake.token}":
                raise Failure(401, "Unauthorized", "Unauthorized")
            answer = self._dispatch(parts.path)
        except (KeyError, TypeError, ValueError, AttributeError) as bug:
            self._send(500, Failure(500, "InternalError", f"a bug of the fake: {bug!r}").status())
            return None
        except Failure as failure:
            if fault is None:
                self._send(failure.code, failure.status() if failure.reason else failure.message)
            else:
                self._fail(fault)
            return None
        if fault is not None:
            return self._fail(fault)
        if answer is not None:
            self._send(201 if self.command == "POST" else 200, answer)
        return None

    def _fail(self, fault: Fault) -> None:
        if fault.drop:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        headers = {"Retry-After": str(fault.retry_after)} if fault.retry_after is not None else {}
        if fault.code == 429 and not fault.message:  # how the server's own flow control says it: not as a Status
            self._send(429, "Too many requests, please try again later.\n", headers)
            return
        reason = fault.reason or {500: "InternalError", 503: "ServiceUnavailable"}.get(fault.code, "")
        message = fault.message or "Internal error occurred: as asked for"
        self._send(fault.code, Failure(fault.code, reason, message).status(), headers)

    def _send(self, code: int, answer: Document | str, headers: Mapping[str, str] | None = None) -> None:
        kind = "text/plain; charset=utf-8" if isinstance(answer, str) else "application/json"
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(code)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        for text in self.server.fake.warnings if self.command == "POST" else ():
            quoted = text.replace("\\", "\\\\").replace('"', '\\"')
            self.send_header("Warning", f'299 - "{quoted}"')
        self.end_headers()
        self.wfile.write(data)

    # what is asked for

    def _dispatch(self, path: str) -> Document | None:
        objects = self.server.fake.objects
        steps = [step for step in path.split("/") if step]
        if path == "/version":
            major, minor = self.server.fake.version.split(".")[:2]
            version = self.server.fake.version
            return {"major": major, "minor": minor, "gitVersion": f"v{version}{'.0' * (version.count('.') < 2)}"}
        if steps in (["api"], ["apis"]) or (steps[:1] == ["api"] and len(steps) == 2):
            return objects.discovery(steps)
        if steps[:1] == ["apis"] and len(steps) <= 3:
            return objects.discovery(steps)
        resource, namespace, name, part = resource_of(objects.resources, steps)
        if resource.group == "authorization.k8s.io":
            return self._review()
        self._authorise(resource, namespace, name, part)
        if self.command == "GET" and self.query.get("watch") in ("1", "true"):
            self._watch(resource, namespace)
            return None
        if part == "log":
            self._log(namespace, name)
            return None
        if self.command == "GET":
            return self._slim(
                objects.get(resource, namespace, name) if name else objects.page(resource, namespace, self.query)
            )
        if self.command == "POST" and not name:
            return objects.create(resource, namespace, self.body, dry=self._is_dry)
        if self.command == "DELETE" and name:
            return self._delete(resource, namespace, name)
        if self.command == "PUT" and name:
            return objects.replace(resource, namespace, name, part, self.body, dry=self._is_dry)
        if self.command == "PATCH" and name:
            kind = self.headers.get("Content-Type", "").split(";")[0]
            return objects.patch(resource, namespace, name, part, kind, self.body, dry=self._is_dry)
        raise Failure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    @property
    def _is_dry(self) -> bool:
        return self.query.get("dryRun") == "All"

    def _review(self) -> Document:
        asked = self.body["spec"]["resourceAttributes"]
        resource = asked.get("resource", "") + (f"/{asked['subresource']}" if asked.get("subresource") else "")
        allowed = self.server.fake.may(asked.get("verb", ""), resource)
        return {**self.body, "metadata": {}, "status": {"allowed": allowed}}

    def _authorise(self, resource: Resource, namespace: str, name: str, part: str) -> None:
        reading = "watch" if self.query.get("watch") in ("1", "true") else "get" if name else "list"
        verb = {"POST": "create", "PUT": "update"}.get(self.command, self.command.lower())
        verb = reading if self.command == "GET" else verb
        asked = f"{resource.plural}/{part}" if part else resource.plural
        if self.server.fake.may(verb, asked):
            return
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        what = f"{resource.full}{f' {json.dumps(name)}' if name else ''} is forbidden"
        message = f'{what}: User "test" cannot {verb} resource "{asked}" in API group "{resource.group}" {where}'
        raise Failure(403, "Forbidden", message, resource.details(name))

    def _delete(self, resource: Resource, namespace: str, name: str) -> Document:
        fake, options = self.server.fake, self.body or {}
        for key in ("propagationPolicy", "gracePeriodSeconds"):
            if key in self.query:
                options[key] = int(self.query[key]) if key == "gracePeriodSeconds" else self.query[key]
        if resource.kind == "Pod" and options.get("gracePeriodSeconds") != 0:
            pod = fake.objects.get(resource, namespace, name)
            is_at_work = bool(pod["spec"].get("nodeName")) and pod.get("status", {}).get("phase") not in ENDED
            if fake.is_graceful and is_at_work:
                grace = options.get("gracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", 30))
                return fake.objects.mark_deleted(resource, namespace, name, options, grace)
        if self._is_dry:
            return success(resource, fake.objects.get(resource, namespace, name))
        return fake.objects.delete(resource, namespace, name, options, graceful=fake.is_graceful)

    # streams

    def _slim(self, document: Document) -> Document:
        """Only metadata, where that is asked for."""
        if "as=PartialObjectMetadata" not in self.headers.get("Accept", "") or document["kind"] == "Status":
            return document
        typed = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        if "items" in document:
            items = [{**typed, "metadata": one["metadata"]} for one in document["items"]]
            return {**typed, "kind": "PartialObjectMetadataList", "metadata": document["metadata"], "items": items}
        return {**typed, "metadata": document["metadata"]}

    def _begin_stream(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _watch(self, resource: Resource, namespace: str) -> None:
        objects, ends = self.server.fake.objects, time.monotonic() + float(self.query.get("timeoutSeconds", 1800))
        watch = Watch(objects, resource, namespace, self.query)
        self._begin_stream("application/json")
        while not self.server.is_ended:
            for event in watch.news():
                self._chunk(json.dumps({**event, "object": self._slim(event["object"])}).encode() + b"\n")
            if watch.is_over or time.monotonic() >= ends:
                break
            with objects.changed:
                objects.changed.wait_for(watch.has_news, min(0.25, max(0.0, ends - time.monotonic())))
        if not watch.is_over and self.query.get("allowWatchBookmarks") in ("1", "true"):
            self._chunk(json.dumps(watch.bookmark()).encode() + b"\n")
        self.wfile.write(b"0\r\n\r\n")

    def _log(self, namespace: str, name: str) -> None:
        fake, query = self.server.fake, self.query
        pod = fake.objects.get(resource_of(fake.objects.resources, ["api", "v1", "pods"])[0], namespace, name)
        containers = [one["name"] for one in pod["spec"].get("containers", ())]
        wanted = query.get("container", containers[0] if containers else "")
        known = [*containers, *(one["name"] for one in pod["spec"].get("initContainers", ()))]
        if known and wanted not in known:
            raise Failure(400, "BadRequest", f"container {wanted} is not valid for pod {name}")
        is_begun = pod.get("status", {}).get("phase") in ("Running", *ENDED) or name in fake.logs
        if pod["spec"].get("nodeName") and not is_begun:
            why = f'container "{wanted}" in pod "{name}" is waiting to start: ContainerCreating'
            raise Failure(400, "BadRequest", why)
        self._begin_stream("text/plain")
        sent = max(0, fake.logs.get(name, b"").count(b"\n") - int(query["tailLines"])) if "tailLines" in query else 0
        while not self.server.is_ended:
            is_over = query.get("follow") not in ("1", "true") or _is_over(fake, namespace, name)
            lines = fake.logs.get(name, b"").splitlines(keepends=True)
            if lines and not lines[-1].endswith(b"\n") and not is_over:
                lines.pop()
            fresh = b"".join(_stamped(number, lines[number], query) for number in range(sent, len(lines)))
            if fresh:
                self._chunk(fresh)
            sent = max(sent, len(lines))
            if is_over:
                break
            time.sleep(0.02)
        self.wfile.write(b"0\r\n\r\n")


def _is_over(fake: FakeApiServer, namespace: str, name: str) -> bool:
    pod = fake.get("Pod", name, namespace)
    return pod is None or pod.get("status", {}).get("phase") in ENDED


def _stamped(number: int, line: bytes, query: Mapping[str, str]) -> bytes:
    """A line of a log as the kubelet gives it out; nothing when it is older than asked for."""
    said_at = FIRST_LINE_AT + timedelta(milliseconds=number)
    since = query.get("sinceTime")
    if since is not None and said_at < datetime.fromisoformat(since).replace(microsecond=0):  # kubelets count seconds
        return b""
    text = said_at.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z "
    return (text.encode() if query.get("timestamps") in ("1", "true") else b"") + line
