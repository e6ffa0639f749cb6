"""The backend as others use it: what a run folder gets, and what `kubectl apply` takes without us."""

from __future__ import annotations

import json
import os
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from phalanx.backends import agent_zip, find
from phalanx.backends.contract import Connections, Job
from phalanx.backends.kubernetes.render import native_jobs, payload
from phalanx.backends.kubernetes.target import RUN, Cluster, ClusterTarget, Settings
from phalanx.errors import CallError, SystemFault
from phalanx.plan.document import document as as_document
from tests.backends.kubernetes.apiserver import FakeApiServer
from tests.backends.kubernetes.schemas import validate
from tests.backends.kubernetes.test_native_jobs import CASES, CPU, PLAIN, file, made_of, overridden
from tests.examples import examples

HERE = ClusterTarget(Settings(context="prod", namespace="team"))


def completed(document: dict[str, Any], target: ClusterTarget = PLAIN, code: bytes | None = b"packed") -> Job:
    whole = find("kubernetes").render(made_of(document), target).completed
    assert whole is not None
    return whole(code)


def documents(job: Job) -> list[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return list(yaml.load_all(job.files["manifests.yaml"], loader))


def test_a_run_folder_gets_the_skeleton_the_plan_and_the_cluster() -> None:
    made = made_of(CASES["alike"])
    job = find("kubernetes").render(made, HERE)
    assert json.loads(job.files["manifests.json"]) == native_jobs.objects(made, HERE)
    assert json.loads(job.files["plan.json"]) == json.loads(json.dumps(as_document(made)))
    assert json.loads(job.files["cluster.json"]) == {"kubeconfig": None, "context": "prod", "namespace": "team"}
    assert (job.shown, job.carries_agent) == (None, True)


def test_a_run_stays_on_its_cluster_when_the_current_one_changes(tmp_path: Path) -> None:
    backend = find("kubernetes")
    for name, text in backend.render(made_of(file(None)), HERE).files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "kubernetes.yml").write_text("context: other\nnamespace: elsewhere\nimage: 'ours:1'\n")
    settings_of_run = backend.target_of_run(tmp_path, tmp_path).settings
    assert (settings_of_run.context, settings_of_run.namespace) == ("prod", "team")
    assert settings_of_run.image == "ours:1"


def test_a_place_is_what_the_home_says_and_the_command_line_over_it(tmp_path: Path) -> None:
    (tmp_path / "kubernetes.yml").write_text("context: other\nimage: 'ours:1'\n")
    target = find("kubernetes").target(tmp_path, options={"context": "prod", "kubeconfig": "some/file", "assume": None})
    assert (target.settings.context, target.settings.image) == ("prod", "ours:1")
    assert Path(target.settings.kubeconfig).is_absolute()
    assert target.cluster.is_assumed


def test_a_place_may_be_assumed_without_a_cluster(tmp_path: Path) -> None:
    target = find("kubernetes").target(tmp_path, options={"assume": "kubernetes=1.20,volcano"})
    assert (target.cluster.version, target.cluster.gang) == ((1, 20), "volcano")


def test_a_cluster_that_may_be_asked_says_what_it_offers_and_which_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeApiServer() as server:
        server.serve("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "config", namespace="team", context="prod")))
        target = find("kubernetes").target(tmp_path, ask=True)
        assert target.settings[:3] == (str(tmp_path / "config"), "prod", "team")
        assert (target.cluster.gang, target.cluster.is_assumed) == ("volcano", False)
        server.fail_next(403, path="/apis", method="GET")
        with pytest.raises(SystemFault):
            find("kubernetes").target(tmp_path, ask=True)


def test_jobs_have_an_engine_that_is_called_as_they_are() -> None:
    engine = find("kubernetes").engine(PLAIN, Connections())
    assert engine is not None
    assert engine.name == "kubernetes"


@pytest.mark.parametrize("case", ["one", "different", "secret"])
def test_whole_manifests_are_valid_documents_with_all_that_is_carried(case: str) -> None:
    job = completed(CASES[case])
    found = documents(job)
    for one in found:
        validate(one, "1.37")
    maps = {one["metadata"]["name"]: one for one in found if one["kind"] == "ConfigMap"}
    agent, client = agent_zip.carried()
    archives = {**maps["phalanx-r-1-agent"]["binaryData"], **maps["phalanx-r-1-tracking"]["binaryData"]}
    carried = {name: b64decode(text) for name, text in archives.items()}
    assert carried == {"agent.pyz": agent, "tracking.zip": client}
    assert b64decode(maps["phalanx-r-1-code"]["binaryData"]["code.tar.gz"]) == b"packed"
    assert found[0]["metadata"]["name"] == "phalanx-r-1"
    assert job.shown == "manifests.yaml"
    assert job.start == "kubectl apply -f {folder}/manifests.yaml"
    assert all(len(json.dumps(one)) < payload.LARGEST_APPLIED for one in found)


def test_whole_manifests_depend_on_no_one_of_ours() -> None:
    target = ClusterTarget(Settings(server="https://phalanx.example", home_claim="home"))
    found = documents(completed(file(None), target))
    place_json = json.loads(found[0]["data"]["place.json"])
    assert (place_json["courier"], place_json["server"], place_json["code"]["kind"]) == ("none", None, "bundle")
    assert not any(one["kind"] == "Secret" for one in found)


def test_the_namespace_and_the_context_are_as_they_were_named() -> None:
    job = completed(file(None), HERE)
    assert {one["metadata"]["namespace"] for one in documents(job)} == {"team"}
    assert job.start == "kubectl --context prod apply -f {folder}/manifests.yaml"


def test_code_that_lies_elsewhere_is_not_carried() -> None:
    document = file(None, kubernetes={"repository": "https://git.example/code.git"})
    assert not any(one["metadata"]["name"].endswith("-code") for one in documents(completed(document)))


def test_what_is_too_large_for_a_plain_apply_is_said() -> None:
    job = completed(file(None), code=os.urandom(700 << 10))
    assert "--server-side" not in job.start
    assert all(len(json.dumps(one)) < payload.LARGEST_APPLIED for one in documents(job))
    job = completed(file(None, env_vars={f"BLOB_{n}": os.urandom(50_000).hex() for n in range(6)}))
    assert "--server-side" in job.start
    assert "ConfigMap phalanx-r-1" in job.files["manifests.yaml"].splitlines()[1]
    with pytest.raises(CallError, match="polyaxonignore"):
        completed(file(None), code=bytes(2 << 20))


def test_people_can_read_it() -> None:
    text = completed(CASES["alike"]).files["manifests.yaml"]
    assert text.splitlines()[0].startswith("# ")
    assert f"{RUN}=r-1" in text.splitlines()[0]
    assert "  start.sh: |\n" in text
    assert "  place.json: |\n" in text
    assert "&id" not in text
    assert "    parallelism: 3" in text or "  parallelism: 3" in text


WORDS = (
    "y", "No", "on", "~", "null", "1e3", "0o17", "0x1F", "1_000", "12:30", ".inf", "=", "-", "", "2026-11-16",
    " x", "x ", "a: b", "# no", "é", "\t", "a\nb", "a\r\nb", "\u2028",
)  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_texts_stay_texts_to_every_reader_of_yaml(word: str) -> None:
    job = completed(file(None, env_vars={"WORD": word}))
    (pod,) = [one["spec"]["template"]["spec"] for one in documents(job) if one["kind"] == "Job"]
    assert {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}["WORD"] == word
    written = next(line for line in job.files["manifests.yaml"].splitlines() if line.strip() == "- name: WORD")
    after = job.files["manifests.yaml"].partition(written)[2].splitlines()[1]
    assert after.partition("value: ")[2][0] in "'\"|"  # Go's reader knows more words and numbers than Python's


@examples(80)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_no_text_is_changed_on_its_way_through_yaml(text: str) -> None:
    from phalanx.backends.kubernetes.backend import _yaml

    objects = [{"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"text": text, "more": [text]}}]
    assert list(yaml.safe_load_all(_yaml(objects, ["words"]))) == objects


def test_no_engine_and_no_cluster_is_asked_to_render() -> None:
    old = ClusterTarget(cluster=Cluster(version=(1, 20)))
    assert len(documents(completed(CASES["alike"], old))) == 3 + 1 + 4 + 1


@pytest.mark.slow
@pytest.mark.parametrize("is_different", [False, True])
def test_five_hundred_replicas_are_rendered_in_no_time(is_different: bool) -> None:
    workers = [overridden(index, 1 + index) for index in range(499)] if is_different else []
    made = made_of(file(replicas={"n_workers": 499, "default_worker": CPU, "worker": workers}))
    began = time.process_time()
    job = find("kubernetes").render(made, ClusterTarget())
    assert time.process_time() - began < 5
    assert len(json.loads(job.files["manifests.json"])) == (502 if is_different else 4)
