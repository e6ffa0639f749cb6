"""All nodes of the test cluster: registers them, runs what is bound to them, tells names, serves logs, and breaks.

    python -m tests.kubernetes.kubelet <state of the cluster>

A pod is run as processes of this machine, with network, memory limit, users, volumes and deadlines of its own: what
an image would bring is this machine's /usr. Names of pods and headless services are in each pod's /etc/hosts, which is
kept up to date: that is the cluster's DNS.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from tests.kubernetes import exec_streams, logs, port_streams
from tests.kubernetes.cluster import Settings
from tests.kubernetes.pods import UNLOCATED, Pod, now
from tests.kubernetes.rest import STRATEGIC, Answered, Rest, suppress_code

BEAT_S = 1.5
PRETENDED_S = 0.2


class Kubelet:
    """Everything that happens on the nodes."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.settings = Settings(**json.loads((state / "settings.json").read_text()))
        self.api = Rest.of(state / "inner.kubeconfig")
        self.pods: dict[str, Pod] = {}  # by uid, on our nodes
        self.known: dict[str, dict[str, Any]] = {}  # all pods of the cluster, as last seen
        self.services: dict[str, dict[str, Any]] = {}
        self.lost: set[str] = set()
        self._numbers = count()
        self._lock = threading.RLock()
        self._names_changed = threading.Event()
        self._pretending = ThreadPoolExecutor(16)
        self._seen: set[str] = set()

    def run(self) -> None:
        port = _serve(self)
        for node in self.settings.names:
            self._register(node, port)
        (self.state / "kubelet.json").write_text(json.dumps({"port": port}))
        for work in (self._beat, self._tell_names):
            threading.Thread(target=work, daemon=True).start()
        threading.Thread(target=self._follow, args=("services", self._see_service), daemon=True).start()
        self._follow("pods", self._see_pod)

    # nodes

    def _register(self, node: str, port: int) -> None:
        labels = {"kubernetes.io/hostname": node, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        self.api.ensure({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}})
        room: dict[str, str] = {
            "cpu": str(self.settings.cpus),
            "memory": f"{self.settings.memory_mib}Mi",
            "pods": "1000" if self.settings.is_pretended else "110",
            "ephemeral-storage": "100Gi",
        }
        if self.settings.gpus:
            room["nvidia.com/gpu"] = str(self.settings.gpus)
        status = {
            "capacity": room,
            "allocatable": room,
            "addresses": [
                {"type": "InternalIP", "address": self.settings.gateway},
                {"type": "Hostname", "address": node},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "nodeInfo": {"kubeletVersion": "v1.20.2", "architecture": "amd64", "operatingSystem": "linux"},
        }
        self.api.patch(f"/api/v1/nodes/{node}/status", {"status": status}, STRATEGIC)
        self._say_ready(node)

    def _say_ready(self, node: str) -> None:
        states = (("Ready", "True"), ("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False"))
        conditions = [
            {
                "type": kind,
                "status": state,
                "reason": "TestKubelet",
                "lastHeartbeatTime": now(),
                "lastTransitionTime": now(),
            }
            for kind, state in states
        ]
        self.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": conditions}}, STRATEGIC)

    def _beat(self) -> None:
        while True:
            for node in self.settings.names:
                if node not in self.lost:
                    with suppress(httpx.HTTPError, Answered):
                        self._say_ready(node)
            time.sleep(BEAT_S)

    # what changes

    def _follow(self, plural: str, see: Callable[[str, dict[str, Any]], None]) -> None:
        while True:
            try:
                self._gone_meanwhile(plural, see)
                for kind, thing in self.api.watch(f"/api/v1/{plural}"):
                    see(kind, thing)
            except (httpx.HTTPError, Answered, OSError, ValueError):
                time.sleep(0.2)

    def _gone_meanwhile(self, plural: str, see: Callable[[str, dict[str, Any]], None]) -> None:
        """What was deleted while nobody watched."""
        there = {item["metadata"]["uid"] for item in self.api.items(f"/api/v1/{plural}")}
        for thing in list((self.known if plural == "pods" else self.services).values()):
            if thing["metadata"]["uid"] not in there:
                see("DELETED", thing)

    def _see_service(self, kind: str, service: dict[str, Any]) -> None:
        _keep(self.services, kind, service)
        self._names_changed.set()

    def _see_pod(self, kind: str, document: dict[str, Any]) -> None:
        _keep(self.known, kind, document)
        self._names_changed.set()
        meta = document["metadata"]
        node, uid = document["spec"].get("nodeName"), meta["uid"]
        if node not in self.settings.names or node in self.lost:
            return
        if self.settings.is_pretended:
            self._pretend(kind, document)
            return
        pod = self.pods.get(uid)
        if kind == "DELETED":
            if pod is not None:
                self.pods.pop(uid)
                threading.Thread(target=pod.remove, daemon=True).start()
        elif meta.get("deletionTimestamp"):
            if pod is None:
                pod = Pod(self, document, next(self._numbers))  # never started, or of another life of ours
                pod.is_finished.set()
                self.pods[uid] = pod
            if uid not in self._seen:
                self._seen.add(uid)
                pod.end(meta.get("deletionGracePeriodSeconds", 30))
                threading.Thread(target=pod.confirm, daemon=True).start()
        elif pod is None and document["status"].get("phase", "Pending") == "Pending":
            pod = self.pods[uid] = Pod(self, document, next(self._numbers))
            pod.start()

    def _pretend(self, kind: str, document: dict[str, Any]) -> None:
        """Phases without processes: for many pods at once."""
        meta = document["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if meta.get("deletionTimestamp"):
            if kind != "DELETED":
                self._pretending.submit(self.api.delete, path, gracePeriodSeconds=0)
            return
        if kind == "DELETED" or meta["uid"] in self._seen:
            return
        self._seen.add(meta["uid"])
        pod = Pod(self, document, next(self._numbers))
        pod.ending.set()  # so that nobody waits for it

        def live() -> None:
            names = [each["name"] for each in document["spec"]["containers"]]
            began = now()
            pod.states = {name: {"running": {"startedAt": began}} for name in names}
            pod.publish()
            time.sleep(float((meta.get("annotations") or {}).get("phalanx.test/seconds", PRETENDED_S)))
            terminated = {"exitCode": 0, "reason": "Completed", "startedAt": began, "finishedAt": now()}
            pod.states = {name: {"terminated": terminated} for name in names}
            pod.publish()

        self._pretending.submit(live)

    # names

    def _tell_names(self) -> None:
        while True:
            self._names_changed.wait()
            self._names_changed.clear()
            for pod in list(self.pods.values()):
                self.refresh_names(pod)
            time.sleep(0.05)

    def refresh_names(self, pod: Pod) -> None:
        """Written over in place: the file is mounted in the pod's containers."""
        if not pod.hosts.exists():
            return
        own = pod.spec.get("hostname") or pod.name
        lines = ["127.0.0.1\tlocalhost", f"{pod.network.address}\t{own}", *self._names(pod.namespace)]
        content = "\n".join([*lines, ""]).encode()
        with suppress(OSError), pod.hosts.open("r+b") as file:
            file.write(content)
            file.truncate()

    def _names(self, namespace: str) -> list[str]:
        lines = []
        pods = [pod for pod in list(self.known.values()) if _has_name(pod, namespace)]
        for service in list(self.services.values()):
            meta, spec = service["metadata"], service["spec"]
            if meta["namespace"] != namespace or not spec.get("selector") or spec.get("clusterIP") != "None":
                continue
            for pod in pods:
                labels = pod["metadata"].get("labels") or {}
                if not spec["selector"].items() <= labels.items():
                    continue
                if not spec.get("publishNotReadyAddresses") and pod["status"].get("phase") != "Running":
                    continue
                names = [meta["name"]]
                if pod["spec"].get("subdomain") == meta["name"] and pod["spec"].get("hostname"):
                    names.append(f"{pod['spec']['hostname']}.{meta['name']}")
                full = [name + tail for name in names for tail in _tails(namespace)]
                lines.append(f"{pod['status']['podIP']}\t{' '.join(full)}")
        return lines

    # faults

    def fault(self, what: str, words: dict[str, str]) -> None:
        if what == "evict":
            reason = "The node was low on resource: memory. Container phalanx was using 1Gi, which exceeds its request."
            condition = _disruption("TerminationByKubelet", "The node was low on resource: memory.")
            verdict = {"phase": "Failed", "reason": "Evicted", "message": reason, "conditions": [condition]}
            pod = self._pod(words["pod"])
            self.event(pod, "Warning", "Evicted", reason)
            pod.end(0.5, verdict)
        elif what == "preempt":
            pod = self._pod(words["pod"])
            condition = _disruption("PreemptionByScheduler", "preempting to accommodate a higher priority pod")
            self.api.patch(f"{pod.path}/status", {"status": {"conditions": [condition]}}, STRATEGIC)
            self.event(pod, "Normal", "Preempted", "Preempted by a pod on node " + pod.spec["nodeName"])
            self.api.delete(pod.path)
        elif what == "lose-node":
            self.lost.add(words["node"])
            for pod in list(self.pods.values()):
                if pod.spec["nodeName"] == words["node"]:
                    pod.lose()
        elif what == "return-node":
            self._return(words["node"])
        else:
            raise KeyError(f"no fault {what!r}")

    def _return(self, node: str) -> None:
        """It has forgotten what ran on it."""
        self.lost.discard(node)
        self._say_ready(node)
        for uid, pod in list(self.pods.items()):
            if pod.spec["nodeName"] == node and pod.is_lost:
                pod.is_lost = False
                for name, state in pod.states.items():
                    if "terminated" not in state or state["terminated"]["exitCode"] == 137:
                        gone = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": UNLOCATED}
                        pod.states[name] = {"terminated": {**gone, "startedAt": now(), "finishedAt": now()}}
                pod.verdict = {"phase": "Failed"}
                document = self.api.find(pod.path)
                if document is None or document["metadata"]["uid"] != uid:
                    self.pods.pop(uid)
                    pod.remove()
                elif document["metadata"].get("deletionTimestamp"):
                    pod.confirm()
                else:
                    pod.publish()

    def _pod(self, named: str) -> Pod:
        namespace, _, name = named.partition("/")
        for pod in list(self.pods.values()):
            if (pod.namespace, pod.name) == (namespace, name):
                return pod
        raise KeyError(f"no pod {named}")

    def event(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        about = {"kind": "Pod", "apiVersion": "v1", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        thing = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{pod.name[:50]}.", "namespace": pod.namespace},
            "involvedObject": about,
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet", "host": pod.spec["nodeName"]},
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "count": 1,
        }
        with suppress(Answered, httpx.HTTPError):
            self.api.create(thing, pod.namespace)


class Answers(BaseHTTPRequestHandler):
    """What the API server asks a kubelet, and what only tests ask."""

    kubelet: Kubelet
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        words = {name: values[0] for name, values in parse_qs(asked.query).items()}
        parts = asked.path.strip("/").split("/")
        if parts[0] != "containerLogs" or len(parts) != 4:
            self._say(404, "no such page")
            return
        try:
            pod = self.kubelet._pod(f"{parts[1]}/{parts[2]}")
        except KeyError as error:
            self._say(404, str(error))
            return
        path = pod.log_file(parts[3], is_previous=words.get("previous") == "true")
        if not path.exists() or pod.is_lost:
            self._say(400, f'container "{parts[3]}" in pod "{parts[2]}" is waiting to start: ContainerCreating')
            return
        process = pod.processes.get(parts[3])
        self._stream(path, _asked(words), lambda: process is None or process.writer.is_closed)

    def do_POST(self) -> None:
        asked = urlsplit(self.path)
        parts = asked.path.strip("/").split("/")
        if parts[0] == "exec" and len(parts) == 4:
            self._execute(parts, parse_qs(asked.query))
            return
        if parts[0] == "portForward" and len(parts) == 3:
            self._forward(f"{parts[1]}/{parts[2]}")
            return
        words = {name: values[0] for name, values in parse_qs(asked.query).items()}
        try:
            self.kubelet.fault(asked.path.rpartition("/")[2], words)
        except (KeyError, Answered) as error:
            self._say(404, str(error))
        else:
            self._say(200, "done")

    def _execute(self, parts: list[str], words: dict[str, list[str]]) -> None:
        try:
            process = self.kubelet._pod(f"{parts[1]}/{parts[2]}").processes[parts[3]]
            first = process.first
        except (KeyError, OSError) as error:
            self._say(404, f"no such container: {error}")
            return
        self.close_connection = True
        exec_streams.serve(self.connection, self.rfile, first, words)  # type: ignore[arg-type]

    def _forward(self, named: str) -> None:
        try:
            network = self.kubelet._pod(named).network.path
        except KeyError as error:
            self._say(404, str(error))
            return
        self.close_connection = True
        port_streams.serve(self.connection, self.rfile, network)  # type: ignore[arg-type]

    def _stream(self, path: Path, asked: logs.Asked, is_over: Callable[[], bool]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        with suppress(OSError):
            for piece in logs.shown(path, asked, is_over):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

    def _say(self, code: int, words: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(words.encode())))
        self.end_headers()
        self.wfile.write(words.encode())

    def log_message(self, *words: Any) -> None:
        """Nobody reads it."""


def _serve(kubelet: Kubelet) -> int:
    certificate = kubelet.state / "kubelet.pem"
    if not certificate.exists():
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=kubelet"]
        subprocess.run([*made, "-keyout", certificate, "-out", f"{certificate}.part"], check=True, capture_output=True)
        with certificate.open("a") as file:
            file.write(Path(f"{certificate}.part").read_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = ThreadingHTTPServer(("0.0.0.0", 0), type("Of", (Answers,), {"kubelet": kubelet}))
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_address[1])


def _asked(words: dict[str, str]) -> logs.Asked:
    since = logs.moment(words["sinceTime"]) if "sinceTime" in words else None
    if "sinceSeconds" in words:
        since = datetime.fromtimestamp(time.time() - float(words["sinceSeconds"]), UTC)
    return logs.Asked(
        follow=words.get("follow") in ("true", "1"),
        timestamps=words.get("timestamps") in ("true", "1"),
        since=since,
        tail=int(words["tailLines"]) if "tailLines" in words else None,
        limit=int(words["limitBytes"]) if "limitBytes" in words else None,
    )


def _keep(things: dict[str, dict[str, Any]], kind: str, thing: dict[str, Any]) -> None:
    if kind == "DELETED":
        things.pop(thing["metadata"]["uid"], None)
    else:
        things[thing["metadata"]["uid"]] = thing


def _has_name(pod: dict[str, Any], namespace: str) -> bool:
    status = pod.get("status") or {}
    is_over = status.get("phase") in ("Succeeded", "Failed")
    return pod["metadata"]["namespace"] == namespace and bool(status.get("podIP")) and not is_over


def _tails(namespace: str) -> tuple[str, ...]:
    return "", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local"


def _disruption(reason: str, message: str) -> dict[str, Any]:
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now(),
    }


if __name__ == "__main__":
    with suppress_code(409):
        Kubelet(Path(sys.argv[1])).run()
