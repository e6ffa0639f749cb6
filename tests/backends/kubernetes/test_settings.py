"""`kubernetes.yml`: what is said of a cluster once, for all runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.backends.kubernetes.cluster.settings import find, with_options
from phalanx.backends.kubernetes.target import DataVolume, Settings
from phalanx.errors import CallError, SpecErrors

WHOLE = """\
kubeconfig: ~/.kube/other
context: research
namespace: team-a
image: registry.example/base:1
git_image: registry.example/git@sha256:0000
devices: {gpu: amd.com/gpu}
stores:
  imagenet: {claim: datasets, path: imagenet/2012, read_only: true}
  scratch: {host_path: /scratch}
  results:
    volume: {nfs: {server: nas, path: /results}}
home_claim: home
home_path: phalanx
server: https://phalanx.example:8443/base
queue: team-a
gang: Kueue
registry: registry.example:5000/team
registry_secret: push
builder: kaniko
give_up: 5m
pod:
  spec:
    runtimeClassName: nvidia
"""


def read(home: Path, text: str) -> Settings:
    (home / "kubernetes.yml").write_text(text)
    return find(home, {})


def faults(home: Path, text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(SpecErrors) as found:
        read(home, text)
    return [(error.place.line, error.path, error.message) for error in found.value.errors]


def test_without_a_file_everything_is_as_kubectl_has_it(tmp_path: Path) -> None:
    assert find(tmp_path, {}) == Settings()
    assert find(tmp_path / "not-yet", {}) == Settings()


def test_every_setting_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    found = read(tmp_path, WHOLE)
    assert found == Settings(
        kubeconfig="/home/ana/.kube/other",
        context="research",
        namespace="team-a",
        image="registry.example/base:1",
        git_image="registry.example/git@sha256:0000",
        devices={"gpu": "amd.com/gpu", "tpu": "google.com/tpu"},
        stores={
            "imagenet": DataVolume(claim="datasets", path="imagenet/2012", is_read_only=True),
            "scratch": DataVolume(host_path="/scratch"),
            "results": DataVolume(volume={"nfs": {"server": "nas", "path": "/results"}}),
        },
        home_claim="home",
        home_path="phalanx",
        server="https://phalanx.example:8443/base",
        queue="team-a",
        gang="kueue",
        registry="registry.example:5000/team",
        registry_secret="push",
        builder="kaniko",
        give_up=300.0,
        pod={"spec": {"runtimeClassName": "nvidia"}},
    )
    assert set(found._fields) == {line.partition(":")[0] for line in WHOLE.splitlines() if line[0] != " "}


def test_a_kubeconfig_is_meant_from_the_folder_of_the_file(tmp_path: Path) -> None:
    assert read(tmp_path, "kubeconfig: clusters/a\n").kubeconfig == str(tmp_path / "clusters/a")


def test_a_variable_names_another_file(tmp_path: Path) -> None:
    (tmp_path / "kubernetes.yml").write_text("namespace: here\n")
    other = tmp_path / "other.yml"
    other.write_text("namespace: there\n")
    assert find(tmp_path, {"PHALANX_KUBERNETES": str(other)}).namespace == "there"
    other.unlink()
    with pytest.raises(CallError, match="PHALANX_KUBERNETES"):
        find(tmp_path, {"PHALANX_KUBERNETES": str(other)})


def test_what_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "kubernetes.yml").mkdir()
    with pytest.raises(CallError, match=r"cannot read .*kubernetes\.yml"):
        find(tmp_path, {})


def test_the_command_line_has_the_last_word(tmp_path: Path) -> None:
    found = read(tmp_path, "context: a\nnamespace: b\n")
    assert with_options(found) == found
    over = with_options(found, context="c", kubeconfig="/x")
    assert (over.context, over.namespace, over.kubeconfig) == ("c", "b", "/x")


def test_all_faults_are_reported_with_their_places(tmp_path: Path) -> None:
    text = """\
namespce: a
namespace: Not Valid
devices: {gpu: gpu, npu: x/y}
stores:
  a: {claim: x, host_path: /y}
  b: {path: z}
  c: {claim: x, path: ../up}
server: phalanx.example
builder: docker
pod: {contaners: []}
"""
    found = faults(tmp_path, text)
    assert [(line, path) for line, path, _ in found] == [
        (1, "namespce"),
        (2, "namespace"),
        (3, "devices.gpu"),
        (3, "devices.npu"),
        (5, "stores.a.host_path"),
        (6, "stores.b"),
        (7, "stores.c.path"),
        (8, "server"),
        (9, "builder"),
        (10, "pod.contaners"),
    ]


@pytest.mark.parametrize("text", ["", "- a\n", "a: [\n", "{{{", "\x00", "namespace: a\nnamespace: b\n"])
def test_what_is_no_such_file_is_reported_in_its_own_words(tmp_path: Path, text: str) -> None:
    said = " ".join(message for _, _, message in faults(tmp_path, text))
    assert said
    assert "polyaxonfile" not in said


@pytest.mark.parametrize("server", ["https://user:secret@host", "file:///etc", "https://", "http://a b"])
def test_an_address_has_no_password_and_is_one(tmp_path: Path, server: str) -> None:
    ((line, path, _),) = faults(tmp_path, f"server: {server!r}\n")
    assert (line, path) == (1, "server")
