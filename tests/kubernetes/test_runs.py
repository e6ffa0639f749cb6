"""Runs on a cluster by the user's door: what becomes of them, and that nothing of them is left. On any cluster."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.homes import wait_for
from tests.cli.running import is_silent_about_itself
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.places import ON, PATIENCE_S, KubernetesPlace
from tests.kubernetes.programs import TRAP, noise
from tests.kubernetes.worlds import CURRENT, GIVEN, OLD, World

pytestmark = pytest.mark.faces(OLD, CURRENT)
TWO_MORE = {"replicas": {"n_workers": 2}}
THREE = {"framework": "plain", "environment": TWO_MORE}
SECRET = "hush-hush-hush"


class AtOnce(NamedTuple):
    """Runs that were submitted together, and are over: waiting for one after the other takes much longer."""

    place: KubernetesPlace
    runs: dict[str, dict[str, Any]]
    during: dict[str, Any]  # what was seen of the cluster's objects while they were there

    def succeeded(self, name: str) -> dict[str, Any]:
        found = self.runs[name]
        assert found["status"] == "succeeded", self.place.story(found["id"])
        return found

    def log(self, name: str, replica: str = "master-0", attempt: int = 1) -> str:
        return self.place.log(self.runs[name]["id"], replica, attempt)

    def logs(self, name: str) -> dict[str, list[str]]:
        """The lines of every replica."""
        return {row["name"]: self.log(name, row["name"]).splitlines() for row in self.runs[name]["replicas"]}


# Each test says beside it what is to be run; all of that runs at the same time.
WANTED: dict[str, tuple[str, dict[str, Any]]] = {}


@pytest.fixture(name="at_once", scope="module")
def at_once_fixture(tmp_path_factory: pytest.TempPathFactory, own: Cluster | None) -> Iterator[AtOnce]:
    world = World(own.kubeconfig if own is not None else Path(str(GIVEN)).expanduser(), own)
    world.make()
    place = KubernetesPlace(tmp_path_factory.mktemp("at-once"), world)
    try:
        ids = {name: place.submitted(command, **fields) for name, (command, fields) in WANTED.items()}
        place.until_pods(ids["secretive"], 1, "Running", "Succeeded")
        during: dict[str, Any] = {
            plural: world.items(plural) for plural in ("configmaps", "secrets", "jobs", "pods", "services")
        }
        during["stopped"] = _stop(place, ids["stopped"])
        found = place.over(*ids.values(), patience_s=4 * PATIENCE_S)
        yield AtOnce(place, dict(zip(ids, found, strict=True)), during)
    finally:
        place.close()
        world.remove()


def _stop(place: KubernetesPlace, run: str) -> int:
    """Once it is at work."""
    wait_for(lambda: "ready" in place.log(run), 2 * PATIENCE_S)
    return place.call("stop", run).code


def replica(found: dict[str, Any], name: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = found["replicas"]
    return next(row for row in rows if row["name"] == name)


# one pod -------------------------------------------------------------------------------------------------------------

WANTED["plain"] = ("echo hello from $PHALANX_REPLICA; echo to stderr >&2; cat meet.py | head -2; sleep 1", {})


@pytest.mark.smoke
def test_a_plain_run_runs_in_a_pod_with_the_code_of_its_folder(at_once: AtOnce) -> None:
    found = at_once.succeeded("plain")
    lines = at_once.log("plain").splitlines()
    assert "hello from master-0" in lines
    assert "to stderr" in lines
    assert "import json, os, socket, time" in lines, "its code has come along"
    assert [change["status"] for change in found["statuses"]][-2:] == ["running", "succeeded"]
    assert found["created_at"] < found["started_at"] < found["finished_at"]


WANTED["failing"] = ("echo about to fail; exit 3", {})


@pytest.mark.smoke
def test_a_failure_has_its_exit_code_and_its_words(at_once: AtOnce) -> None:
    found = at_once.runs["failing"]
    assert found["status"] == "failed", at_once.place.story(found["id"])
    assert replica(found, "master-0")["code"] == 3
    assert "exit code 3" in found["reason"]
    assert at_once.log("failing") == "about to fail\n"


WANTED["noise"] = ("python3 noise.py", {})


def test_a_log_comes_home_byte_by_byte(at_once: AtOnce) -> None:
    run = at_once.succeeded("noise")["id"]
    assert (at_once.place.attempt(run) / "log").read_bytes() == noise()


WANTED["keeping"] = (
    'mkdir "$PHALANX_OUTPUTS/deep down"; cp noise.py "$PHALANX_OUTPUTS/deep down/model"; '
    "head -c 5000000 /dev/zero > $PHALANX_OUTPUTS/large",
    {},
)


def test_small_outputs_come_home_and_of_large_ones_is_reported(at_once: AtOnce) -> None:
    run, place = at_once.succeeded("keeping")["id"], at_once.place
    listed = place.call("outputs", run, "--json")
    assert listed.code == 0, listed.err
    assert [row["path"] for row in listed.data["entries"] if row["kind"] == "file"] == ["outputs/deep down/model"]
    kept = place.home / "runs" / run / "outputs" / "deep down" / "model"
    assert kept.read_text() == (place.folder / "noise.py").read_text()
    assert "1 files (4.8 MiB) of outputs are lost with this pod" in at_once.log("keeping")


WANTED["metrics"] = ("python3 steps.py 50 0.02", THREE)


@pytest.mark.smoke
def test_metrics_come_home_of_every_replica(at_once: AtOnce) -> None:
    run = at_once.succeeded("metrics")["id"]
    answer = at_once.place.call("metrics", run, "loss", "--json")
    assert answer.code == 0, answer.err
    (found,) = answer.data["metrics"]
    steps = {line["replica"]: line["steps"] for line in found["series"]}
    assert steps == {name: list(range(50)) for name in ("master-0", "worker-0", "worker-1")}


# many ----------------------------------------------------------------------------------------------------------------

WANTED["gang"] = ("python3 meet.py", {"framework": "pytorch", "environment": TWO_MORE})


@pytest.mark.smoke
def test_replicas_meet_by_name(at_once: AtOnce) -> None:
    at_once.succeeded("gang")
    assert at_once.log("gang").splitlines() == ["met worker-0 worker-1"]
    for name in ("worker-0", "worker-1"):
        assert at_once.log("gang", name).splitlines() == ["answer welcome"], "each has a log of its own"


WANTED["faltering"] = (
    'if [ "$PHALANX_REPLICA" = worker-0 ]; then sleep 3; exit 7; else trap "sleep 1; echo ended; exit 0" TERM; '
    "while :; do sleep 0.1; done; fi",
    {"framework": "plain", "environment": {"replicas": {"n_workers": 3}}},
)


@pytest.mark.smoke
def test_a_replica_that_fails_is_named_and_takes_the_others_along(at_once: AtOnce) -> None:
    found = at_once.runs["faltering"]
    assert found["status"] == "failed", at_once.place.story(found["id"])
    assert found["reason"].startswith("worker-0: exit code 7"), found["reason"]
    assert replica(found, "worker-0")["code"] == 7
    for name in ("master-0", "worker-1", "worker-2"):
        assert replica(found, name)["status"] == "stopped"
        assert "ended" in at_once.log("faltering", name).splitlines(), "the others had time to end by themselves"


# again ---------------------------------------------------------------------------------------------------------------

WANTED["restarting"] = (
    "echo attempt $PHALANX_ATTEMPT; [ $PHALANX_ATTEMPT = 2 ] || exit 4",
    {"environment": {"max_restarts": 1}},
)


def test_a_run_that_may_restart_does_so_and_both_logs_are_kept(at_once: AtOnce) -> None:
    found = at_once.succeeded("restarting")
    assert found["attempt"] == 2
    assert [at_once.log("restarting", attempt=number) for number in (1, 2)] == ["attempt 1\n", "attempt 2\n"]


# ends ----------------------------------------------------------------------------------------------------------------

WANTED["stopped"] = (TRAP, THREE)


@pytest.mark.smoke
def test_a_run_that_is_stopped_has_time_to_end_and_leaves_nothing(at_once: AtOnce) -> None:
    found = at_once.runs["stopped"]
    assert found["status"] == "stopped", at_once.place.story(found["id"])
    assert {"ready", "asked to end"} <= set(at_once.log("stopped").splitlines())
    at_once.place.until_nothing_is_left(found["id"])


WANTED["late"] = ("echo begun; sleep 600", {"environment": {"timeout": "4s"}})


def test_a_run_ends_at_its_time_limit(at_once: AtOnce) -> None:
    found = at_once.runs["late"]
    assert found["status"] == "failed", at_once.place.story(found["id"])
    assert "time limit of 4 s" in found["reason"], found["reason"]
    assert at_once.log("late") == "begun\n"


WANTED["hog"] = ("python3 hog.py", {"environment": {"resources": {"memory": {"limits": 100}}}})
WANTED["hog-in-shell"] = ("python3 hog.py; exit $?", {"environment": {"resources": {"memory": {"limits": 100}}}})


@pytest.mark.parametrize("name", ["hog", "hog-in-shell"])
def test_a_replica_that_exceeds_its_memory_is_named(at_once: AtOnce, name: str) -> None:
    found = at_once.runs[name]
    assert found["status"] == "failed", at_once.place.story(found["id"])
    assert "memory" in found["reason"], found["reason"]
    assert replica(found, "master-0")["cause"] == "memory"


@pytest.mark.smoke
def test_when_all_is_over_nothing_is_left_in_the_cluster(at_once: AtOnce) -> None:
    for name, found in at_once.runs.items():
        if name != "waiting":
            at_once.place.until_nothing_is_left(found["id"])


# secrets -------------------------------------------------------------------------------------------------------------

WANTED["secretive"] = (
    "echo the key has $(printf %s $MY_API_KEY | wc -c) letters; sleep 6",
    {"environment": {"env_vars": [["MY_API_KEY", SECRET]]}},
)


@pytest.mark.smoke
def test_what_is_secret_is_only_in_a_secret_that_dies_with_the_run(at_once: AtOnce) -> None:
    run = at_once.succeeded("secretive")["id"]
    assert at_once.log("secretive") == f"the key has {len(SECRET)} letters\n"
    hidden = base64.b64encode(SECRET.encode()).decode()
    for plural in ("configmaps", "jobs", "pods", "services"):
        text = json.dumps(at_once.during[plural])
        assert SECRET not in text, plural
        assert hidden not in text, plural
        assert "phr_" not in text, f"a token in {plural}"
    mine = [
        each for each in at_once.during["secrets"] if each["metadata"].get("labels", {}).get("phalanx.dev/run") == run
    ]
    (secret,) = mine
    assert secret["data"]["MY_API_KEY"] == hidden
    (owner,) = secret["metadata"]["ownerReferences"]
    assert owner["kind"] == "ConfigMap"


def test_pods_satisfy_the_restricted_standard_of_pod_security(at_once: AtOnce) -> None:
    ours = [pod for pod in at_once.during["pods"] if "phalanx.dev/run" in pod["metadata"].get("labels", {})]
    assert ours
    for pod in ours:
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            context = {**pod["spec"].get("securityContext", {}), **container.get("securityContext", {})}
            assert context["runAsNonRoot"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"]["drop"] == ["ALL"]
            assert context["seccompProfile"]["type"] == "RuntimeDefault"
        assert pod["spec"].get("automountServiceAccountToken") is False


# the door ------------------------------------------------------------------------------------------------------------


@pytest.mark.faces(CURRENT)
def test_the_exit_code_of_a_command_is_that_of_the_verb(place: KubernetesPlace) -> None:
    answer = place.run("echo as said; exit 5", *ON)
    assert answer.code == 5, answer.err
    assert "as said" in answer.out
    assert is_silent_about_itself(answer)


@pytest.mark.faces(CURRENT)
def test_a_kubeconfig_context_and_namespace_may_be_named(place: KubernetesPlace) -> None:
    """As kubectl takes them; nothing of the environment is asked then."""
    named = ("--kubeconfig", str(place.kubeconfig), "--context", "test", "--namespace", place.world.namespace)
    answer = place.call("run", "-f", place.file("echo found"), *ON, *named, KUBECONFIG="/nowhere/at/all")
    assert answer.code == 0, answer.err
    assert "found" in answer.out


@pytest.mark.faces(CURRENT)
def test_a_cluster_that_does_not_answer_is_reported_before_anything_is_made(place: KubernetesPlace) -> None:
    place.proxy.is_down = True
    answer = place.run("true", *ON)
    assert answer.code != 0
    assert str(place.proxy.port) in answer.err
    assert is_silent_about_itself(answer)


@pytest.fixture(name="kubectl")
def kubectl_fixture(place: KubernetesPlace) -> list[str]:
    """That of our cluster is older than what it shows: it knows no fields that came later."""
    found = str(place.world.cluster.kubectl) if place.world.cluster is not None else shutil.which("kubectl")
    if found is None:
        pytest.skip("there is no kubectl here")
    return [found, f"--kubeconfig={place.kubeconfig}"]


@pytest.mark.faces(CURRENT)
@pytest.mark.smoke
def test_what_plan_prints_runs_without_us(place: KubernetesPlace, kubectl: list[str]) -> None:
    """By kubectl alone."""
    assumed = ("--assume", "kubernetes={}.{}".format(*place.world.version))
    planned = place.call(
        "plan", "-f", place.file("python3 meet.py", framework="pytorch", environment=TWO_MORE), *ON, *assumed
    )
    assert planned.code == 0, planned.err
    options = ["--validate=false"] if place.world.cluster is not None else []
    applied = subprocess.run(
        [*kubectl, "apply", *options, "-f", "-"], input=planned.out, text=True, check=False, capture_output=True
    )
    assert applied.returncode == 0, applied.stderr
    wait_for(
        lambda: len([pod for pod in place.world.items("pods") if pod["status"].get("phase") == "Succeeded"]) == 3,
        PATIENCE_S,
    )
    logs = {
        pod["metadata"]["name"]: place.world.api.text(f"{place.world.path('pods', pod['metadata']['name'])}/log")
        for pod in place.world.items("pods")
    }
    assert sum("met worker-0 worker-1" in text for text in logs.values()) == 1, logs


@pytest.mark.faces(CURRENT)
def test_as_much_code_as_there_may_be_is_applied_by_kubectl_and_sent_by_us(
    place: KubernetesPlace, kubectl: list[str]
) -> None:
    """`kubectl apply` keeps each object in an annotation of the object, which may have 256 KiB."""
    file = place.file("sha256sum large")
    content = os.urandom((700 << 10) - 4000)  # packed, with the other files, it is just below
    (place.folder / "large").write_bytes(content)
    options = ["--validate=false"] if place.world.cluster is not None else []
    assumed = ("--assume", "kubernetes={}.{}".format(*place.world.version))
    planned = place.call("plan", "-f", file, *ON, *assumed)
    assert planned.code == 0, planned.err
    applied = subprocess.run(
        [*kubectl, "apply", *options, "-f", "-"], input=planned.out, text=True, check=False, capture_output=True
    )
    assert applied.returncode == 0, applied.stderr
    wait_for(lambda: [pod["status"].get("phase") for pod in place.world.items("pods")] == ["Succeeded"], PATIENCE_S)
    (pod,) = place.world.items("pods")
    digest = hashlib.sha256(content).hexdigest()
    assert digest in place.world.api.text(f"{place.world.path('pods', pod['metadata']['name'])}/log")
    found = place.succeeded("sha256sum large")
    assert digest in place.log(found["id"])


@pytest.mark.faces(CURRENT)
@pytest.mark.smoke
def test_the_doctor_says_what_the_cluster_offers(place: KubernetesPlace) -> None:
    answer = place.call("doctor", *ON, "--json")
    assert answer.code == 0, answer.err
    text = json.dumps(answer.data)
    assert ".".join(map(str, place.world.version)) in text
    assert place.world.namespace in text
    words = place.call("doctor", *ON)
    assert words.code == 0
    assert place.world.namespace in words.out
