"""The cluster that tests run on: that its nodes do what real ones do, so far as runs depend on it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.cli.homes import wait_for
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.rest import Answered, Rest
from tests.kubernetes.sandboxes import MISSING_IMAGE, NO_PYTHON_IMAGE
from tests.kubernetes.volumes import expanded, quantity
from tests.kubernetes.worlds import OLD, World

PATIENCE_S = 30.0
pytestmark = pytest.mark.faces(OLD)


class Pods:
    """A namespace, and plain pods in it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.api: Rest = cluster.api
        self.namespace = namespace

    def path(self, name: str, plural: str = "pods") -> str:
        return f"/api/v1/namespaces/{self.namespace}/{plural}/{name}"

    def start(self, name: str, command: str, *, labels: dict[str, str] | None = None, **spec: Any) -> None:
        container = {"name": "main", "image": "python:3.12-slim", "command": ["sh", "-c", command]}
        container.update(spec.pop("container", {}))
        meta = {"name": name, "labels": labels or {}}
        whole = {"restartPolicy": "Never", "containers": [container], **spec}
        self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": whole}, self.namespace)

    def until(self, name: str, *phases: str) -> dict[str, Any]:
        found: dict[str, Any] = wait_for(
            lambda: pod if (pod := self.api.get(self.path(name)))["status"].get("phase") in phases else None, PATIENCE_S
        )
        return found

    def ended(self, name: str) -> dict[str, Any]:
        """What became of its container."""
        pod = self.until(name, "Succeeded", "Failed")
        return dict(pod["status"]["containerStatuses"][0]["state"]["terminated"])

    def log(self, name: str, **query: Any) -> str:
        return self.api.text(self.path(name) + "/log", **query)


@pytest.fixture(name="pods")
def pods_fixture(cluster: Cluster, world: World) -> Pods:
    return Pods(cluster, world.namespace)


def test_a_command_ends_with_its_code_and_its_words_are_kept(pods: Pods) -> None:
    pods.start("one", "echo hello; echo to stderr >&2; exit 3")
    ended = pods.ended("one")
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert sorted(pods.log("one").splitlines()) == ["hello", "to stderr"]


def test_a_log_is_served_as_kubelets_do(pods: Pods) -> None:
    pods.start("one", "for i in 1 2 3 4; do echo line $i; done; printf 'no end'")
    pods.ended("one")
    assert pods.log("one", tailLines=2) == "line 4\nno end"
    assert pods.log("one", limitBytes=9) == "line 1\nli"
    stamped = pods.log("one", timestamps="true").splitlines()
    assert [line.split(" ", 1)[1] for line in stamped] == ["line 1", "line 2", "line 3", "line 4", "no end"]
    assert pods.log("one", sinceTime="2099-01-01T00:00:00Z") == ""


def test_a_log_is_followed_until_the_container_ends(pods: Pods) -> None:
    pods.start("one", "echo first; sleep 1; echo last")
    pods.until("one", "Running")
    assert pods.log("one", follow="true") == "first\nlast\n"


def test_volumes_and_variables_are_there(pods: Pods) -> None:
    meta = {"name": "settings"}
    pods.api.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a.txt": "from a map"}}, pods.namespace
    )
    pods.api.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"KEY": "hush"}}, pods.namespace
    )
    container = {
        "env": [
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['color']"}}},
            {"name": "BOTH", "value": "$(NODE)/$(NOBODY)/$$(NODE)"},
        ],
        "envFrom": [{"secretRef": {"name": "settings"}}, {"secretRef": {"name": "none", "optional": True}}],
        "volumeMounts": [{"name": "map", "mountPath": "/etc-of-test"}, {"name": "empty", "mountPath": "/scratch"}],
        "workingDir": "/scratch",
    }
    volumes = [{"name": "map", "configMap": {"name": "settings"}}, {"name": "empty", "emptyDir": {}}]
    context = {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000, "runAsNonRoot": True}
    command = "touch made; cat /etc-of-test/a.txt; echo; echo $KEY $LABEL $BOTH; pwd; id -u"
    pods.start("one", command, labels={"color": "red"}, container=container, volumes=volumes, securityContext=context)
    assert pods.ended("one")["exitCode"] == 0
    node = pods.api.get(pods.path("one"))["spec"]["nodeName"]
    assert pods.log("one").splitlines() == ["from a map", f"hush red {node}/$(NOBODY)/$(NODE)", "/scratch", "1000"]


def test_pods_of_a_headless_service_find_each_other_by_name(pods: Pods) -> None:
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"run": "x"}, "ports": [{"port": 2222}]}
    pods.api.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "all"}, "spec": spec}, pods.namespace)
    serve = "import socket; s = socket.create_server(('', 2222)); c, _ = s.accept(); c.sendall(b'met')"
    pods.start("server", f'python3 -c "{serve}"', labels={"run": "x"}, hostname="first", subdomain="all")
    meet = (
        "import socket, time\\n"
        "for _ in range(100):\\n"
        "    try:\\n"
        "        print(socket.create_connection(('first.all', 2222)).recv(9).decode()); break\\n"
        "    except OSError: time.sleep(0.1)\\n"
    )
    pods.start("client", f'printf "{meet}" | python3 -', labels={"run": "x"}, hostname="second", subdomain="all")
    assert pods.ended("client")["exitCode"] == 0
    assert pods.log("client") == "met\n"


def test_init_containers_run_first_and_a_failed_one_ends_the_pod(pods: Pods) -> None:
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    first = {"name": "prepare", "image": "any", "command": ["sh", "-c", "echo made >/v/file"], **mount}
    bad = {**first, "command": ["sh", "-c", "exit 9"]}
    volumes = [{"name": "v", "emptyDir": {}}]
    pods.start("good", "cat /v/file", container=mount, initContainers=[first], volumes=volumes)
    pods.start("bad", "cat /v/file", container=mount, initContainers=[bad], volumes=volumes)
    assert pods.ended("good")["exitCode"] == 0
    assert pods.log("good") == "made\n"
    failed = pods.until("bad", "Failed")["status"]["initContainerStatuses"][0]
    assert failed["state"]["terminated"]["exitCode"] == 9


def test_a_deleted_pod_hears_of_it_first_and_is_gone_afterwards(pods: Pods) -> None:
    trap = "trap 'echo asked to end; sleep 0.5; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    pods.start("one", trap, terminationGracePeriodSeconds=5)
    wait_for(lambda: "ready" in pods.log("one") if pods.until("one", "Running") else "")
    pods.api.delete(pods.path("one"))
    wait_for(lambda: "asked to end" in pods.log("one"))
    wait_for(lambda: pods.api.find(pods.path("one")) is None)
    with pytest.raises(Answered, match="404"):
        pods.log("one")


def test_a_replica_that_exceeds_its_memory_is_killed(pods: Pods) -> None:
    limits = {"resources": {"limits": {"memory": "50Mi"}}}
    pods.start("one", "exec python3 -c 'bytearray(300_000_000)'", container=limits)
    ended = pods.ended("one")
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_images_that_are_missing_or_bare(pods: Pods) -> None:
    pods.start("missing", "true", container={"image": f"{MISSING_IMAGE}:1"})
    pods.start("bare", "python3 -V || python -V || echo none", container={"image": NO_PYTHON_IMAGE})
    assert pods.ended("bare")["exitCode"] == 0
    assert "none" in pods.log("bare").splitlines()

    def waits() -> bool:
        (status,) = pods.api.get(pods.path("missing"))["status"].get("containerStatuses") or [{"state": {}}]
        return bool(status["state"].get("waiting", {}).get("reason") == "ImagePullBackOff")

    wait_for(waits)


def test_an_evicted_pod_says_so(pods: Pods) -> None:
    pods.start("one", "sleep 60")
    pods.until("one", "Running")
    pods.cluster.fault("evict", pod=f"{pods.namespace}/one")
    status = pods.until("one", "Failed")["status"]
    assert status["reason"] == "Evicted"
    assert "DisruptionTarget" in {condition["type"] for condition in status["conditions"]}


def test_a_lost_node_is_noticed_and_its_pods_are_taken_away(pods: Pods) -> None:
    pods.start("one", "sleep 60")
    node = pods.until("one", "Running")["spec"]["nodeName"]
    pods.cluster.fault("lose-node", node=node)
    try:
        wait_for(lambda: pods.api.get(pods.path("one"))["metadata"].get("deletionTimestamp"), PATIENCE_S)
        assert pods.api.get(pods.path("one"))["status"]["phase"] == "Running", "who should say otherwise?"
    finally:
        pods.cluster.fault("return-node", node=node)
    wait_for(lambda: pods.api.find(pods.path("one")) is None)
    pods.cluster.await_nodes()


def test_pods_go_on_while_the_api_server_is_away(pods: Pods) -> None:
    pods.start("one", "sleep 2; echo done")
    pods.until("one", "Running")
    pods.cluster.stop_server()
    time.sleep(3)
    pods.cluster.start_server()
    assert pods.ended("one")["exitCode"] == 0
    assert pods.log("one") == "done\n"


def test_words_of_manifests() -> None:
    assert expanded("$(A) $(B) $$(A) $$ $A", {"A": "x"}) == "x $(B) $(A) $ $A"
    assert [quantity(text) for text in ("64Mi", "1G", "2", "1.5Gi")] == [64 << 20, 10**9, 2, 3 << 29]
