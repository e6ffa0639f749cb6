"""The same questions to a real API server and to the fake that quick tests use: a difference is a bug of the fake."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.backends.kubernetes.cluster.api import (
    CONFIG_MAPS,
    JOBS,
    Api,
    ApiFault,
    ResourceKind,
    connect,
    kind_of,
)
from phalanx.backends.kubernetes.cluster.discovery import discover
from phalanx.backends.kubernetes.engine.informer import Informer
from phalanx.backends.kubernetes.target import RUN, Settings
from tests.backends.kubernetes.apiserver import FakeApiServer
from tests.cli.homes import wait_for
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.proxy import Proxy
from tests.kubernetes.worlds import OLD, World

pytestmark = pytest.mark.faces(OLD)


@pytest.fixture(name="fake", params=["real", "fake"])
def fake_fixture(request: pytest.FixtureRequest) -> Iterator[FakeApiServer | None]:
    """None where the real one is asked."""
    if request.param == "real":
        yield None
        return
    with FakeApiServer(version="1.20") as server:
        yield server


@pytest.fixture(name="api")
def api_fixture(
    request: pytest.FixtureRequest, fake: FakeApiServer | None, own: Cluster | None, tmp_path: Path
) -> Iterator[Api]:
    assert own is None or not own.settings.version, "nothing stands before it"
    if fake is None:
        world: World = request.getfixturevalue("world")
        api = connect(Settings(kubeconfig=str(world.kubeconfig), namespace=world.namespace))
    else:
        api = connect(Settings(kubeconfig=str(fake.kubeconfig(tmp_path / "config"))))
    yield api
    api.close()


def config_map(name: str, run: str = "a", **data: str) -> dict[str, Any]:
    meta = {"name": name, "labels": {RUN: run}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def job(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "python:3.12-slim", "command": ["true"]}
    template = {"metadata": {"labels": {RUN: "a"}}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    meta = {"name": name, "labels": {RUN: "a"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template, **spec}}


def refused(act: Callable[[], object]) -> ApiFault:
    with pytest.raises(ApiFault) as caught:
        act()
    return caught.value


def patched(api: Api, change: dict[str, Any]) -> Any:
    """The ConfigMap `one`, with a change."""
    path = CONFIG_MAPS.path(api.namespace, "one")
    return api.request("PATCH", path, change, content_type="application/merge-patch+json")


@pytest.mark.smoke
def test_what_is_created_is_there_with_all_that_servers_add(api: Api) -> None:
    made = api.create(CONFIG_MAPS, config_map("one", a="1"))
    meta = made["metadata"]
    assert meta["uid"]
    assert meta["resourceVersion"]
    assert meta["creationTimestamp"].endswith("Z")
    assert meta["namespace"] == api.namespace
    assert api.get(CONFIG_MAPS, "one")["data"] == {"a": "1"}


def test_names_that_are_taken_missing_or_wrong(api: Api) -> None:
    api.create(CONFIG_MAPS, config_map("one"))
    taken = refused(lambda: api.create(CONFIG_MAPS, config_map("one")))
    assert (taken.code, taken.reason) == (409, "AlreadyExists")
    assert taken.message == 'configmaps "one" already exists'
    assert (taken.details["name"], taken.details["kind"]) == ("one", "configmaps")
    missing = refused(lambda: api.get(CONFIG_MAPS, "two"))
    assert (missing.code, missing.reason, missing.message) == (404, "NotFound", 'configmaps "two" not found')
    wrong = refused(lambda: api.create(CONFIG_MAPS, config_map("Not_A_Name")))
    assert (wrong.code, wrong.reason) == (422, "Invalid")
    assert "Not_A_Name" in wrong.message


def test_labels_that_are_wrong_are_refused_with_the_field(api: Api) -> None:
    document = config_map("one")
    document["metadata"]["labels"]["a"] = "not valid!"
    fault = refused(lambda: api.create(CONFIG_MAPS, document))
    assert (fault.code, fault.reason) == (422, "Invalid")
    assert "metadata.labels" in fault.message


def test_a_job_without_what_it_needs_is_refused(api: Api) -> None:
    document = job("one")
    document["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    fault = refused(lambda: api.create(JOBS, document))
    assert (fault.code, fault.reason) == (422, "Invalid")
    assert "restartPolicy" in fault.message


def test_a_kind_that_no_one_serves_is_not_found(api: Api) -> None:
    unknown = ResourceKind("nobody.example.org", "v1", "things", "Thing")
    fault = refused(lambda: api.list(unknown))
    assert fault.code == 404


def test_a_change_of_what_has_changed_meanwhile_is_a_conflict(api: Api) -> None:
    first = api.create(CONFIG_MAPS, config_map("one", a="1"))
    patched(api, {"data": {"a": "2"}})
    fault = refused(lambda: api.request("PUT", CONFIG_MAPS.path(api.namespace, "one"), {**first, "data": {"a": "3"}}))
    assert (fault.code, fault.reason) == (409, "Conflict")
    assert api.get(CONFIG_MAPS, "one")["data"] == {"a": "2"}


def test_a_deletion_of_another_one_of_that_name_is_a_conflict(api: Api) -> None:
    made = api.create(CONFIG_MAPS, config_map("one"))
    fault = refused(lambda: api.delete(CONFIG_MAPS, "one", uid="11111111-1111-1111-1111-111111111111"))
    assert (fault.code, fault.reason) == (409, "Conflict")
    api.delete(CONFIG_MAPS, "one", uid=made["metadata"]["uid"])
    assert refused(lambda: api.delete(CONFIG_MAPS, "one")).code == 404


def test_a_merge_takes_away_what_is_null(api: Api) -> None:
    api.create(CONFIG_MAPS, config_map("one", a="1", b="2"))
    assert patched(api, {"data": {"a": None, "c": "3"}})["data"] == {"b": "2", "c": "3"}


def test_a_rehearsal_changes_nothing(api: Api) -> None:
    api.create(CONFIG_MAPS, config_map("one"), dry=True)
    assert refused(lambda: api.get(CONFIG_MAPS, "one")).code == 404
    assert refused(lambda: api.create(CONFIG_MAPS, config_map("Wrong_Name"), dry=True)).code == 422


def test_lists_are_chosen_by_labels_and_come_page_by_page(api: Api) -> None:
    for number in range(5):
        api.create(CONFIG_MAPS, config_map(f"m{number}", run="a" if number % 2 else "b"))
    assert {item["metadata"]["name"] for item in api.list(CONFIG_MAPS, selector=f"{RUN}=a").items} == {"m1", "m3"}
    assert len(api.list(CONFIG_MAPS, selector=RUN).items) == 5
    path = CONFIG_MAPS.path(api.namespace)
    first = api.request("GET", path, query={"labelSelector": RUN, "limit": 2})
    assert len(first["items"]) == 2
    rest = api.request("GET", path, query={"labelSelector": RUN, "limit": 9, "continue": first["metadata"]["continue"]})
    assert len(rest["items"]) == 3
    assert not rest["metadata"].get("continue")


def test_a_secret_comes_back_encoded(api: Api) -> None:
    meta = {"name": "one", "labels": {RUN: "a"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"k": "hush"}}
    made = api.create(kind_of(secret), secret)
    assert made["data"] == {"k": "aHVzaA=="}
    assert "stringData" not in made


def test_a_headless_service_has_no_address(api: Api) -> None:
    spec = {"clusterIP": "None", "selector": {RUN: "a"}, "ports": [{"port": 2222}], "publishNotReadyAddresses": True}
    meta = {"name": "one", "labels": {RUN: "a"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}
    made = api.create(kind_of(service), service)
    assert made["spec"]["clusterIP"] == "None"
    assert made["spec"]["ports"][0]["protocol"] == "TCP"


@pytest.mark.smoke
def test_a_watch_says_what_happens_after_a_list(api: Api) -> None:
    version = api.list(CONFIG_MAPS, selector=RUN).version
    api.create(CONFIG_MAPS, config_map("one", a="1"))
    patched(api, {"data": {"a": "2"}})
    api.create(CONFIG_MAPS, config_map("other", run="b"))
    api.delete(CONFIG_MAPS, "one")
    received: list[tuple[str, str]] = []
    with api.watch(CONFIG_MAPS, version, selector=f"{RUN}=a", timeout_s=5) as stream:
        for line in stream:
            event = json.loads(line)
            if event["type"] != "BOOKMARK":
                received.append((event["type"], event["object"]["metadata"]["name"]))
            if event["type"] == "DELETED":
                break
    assert received == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]


def test_what_leaves_the_selection_is_deleted_for_a_watch(api: Api) -> None:
    api.create(CONFIG_MAPS, config_map("one"))
    version = api.list(CONFIG_MAPS, selector=f"{RUN}=a").version
    patched(api, {"metadata": {"labels": {RUN: "b"}}})
    with api.watch(CONFIG_MAPS, version, selector=f"{RUN}=a", timeout_s=5) as stream:
        kind = next(json.loads(line)["type"] for line in stream if json.loads(line)["type"] != "BOOKMARK")
    assert kind == "DELETED"


def expiry(api: Api, version: str) -> tuple[str, int, str]:
    """What a watch from that version on is told; inside the stream, or instead of it."""
    try:
        with api.watch(CONFIG_MAPS, version, selector=RUN, timeout_s=5) as stream:
            event = json.loads(next(iter(stream)))
            return event["type"], event["object"].get("code", 200), event["object"].get("reason", "")
    except ApiFault as fault:
        return "ERROR", fault.code, fault.reason


EXPIRED = [("ERROR", 410, "Expired"), ("ERROR", 410, "Gone")]


def test_a_watch_of_long_ago_has_expired(tmp_path: Path) -> None:
    """At the fake; at the real one it takes a restart, which is below."""
    with FakeApiServer() as server:
        api = connect(Settings(kubeconfig=str(server.kubeconfig(tmp_path / "config"))))
        api.create(CONFIG_MAPS, config_map("one"))
        server.expire_watches()
        assert expiry(api, "1") in EXPIRED
        api.close()


def test_a_log_of_a_pod_that_is_not_there_is_not_found(api: Api) -> None:
    fault = refused(lambda: api.log("nobody", "main"))
    assert (fault.code, fault.reason, fault.message) == (404, "NotFound", 'pods "nobody" not found')


def test_what_one_may_do_is_answered(api: Api) -> None:
    asked = {"namespace": api.namespace, "verb": "create", "resource": "pods"}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = api.request("POST", path, {**review, "spec": {"resourceAttributes": asked}})
    assert answer["status"]["allowed"] is True


def test_who_brings_a_token_through_a_proxy_is_no_one_else(world: World, tmp_path: Path) -> None:
    """Although the proxy itself may know the API server by a certificate, which would come first."""
    proxy = Proxy(world.kubeconfig)
    try:
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        given = world.api.ask("POST", f"{world.path('serviceaccounts', 'default')}/token", asked)
        lent, own = (
            connect(Settings(kubeconfig=str(proxy.kubeconfig(tmp_path / name, world.namespace, token))))
            for name, token in (("lent", ""), ("own", given["status"]["token"]))
        )
        lent.list(CONFIG_MAPS)
        assert refused(lambda: own.list(CONFIG_MAPS)).code == 403
        lent.close()
        own.close()
    finally:
        proxy.close()


def test_what_a_cluster_offers_is_found_out(api: Api) -> None:
    found = discover(api)
    assert found.version >= (1, 20)
    assert not found.is_assumed
    if "TFJob" in found.kinds:
        assert found.kinds["TFJob"] == ("kubeflow.org/v1",)


def test_an_object_with_owners_is_refused_without_their_uid(api: Api) -> None:
    document = config_map("one")
    document["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": ""}]
    fault = refused(lambda: api.create(CONFIG_MAPS, document))
    assert fault.code == 422
    assert "uid" in fault.message


# one watch for all ---------------------------------------------------------------------------------------------------


@pytest.fixture(name="mirrored")
def mirrored_fixture(world: World, tmp_path: Path) -> Iterator[tuple[Informer, Proxy, World]]:
    """A real list and watch, through a proxy."""
    proxy = Proxy(world.kubeconfig)
    api = connect(Settings(kubeconfig=str(proxy.kubeconfig(tmp_path / "config", world.namespace))))
    reflector = Informer(api, CONFIG_MAPS, selector=RUN)
    reflector.start()
    yield reflector, proxy, world
    reflector.stop()
    api.close()
    proxy.close()


def names(reflector: Informer) -> set[str]:
    return {item["metadata"]["name"] for item in reflector.snapshot()}


def test_a_mirror_survives_cuts_expiry_and_refusals(mirrored: tuple[Informer, Proxy, World]) -> None:
    reflector, proxy, world = mirrored
    world.api.create(config_map("one"), world.namespace)
    wait_for(lambda: names(reflector) == {"one"})
    for code in (410, 500, 429):
        proxy.answer("GET .*watch=", code, retry_after_s=1 if code == 429 else None)
        proxy.cut()
        world.api.create(config_map(f"after-{code}"), world.namespace)
        wait_for(lambda code=code: f"after-{code}" in names(reflector), 30)  # type: ignore[misc]
    with proxy.down():
        world.api.delete(world.path("configmaps", "one"))
        world.api.create(config_map("meanwhile"), world.namespace)
    wait_for(lambda: "meanwhile" in names(reflector) and "one" not in names(reflector), 30)


def test_a_mirror_survives_a_restart_of_the_api_server(
    mirrored: tuple[Informer, Proxy, World], cluster: Cluster
) -> None:
    """After which nothing of before can be watched on: that is a real expiry."""
    reflector, _, world = mirrored
    long_ago = world.api.get(world.path("configmaps"))["metadata"]["resourceVersion"]
    world.api.create(config_map("before"), world.namespace)
    wait_for(lambda: names(reflector) == {"before"})
    cluster.stop_server()
    cluster.start_server()
    world.api.delete(world.path("configmaps", "before"))
    world.api.create(config_map("after"), world.namespace)
    wait_for(lambda: names(reflector) == {"after"}, 60)
    api = connect(Settings(kubeconfig=str(world.kubeconfig), namespace=world.namespace))
    assert expiry(api, long_ago) in EXPIRED
    api.close()
