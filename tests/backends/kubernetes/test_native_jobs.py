"""Native Jobs: which replicas share one, what they are called, and where they find each other."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx import plan, spec
from phalanx.backends.kubernetes.render import native_jobs
from phalanx.backends.kubernetes.render.addresses import AddressTables
from phalanx.backends.kubernetes.target import MEMBERS, ROLE, RUN, Cluster, ClusterTarget, DataVolume, Settings
from phalanx.errors import CallError
from phalanx.placeholders import Each, Hole
from phalanx.plan.model import Plan
from tests.backends.kubernetes.schemas import validate
from tests.examples import examples

PLAIN = ClusterTarget()
OLD = ClusterTarget(cluster=Cluster(version=(1, 20)))
CPU: dict[str, Any] = {"resources": {"cpu": {"requests": 1}}}


def file(framework: str | None = "pytorch", command: str = "python train.py", **environment: Any) -> dict[str, Any]:
    document = {"version": 1, "kind": "experiment", "environment": environment, "run": {"cmd": command}}
    return document | ({"framework": framework} if framework else {})


def made_of(document: dict[str, Any], run_id: str = "r-1") -> Plan:
    return plan.make(spec.load_document("polyaxonfile.yml", document), run_id)


def rendered(document: dict[str, Any], target: ClusterTarget = PLAIN, run_id: str = "r-1") -> list[dict[str, Any]]:
    return native_jobs.objects(made_of(document, run_id), target)


def jobs(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == "Job"}


def main(job: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = job["spec"]["template"]["spec"]["containers"][0]
    return container


def variables(job: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in main(job)["env"] if "value" in one}


def overridden(index: int, cpus: int) -> dict[str, Any]:
    return {"index": index, "resources": {"cpu": {"requests": cpus}}}


DIFFERENT = file(
    "tensorflow",
    replicas={"n_workers": 5, "n_ps": 1, "default_worker": CPU, "worker": [overridden(1, 8), overridden(3, 8)]},
)
CASES = {
    "one": file(None),
    "alike": file(replicas={"n_workers": 3, "default_worker": CPU}, **CPU),
    "different": DIFFERENT,
    "processes": file(replicas={"n_workers": 1, "processes": 2}),
    "horovod": file("horovod", replicas={"n_workers": 3}),
    "notebook": {"version": 1, "kind": "notebook"},
    "timed": file(timeout="1h", kubernetes={"ttl": "10m"}, replicas={"n_workers": 1}),
    "secret": file(env_vars={"API_KEY": "s3cret"}, replicas={"n_workers": 1}),
}


@pytest.mark.parametrize("version", [(1, 25), (1, 28), (1, 29), (1, 37)])
@pytest.mark.parametrize("case", CASES)
def test_every_object_is_valid_to_the_cluster_that_it_is_written_for(case: str, version: tuple[int, int]) -> None:
    for target in (ClusterTarget(cluster=Cluster(version=version)), OLD):
        for one in rendered(CASES[case], target):
            validate(one, "{}.{}".format(*version))


def test_replicas_that_are_alike_are_one_job_with_an_index() -> None:
    found = jobs(rendered(CASES["alike"]))
    assert list(found) == ["phalanx-r-1-master", "phalanx-r-1-worker"]
    asked = found["phalanx-r-1-worker"]["spec"]
    assert {key: asked[key] for key in ("completionMode", "completions", "parallelism")} == {
        "completionMode": "Indexed",
        "completions": 3,
        "parallelism": 3,
    }
    assert variables(found["phalanx-r-1-worker"])["PHALANX_MEMBERS"] == "worker-0,worker-1,worker-2"
    assert found["phalanx-r-1-worker"]["metadata"]["labels"][ROLE] == "worker"
    assert found["phalanx-r-1-worker"]["metadata"]["annotations"][MEMBERS] == "worker-0,worker-1,worker-2"


def test_no_pod_starts_again_and_none_is_taken_away_because_another_failed() -> None:
    """A Job with a limit for the whole deletes what still runs when one pod has failed, and the logs with it. It
    does so although each index has a limit: there must be none for the whole."""

    def limits(version: tuple[int, int]) -> dict[str, dict[str, int]]:
        found = jobs(rendered(CASES["alike"], ClusterTarget(cluster=Cluster(version=version))))
        return {
            name: {key: value for key, value in job["spec"].items() if key.startswith("backoff")}
            for name, job in found.items()
        }

    one, whole, each = "phalanx-r-1-master", {"backoffLimit": 0}, {"backoffLimitPerIndex": 0}
    assert limits((1, 28)) == {one: whole, "phalanx-r-1-worker": whole}
    assert limits((1, 29)) == {one: whole, "phalanx-r-1-worker": each}
    assert all(found == whole for found in limits((1, 20)).values())


def test_those_that_differ_have_jobs_of_their_own_shared_by_those_that_differ_alike() -> None:
    found = jobs(rendered(DIFFERENT))
    members = {name: variables(job)["PHALANX_MEMBERS"] for name, job in found.items()}
    assert members == {
        "phalanx-r-1-master": "master-0",
        "phalanx-r-1-worker": "worker-0,worker-2,worker-4",
        "phalanx-r-1-worker-1": "worker-1,worker-3",
        "phalanx-r-1-ps": "ps-0",
    }


def test_an_order_of_keys_makes_no_difference() -> None:
    labels = [{"a": "1", "b": "2"}, {"b": "2", "a": "1"}]
    workers = [{"index": index, "labels": each} for index, each in enumerate(labels)]
    assert len(jobs(rendered(file(replicas={"n_workers": 2, "worker": workers})))) == 2


def test_every_replica_has_an_address_that_its_pod_really_gets() -> None:
    made = made_of(DIFFERENT)
    tables = native_jobs.tables(made, ClusterTarget())
    named: dict[str, str] = {}
    for job in jobs(native_jobs.objects(made, ClusterTarget())).values():
        for number, member in enumerate(variables(job)["PHALANX_MEMBERS"].split(",")):
            # as the Job's controller names the pods of an index, and the Service publishes them
            named[member] = f"{job['metadata']['name']}-{number}.{job['spec']['template']['spec']['subdomain']}"
    assert {name: host for name, host in tables.host.items() if name != "*"} == named
    assert len(set(named.values())) == len(named)


def test_what_is_filled_for_one_plan_is_not_taken_for_another() -> None:
    """Tables keep what they filled; lists of addresses are in every template."""
    known = AddressTables({"*": "host", "worker-0": "a", "worker-1": "b"}, {"*": 1}, {"*": "/x"})
    value = (Each("worker", (Hole("host", "*"),), ","),)
    plans = [made_of(file(replicas={"n_workers": count}), "r-1") for count in (1, 2, 1)]
    assert [known.text(made, value) for made in plans] == ["a", "a,b", "a"]
    assert known.text(plans[2], "as it is") == "as it is"
    filled = known.text(plans[2], value)
    assert known.text(plans[2], value) is filled


def test_clusters_without_indexed_jobs_get_one_for_each_replica() -> None:
    made = made_of(CASES["alike"])
    found = jobs(native_jobs.objects(made, OLD))
    assert list(found) == ["phalanx-r-1-master-0", *(f"phalanx-r-1-worker-{index}" for index in range(3))]
    for name, job in found.items():
        assert "completionMode" not in job["spec"]
        assert job["spec"]["template"]["spec"]["hostname"] == name
    assert native_jobs.tables(made, OLD).host["worker-2"] == "phalanx-r-1-worker-2.phalanx-r-1"


def test_a_service_names_the_pods_from_the_moment_they_are_there() -> None:
    (service,) = [one for one in rendered(CASES["alike"]) if one["kind"] == "Service"]
    assert service["metadata"]["name"] == "phalanx-r-1"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    for job in jobs(rendered(CASES["alike"])).values():
        labels = job["spec"]["template"]["metadata"]["labels"]
        assert service["spec"]["selector"].items() <= labels.items()


def test_a_replica_that_is_alone_needs_no_service() -> None:
    found = rendered(CASES["notebook"])
    assert [one["kind"] for one in found] == ["ConfigMap", "Job"]
    assert main(found[1])["args"][-2:] == ["lab", "--no-browser"]  # the agent adds that it listens on loopback only


def test_further_processes_of_a_replica_share_its_host_at_ports_of_their_own() -> None:
    tables = native_jobs.tables(made_of(CASES["processes"]), ClusterTarget())
    assert tables.host["worker-0.1"] == tables.host["worker-0"] == "phalanx-r-1-worker-0.phalanx-r-1"
    assert (tables.port["worker-0"], tables.port["worker-0.1"]) == (2222, 2223)


def test_folders_are_those_that_pods_mount() -> None:
    document = file(None, data_refs=["images"], artifact_refs=["results"])
    target = ClusterTarget(
        Settings(stores={"images": DataVolume(claim="images"), "results": DataVolume(claim="results")})
    )
    paths = native_jobs.tables(made_of(document), target).path
    mounts = {one["mountPath"] for one in main(jobs(rendered(document, target))["phalanx-r-1-master"])["volumeMounts"]}
    assert paths["data/images"] in mounts
    assert any(paths["outputs"].startswith(f"{mount}/") for mount in mounts)
    assert json.loads(variables(jobs(rendered(document, target))["phalanx-r-1-master"])["POLYAXON_RUN_DATA_PATHS"]) == {
        "images": paths["data/images"]
    }


def test_time_in_a_queue_is_not_the_time_of_the_run() -> None:
    (job, *_) = jobs(rendered(CASES["timed"])).values()
    assert "activeDeadlineSeconds" not in job["spec"]  # a Job's time begins before that of its pods
    assert job["spec"]["template"]["spec"]["activeDeadlineSeconds"] > 3600
    assert job["spec"]["ttlSecondsAfterFinished"] == 600


def test_a_replica_with_a_secret_of_its_own_gets_that_one() -> None:
    document = file(
        env_vars={"API_KEY": "all"},
        replicas={"n_workers": 2, "worker": [{"index": 1, "env_vars": {"API_KEY": "mine"}}]},
    )
    found = rendered(document)
    assert "mine" not in json.dumps(found)
    (secret,) = [one for one in found if one["kind"] == "Secret"]
    assert secret["stringData"] == {"API_KEY": "", "worker-1.API_KEY": ""}
    refs = {
        name: [one["valueFrom"]["secretKeyRef"] for one in main(job)["env"] if one["name"] == "API_KEY"]
        for name, job in jobs(found).items()
    }
    own = {"name": "phalanx-r-1", "key": "worker-1.API_KEY", "optional": True}
    assert refs == {"phalanx-r-1-master": [], "phalanx-r-1-worker-0": [], "phalanx-r-1-worker-1": [own]}


def test_a_value_that_several_replicas_share_is_one_secret() -> None:
    workers = {"n_workers": 3, "default_worker": {"env_vars": {"API_KEY": "theirs"}}}
    found = rendered(file(env_vars={"API_KEY": "master's"}, replicas=workers))
    (secret,) = [one for one in found if one["kind"] == "Secret"]
    assert list(secret["stringData"]) == ["API_KEY", "worker-0.API_KEY"]


def test_an_image_that_is_built_is_built_before_the_pods_that_use_it() -> None:
    document = {**file(replicas={"n_workers": 1}), "build": {"image": "python:3.12", "build_steps": ["pip install x"]}}
    found = rendered(document, ClusterTarget(Settings(registry="registry.example/team")))
    building, *others = jobs(found).values()
    assert building["metadata"]["name"] == "phalanx-r-1-build"
    used = {main(job)["image"] for job in others}
    assert len(used) == 1
    assert used.pop().startswith("registry.example/team/")
    assert json.loads(found[0]["data"]["place.json"])["steps"] == []
    for one in found:
        validate(one, "1.37")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (file("mpi", "./solve", replicas={"n_workers": 2}), "backend: kubeflow"),
        (file("horovod", replicas={"n_workers": 2, "launcher": "mpirun"}), "over Gloo"),
        (file("mpi", "mpirun ./solve", replicas={"n_workers": 2}), "MPIJob"),
        (file(kubernetes={"min_workers": 1}, replicas={"n_workers": 2}), "min_workers.*backend: kubeflow"),
    ],
)
def test_what_native_jobs_cannot_do_is_refused_with_advice(document: dict[str, Any], words: str) -> None:
    with pytest.raises(CallError, match=words):
        rendered(document)


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
@pytest.mark.parametrize("is_different", [False, True])
@pytest.mark.slow
def test_five_hundred_replicas_take_no_time(framework: str, is_different: bool) -> None:
    workers = [overridden(index, 1 + index) for index in range(499)] if is_different else []
    made = made_of(file(framework, replicas={"n_workers": 499, "default_worker": CPU, "worker": workers}))
    native_jobs.objects(made, ClusterTarget())  # imports and the like are not what is measured
    began = time.process_time()
    found = native_jobs.objects(made, ClusterTarget())
    assert time.process_time() - began < 5
    assert len(jobs(found)) == (500 if is_different else 2)
    assert max(len(json.dumps(one)) for one in found) < 256 << 10


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=80)


@examples(60)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=12), st.booleans(), TEXT)
def test_every_replica_is_in_one_job_and_no_two_pods_share_a_name(kinds: list[int], is_old: bool, run_id: str) -> None:
    workers = [overridden(index, cpus) for index, cpus in enumerate(kinds)]
    made = made_of(file(replicas={"n_workers": len(kinds), "worker": workers}), run_id)
    target = OLD if is_old else ClusterTarget()
    grouped = native_jobs.groups(made, target)
    assert sorted(one.name for group in grouped for one in group.members) == sorted(one.name for one in made.replicas)
    assert len({group.job for group in grouped}) == len(grouped)
    hostnames = [group.hostname(number) for group in grouped for number in range(len(group.members))]
    assert len(set(hostnames)) == len(hostnames)
    assert all(len(name) <= 63 for name in hostnames)
    for group in grouped:
        assert all(one.settings == group.members[0].settings for one in group.members)
    for one in native_jobs.objects(made, target):
        assert one["metadata"]["labels"][RUN]
