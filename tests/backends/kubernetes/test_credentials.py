"""Kubeconfigs as kind, k3s, clouds and offices have them, against a server with TLS."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.kubernetes.cluster.api import Api, ApiUnreachable, connect
from phalanx.backends.kubernetes.cluster.credentials import load
from phalanx.backends.kubernetes.target import Settings
from phalanx.errors import CallError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")


@pytest.fixture(autouse=True)
def own_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))


def certificate(folder: Path, name: str, subject: str, also: str) -> tuple[Path, Path]:
    files = folder / f"{name}.crt", folder / f"{name}.key"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-subj", subject, "-addext", f"subjectAltName={also}", "-days", "1"]
    subprocess.run([*made, "-keyout", str(files[1]), "-out", str(files[0])], check=True, capture_output=True)
    return files


class Tls:
    """A server that says whom it sees: the name in a client's certificate, and what its token is."""

    def __init__(self, folder: Path, also: str = "IP:127.0.0.1") -> None:
        self.folder = folder
        self.own = certificate(folder, "server", "/CN=server", also)
        self.client = certificate(folder, "client", "/CN=ana", "DNS:ana")
        self.seen: list[tuple[str, str]] = []
        self.proxied: list[str] = []
        tls = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                connection: Any = self.connection
                subject = (connection.getpeercert() or {}).get("subject", ())
                names = [value for part in subject for key, value in part if key == "commonName"]
                tls.seen.append((names[0] if names else "", self.headers.get("Authorization", "")))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(b"{}")
                self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                pass

        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(*self.own)
        self.context.load_verify_locations(self.client[0])
        self.context.verify_mode = ssl.CERT_OPTIONAL
        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.server.socket = self.context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def config(self, cluster: dict[str, Any], user: dict[str, Any]) -> Settings:
        document = {
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "ana"}}],
            "clusters": [{"name": "lab", "cluster": {"server": self.url, **cluster}}],
            "users": [{"name": "ana", "user": user}],
        }
        path = self.folder / "config"
        path.write_text(json.dumps(document))
        return Settings(kubeconfig=str(path))

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.server_port}"


@pytest.fixture(name="tls")
def tls_fixture(tmp_path: Path) -> Iterator[Tls]:
    tls = Tls(tmp_path)
    yield tls
    tls.server.shutdown()
    tls.server.server_close()


def inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def trusted(tls: Tls) -> dict[str, Any]:
    return {"certificate-authority-data": inline(tls.own[0])}


def test_certificates_that_stand_in_the_file_outlive_the_files_they_are_unpacked_into(tls: Tls) -> None:
    """As kind, k3s and kubeadm write them. Somebody tidies /tmp while we run for weeks."""
    from kubernetes.config import kube_config

    user = {"client-certificate-data": inline(tls.client[0]), "client-key-data": inline(tls.client[1])}
    api = connect(tls.config(trusted(tls), user))
    assert tls.seen == [("ana", "")]
    for file in kube_config._temp_files.values():
        Path(file).unlink(missing_ok=True)
    kube_config._temp_files.clear()
    api.request("GET", "/version", tries=1)  # by a connection of its own: the server closes each
    assert tls.seen[1:] == [("ana", "")]
    api.close()


def test_a_token_in_a_file_may_end_with_a_line_s_end(tls: Tls, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hush\n")
    connect(tls.config(trusted(tls), {"tokenFile": str(tmp_path / "token")})).close()
    assert tls.seen == [("", "Bearer hush")]


def test_a_server_may_have_another_name_than_its_address(tmp_path: Path) -> None:
    tls = Tls(tmp_path, also="DNS:kubernetes.default")
    try:
        with pytest.raises(CallError, match="its certificate is not trusted"):
            connect(tls.config(trusted(tls), {"token": "a"}))
        connect(tls.config({**trusted(tls), "tls-server-name": "kubernetes.default"}, {"token": "a"})).close()
    finally:
        tls.server.shutdown()
        tls.server.server_close()


def test_who_does_not_ask_for_certificates_is_not_informed_of_it_all_the_time(tls: Tls) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        connect(tls.config({"insecure-skip-tls-verify": True}, {"token": "a"})).close()
    assert tls.seen == [("", "Bearer a")]


def test_what_kubectl_trusts_is_trusted(tls: Tls, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 is stricter than kubectl; and without an authority in the file, the machine's own count."""
    found = load(tls.config(trusted(tls), {"token": "a"}))
    context = found.pool.connection_pool_kw["ssl_context"]
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.own[0]))
    connect(tls.config({}, {"token": "a"})).close()
    assert tls.seen == [("", "Bearer a")]


def test_files_that_are_not_there_are_reported_kindly(tls: Tls, tmp_path: Path) -> None:
    (tmp_path / "not.crt").write_text("no certificate\n")
    with pytest.raises(CallError, match="context `lab`"):
        connect(tls.config({"certificate-authority": str(tmp_path / "not.crt")}, {"token": "a"}))


@pytest.mark.parametrize(
    ("cluster", "environment", "proxy"),
    [
        ({}, {"HTTPS_PROXY": "http://proxy.example:3128"}, "proxy.example"),
        ({}, {"https_proxy": "http://proxy.example:3128"}, "proxy.example"),
        ({}, {"HTTP_PROXY": "http://proxy.example:3128"}, None),
        ({}, {"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "10.0.0.0/8"}, None),
        ({}, {"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": ".example"}, "proxy.example"),
        ({"proxy-url": "http://own.example:3128"}, {"HTTPS_PROXY": "http://proxy.example:3128"}, "own.example"),
        # what the file says is for this cluster, whatever holds for others
        ({"proxy-url": "http://own.example:3128"}, {"NO_PROXY": "10.0.0.0/8"}, "own.example"),
    ],
)
def test_proxies_are_those_that_kubectl_would_use(
    tls: Tls,
    monkeypatch: pytest.MonkeyPatch,
    cluster: dict[str, Any],
    environment: dict[str, str],
    proxy: str | None,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = load(tls.config({"server": "https://10.1.2.3:6443", **trusted(tls), **cluster}, {"token": "a"}))
    chosen: Any = getattr(found.pool, "proxy", None)
    assert (chosen.host if chosen is not None else None) == proxy


def test_a_machine_s_own_address_needs_no_proxy(tls: Tls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    api = connect(tls.config(trusted(tls), {"token": "a"}))
    assert isinstance(api, Api)
    api.close()
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    away = load(tls.config({"server": "https://localhost.example:1", **trusted(tls)}, {"token": "a"}))
    with pytest.raises(ApiUnreachable):
        Api(Settings(), away, sleep=lambda _: None).request("GET", "/version", tries=1)
