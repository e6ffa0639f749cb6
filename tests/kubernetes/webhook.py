"""The webhook of training-operator's double: the API server asks it about every job before it takes one."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.kubernetes.rest import Rest
from tests.kubernetes.training import KINDS, refusal

NAME = "validator.training-operator.kubeflow.org"
PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def serve(api: Rest, state: Path) -> None:
    """From now on jobs are checked. Nobody's are taken any more when we are gone, as with the real one."""
    certificate, key = _certificate(state)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rule = {"apiGroups": ["kubeflow.org"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
    hook = {
        "name": NAME,
        "rules": [{**rule, "resources": [kind.plural for kind in KINDS]}],
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_address[1]}/",
            "caBundle": b64encode(certificate.read_bytes()).decode(),
        },
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    api.delete(f"{PATH}/{NAME}")
    meta = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    api.ask("POST", PATH, {**meta, "metadata": {"name": NAME}, "webhooks": [hook]})


def _certificate(state: Path) -> tuple[Path, Path]:
    found = state / "webhook.crt", state / "webhook.key"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=webhook"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *names, "-out", found[0], "-keyout", found[1]], check=True, capture_output=True)
    return found


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = review["request"]
        found = _judged(asked["object"])
        answer: dict[str, Any] = {"uid": asked["uid"], "allowed": not found}
        if found:
            answer["status"] = {"code": 403, "reason": "Forbidden", "message": found}
        words = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(words)))
        self.end_headers()
        self.wfile.write(words)

    def log_message(self, *words: Any) -> None:
        """Nobody reads it."""


def _judged(job: dict[str, Any]) -> str:
    kind = next((kind for kind in KINDS if kind.name == job["kind"]), None)
    return refusal(kind, job) if kind is not None else ""
