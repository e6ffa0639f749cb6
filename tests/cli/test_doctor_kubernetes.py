"""phalanx doctor --on kubernetes"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.kubernetes.apiserver import FakeApiServer
from tests.cli.running import called, is_silent_about_itself, quick


@pytest.fixture(name="server")
def server_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PHALANX_KUBERNETES", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with FakeApiServer() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "config", context="lab")))
        yield server


@pytest.mark.slow
def test_a_cluster_that_is_fit_is_described(server: FakeApiServer, tmp_path: Path) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    server.put({**node, "status": {"allocatable": {"nvidia.com/gpu": "8"}}})
    answer = called("doctor", "--on", "kubernetes")
    assert answer.code == 0, answer.err
    assert f"cluster     {server.url}, Kubernetes 1.34.0" in answer.out
    assert "context     lab, as lab" in answer.out
    assert "TFJob (kubeflow.org/v1)" in answer.out
    assert "MPIJob (kubeflow.org/v2beta1)" in answer.out
    assert "nvidia.com/gpu  -      1      8             8" in answer.out
    assert "note: there is no MXJob" in answer.out
    assert answer.out.endswith("ready for runs\n")
    assert not (tmp_path / "home").exists()  # nothing is made for a look
    assert is_silent_about_itself(answer)


@pytest.mark.slow
def test_the_same_as_json(server: FakeApiServer) -> None:
    assert "note: there are no nodes now" in quick("doctor", "--on", "kubernetes").out
    server.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {}})
    assert "note: no node offers GPUs" in quick("doctor", "--on", "kubernetes").out
    answer = quick("doctor", "--on", "kubernetes", "--json")
    assert (answer.code, answer.data["ok"], answer.data["problems"]) == (0, True, [])
    cluster = answer.data["cluster"]
    assert (cluster["context"], cluster["namespace"], cluster["gang"]) == ("lab", "default", None)
    assert cluster["kinds"]["MPIJob"] == ["kubeflow.org/v2beta1"]
    assert cluster["missing"] == []


@pytest.mark.slow
def test_what_we_may_not_do_is_a_problem_with_advice(server: FakeApiServer) -> None:
    server.deny("create", "jobs")
    server.deny("delete", "jobs")
    server.deny("list", "nodes")
    answer = quick("doctor", "--on", "kubernetes")
    assert answer.code == 1
    assert (
        "problem: `lab` may not create and delete jobs.batch: ask the administrator of the namespace `default`"
        in answer.out
    )
    assert "nodes       unknown: not permitted to list them" in answer.out
    assert "note: this report is incomplete: `lab` may not list nodes; runs do not need it" in answer.out
    assert "no node offers GPUs" not in answer.out
    missing = quick("doctor", "--on", "kubernetes", "--json").data["cluster"]["missing"]
    assert {"verb": "create", "group": "batch", "resource": "jobs"} in missing


@pytest.mark.slow
def test_a_job_is_tried_and_none_is_made(server: FakeApiServer) -> None:
    server.warnings = ['would violate PodSecurity "restricted:latest": a']
    answer = quick("doctor", "--on", "kubernetes")
    assert answer.code == 0, answer.err
    assert (
        'note: the cluster warns about the Job of a run: would violate PodSecurity "restricted:latest": a' in answer.out
    )
    assert server.names("Job") == []
    tried = [one for one in server.requests if one.query.get("fieldValidation")]
    assert [(one.path, one.query) for one in tried] == [
        ("/apis/batch/v1/namespaces/default/jobs", {"dryRun": "All", "fieldValidation": "Strict"})
    ]
    assert tried[0].body["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize(
    ("code", "message", "problem"),
    [
        (403, 'admission webhook "w" denied the request: no', "the cluster would reject the Job of a run: admission w"),
        (400, 'strict decoding error: unknown field "spec.a"', "the cluster would reject the Job of a run: strict de"),
        (400, 'admission webhook "w" does not support dry run', ""),
    ],
)
def test_a_job_that_would_be_refused_is_a_problem(server: FakeApiServer, code: int, message: str, problem: str) -> None:
    server.fail_next(code, method="POST", path="/jobs", reason="Forbidden", message=message)
    answer = quick("doctor", "--on", "kubernetes")
    assert answer.code == (1 if problem else 0)
    assert (problem in answer.out) if problem else ("problem" not in answer.out)


def test_a_namespace_that_is_not_there_is_a_problem(server: FakeApiServer) -> None:
    answer = quick("doctor", "--on", "kubernetes", "--namespace", "team")
    assert answer.code == 1
    assert "problem: namespace `team` does not exist: run `kubectl create namespace team`" in answer.out
    server.deny("get", "namespaces")
    assert "no namespace" not in quick("doctor", "--on", "kubernetes", "--namespace", "team").out


def test_a_full_quota_and_queues_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path / "home"))
    server = FakeApiServer(version="1.20", operators=["kueue"])
    meta = {"name": "team", "namespace": "default"}
    server.put({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue", "metadata": meta})
    status = {"hard": {"pods": "2"}, "used": {"pods": "2"}}
    server.put({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "status": status})
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}})
    with server:
        at = str(server.kubeconfig(tmp_path / "config"))
        answer = quick("doctor", "--on", "kubernetes", "--kubeconfig", at)
        kubeflow = quick("doctor", "--on", "kubeflow", "--kubeconfig", at)
    assert answer.code == 0, answer.err
    for words in (
        "namespace   default (pod security: restricted)",
        "gang        Kueue",
        "queues      team",
        "the quota `team` is used up: 2 of 2 pods",
        "every replica gets a separate Job",
        "no Kubeflow operator is installed: files with `backend: kubeflow` cannot run here",
    ):
        assert words in answer.out
    assert kubeflow.code == 1
    assert "problem: no Kubeflow operator is installed: install one, or use `backend: native`" in kubeflow.out


def test_the_homes_settings_name_the_cluster(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/kubernetes.yml").write_text("kubeconfig: ../config\nnamespace: kube-system\n")
    assert quick("doctor", "--on", "kubernetes", "--json").data["cluster"]["namespace"] == "kube-system"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--on", "slurm", "--context", "lab"], "--context: not for --on slurm"),
        (["--on", "kubernets"], "no backend `kubernets` is installed"),
        (["--on", "kubernetes", "--rebuild"], "--rebuild works on a home"),
        (["--context", "lab"], "--context needs --on kubernetes"),
        (["--on", "kubernetes", "--context", "other"], "no context `other`; the contexts are: lab"),
        (["--on", "kubernetes", "--kubeconfig", "/nowhere"], "kubeconfig /nowhere does not exist"),
    ],
)
@pytest.mark.usefixtures("server")
def test_a_wrong_call_is_reported_kindly(arguments: list[str], words: str) -> None:
    answer = quick("doctor", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err


def test_a_cluster_that_is_down_is_reported_kindly(server: FakeApiServer) -> None:
    server.stop()
    answer = quick("doctor", "--on", "kubernetes")
    assert answer.code == 2
    assert "no response from" in answer.err
    as_json = quick("doctor", "--on", "kubernetes", "--json")
    assert (as_json.code, as_json.data["ok"]) == (2, False)


def test_what_a_file_must_contain_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_HOME", str(tmp_path / "home"))
    server = FakeApiServer(operators=["kueue"])
    for name in ("a", "b"):
        meta = {"name": name, "namespace": "default"}
        server.put({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue", "metadata": meta})
    server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    with server:
        answer = quick("doctor", "--on", "kubernetes", "--kubeconfig", str(server.kubeconfig(tmp_path / "config")))
    assert answer.code == 0, answer.err
    assert "several Kueue queues: a, b. Name one in" in answer.out
