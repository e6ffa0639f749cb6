"""Requests and streams, and the cluster that kubectl would ask."""

from __future__ import annotations

import json
import logging
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.kubernetes.cluster.api import (
    CONFIG_MAPS,
    JOBS,
    PODS,
    Api,
    ApiFault,
    ApiUnreachable,
    connect,
    kind_of,
)
from phalanx.backends.kubernetes.cluster.credentials import load
from phalanx.backends.kubernetes.target import Settings
from phalanx.errors import CallError, SystemFault
from tests.backends.kubernetes.apiserver import FakeApiServer


@pytest.fixture(name="server")
def server_fixture() -> Iterator[FakeApiServer]:
    with FakeApiServer() as server:
        yield server


@pytest.fixture(autouse=True)
def own_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))


@pytest.fixture(name="pauses")
def pauses_fixture() -> list[float]:
    return []


@pytest.fixture(name="api")
def api_fixture(server: FakeApiServer, tmp_path: Path, pauses: list[float]) -> Iterator[Api]:
    settings = Settings(kubeconfig=str(server.kubeconfig(tmp_path / "config")))
    api = Api(settings, load(settings), sleep=pauses.append)
    yield api
    api.close()


def config_map(name: str, **data: str) -> dict[str, Any]:
    labels = {"phalanx.dev/run": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": data}


def pod(name: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "main"}]}}


# which cluster


def test_the_namespace_is_the_contexts_unless_one_is_named(server: FakeApiServer, tmp_path: Path) -> None:
    at = str(server.kubeconfig(tmp_path / "one", namespace="team", context="lab"))
    api = connect(Settings(kubeconfig=at))
    assert (api.namespace, api.context, api.user, api.server) == ("team", "lab", "lab", server.url)
    assert connect(Settings(kubeconfig=at, namespace="other")).namespace == "other"
    bare = str(server.kubeconfig(tmp_path / "two", namespace=None))
    assert connect(Settings(kubeconfig=bare)).namespace == "default"


def test_files_of_the_variable_are_merged_and_the_first_current_context_wins(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.kubeconfig(tmp_path / "one", context="first")
    server.kubeconfig(tmp_path / "two", context="second", namespace="team")
    (tmp_path / "empty").touch()
    (tmp_path / "bare").write_text("clusters: null\ncontexts: null\ncurrent-context: ''\nusers: null\n")
    monkeypatch.setenv("KUBECONFIG", ":".join(str(tmp_path / name) for name in ("gone", "empty", "bare", "one", "two")))
    assert connect(Settings()).context == "first"
    assert connect(Settings(context="second")).namespace == "team"
    with pytest.raises(CallError, match="no context `third`; the contexts are: first, second"):
        connect(Settings(context="third"))


def test_the_kubeconfig_of_the_home_is_used(server: FakeApiServer, tmp_path: Path) -> None:
    (tmp_path / "nobody/.kube").mkdir(parents=True)
    server.kubeconfig(tmp_path / "nobody/.kube/config", context="home")
    assert connect(Settings()).context == "home"


def test_no_kubeconfig_at_all_is_reported_kindly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CallError, match=r"no kubeconfig: .* name one with --kubeconfig FILE"):
        connect(Settings())
    with pytest.raises(CallError, match=r"kubeconfig .*gone does not exist: name another"):
        connect(Settings(kubeconfig=str(tmp_path / "gone")))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "gone"))
    with pytest.raises(CallError, match=r"no file of \$KUBECONFIG"):
        connect(Settings())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "invalid kubeconfig"),
        ("", "is empty"),
        ("- 1", "invalid kubeconfig"),
        ("{}", "no current context is set: name one with --context; it has no contexts"),
        ("{current-context: a, contexts: [{name: a, context: {cluster: b}}], clusters: []}", "name b"),
        ("{current-context: a, contexts: [{name: b, context: {cluster: b}}]}", "no context `a`; the contexts are: b"),
    ],
)
def test_a_kubeconfig_that_does_not_work_is_reported_kindly(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(CallError, match=words):
        connect(Settings(kubeconfig=str(tmp_path / "config")))


def test_a_cluster_that_is_down_may_come_back(server: FakeApiServer, tmp_path: Path) -> None:
    settings = Settings(kubeconfig=str(server.kubeconfig(tmp_path / "config")))
    server.stop()
    with pytest.raises(SystemFault, match=r"no response from http://.* \(context `fake`\): connection refused"):
        connect(settings)
    connect(settings, ask=False)
    server.start()
    connect(settings)


def test_expired_credentials_are_reported_kindly(server: FakeApiServer, tmp_path: Path) -> None:
    settings = Settings(kubeconfig=str(server.kubeconfig(tmp_path / "config")))
    server.token = "another"
    with pytest.raises(CallError, match="rejects the credentials of `fake`: they have expired"):
        connect(settings)


def test_a_missing_package_is_reported_kindly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    with pytest.raises(CallError, match=r"pip install 'phalanx\[kubernetes\]'"):
        connect(Settings())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")
def test_a_certificate_of_another_host_is_reported_kindly(tmp_path: Path) -> None:
    for name in ("one", "two"):
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        made += ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1"]
        made += ["-keyout", str(tmp_path / f"{name}.key"), "-out", str(tmp_path / f"{name}.crt")]
        subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "one.crt", tmp_path / "one.key")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(HTTPServer):
        def handle_error(self, *_: Any) -> None:
            pass

    with Quiet(("127.0.0.1", 0), Handler) as there:
        there.socket = context.wrap_socket(there.socket, server_side=True)
        threading.Thread(target=there.serve_forever, args=(0.02,), daemon=True).start()
        document = {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": f"https://127.0.0.1:{there.server_port}"}}],
        }
        for name, is_trusted in (("one.crt", True), ("two.crt", False)):
            document["clusters"][0]["cluster"]["certificate-authority"] = name  # type: ignore[index]
            (tmp_path / "config").write_text(json.dumps(document))  # beside it: the path is relative
            if is_trusted:
                connect(Settings(kubeconfig=str(tmp_path / "config"))).close()
                continue
            with pytest.raises(CallError, match=r"its certificate is not trusted: .*; the `certificate-authority`"):
                connect(Settings(kubeconfig=str(tmp_path / "config")))
        there.shutdown()


def fetching(server: FakeApiServer, tmp_path: Path, script: str) -> Settings:
    """A kubeconfig whose credentials come from a program, as clouds have it."""
    (tmp_path / "fetch").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "fetch").chmod(0o755)
    document = json.loads(server.kubeconfig(tmp_path / "config").read_text())
    version = "client.authentication.k8s.io/v1"
    program = {"apiVersion": version, "command": str(tmp_path / "fetch"), "interactiveMode": "Never"}
    document["users"][0]["user"] = {"exec": program}
    (tmp_path / "config").write_text(json.dumps(document))
    return Settings(kubeconfig=str(tmp_path / "config"))


def test_a_new_token_is_fetched_when_the_old_one_is_not_taken_any_more(server: FakeApiServer, tmp_path: Path) -> None:
    answer = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}'
    settings = fetching(server, tmp_path, f"printf '{answer}' $(cat {tmp_path / 'token'})")
    (tmp_path / "token").write_text("secret")
    api = connect(settings)
    server.token = "next"
    with pytest.raises(ApiFault) as fault:
        api.list(PODS)
    assert fault.value.code == 401
    (tmp_path / "token").write_text("next")
    assert api.list(PODS).items == []
    api.close()


def test_credentials_stay_those_of_one_context(server: FakeApiServer, tmp_path: Path) -> None:
    api = connect(Settings(kubeconfig=str(server.kubeconfig(tmp_path / "config", context="mine"))))
    server.token = "others"
    server.kubeconfig(tmp_path / "config", context="others")  # somebody switches
    with pytest.raises(ApiFault) as fault:
        api.list(PODS)
    assert fault.value.code == 401
    server.kubeconfig(tmp_path / "config", context="mine")
    assert api.list(PODS).items == []
    api.close()


def test_a_program_that_fetches_no_credentials_is_reported_kindly(server: FakeApiServer, tmp_path: Path) -> None:
    handlers = list(logging.getLogger().handlers)
    with pytest.raises(CallError, match=r"`.*/fetch`, which fetches the credentials of `fake`: .*log in first"):
        connect(fetching(server, tmp_path, "echo log in first >&2; exit 1"))
    assert logging.getLogger().handlers == handlers


def test_a_pod_uses_its_own_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.config import incluster_config

    for name, text in (("token", "mine"), ("ca.crt", ""), ("namespace", "team\n")):
        (tmp_path / name).write_text(text)
    import certifi

    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", certifi.where())
    monkeypatch.setattr("phalanx.backends.kubernetes.cluster.credentials.OWN_NAMESPACE", tmp_path / "namespace")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = load(Settings())
    assert (found.namespace, found.context, found.server) == ("team", "in-cluster", "https://10.0.0.1:443")
    assert found.headers() == {"Authorization": "bearer mine"}
    with pytest.raises(CallError, match="no context `lab`: there is no kubeconfig"):
        load(Settings(context="lab"))


# requests


def test_objects_are_made_read_changed_and_removed(api: Api, server: FakeApiServer) -> None:
    made = api.create(CONFIG_MAPS, config_map("one", a="1"))
    assert kind_of(made) == CONFIG_MAPS
    assert api.get(CONFIG_MAPS, "one")["data"] == {"a": "1"}
    with pytest.raises(ApiFault) as other:
        api.delete(CONFIG_MAPS, "one", uid="another")
    assert other.value.code == 409
    api.delete(CONFIG_MAPS, "one", uid=made["metadata"]["uid"])
    with pytest.raises(ApiFault) as gone:
        api.get(CONFIG_MAPS, "one")
    assert (gone.value.code, gone.value.reason, gone.value.details["name"]) == (404, "NotFound", "one")
    assert server.names("ConfigMap") == []


def test_refusals_keep_the_servers_words(api: Api, server: FakeApiServer) -> None:
    api.create(CONFIG_MAPS, config_map("one"))
    with pytest.raises(ApiFault) as twice:
        api.create(CONFIG_MAPS, config_map("one"))
    assert (twice.value.code, twice.value.reason) == (409, "AlreadyExists")
    with pytest.raises(ApiFault, match=r"Job.batch .* is invalid") as wrong:
        api.create(JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {}})
    assert (wrong.value.code, wrong.value.details["causes"][0]["field"]) == (422, "spec.template.spec.containers")
    server.deny("create", "secrets")
    server.deny("list", "pods")
    with pytest.raises(ApiFault, match='cannot list resource "pods"') as forbidden:
        api.list(PODS)
    assert forbidden.value.code == 403
    with pytest.raises(ApiFault, match='namespaces "nowhere" not found'):
        api.request("POST", CONFIG_MAPS.path("nowhere"), config_map("one"))


def test_what_the_server_warns_of_is_asked_to_who_asked(api: Api, server: FakeApiServer) -> None:
    server.warnings = ['unknown field "spec.nonsense"', "would violate PodSecurity: a, b"]
    heard: list[str] = []
    listening = api.with_warnings(heard.append)
    listening.create(CONFIG_MAPS, config_map("one"))
    assert heard == server.warnings
    api.create(CONFIG_MAPS, config_map("two"))  # for others nothing changes
    listening.get(CONFIG_MAPS, "two")
    with pytest.raises(ApiFault):
        listening.create(CONFIG_MAPS, config_map("two"))
    assert heard == server.warnings * 2


def test_too_many_requests_waits_as_long_as_the_server_says(
    api: Api, server: FakeApiServer, pauses: list[float]
) -> None:
    server.fail_next(429, retry_after=3, times=2)
    api.create(CONFIG_MAPS, config_map("one"))
    assert pauses == [3.0, 3.0]
    server.fail_next(429, retry_after=500)
    api.get(CONFIG_MAPS, "one")
    assert pauses[2:] == [10.0]


def test_retries_have_an_end(api: Api, server: FakeApiServer, pauses: list[float]) -> None:
    server.fail_next(429, retry_after=1, times=99)
    with pytest.raises(ApiFault, match="Too many requests") as fault:
        api.list(PODS)
    assert (fault.value.code, len(pauses)) == (429, 4)


@pytest.mark.parametrize("code", [500, 503, 504])
def test_faults_of_the_server_pass_for_what_may_be_done_twice(
    api: Api, server: FakeApiServer, pauses: list[float], code: int
) -> None:
    server.fail_next(code, times=2)
    assert api.list(PODS).items == []
    assert len(pauses) == 2
    server.fail_next(code, after=True)
    with pytest.raises(ApiFault) as fault:
        api.create(CONFIG_MAPS, config_map("one"))
    assert fault.value.code == code
    assert fault.value.transient
    assert server.names("ConfigMap") == ["one"]


def test_a_lost_answer_is_asked_for_again_but_nothing_is_made_twice(api: Api, server: FakeApiServer) -> None:
    server.fail_next(drop=True)
    assert api.list(PODS).items == []
    server.fail_next(drop=True, after=True)
    with pytest.raises(ApiUnreachable) as fault:
        api.create(CONFIG_MAPS, config_map("one"))
    assert fault.value.was_sent
    assert len([one for one in server.requests if one.method == "POST"]) == 1
    server.fail_next(drop=True, after=True)
    with pytest.raises(ApiFault) as gone:
        api.delete(CONFIG_MAPS, "one")
    assert gone.value.code == 404  # the deletion had been done


def test_a_server_that_is_down_takes_a_creation_once_it_is_up(api: Api, server: FakeApiServer) -> None:
    server.stop()
    with pytest.raises(ApiUnreachable, match="connection refused") as fault:
        api.create(CONFIG_MAPS, config_map("one"))
    assert not fault.value.was_sent
    server.start()
    api.create(CONFIG_MAPS, config_map("one"))


def test_a_long_list_comes_in_pages(api: Api, server: FakeApiServer) -> None:
    for number in range(1201):
        server.put({**config_map(f"c-{number:04d}"), "metadata": {"name": f"c-{number:04d}", "namespace": "default"}})
    before = len(server.requests)
    listed = api.list(CONFIG_MAPS)
    assert [item["metadata"]["name"] for item in listed.items] == server.names("ConfigMap")
    assert {item["kind"] for item in listed.items} == {"ConfigMap"}
    asked = server.requests[before:]
    assert [one.query["limit"] for one in asked] == ["500"] * 3
    server.fail_next(410, path="configmaps", reason="Expired", message="too old")
    with pytest.raises(ApiFault):
        api.list(CONFIG_MAPS)  # the first page has no excuse


def test_a_list_that_took_too_long_begins_again(
    api: Api, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phalanx.backends.kubernetes.cluster.api.PAGE", 2)
    for number in range(5):
        server.put(config_map(f"c-{number}"))
    asked: list[str] = []
    request = api.request

    def expiring(method: str, path: str, **more: Any) -> Any:
        asked.append(path)
        if len(asked) == 2:
            server.expire_watches()
        return request(method, path, **more)

    monkeypatch.setattr(api, "request", expiring)
    assert len(api.list(CONFIG_MAPS).items) == 5
    assert len(asked) == 5  # one page, one that is too old, and three


def test_selectors_choose(api: Api, server: FakeApiServer) -> None:
    server.put(config_map("one"))
    server.put(config_map("two"))
    server.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}})
    names = [item["metadata"]["name"] for item in api.list(CONFIG_MAPS, selector="phalanx.dev/run").items]
    assert names == ["one", "two"]
    assert len(api.list(CONFIG_MAPS, selector="phalanx.dev/run=two").items) == 1


def test_many_threads_share_few_connections(api: Api, server: FakeApiServer) -> None:
    with ThreadPoolExecutor(40) as threads:
        made = threads.map(lambda number: api.create(CONFIG_MAPS, config_map(f"c-{number}")), range(200))
        assert len({one["metadata"]["uid"] for one in made}) == 200
    assert api.sent == 200
    assert 1 < server.most_at_once <= 16


# streams


def test_a_log_comes_line_by_line(api: Api, server: FakeApiServer) -> None:
    server.put(pod("one"))
    assert list(api.log("one", "main")) == []  # nobody has it yet
    server.set_pod_phase("one", "Pending", waiting="ContainerCreating")
    with pytest.raises(ApiFault, match="is waiting to start") as fault:
        api.log("one", "main")
    assert fault.value.code == 400
    server.set_pod_phase("one", "Succeeded")
    server.logs["one"] = b"first\nsecond\nno end"
    with api.log("one", "main", timestamps=False) as lines:
        assert list(lines) == [b"first\n", b"second\n", b"no end"]
    with api.log("one", "main", tail=1) as lines:
        assert list(lines) == [b"2026-01-01T00:00:00.001000000Z second\n", b"2026-01-01T00:00:00.002000000Z no end"]
    with api.log("one", "main", since="2026-01-01T00:00:01Z") as lines:
        assert list(lines) == []


def test_a_log_is_followed_until_its_reader_is_asked_to_stop(api: Api, server: FakeApiServer) -> None:
    server.put(pod("one"))
    server.set_pod_phase("one", "Running")
    server.logs["one"] = b"first\n"
    lines = api.log("one", "main", follow=True, timestamps=False)
    assert next(lines) == b"first\n"
    server.logs["one"] += b"second\nbegun"
    assert next(lines) == b"second\n"
    threading.Timer(0.1, lines.close).start()
    assert next(lines, None) is None
    assert next(lines, None) is None


def test_a_stream_that_breaks_off_says_so(api: Api, server: FakeApiServer) -> None:
    server.put(pod("one"))
    server.set_pod_phase("one", "Running")
    lines = api.log("one", "main", follow=True)
    threading.Timer(0.1, server.drop_connections).start()
    with pytest.raises(ApiUnreachable):
        list(lines)


def test_silence_that_lasts_too_long_is_a_fault(api: Api, server: FakeApiServer) -> None:
    server.put(pod("one"))
    server.set_pod_phase("one", "Running")
    # A busy server may be silent from the beginning on, or only after its first bytes.
    with pytest.raises(ApiUnreachable, match="timed out"), api.log("one", "main", follow=True, idle_s=0.1) as lines:
        list(lines)


def test_a_line_without_end_comes_in_pieces(api: Api, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.backends.kubernetes.cluster.api.LONGEST_LINE", 100_000)
    server.put(pod("one"))
    server.set_pod_phase("one", "Succeeded")
    server.logs["one"] = b"x" * 1_000_000 + b"\nend\n"
    with api.log("one", "main", timestamps=False) as lines:
        pieces = list(lines)
    assert b"".join(pieces) == server.logs["one"]
    assert max(map(len, pieces)) < 200_000
