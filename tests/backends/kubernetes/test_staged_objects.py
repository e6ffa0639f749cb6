"""From a run's folder to the objects of an attempt."""

from __future__ import annotations

import base64
import io
import json
import os
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.contract import EngineUnavailable, JobRejected
from phalanx.backends.kubernetes.cluster.api import Api
from phalanx.backends.kubernetes.engine.staged_objects import SKELETON, apply, load, packed, stamped
from phalanx.backends.kubernetes.render.code_pieces import LARGEST_CODE
from tests.backends.kubernetes.apiserver import FakeApiServer
from tests.backends.kubernetes.runs import ENVIRONMENT, GANG, ONE, Works, group_of, until, works

KINDS = ("ConfigMap", "Secret", "Service", "Job", "PodGroup", "MPIJob", "PyTorchJob")
SERVER = "https://phalanx.example"


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Works]:
    with works(tmp_path) as found:
        yield found


def everything(server: FakeApiServer) -> dict[str, dict[str, Any]]:
    known = {one.kind for one in server.objects.resources}
    found = [(kind, one) for kind in KINDS if kind in known for one in server.objects.all_of(kind, "default")]
    return {f"{kind}/{one['metadata']['name']}": one for kind, one in found}


OBJECTS = 7  # of a gang: four ConfigMaps, a Service, two Jobs


def uids(objects: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: one["metadata"]["uid"] for name, one in objects.items()}


def test_all_objects_say_whose_they_are_and_of_which_attempt(there: Works) -> None:
    attempt_folder = there.run(GANG)
    there.submit(there.engine(), attempt_folder._replace(attempt=3))
    found = everything(there.server)
    owner = found.pop("ConfigMap/phalanx-abc")
    assert {*found} == {
        "ConfigMap/phalanx-abc-agent", "ConfigMap/phalanx-abc-tracking", "ConfigMap/phalanx-abc-code",
        "Service/phalanx-abc", "Job/phalanx-abc-master", "Job/phalanx-abc-worker",
    }  # fmt: skip
    for one in found.values():
        assert [owned["uid"] for owned in one["metadata"]["ownerReferences"]] == [owner["metadata"]["uid"]]
        assert one["metadata"]["labels"]["phalanx.dev/attempt"] == "3"
    template = found["Job/phalanx-abc-worker"]["spec"]["template"]["metadata"]["labels"]
    assert template["phalanx.dev/attempt"] == "3"
    selector = found["Service/phalanx-abc"]["spec"]["selector"]
    assert selector == {"phalanx.dev/run": "abc", "phalanx.dev/attempt": "3"}  # no pod of another attempt has its name


def test_what_carries_bytes_has_the_run_s_own_files(there: Works) -> None:
    attempt_folder = there.run(ONE)
    there.submit(there.engine(), attempt_folder)
    found = everything(there.server)
    agent = found["ConfigMap/phalanx-abc-agent"]["binaryData"]
    assert base64.b64decode(agent["agent.pyz"]) == (attempt_folder.run_folder / "job" / "agent.pyz").read_bytes()
    code = base64.b64decode(found["ConfigMap/phalanx-abc-code"]["binaryData"]["code.tar.gz"])
    with tarfile.open(fileobj=io.BytesIO(code)) as archive:
        assert archive.getnames() == ["train.py"]


def test_a_job_that_mounts_one_object_for_agent_and_client_gets_both_in_it(there: Works) -> None:
    """Version 0.2 rendered such jobs; they may still wait in the queue."""
    attempt_folder = there.run(ONE)
    skeleton = attempt_folder.run_folder / SKELETON
    objects = json.loads(skeleton.read_bytes())
    for one in objects:
        for volume in one.get("spec", {}).get("template", {}).get("spec", {}).get("volumes", ()):
            if volume["name"] == "agent":
                del volume["projected"]
                volume["configMap"] = {"name": "phalanx-abc-agent"}
    skeleton.write_text(json.dumps(objects), encoding="utf-8")
    there.submit(there.engine(), attempt_folder)
    found = everything(there.server)
    assert {*found["ConfigMap/phalanx-abc-agent"]["binaryData"]} == {"agent.pyz", "tracking.zip"}
    assert "ConfigMap/phalanx-abc-tracking" not in found


def test_secrets_are_in_the_secret_alone(there: Works) -> None:
    attempt_folder = there.run(ONE, server=SERVER)
    there.submit(there.engine(server=SERVER), attempt_folder)
    found = everything(there.server)
    secret = found.pop("Secret/phalanx-abc")
    values = secret.get("stringData") or {}
    values |= {name: base64.b64decode(text).decode() for name, text in (secret.get("data") or {}).items()}
    assert values["API_TOKEN"] == "hush-hush"
    assert values["PHALANX_RUN_TOKEN"] == "phr_token"
    assert "hush-hush" not in json.dumps(found)
    assert "phr_token" not in json.dumps(found)
    assert "hush-hush" not in (attempt_folder.run_folder / "manifests.json").read_text()


def test_stamping_touches_nothing_but_marks_of_ours() -> None:
    template = {"metadata": {"labels": {"phalanx.dev/run": "abc", "team": "a"}}, "spec": {"containers": []}}
    affinity = {"labelSelector": {"matchLabels": {"phalanx.dev/run": "abc"}}}
    job = {
        "kind": "PyTorchJob",
        "metadata": {"name": "j", "labels": {"phalanx.dev/run": "abc"}},
        "spec": {
            "pytorchReplicaSpecs": {"Master": {"template": template}, "Worker": {"template": template, "a": affinity}},
            "labels": {"team": "a"},
        },
    }
    owner = {"kind": "ConfigMap", "metadata": {"name": "o", "labels": {"phalanx.dev/run": "abc"}}}
    before = json.dumps(job)
    _, found = stamped([owner, job], 7, "uid-1", engine="kubeflow")
    assert json.dumps(job) == before
    specs = found["spec"]["pytorchReplicaSpecs"]
    for role in ("Master", "Worker"):
        marks = specs[role]["template"]["metadata"]["labels"]
        assert (marks["phalanx.dev/attempt"], marks["phalanx.dev/engine"], marks["team"]) == ("7", "kubeflow", "a")
    assert specs["Worker"]["a"]["labelSelector"]["matchLabels"]["phalanx.dev/attempt"] == "7"
    assert found["spec"]["labels"] == {"team": "a"}
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "uid-1"}
    ]


def test_the_same_code_is_the_same_archive(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name / "pkg"
        folder.mkdir(parents=True)
        (folder / "b.py").write_text("b")
        (folder / "run.sh").write_text("#!/bin/sh\n")
        (folder / "run.sh").chmod(0o750)
        (folder / "link.py").symlink_to("b.py")
        (folder / "gone.py").symlink_to("nowhere")
        os.utime(folder / "b.py", (1, 1 if name == "one" else 10**9))
    assert packed(tmp_path / "one") == packed(tmp_path / "two")
    with tarfile.open(fileobj=io.BytesIO(packed(tmp_path / "one"))) as archive:
        assert {one.name: (one.mode, one.linkname) for one in archive} == {
            "pkg/b.py": (0o644, ""), "pkg/link.py": (0o644, ""), "pkg/run.sh": (0o755, ""),
        }  # fmt: skip
    with tarfile.open(fileobj=io.BytesIO(packed(tmp_path / "nothing"))) as archive:
        assert archive.getnames() == []


def test_code_that_no_object_can_hold_comes_from_the_server_or_is_refused(there: Works) -> None:
    attempt_folder = there.run(ONE.replace("environment: {", "environment: {kubernetes: {code: bundle}, "))
    (attempt_folder.run_folder / "code" / "large").write_bytes(os.urandom(LARGEST_CODE + 1))
    with pytest.raises(JobRejected, match=r"the code takes 70\d KiB when packed.*\.polyaxonignore"):
        there.submit(there.engine(), attempt_folder)
    assert everything(there.server) == {}
    staged = load(attempt_folder.run_folder, {}, attempt=1, engine="kubernetes", server=SERVER)
    assert json.loads(staged.owner["data"]["place.json"])["code"]["kind"] == "server"
    assert not any(one["metadata"]["name"].endswith("-code") for one in staged.others)


def test_runs_of_the_same_code_and_build_have_one_image(there: Works) -> None:
    text = ONE + "build: {image: 'python:3.12', build_steps: [pip install x]}\n"

    def images(run_id: str, code: str) -> tuple[str, str]:
        folder = there.run(text, run_id, registry="registry.example/team").run_folder
        (folder / "code" / "train.py").write_text(code)
        staged = load(folder, {}, attempt=1, engine="kubernetes", server=None)
        [pod], [build] = (one[0]["spec"]["template"]["spec"]["containers"] for one in (staged.works, staged.builds))
        return pod["image"], next(word for word in build["args"] if word.startswith("type=image,name="))

    first, other = images("a", "1"), images("c", "2")
    assert images("b", "1") == first
    assert other != first
    assert all(built == f"type=image,name={image},push=true" for image, built in (first, other))


def test_a_folder_of_gigabytes_is_not_packed_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "weights").write_bytes(os.urandom(12 << 20))
    assert len(packed(tmp_path / "code")) < 8 * LARGEST_CODE + (1 << 20)


def test_submitting_twice_is_submitting_once(there: Works) -> None:
    attempt_folder, engine = there.run(GANG), there.engine()
    handle = there.submit(engine, attempt_folder)
    before = uids(everything(there.server))
    assert there.submit(engine, attempt_folder) == handle == "kubernetes:default/phalanx-abc.1"
    assert uids(everything(there.server)) == before


class Killed(BaseException):
    """As `kill -9`: nothing of ours goes on."""


def kill_at(number: int, *, is_sent: bool, patch: pytest.MonkeyPatch) -> None:
    """The request of that number that changes something is the last."""
    sent = 0
    real = Api.request

    def request(self: Api, method: str, *rest: Any, **more: Any) -> Any:
        nonlocal sent
        if method not in ("GET",):
            sent += 1
            if sent > number or (sent == number and not is_sent):
                raise Killed
            answer = real(self, method, *rest, **more)
            if sent >= number:
                raise Killed
            return answer
        return real(self, method, *rest, **more)

    patch.setattr(Api, "request", request)


@pytest.mark.parametrize("is_sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, OBJECTS + 1))
@pytest.mark.slow
def test_a_scheduler_killed_between_any_two_requests_is_completed_by_the_next(
    there: Works, number: int, is_sent: bool
) -> None:
    attempt_folder = there.run(GANG)
    with pytest.MonkeyPatch.context() as patch:
        kill_at(number, is_sent=is_sent, patch=patch)
        with pytest.raises(Killed):
            there.submit(there.engine(), attempt_folder)
    there.connections.close()
    left = uids(everything(there.server))
    engine = there.engine()
    is_whole = number == OBJECTS and is_sent
    assert (engine.history("abc") != {}) == is_whole  # a part of it is nothing that anybody could wait for
    handle = there.submit(engine, attempt_folder)
    found = uids(everything(there.server))
    assert len(found) == OBJECTS
    assert left.items() <= found.items()
    until(lambda: list(engine.observe([])) == [handle])


def test_the_objects_of_an_earlier_attempt_go_first(there: Works) -> None:
    attempt_folder, engine = there.run(GANG), there.engine()
    there.submit(engine, attempt_folder)
    with pytest.raises(EngineUnavailable, match="being removed"):
        there.submit(engine, attempt_folder._replace(attempt=2))
    handle = there.submit(engine, attempt_folder._replace(attempt=2))
    assert handle.endswith(".2")
    found = everything(there.server)
    assert {one["metadata"]["labels"]["phalanx.dev/attempt"] for one in found.values()} == {"2"}
    with pytest.raises(JobRejected, match="attempt 2 of this run already exists"):
        there.submit(engine, attempt_folder)


def test_what_the_collector_of_garbage_left_is_removed(there: Works) -> None:
    """An owner may be gone before all that belonged to it."""
    attempt_folder, engine = there.run(GANG), there.engine()
    there.submit(engine, attempt_folder)
    left = there.server.get("Job", "phalanx-abc-worker")
    assert left is not None
    there.server.remove("ConfigMap", "phalanx-abc")
    there.server.put({**left, "metadata": {**left["metadata"], "uid": "old"}})
    with pytest.raises(EngineUnavailable, match="being removed"):
        there.submit(engine, attempt_folder._replace(attempt=2))
    assert there.submit(engine, attempt_folder._replace(attempt=2))


def test_pods_of_an_earlier_attempt_are_waited_for(there: Works) -> None:
    attempt_folder, engine = there.run(ONE), there.engine()
    there.submit(engine, attempt_folder)
    there.server.is_graceful = True
    (pod,) = there.spawn(attempt_folder).values()
    until(lambda: (group := group_of(engine)) and group.pods)
    with pytest.raises(EngineUnavailable, match="pods of the previous attempt have not ended"):
        there.submit(engine, attempt_folder._replace(attempt=2))
    assert there.server.names("Job") == []
    there.server.set_pod_phase(pod, "Failed", exit_code=143)
    until(lambda: not there.server.names("Pod") and ("abc", 1) not in engine.controller.groups())
    assert there.submit(engine, attempt_folder._replace(attempt=2))


def test_another_s_object_of_that_name_is_left_alone(there: Works) -> None:
    meta = {"name": "phalanx-abc-agent", "namespace": "default"}
    there.server.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "b"}})
    with pytest.raises(JobRejected, match="ConfigMap phalanx-abc-agent already exists and belongs to another run"):
        there.submit(there.engine(), there.run(ONE))
    assert there.server.get("ConfigMap", "phalanx-abc-agent")
    assert there.server.get("ConfigMap", "phalanx-abc") is None  # nothing of ours is left
    assert there.server.names("Job") == []


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ({"code": 403, "reason": "Forbidden", "message": "jobs.batch is forbidden"}, JobRejected, "phalanx doctor"),
        ({"code": 422, "reason": "Invalid", "message": "spec.template: no"}, JobRejected, "spec.template: no"),
        ({"code": 404, "reason": "NotFound", "message": "could not find"}, JobRejected, "has no Job of batch/v1"),
        (
            {"code": 403, "reason": "Forbidden", "message": "exceeded quota: q, requested: count/jobs.batch=1"},
            EngineUnavailable,
            "exceeded quota",
        ),
        ({"code": 500, "reason": "InternalError", "message": "failed calling webhook"}, EngineUnavailable, "webhook"),
        ({"code": 504, "reason": "Timeout", "message": "timed out"}, EngineUnavailable, "timed out"),
        ({"drop": True}, EngineUnavailable, "."),
    ],
)
def test_what_may_pass_is_tried_again_and_what_may_not_is_refused(
    there: Works, fault: dict[str, Any], kind: type[Exception], words: str
) -> None:
    engine, attempt_folder = there.engine(), there.run(ONE)
    engine.controller.wait_ready()
    there.server.fail_next(**fault, method="POST", path="/jobs", times=1)
    with pytest.raises(kind, match=words):
        there.submit(engine, attempt_folder)
    if kind is JobRejected:
        assert everything(there.server) == {}
    else:
        assert there.submit(engine, attempt_folder)


def test_a_busy_server_is_asked_again_at_once(there: Works) -> None:
    engine, attempt_folder = there.engine(), there.run(ONE)
    engine.controller.wait_ready()
    there.server.fail_next(429, retry_after=0, method="POST", path="/jobs", times=2)
    assert there.submit(engine, attempt_folder)


def test_at_most_a_few_requests_are_sent_at_once(tmp_path: Path) -> None:
    with works(tmp_path) as there:
        engine, attempt_folder = there.engine(), there.run(GANG)
        engine.controller.wait_ready()
        guard, now, most = threading.Lock(), 0, 0
        real = Api.create

        def create(self: Api, *rest: Any, **more: Any) -> Any:
            nonlocal now, most
            with guard:
                now += 1
                most = max(most, now)
            time.sleep(0.02)
            try:
                return real(self, *rest, **more)
            finally:
                with guard:
                    now -= 1

        staged = load(attempt_folder.run_folder, ENVIRONMENT, attempt=1, engine="kubernetes", server=None)
        many = [{**staged.works[0], "metadata": {**staged.works[0]["metadata"], "name": f"j-{n}"}} for n in range(40)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Api, "create", create)
            apply(engine.controller.api, engine.controller.pool, staged._replace(works=many))
        assert 2 <= most <= 8
        assert len(there.server.names("Job")) == 40


def test_a_gang_of_kueue_is_the_attempts_own() -> None:
    """Pods of the attempt before may still be on their way out, and are not to be counted."""
    labels = {"phalanx.dev/run": "abc", "phalanx.dev/attempt": "1", "kueue.x-k8s.io/pod-group-name": "phalanx-abc"}
    owner = {"kind": "ConfigMap", "metadata": {"name": "phalanx-abc", "labels": {"phalanx.dev/run": "abc"}}}
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"metadata": {"labels": labels}}}}
    names = [
        stamped([owner, job], attempt)[1]["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"]
        for attempt in (1, 2)
    ]
    assert names == ["phalanx-abc-1", "phalanx-abc-2"]
