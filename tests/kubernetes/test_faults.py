"""What becomes of runs when pods, nodes, the API server, other people and our own processes fail them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from phalanx.backends.kubernetes.engine.reconciler import CANCELLED_S
from tests.cli.homes import wait_for
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.places import PATIENCE_S, SLOWER, KubernetesPlace
from tests.kubernetes.programs import TRAP
from tests.kubernetes.sandboxes import MISSING_IMAGE, NO_PYTHON_IMAGE
from tests.kubernetes.test_runs import THREE, TWO_MORE, replica
from tests.kubernetes.worlds import World

AGAIN = {**THREE, "environment": {**TWO_MORE, "max_restarts": 1}}
UNTIL_SECOND = "echo attempt $PHALANX_ATTEMPT; [ $PHALANX_ATTEMPT = 2 ] || sleep 600"
SHORT = "echo ran; sleep 2; echo done"


def why(place: KubernetesPlace, run: str) -> str:
    """What `show` tells of a run that waits."""
    waiting = place.see(run)["facts"].get("waiting") or {}
    return str(waiting.get("why", ""))


def the_pod(place: KubernetesPlace, run: str, count: int = 1) -> str:
    """The last of so many that are to run."""
    found = place.until_pods(run, count, "Running")
    return max(str(pod["metadata"]["name"]) for pod in found)


# pods and nodes ------------------------------------------------------------------------------------------------------


class Taken(NamedTuple):
    """Runs whose pods were taken away, each in another way: one of three, which may start again, and the only one."""

    place: KubernetesPlace
    again: dict[str, dict[str, Any]]
    for_good: dict[str, dict[str, Any]]


def evict(cluster: Cluster, place: KubernetesPlace, pod: str) -> None:
    cluster.fault("evict", pod=f"{place.world.namespace}/{pod}")


def preempt(cluster: Cluster, place: KubernetesPlace, pod: str) -> None:
    cluster.fault("preempt", pod=f"{place.world.namespace}/{pod}")


def lose(cluster: Cluster, place: KubernetesPlace, pod: str) -> None:
    cluster.fault("lose-node", node=place.world.api.get(place.world.path("pods", pod))["spec"]["nodeName"])


def delete(_: Cluster | None, place: KubernetesPlace, pod: str) -> None:
    place.world.api.delete(place.world.path("pods", pod))


WAYS: dict[str, Callable[[Cluster, KubernetesPlace, str], None]] = {
    "evicted": evict,
    "preempted": preempt,
    "lost": lose,
}


@pytest.fixture(name="taken", scope="module")
def taken_fixture(tmp_path_factory: pytest.TempPathFactory, own: Cluster | None) -> Iterator[Taken]:
    if own is None:
        pytest.skip("only a cluster of our own is broken on purpose")
    world = World(own.kubeconfig, own)
    world.make()
    place = KubernetesPlace(tmp_path_factory.mktemp("taken"), world)
    try:
        again = {way: place.submitted(UNTIL_SECOND, **AGAIN) for way in WAYS}
        for_good = {way: place.submitted("echo begun; sleep 600") for way in (*WAYS, "deleted")}
        pods = {run: the_pod(place, run, 3) for run in again.values()}
        pods |= {run: the_pod(place, run) for run in for_good.values()}
        place.at_work(*pods)
        for name in ("worker-0", "worker-1"):
            place.at_work(*again.values(), replica=name)
        delete(own, place, pods[for_good["deleted"]])
        for way, act in WAYS.items():
            for run in (again[way], for_good[way]):
                act(own, place, pods[run])
        found = place.over(*again.values(), *for_good.values(), patience_s=4 * PATIENCE_S)
        heal(own)
        by_id = {run["id"]: run for run in found}
        yield Taken(
            place,
            {way: by_id[run] for way, run in again.items()},
            {way: by_id[run] for way, run in for_good.items()},
        )
    finally:
        heal(own)
        place.close()
        world.remove()


def heal(cluster: Cluster) -> None:
    for node in cluster.settings.names:
        cluster.fault("return-node", node=node)
    cluster.await_nodes()


WORDS = {"evicted": "evict", "preempted": "preempt", "lost": "node"}


@pytest.mark.parametrize("way", WAYS)
def test_what_the_cluster_takes_away_starts_again(taken: Taken, way: str) -> None:
    found = taken.again[way]
    assert (found["status"], found["attempt"]) == ("succeeded", 2), taken.place.story(found["id"])
    for name in ("master-0", "worker-0", "worker-1"):
        logs = [taken.place.log(found["id"], name, number) for number in (1, 2)]
        assert [text.splitlines()[0] for text in logs] == ["attempt 1", "attempt 2"], name


@pytest.mark.parametrize("way", WAYS)
def test_what_the_cluster_took_away_is_not_called_a_failure_of_the_program(taken: Taken, way: str) -> None:
    found = taken.for_good[way]
    assert found["status"] == "failed", taken.place.story(found["id"])
    assert WORDS[way] in found["reason"].lower(), found["reason"]
    assert replica(found, "master-0")["cause"] != "error"
    assert taken.place.log(found["id"]) == "begun\n"


def test_a_run_deleted_by_others_is_stopped_with_that_reason(taken: Taken) -> None:
    found = taken.for_good["deleted"]
    assert found["status"] == "stopped", taken.place.story(found["id"])
    assert "not by Phalanx" in found["reason"], found["reason"]


def test_a_pod_that_is_deleted_before_it_starts_was_not_killed(place: KubernetesPlace) -> None:
    run = place.submitted("true", build={"image": f"{MISSING_IMAGE}:latest"})
    wait_for(lambda: "image" in why(place, run), PATIENCE_S)
    (pod,) = place.pods(run)
    delete(None, place, pod["metadata"]["name"])
    (found,) = place.over(run)
    assert found["status"] == "stopped", place.story(run)
    assert "deleted, not by Phalanx" in found["reason"], place.story(run)


def test_without_a_python_the_command_runs_by_itself(place: KubernetesPlace, cluster: Cluster) -> None:
    fields = {"build": {"image": NO_PYTHON_IMAGE}}
    good = place.submitted("echo bare; cat steps.py | head -3", **fields)
    bad = place.submitted("echo bare; exit 6", **fields)
    found = place.over(good, bad)
    assert [run["status"] for run in found] == ["succeeded", "failed"], place.story(good)
    assert replica(found[1], "master-0")["code"] == 6
    assert "bare" in place.log(good).splitlines()
    assert "import os, sys, time" in place.log(good).splitlines(), "its code is unpacked all the same"


# waiting -------------------------------------------------------------------------------------------------------------


class Held:
    """Kueue's webhook, as far as Jobs feel it: they come into the world suspended."""

    def inward(self, method: str, path: str, body: bytes, ask: Callable[[str], Any]) -> bytes:
        if method != "POST" or not path.partition("?")[0].endswith("/jobs"):
            return body
        document = json.loads(body)
        document["spec"]["suspend"] = True
        return json.dumps(document).encode()

    def outward(self, path: str) -> None:
        """Nothing."""


def test_a_run_that_is_held_begins_when_it_is_admitted_and_again_when_others_came_first(
    place: KubernetesPlace,
) -> None:
    if place.world.version < (1, 24):
        pytest.skip("Jobs of this cluster cannot be suspended")

    def admit(run: str, *, is_held: bool = False) -> None:
        for one in place.objects("jobs", run):
            place.world.api.patch(place.world.path("jobs", one["metadata"]["name"]), {"spec": {"suspend": is_held}})

    place.proxy.lens = Held()
    run = place.submitted(UNTIL_SECOND, **AGAIN)
    wait_for(lambda: "Kueue" in why(place, run), PATIENCE_S)
    assert not place.pods(run)
    place.proxy.lens = None
    admit(run)
    place.until_pods(run, 3, "Running")
    for name in ("master-0", "worker-0", "worker-1"):
        place.at_work(run, replica=name)
    admit(run, is_held=True)
    (found,) = place.over(run, patience_s=2 * PATIENCE_S)
    assert (found["status"], found["attempt"]) == ("succeeded", 2), place.story(run)
    assert "suspended" in str(found["statuses"]), found["statuses"]
    for name in ("master-0", "worker-0", "worker-1"):
        assert [place.log(run, name, number).splitlines()[0] for number in (1, 2)] == ["attempt 1", "attempt 2"]
    place.until_nothing_is_left(run)


def test_a_run_of_which_a_part_waits_says_for_what(place: KubernetesPlace) -> None:
    quota = {"spec": {"hard": {"pods": "2"}}, "metadata": {"name": "few"}}
    place.world.api.create({"apiVersion": "v1", "kind": "ResourceQuota", **quota}, place.world.namespace)
    wait_for(lambda: place.world.items("resourcequotas")[0].get("status", {}).get("used"), 30)
    run = place.submitted(TRAP, framework="plain", environment={"replicas": {"n_workers": 3}})
    wait_for(lambda: why(place, run).startswith("2 of 4 replicas run; "), PATIENCE_S)
    wait_for(lambda: "the quota `few` is used up" in why(place, run), PATIENCE_S)
    assert "2 of 4 replicas run" in place.call("ps").out
    assert place.call("stop", run).code == 0
    place.over(run)


def test_a_run_that_waits_says_for_what(place: KubernetesPlace, cluster: Cluster) -> None:
    greedy = {"environment": {"resources": {"gpu": {"limits": 64}}}}
    quota = {"spec": {"hard": {"requests.cpu": "2"}}, "metadata": {"name": "small"}}
    missing = place.submitted("true", build={"image": f"{MISSING_IMAGE}:latest"})
    unschedulable = place.submitted("true", **greedy)
    wait_for(lambda: "image" in why(place, missing), 30)
    assert MISSING_IMAGE in why(place, missing)
    wait_for(lambda: "3 of 3 nodes have too few GPUs" in why(place, unschedulable), 30)
    place.world.api.create({"apiVersion": "v1", "kind": "ResourceQuota", **quota}, place.world.namespace)
    wait_for(lambda: place.world.items("resourcequotas")[0].get("status", {}).get("used"), 30)
    over = place.submitted("true", environment={"resources": {"cpu": {"requests": 4}}})
    wait_for(lambda: "quota" in why(place, over), 40)
    for run in (missing, unschedulable, over):
        assert place.call("stop", run).code == 0
    assert [found["status"] for found in place.over(missing, unschedulable, over)] == ["stopped"] * 3
    for run in (missing, unschedulable, over):
        place.until_nothing_is_left(run)


# the API server ------------------------------------------------------------------------------------------------------


def test_servers_that_are_busy_or_broken_are_asked_again(place: KubernetesPlace) -> None:
    """At every step of a run: 429 with a time to wait, 500, and connections that end without a word."""
    proxy = place.proxy
    proxy.answer("POST .*/configmaps", 429, retry_after_s=1)
    proxy.answer("POST .*/configmaps", 500)
    proxy.lose_answer("POST .*/jobs")
    proxy.answer("GET .*pods.*watch", 500)
    proxy.answer("GET .*/log", 500)
    proxy.drop("GET .*/log")
    proxy.answer("DELETE .*", 503)
    run = place.submitted(SHORT)
    (found,) = place.over(run, patience_s=2 * PATIENCE_S)
    assert (found["status"], found["attempt"]) == ("succeeded", 1), place.story(run)
    assert place.log(run) == "ran\ndone\n"
    place.until_nothing_is_left(run)
    left = [rule.pattern.pattern for rule in proxy.rules if rule.times]
    assert not left, f"never asked: {left}"


def test_a_watch_that_breaks_or_has_expired_goes_on(place: KubernetesPlace) -> None:
    run = place.submitted(f"echo begun; sleep {6 * SLOWER}")
    place.at_work(run)
    place.proxy.answer("GET .*pods.*watch", 410, times=2)
    place.proxy.cut()
    (found,) = place.over(run)
    assert found["status"] == "succeeded", place.story(run)
    assert place.log(run) == "begun\n"


def test_runs_go_on_while_the_api_server_is_away(place: KubernetesPlace, cluster: Cluster) -> None:
    """One that ends meanwhile, one that goes on, and one that is submitted meanwhile."""
    ends, stays = place.submitted("sleep 6; echo ended"), place.submitted("sleep 16; echo stayed")
    for run in (ends, stays):
        place.until(run, "running")
    cluster.stop_server()
    try:
        time.sleep(8)
        for run in (ends, stays):
            assert place.see(run)["status"] == "running", "nobody knows better"
    finally:
        cluster.start_server()
    after = place.submitted("echo after")
    found = place.over(ends, stays, after, patience_s=120.0)
    assert [run["status"] for run in found] == ["succeeded"] * 3, place.story(stays)
    assert [run["attempt"] for run in found] == [1, 1, 1]
    assert [place.log(run) for run in (ends, stays, after)] == ["ended\n", "stayed\n", "after\n"]


def test_a_run_that_is_stopped_while_the_api_server_is_away_ends_when_the_cluster_says_so(
    place: KubernetesPlace, cluster: Cluster
) -> None:
    """Its pods run on meanwhile, and what they say is kept."""
    short = {"pod": {"spec": {"terminationGracePeriodSeconds": 2}}}
    counting = TRAP.replace("while :; do", "n=0; while :; do echo $((n += 1));")
    run = place.submitted(counting, framework="plain", environment={"replicas": {"n_workers": 1}, "kubernetes": short})
    place.trapped(run, "master-0", "worker-0")
    place.until(run, "running")
    cluster.stop_server()
    try:
        asked = place.start("stop", run)
        time.sleep(2 + CANCELLED_S + 5)  # longer than the pods have to end: nothing may happen meanwhile
        assert place.see(run)["status"] == "running"
        assert "kubernetes does not respond" in why(place, run)
        said = max(map(int, filter(str.isdigit, place.log(run).splitlines())))
    finally:
        cluster.start_server()
    out, err = asked.communicate(timeout=2 * PATIENCE_S)
    assert f"waiting for run {run} to end: kubernetes does not respond" in err, (out, err)
    (found,) = place.over(run)
    assert found["status"] == "stopped", place.story(run)
    for name in ("master-0", "worker-0"):
        lines = place.log(run, name).splitlines()
        assert lines[-1] == "asked to end", lines[-3:]
        assert max(map(int, filter(str.isdigit, lines))) > said + 10
    place.until_nothing_is_left(run)


def test_a_node_that_is_lost_is_named_long_before_its_pods_are_given_up(
    place: KubernetesPlace, cluster: Cluster
) -> None:
    run = place.submitted("echo begun; sleep 600", environment={"kubernetes": {"node_timeout": "290s"}})
    place.at_work(run)
    (pod,) = place.pods(run)
    node = pod["spec"]["nodeName"]
    limits = {one["key"]: one["tolerationSeconds"] for one in pod["spec"]["tolerations"] if "tolerationSeconds" in one}
    assert limits == {"node.kubernetes.io/unreachable": 290, "node.kubernetes.io/not-ready": 290}
    lose(cluster, place, pod["metadata"]["name"])
    try:
        wait_for(lambda: f"node {node} is not ready, with master-0" in why(place, run), 2 * PATIENCE_S)
        assert place.see(run)["status"] == "running"
        assert place.call("stop", run, "--no-wait").code == 0
    finally:
        heal(cluster)
    (found,) = place.over(run)
    assert found["status"] == "stopped", place.story(run)


# our own processes ---------------------------------------------------------------------------------------------------

STEPS = {  # requests of a run's life, and whether we are killed before the server hears of it or after it has done it
    "before its first object": ("POST .*/configmaps", "before"),
    "after its first object": ("POST .*/configmaps", "after"),
    "before its service": ("POST .*/services", "before"),
    "before a job": ("POST .*/jobs", "before"),
    "after a job": ("POST .*/jobs", "after"),
    "as its log is read": ("GET .*/log", "after"),
    "before it is removed": ("DELETE .*", "before"),
    "after it is removed": ("DELETE .*", "after"),
}


def test_a_scheduler_that_is_killed_between_any_two_steps_loses_and_doubles_nothing(place: KubernetesPlace) -> None:
    runs: dict[str, str] = {}
    for step, (pattern, moment) in STEPS.items():
        rule = place.proxy.on(pattern, **{moment: place.kill_schedulers})  # type: ignore[arg-type]
        answer = place.start(
            "run",
            "-f",
            place.file("echo ran on; sleep 1", name=f"{len(runs)}.yml", **THREE),
            "-d",
            "--on",
            "kubernetes",
        )
        answer.communicate(timeout=60)
        wait_for(lambda rule=rule: rule.met, PATIENCE_S)  # type: ignore[misc]
        runs[step] = max(place.run_ids(), key=lambda run: (place.home / "runs" / run).stat().st_ctime)
        place.call("ps")  # whoever looks leaves someone who goes on
    time.sleep(2.0)
    place.call("ps")  # the last to be killed may have been the one whom that look had left
    found = place.over(*runs.values(), patience_s=3 * PATIENCE_S)
    for step, run in zip(runs, found, strict=True):
        assert (run["status"], run["attempt"]) == ("succeeded", 1), f"killed {step}: {place.story(run['id'])}"
        for name in ("master-0", "worker-0", "worker-1"):
            assert place.log(run["id"], name) == "ran on\n", f"killed {step}: {name}"
        place.until_nothing_is_left(run["id"])


def test_a_run_is_found_again_after_a_long_absence(place: KubernetesPlace) -> None:
    """It ended while nobody looked, and its pods are still there to tell how."""
    pause = f"sleep {15 * SLOWER}"  # both are at work when the scheduler is killed, also on a busy machine
    good, bad = place.submitted(f"{pause}; echo good"), place.submitted(f"{pause}; echo bad; exit 9")
    place.at_work(good, bad)
    place.kill_schedulers()
    for run in (good, bad):
        place.until_pods(run, 1, "Succeeded", "Failed")
    place.call("ps")
    found = place.over(good, bad)
    assert [run["status"] for run in found] == ["succeeded", "failed"], place.story(good)
    assert replica(found[1], "master-0")["code"] == 9
    assert [place.log(run) for run in (good, bad)] == ["good\n", "bad\n"]


# others --------------------------------------------------------------------------------------------------------------


def test_an_object_of_another_owner_with_our_name_is_left_alone(place: KubernetesPlace) -> None:
    def be_first() -> None:
        (run,) = place.run_ids()
        thing = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"phalanx-{run}"},
            "data": {"mine": "yes"},
        }
        place.world.api.create(thing, place.world.namespace)

    place.proxy.on("POST .*/configmaps", before=be_first)
    run = place.submitted("true")
    (found,) = place.over(run)
    assert found["status"] == "failed", place.story(run)
    assert f"phalanx-{run}" in found["reason"], found["reason"]
    kept = place.world.api.get(place.world.path("configmaps", f"phalanx-{run}"))
    assert kept["data"] == {"mine": "yes"}


def test_a_run_whose_objects_are_deleted_is_stopped(place: KubernetesPlace) -> None:
    run = place.submitted(TRAP, **THREE)
    place.at_work(run)
    place.world.api.delete(place.world.path("configmaps", f"phalanx-{run}"), propagationPolicy="Background")
    (found,) = place.over(run)
    assert found["status"] == "stopped", place.story(run)
    place.until_nothing_is_left(run)


# costs ---------------------------------------------------------------------------------------------------------------


def test_many_runs_cost_no_more_streams_than_one(place: KubernetesPlace) -> None:
    file = place.file(f"sleep {20 * SLOWER}")
    runs = [place.call("run", "-f", file, "-d", "--on", "kubernetes").out.strip() for _ in range(6)]
    place.at_work(*runs)
    with place.proxy.counting() as asked:
        time.sleep(4)
    others = [request for request in asked if not request.is_log]
    assert len(others) <= 8, others
    place.over(*runs)
    watches = [request.path.partition("?")[0] for request in place.proxy.requests if request.is_watch]
    assert len(watches) <= 3 * len(set(watches)), "one of each kind, and again when it ends"
