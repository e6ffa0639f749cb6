"""A namespace, kept up to date by one list and one watch a kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.kubernetes.cluster.api import JOBS, PODS, Api, connect, kind_named
from phalanx.backends.kubernetes.engine import informer
from phalanx.backends.kubernetes.engine.informer import Informer, NamespaceCache
from phalanx.backends.kubernetes.target import Settings
from tests.backends.kubernetes.apiserver import FakeApiServer


@pytest.fixture(name="server")
def server_fixture() -> Iterator[FakeApiServer]:
    with FakeApiServer() as server:
        yield server


@pytest.fixture(name="api")
def api_fixture(server: FakeApiServer, tmp_path: Path) -> Iterator[Api]:
    api = connect(Settings(kubeconfig=str(server.kubeconfig(tmp_path / "config"))))
    yield api
    api.close()


@pytest.fixture(name="pods")
def pods_fixture(api: Api) -> Iterator[Informer]:
    reflector = Informer(api, PODS)
    yield reflector
    reflector.stop()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer, "LONGEST_PAUSE_S", 0.05)
    monkeypatch.setattr(informer, "SHORTEST_WATCH_S", 0.05)


def until(condition: Callable[[], Any], patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


def pod(name: str, run: str | None = "abc", **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "labels": {"phalanx.dev/run": run} if run else {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "main"}]}, **more}


def names(reflector: Informer) -> list[str]:
    return sorted(one["metadata"]["name"] for one in reflector.snapshot())


def of_run(found: list[dict[str, Any]], run: str) -> list[dict[str, Any]]:
    return [one for one in found if one["metadata"]["labels"]["phalanx.dev/run"] == run]


def runs_of(found: list[dict[str, Any]]) -> set[str]:
    return {one["metadata"]["labels"]["phalanx.dev/run"] for one in found}


def lists_of(server: FakeApiServer, plural: str = "pods") -> int:
    return len([one for one in server.requests if one.path.endswith(f"/{plural}") and not one.is_watch])


def watches_of(server: FakeApiServer, plural: str = "pods") -> list[str]:
    return [one.query["resourceVersion"] for one in server.requests if one.path.endswith(f"/{plural}") and one.is_watch]


def test_what_is_there_and_what_happens_is_seen(server: FakeApiServer, pods: Informer) -> None:
    server.put(pod("one"))
    server.put(pod("stranger", run=None))
    assert not pods.is_synced
    pods.start()
    until(lambda: pods.is_synced)
    assert names(pods) == ["one"]
    server.put(pod("two", run="xyz"))
    until(lambda: names(pods) == ["one", "two"])
    server.set_pod_phase("one", "Running")
    until(lambda: [one["status"]["phase"] for one in of_run(pods.snapshot(), "abc")] == ["Running"])
    assert runs_of(pods.snapshot()) == {"abc", "xyz"}
    assert {one["kind"] for one in pods.snapshot()} == {"Pod"}
    server.remove("Pod", "one")
    until(lambda: names(pods) == ["two"])
    assert runs_of(pods.snapshot()) == {"xyz"}
    assert (lists_of(server), len(watches_of(server))) == (1, 1)


def test_a_version_that_is_too_old_means_a_new_list(server: FakeApiServer, pods: Informer) -> None:
    server.put(pod("one"))
    server.put(pod("two"))
    pods.start()
    until(lambda: watches_of(server))
    server.fail_next(500, method="GET", times=1)
    with server.objects.changed:  # nobody sees it go
        server.remove("Pod", "one")
        server.expire_watches()
    until(lambda: names(pods) == ["two"])
    server.put(pod("three"))
    until(lambda: names(pods) == ["three", "two"])
    assert pods.trouble == ""


def test_a_lost_connection_goes_on_where_it_was(server: FakeApiServer, pods: Informer) -> None:
    pods.start()
    until(lambda: watches_of(server))
    server.put(pod("one"))
    until(lambda: names(pods) == ["one"])
    seen = pods.version
    server.drop_connections()
    server.put(pod("two"))
    until(lambda: names(pods) == ["one", "two"])
    assert lists_of(server) == 1
    assert watches_of(server)[1] == seen


def test_a_server_that_was_away_is_trouble_only_meanwhile(server: FakeApiServer, pods: Informer) -> None:
    server.put(pod("one"))
    pods.start()
    until(lambda: pods.is_synced)
    server.stop()
    until(lambda: "connection refused" in pods.trouble)
    assert names(pods) == ["one"]  # the last that was known
    server.put(pod("two"))
    server.start()
    until(lambda: names(pods) == ["one", "two"])
    until(lambda: pods.trouble == "")


@pytest.mark.parametrize("code", [429, 500, 503])
def test_faults_pass(server: FakeApiServer, pods: Informer, code: int) -> None:
    server.put(pod("one"))
    server.fail_next(code, retry_after=1, times=3)
    pods.start()
    until(lambda: pods.trouble)
    until(lambda: names(pods) == ["one"])
    until(lambda: pods.trouble == "")


@pytest.mark.parametrize(
    ("code", "message", "times"),
    [
        (410, "too old resource version: 1 (900)", 1),  # as a status, where the watch has not begun
        (504, "Too large resource version: 900, current: 1", 4),  # of a server that lags behind
    ],
)
def test_a_version_that_the_server_does_not_take_means_a_new_list_in_the_end(
    server: FakeApiServer, pods: Informer, code: int, message: str, times: int
) -> None:
    server.put(pod("one"))
    pods.start()
    until(lambda: watches_of(server))
    server.fail_next(code, message=message, times=times)
    server.drop_connections()
    until(lambda: lists_of(server) > 1, 20.0)
    server.put(pod("two"))
    until(lambda: names(pods) == ["one", "two"], 20.0)
    until(lambda: pods.trouble == "")


def test_what_is_forbidden_is_said_and_tried_again(server: FakeApiServer, pods: Informer) -> None:
    server.deny("list", "pods")
    pods.start()
    until(lambda: 'cannot list resource "pods"' in pods.trouble)
    assert not pods.is_synced
    server.denied.clear()
    until(lambda: pods.is_synced)
    assert pods.trouble == ""


def test_a_kind_that_is_no_more_has_no_objects_and_is_no_trouble(server: FakeApiServer, api: Api) -> None:
    kind = kind_named("kubeflow.org/v1", "TFJob")
    meta = {"name": "one", "namespace": "default", "labels": {"phalanx.dev/run": "abc"}}
    server.put({"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": meta, "spec": {}})
    mirror = NamespaceCache(api, [PODS, kind])
    until(lambda: mirror.is_synced)
    assert len(mirror.all_of(kind)) == 1
    server.unserve("TFJob")
    server.drop_connections()
    until(lambda: mirror.all_of(kind) == [] and mirror.trouble == "")
    server.serve("kubeflow.org", "v1", "tfjobs", "TFJob")
    server.put({"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": meta, "spec": {}})
    until(lambda: len(mirror.all_of(kind)) == 1)
    mirror.close()


def test_bookmarks_keep_the_version_young(server: FakeApiServer, api: Api) -> None:
    reflector = Informer(api, PODS, watch_s=1)
    reflector.start()
    until(lambda: watches_of(server))
    server.put(pod("stranger", run=None))
    until(lambda: len(watches_of(server)) > 1)
    assert watches_of(server)[1] == str(server.objects.version)
    assert lists_of(server) == 1
    reflector.stop()


def test_a_watch_that_ends_at_once_is_no_reason_to_hurry(
    server: FakeApiServer, pods: Informer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informer, "LONGEST_PAUSE_S", 30.0)
    server.fail_next(drop=True, path="pods", times=1000)
    pods.start()
    time.sleep(1.0)
    assert 1 <= len(server.requests) <= 6


def test_stopping_does_not_wait_for_the_watch(server: FakeApiServer, pods: Informer) -> None:
    pods.start()
    until(lambda: watches_of(server))
    time.sleep(0.05)
    begun = time.monotonic()
    pods.stop()
    assert time.monotonic() - begun < 30


def test_many_runs_cost_as_many_requests_as_one(server: FakeApiServer, api: Api) -> None:
    mirror = NamespaceCache(api, [PODS, JOBS])
    until(lambda: mirror.is_synced)
    until(lambda: len(watches_of(server)) == len(watches_of(server, "events")) == len(watches_of(server, "jobs")) == 1)
    before = len(server.requests)
    for number in range(200):
        server.put(pod(f"phalanx-r{number}-0", run=f"r{number}"))
        server.set_pod_phase(f"phalanx-r{number}-0", "Running")
    until(lambda: len(runs_of(mirror.all_of(PODS))) == 200)
    for number in range(200):
        assert len(of_run(mirror.all_of(PODS), f"r{number}")) == 1
    assert len(server.requests) == before
    kinds = ("pods", "jobs", "events")  # a list and a watch for each
    assert [lists_of(server, plural) + len(watches_of(server, plural)) for plural in kinds] == [2, 2, 2]
    mirror.close()


def test_a_run_has_its_objects_and_what_is_said_about_them(server: FakeApiServer, api: Api) -> None:
    mine = server.put(pod("phalanx-abc-0"))
    other = server.put(pod("phalanx-abcd-0", run="abcd"))
    stranger = server.put(pod("web", run=None))
    mirror = NamespaceCache(api, [PODS, JOBS])
    until(lambda: mirror.is_synced)
    for about, reason in ((mine, "FailedScheduling"), (other, "Pulled"), (stranger, "Killing"), (mine, "Scheduled")):
        server.event(about, reason, "words")
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "phalanx-abc", "namespace": "default"}}
    work = server.put({**job, "spec": {}})
    server.event(work, "FailedCreate", "quota")
    uids = [one["metadata"]["uid"] for one in (mine, work)]
    until(lambda: len(mirror.events(uids)) == 3)
    assert [one["reason"] for one in mirror.events(uids)] == ["FailedScheduling", "Scheduled", "FailedCreate"]
    assert [one["metadata"]["name"] for one in of_run(mirror.all_of(PODS), "abc")] == ["phalanx-abc-0"]
    server.remove("Pod", "phalanx-abc-0")
    until(lambda: of_run(mirror.all_of(PODS), "abc") == [])
    mirror.close()


def test_events_are_a_help_not_a_need(server: FakeApiServer, api: Api) -> None:
    server.deny("list", "events")
    about = server.put(pod("phalanx-abc-0"))
    mirror = NamespaceCache(api, [PODS])
    until(lambda: mirror.is_synced)
    assert mirror.trouble == ""
    assert mirror.events([about["metadata"]["uid"]]) == []
    mirror.close()


def test_only_so_many_events_are_kept(server: FakeApiServer, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer, "KEPT_EVENTS", 10)
    about = server.put(pod("phalanx-abc-0"))
    mirror = NamespaceCache(api, [PODS])
    for number in range(50):
        server.event(about, f"R{number}", "words")
    uids = [about["metadata"]["uid"]]
    until(lambda: [one["reason"] for one in mirror.events(uids)][-1:] == ["R49"])
    assert len(mirror.events(uids)) == 10
    mirror.close()


def test_waiting_ends_with_the_next_change(server: FakeApiServer, api: Api) -> None:
    mirror = NamespaceCache(api, [PODS])
    until(lambda: mirror.is_synced)
    time.sleep(0.1)
    seen = mirror.changes
    assert mirror.wait(seen, 0.05) == seen
    server.put(pod("one"))
    assert mirror.wait(seen, 5) != seen
    mirror.close()
