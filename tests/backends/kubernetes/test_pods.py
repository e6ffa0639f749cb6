"""The template of pods: what a file asks for, as Kubernetes writes it. What pods do is tried in tests/kubernetes."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx import plan, spec
from phalanx.backends.kubernetes.render import names, pods, volumes
from phalanx.backends.kubernetes.render.addresses import AddressTables
from phalanx.backends.kubernetes.target import ClusterTarget, DataVolume, Settings
from phalanx.errors import CallError, SpecErrors
from phalanx.plan.model import Plan
from tests.backends.kubernetes.schemas import validate
from tests.backends.test_local import HOSTILE
from tests.examples import examples

TABLES = AddressTables({"*": "host"}, {"*": 2222}, {"outputs": "/phalanx/run/outputs", "*": "/phalanx/run/data"})
KUBECTLS = Settings()
VERSIONS = ("1.25", "1.37")  # the oldest and the newest that the validator knows


def planned(run_id: str = "r-1", **sections: Any) -> Plan:
    file = {"version": 1, "kind": "experiment", "run": {"cmd": "python train.py"}, **sections}
    return plan.make(spec.load_document("polyaxonfile.yml", file), run_id)


def templated(made: Plan, site: Settings = KUBECTLS, role: str = "master", **more: Any) -> dict[str, Any]:
    members = [replica for replica in made.replicas if replica.role == role and not replica.local]
    template = pods.template(made, members, ClusterTarget(site), tables=TABLES, **more)
    assert_valid(template)
    return template


def assert_valid(template: dict[str, Any]) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"template": template}}
    for version in VERSIONS:
        validate(json.loads(json.dumps(job)), version)


def main_of(template: dict[str, Any]) -> dict[str, Any]:
    (found,) = template["spec"]["containers"]
    return dict(found)


def variables_of(container: dict[str, Any]) -> dict[str, str]:
    listed = [variable["name"] for variable in container["env"]]
    assert len(listed) == len(set(listed))
    return {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}


def seen(text: str) -> str:
    """What the kubelet makes of a value when no variable of that name is there: `$$` is `$`."""
    return re.sub(r"\$(\$|\([^)]*\))", lambda match: "$" if match[1] == "$" else "EXPANDED", text)


def refused(made: Plan, site: Settings = KUBECTLS) -> list[str]:
    with pytest.raises(CallError) as fault:
        templated(made, site)
    return str(fault.value).splitlines()


def environment(**more: Any) -> Plan:
    return planned(environment=more)


def test_what_runs_is_the_agent_with_the_users_command_as_arguments() -> None:
    main = main_of(templated(planned(run={"cmd": "python train.py --lr '0.1'"})))
    assert main["name"] == "phalanx"
    assert main["command"] == ["/bin/sh", "/phalanx/job/start.sh", "run"]
    assert main["args"] == ["bash", "-c", "python train.py --lr '0.1'"]
    assert main["image"] == "python:3.12-slim"


def test_an_operator_that_puts_its_own_command_there_is_left_to_it() -> None:
    main = main_of(templated(planned(), container="pytorch", is_launched=True))
    assert main["name"] == "pytorch"
    assert "command" not in main
    assert "args" not in main


def test_a_pod_satisfies_the_restricted_standard() -> None:
    made = planned(build={"image": "x", "build_steps": ["make"]}, environment={"kubernetes": {"repository": "git:x"}})
    found = templated(made)["spec"]
    context = found["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"], context["fsGroup"]) == (True, 1000, 1000)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    every = [*found["initContainers"], *found["containers"]]
    assert [container["name"] for container in every] == ["code", "prepare", "phalanx"]
    for container in every:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    assert not any("hostPath" in volume for volume in found["volumes"])
    assert found["automountServiceAccountToken"] is False
    assert found["enableServiceLinks"] is False
    assert found["restartPolicy"] == "Never"
    assert found["terminationGracePeriodSeconds"] == 30


def test_resources_as_kubernetes_writes_them() -> None:
    asked = {
        "cpu": {"requests": 0.5, "limits": 2},
        "memory": {"requests": "512Mi", "limits": "1.5Gi"},
        "gpu": {"requests": 2, "limits": 2},
        "tpu": {"limits": 8},
    }
    assert main_of(templated(environment(resources=asked)))["resources"] == {
        "requests": {"cpu": "500m", "memory": "512Mi", "nvidia.com/gpu": "2", "google.com/tpu": "8"},
        "limits": {"cpu": "2", "memory": "1536Mi", "nvidia.com/gpu": "2", "google.com/tpu": "8"},
    }


def test_a_device_of_another_maker_is_set_by_the_site() -> None:
    made = environment(resources={"gpu": {"requests": 1}})
    main = main_of(templated(made, Settings(devices={"gpu": "amd.com/gpu"})))
    assert main["resources"] == {"requests": {"amd.com/gpu": "1"}, "limits": {"amd.com/gpu": "1"}}


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"gpu": {"requests": 0.5}}, "a whole number"),
        ({"gpu": {"requests": 1, "limits": 2}}, "the same for requests and limits"),
        ({"tpu": {"limits": 1}}, "add `devices: {tpu:"),
    ],
)
def test_devices_that_kubernetes_cannot_give_are_refused(asked: dict[str, Any], words: str) -> None:
    (said,) = refused(environment(resources=asked), Settings(devices={"gpu": "nvidia.com/gpu"}))
    assert words in said


def test_amounts_are_never_rounded_to_nothing() -> None:
    made = environment(resources={"cpu": {"requests": 0.0001}, "memory": {"requests": 0.0001}})
    assert main_of(templated(made))["resources"] == {"requests": {"cpu": "1m", "memory": "1Ki"}}
    assert volumes.memory(0.5) == "512Ki"


def test_without_a_gpu_none_is_seen() -> None:
    assert variables_of(main_of(templated(planned())))["NVIDIA_VISIBLE_DEVICES"] == "none"
    with_one = environment(resources={"gpu": {"limits": 1}})
    assert "NVIDIA_VISIBLE_DEVICES" not in variables_of(main_of(templated(with_one)))
    own = environment(env_vars={"NVIDIA_VISIBLE_DEVICES": "all", "HOME": "/mine"})
    assert variables_of(main_of(templated(own)))["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert variables_of(main_of(templated(own)))["HOME"] == "/mine"


def test_everything_about_placement_is_passed_on() -> None:
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}]}}
    made = environment(
        node_selector={"polyaxon.com": "core", "gpu": True},
        affinity=affinity,
        tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        labels={"team": "vision"},
        annotations={"note": "a\nb"},
        service_account="trainer",
        image_pull_secrets=["registry"],
        secret_refs=["aws"],
        config_map_refs=["settings"],
        kubernetes={"priority_class": "high", "scheduler": "volcano", "shm": "2Gi"},
    )
    found = templated(made, hostname="phalanx-r-1-master", subdomain="phalanx-r-1")
    body = found["spec"]
    assert body["nodeSelector"] == {"polyaxon.com": "core", "gpu": "true"}
    assert body["affinity"] == affinity
    assert body["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert body["serviceAccountName"] == "trainer"
    assert body["automountServiceAccountToken"] is True
    assert body["imagePullSecrets"] == [{"name": "registry"}]
    assert body["priorityClassName"] == "high"
    assert body["schedulerName"] == "volcano"
    assert (body["hostname"], body["subdomain"]) == ("phalanx-r-1-master", "phalanx-r-1")
    assert found["metadata"]["labels"]["team"] == "vision"
    assert found["metadata"]["annotations"]["note"] == "a\nb"
    assert main_of(found)["envFrom"] == [
        {"configMapRef": {"name": "settings"}},
        {"secretRef": {"name": "aws"}},
        {"secretRef": {"name": "phalanx-r-1", "optional": True}},
    ]
    shm = next(volume for volume in body["volumes"] if volume["name"] == "shm")
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "2048Mi"}


def test_all_faults_are_reported_at_once() -> None:
    made = planned(
        build={"dockerfile": "Dockerfile"},
        environment={
            "resources": {"gpu": {"limits": 0.5}},
            "node_selector": {"a b": "c"},
            "service_account": "No Such",
            "secret_refs": ["My_Secret"],
            "data_refs": ["imagenet"],
        },
    )
    said = "\n".join(refused(made))
    for words in ("build.dockerfile", "resources.gpu", "`a b: c`", "`No Such`", "`My_Secret`", "`imagenet`"):
        assert words in said
    assert len(said.splitlines()) == 6


def test_an_image_that_was_built_wins() -> None:
    made = planned(build={"dockerfile": "Dockerfile"})
    assert main_of(templated(made, image="registry.example/x:1"))["image"] == "registry.example/x:1"
    assert "earlier builds" in refused(planned(build={"ref": "5"}))[0]
    named = planned(build={"image": "tensorflow/tensorflow:2.16.1"})
    assert main_of(templated(named))["image"] == "tensorflow/tensorflow:2.16.1"
    assert main_of(templated(planned(), Settings(image="site:1")))["image"] == "site:1"


def test_the_pod_learns_who_it_is() -> None:
    made = planned(framework="pytorch", environment={"replicas": {"n_workers": 3}})
    main = main_of(templated(made, role="worker", index_from="training.kubeflow.org/replica-index"))
    assert variables_of(main)["PHALANX_MEMBERS"] == "worker-0,worker-1,worker-2"
    fields = {v["name"]: v["valueFrom"]["fieldRef"]["fieldPath"] for v in main["env"] if "valueFrom" in v}
    assert fields == {
        "PHALANX_ATTEMPT": "metadata.labels['phalanx.dev/attempt']",
        "PHALANX_NODE": "spec.nodeName",
        "PHALANX_POD": "metadata.name",
        "PHALANX_POD_INDEX": "metadata.labels['training.kubeflow.org/replica-index']",
    }


def test_a_file_cannot_make_a_pod_someone_else() -> None:
    lies = ("JOB_COMPLETION_INDEX", "PHALANX_POD_INDEX", "PHALANX_MEMBERS", "PHALANX_ATTEMPT", "PHALANX_POD")
    found = variables_of(main_of(templated(environment(env_vars=dict.fromkeys(lies, "7")))))
    assert {name: found[name] for name in lies if name in found} == {"PHALANX_MEMBERS": "master-0"}


def test_variables_that_distinguish_replicas_are_left_to_the_agent() -> None:
    made = planned(
        framework="pytorch",
        environment={"env_vars": {"A": "1"}, "replicas": {"n_workers": 2, "default_worker": {"env_vars": {"B": "2"}}}},
    )
    several = variables_of(main_of(templated(made, role="worker")))
    assert {"A", "B", "MASTER_ADDR", "WORLD_SIZE"} <= several.keys()
    assert not {"RANK", "PHALANX_RANK", "PHALANX_REPLICA"} & several.keys()
    one = variables_of(main_of(templated(made)))
    assert (one["RANK"], one["PHALANX_REPLICA"]) == ("0", "master-0")
    without = variables_of(main_of(templated(made, role="worker", leave=("MASTER_ADDR", "WORLD_SIZE"))))
    assert not {"MASTER_ADDR", "WORLD_SIZE"} & without.keys()


def test_a_replica_of_several_processes_is_one_pod() -> None:
    made = planned(
        framework="pytorch",
        environment={
            "resources": {"gpu": {"requests": 4}},
            "replicas": {"n_workers": 1, "default_worker": {"resources": {"gpu": {"requests": 4}}}},
        },
    )
    assert len(made.replicas) == 8
    main = main_of(templated(made, role="worker"))
    assert main["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert variables_of(main)["PHALANX_MEMBERS"] == "worker-0"


def test_what_looks_secret_is_in_no_manifest() -> None:
    made = planned(
        params={"db_password": "hunter2-params", "nested": {"lr": 0.1}},
        environment={"env_vars": {"AWS_SECRET_ACCESS_KEY": "hunter2-env", "PLAIN": "seen"}},
    )
    text = json.dumps(templated(made))
    assert "hunter2" not in text
    assert "seen" in text
    assert pods.hidden(made) == {
        "AWS_SECRET_ACCESS_KEY",
        "PHALANX_PARAMS",
        "POLYAXON_PARAMS",
        "POLYAXON_DECLARATIONS",
    }
    assert pods.hidden(planned(params={"lr": 0.1})) == frozenset()


def test_many_large_variables_stay_in_the_plan() -> None:
    made = environment(env_vars={"SMALL": "x", "LARGE": "y" * 50_000, "LARGER": "z" * 60_000})
    found = variables_of(main_of(templated(made)))
    assert "LARGER" not in found
    assert len(found["LARGE"]) == 50_000
    assert found["SMALL"] == "x"


@pytest.mark.parametrize("text", HOSTILE)
def test_the_kubelet_expands_nothing_of_a_users_text(text: str) -> None:
    made = environment(env_vars={"MINE": text})
    assert seen(variables_of(main_of(templated(made)))["MINE"]) == text


@given(text=st.text(alphabet="$()Ax ", max_size=12))
@examples(300)
def test_what_is_escaped_comes_back_as_it_was(text: str) -> None:
    assert seen(pods.unexpanded(text)) == text


@given(
    labels=st.dictionaries(st.text(max_size=80), st.text(max_size=80), max_size=3),
    values=st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True), st.text(max_size=40)),
    run_id=st.text(min_size=1, max_size=80),
    refs=st.lists(st.from_regex(r"[a-zA-Z0-9_][-.a-zA-Z0-9_]{0,80}", fullmatch=True), max_size=3),
)
@examples(40)
def test_hostile_texts_give_a_valid_template_or_a_fault(
    labels: dict[str, str], values: dict[str, str], run_id: str, refs: list[str]
) -> None:
    site = Settings(stores={name: DataVolume(claim="c") for name in refs})
    try:
        made = planned(
            run_id,
            environment={"labels": labels, "annotations": labels, "env_vars": values, "data_refs": refs},
        )
        found = templated(made, site)
    except (CallError, SpecErrors):
        return
    for key, value in found["metadata"]["labels"].items():
        assert names.is_key(key)
        assert names.is_label_value(value)
    assert all(map(names.is_key, found["metadata"]["annotations"]))
    listed = [volume["name"] for volume in found["spec"]["volumes"]]
    assert len(listed) == len(set(listed))
    assert all(map(names.is_dns_label, listed))
    mounts = [mount["mountPath"] for mount in main_of(found)["volumeMounts"]]
    assert len(mounts) == len(set(mounts))
    given_ = variables_of(main_of(found))
    for name, text in values.items():
        if name in given_ and not name.startswith(("PHALANX_", "POLYAXON_")):
            assert seen(given_[name]) == text


def test_data_and_outputs_are_mounted_from_their_stores() -> None:
    site = Settings(
        stores={
            "imagenet": DataVolume(claim="datasets", path="imagenet/2012", is_read_only=True),
            "scratch": DataVolume(host_path="/scratch"),
            "results": DataVolume(volume={"nfs": {"server": "nas", "path": "/results"}}),
        }
    )
    made = environment(data_refs=["imagenet", "scratch"], artifact_refs=["results", "never-used"])
    found = templated(made, site)
    body = {volume["name"]: volume for volume in found["spec"]["volumes"]}
    assert body["data-imagenet"]["persistentVolumeClaim"] == {"claimName": "datasets", "readOnly": True}
    assert body["data-scratch"]["hostPath"] == {"path": "/scratch"}
    assert body["store-results"]["nfs"] == {"server": "nas", "path": "/results"}
    mounts = {mount["name"]: mount for mount in main_of(found)["volumeMounts"]}
    assert mounts["data-imagenet"] == {
        "name": "data-imagenet",
        "mountPath": "/data/imagenet",
        "subPath": "imagenet/2012",
        "readOnly": True,
    }
    assert mounts["store-results"]["mountPath"] == "/artifacts/results"
    assert volumes.data_at("imagenet") == "/data/imagenet"
    assert volumes.outputs_at(made, ClusterTarget(site)) == "/artifacts/results/r-1"
    assert volumes.outputs_at(planned(), ClusterTarget(site)) == "/phalanx/run/outputs"


def test_a_claim_is_one_volume_of_a_pod_however_often_it_is_mounted() -> None:
    stores = {
        "imagenet": DataVolume(claim="shared", path="imagenet", is_read_only=True),
        "coco": DataVolume(claim="shared", path="coco", is_read_only=True),
        "results": DataVolume(
            volume={"persistentVolumeClaim": MappingProxyType({"claimName": "shared"})}, path="results"
        ),
    }
    found = templated(environment(data_refs=["imagenet", "coco"]), Settings(stores=stores))
    (volume,) = [volume for volume in found["spec"]["volumes"] if "persistentVolumeClaim" in volume]
    assert volume == {
        "name": "data-imagenet",
        "persistentVolumeClaim": {"claimName": "shared", "readOnly": True},
    }
    mounts = {mount["mountPath"]: mount for mount in main_of(found)["volumeMounts"]}
    assert {mounts[at]["name"] for at in ("/data/imagenet", "/data/coco")} == {"data-imagenet"}
    found = templated(environment(data_refs=["coco"], artifact_refs=["results"]), Settings(stores=stores))
    (volume,) = [volume for volume in found["spec"]["volumes"] if "persistentVolumeClaim" in volume]
    assert "readOnly" not in volume["persistentVolumeClaim"], "what is written needs it so"
    mounts = {mount["mountPath"]: mount for mount in main_of(found)["volumeMounts"]}
    assert mounts["/data/coco"]["readOnly"] is True
    assert "readOnly" not in mounts["/artifacts/results"]


def test_code_and_home_of_one_claim_are_one_volume() -> None:
    made = environment(kubernetes={"repository": "https://git.example/a"}, data_refs=["d"])
    site = Settings(home_claim="home", stores={"d": DataVolume(claim="home", path="data")})
    found = templated(made, site)
    assert [volume["name"] for volume in found["spec"]["volumes"]] == ["job", "agent", "run", "home", "code", "shm"]
    step = found["spec"]["initContainers"][0]
    assert [mount["mountPath"] for mount in step["volumeMounts"]] == ["/phalanx/run", "/phalanx/home", "/phalanx/code"]


def test_an_unknown_store_says_which_there_are_and_where_to_add_it() -> None:
    made = environment(data_refs=["imagnet"])
    (said,) = refused(made, Settings(stores={"imagenet": DataVolume(claim="c"), "coco": DataVolume(claim="d")}))
    assert "no store `imagnet`" in said
    assert "`coco`, `imagenet`" in said
    assert "kubernetes.yml" in said
    assert "none at all" in refused(made)[0]


def test_outputs_do_not_go_where_nothing_may_be_written() -> None:
    (said,) = refused(
        environment(artifact_refs=["r"]), Settings(stores={"r": DataVolume(claim="c", is_read_only=True)})
    )
    assert "read-only" in said


def test_all_replicas_have_the_store_of_the_outputs() -> None:
    made = planned(framework="pytorch", environment={"artifact_refs": ["r"], "replicas": {"n_workers": 1}})
    site = Settings(stores={"r": DataVolume(claim="c")})
    for role in ("master", "worker"):
        mounts = main_of(templated(made, site, role))["volumeMounts"]
        assert "/artifacts/r" in [mount["mountPath"] for mount in mounts]


def test_a_shared_home_is_the_folder_of_the_run_and_has_its_code() -> None:
    site = Settings(home_claim="home", home_path="/phalanx/")
    found = templated(planned(), site)
    body = {volume["name"]: volume for volume in found["spec"]["volumes"]}
    assert body["run"] == {"name": "run", "persistentVolumeClaim": {"claimName": "home"}}
    mounts = {mount["mountPath"]: mount for mount in main_of(found)["volumeMounts"]}
    assert mounts["/phalanx/run"]["subPath"] == "phalanx/runs/r-1"
    assert body["home"] == {"name": "home", "emptyDir": {}}, "caches are not for the home that is shared"
    assert variables_of(main_of(found))["HOME"] == "/phalanx/home"
    assert variables_of(main_of(templated(planned())))["HOME"] == "/phalanx/run"
    assert "/phalanx/code" not in mounts
    assert "initContainers" not in found["spec"]
    assert volumes.code(planned(), ClusterTarget(site)) == ("volume", "/phalanx/run/code", "/phalanx/run/code")


def test_code_that_comes_with_the_run_is_unpacked_first() -> None:
    found = templated(environment(env_vars={"MINE": "x"}))["spec"]
    (step,) = found["initContainers"]
    assert step["name"] == "prepare"
    assert step["command"] == ["/bin/sh", "/phalanx/job/start.sh", "prepare"]
    assert {"/phalanx/job", "/phalanx/agent", "/phalanx/bundle", "/phalanx/code"} <= {
        mount["mountPath"] for mount in step["volumeMounts"]
    }
    assert "MINE" not in variables_of(step)
    bundle = next(volume for volume in found["volumes"] if volume["name"] == "bundle")
    sources = [source["configMap"] for source in bundle["projected"]["sources"]]
    assert sources[0] == {"name": "phalanx-r-1-code", "optional": True}
    assert [source["name"] for source in sources[1:]] == [f"phalanx-r-1-code-{n}" for n in (1, 2, 3)]
    assert all(source["optional"] for source in sources)


def test_a_node_that_does_not_respond_is_tolerated_as_long_as_the_file_says() -> None:
    own = {"key": "gpu", "operator": "Exists"}
    assert "tolerations" not in templated(environment())["spec"], "then the cluster's default counts"
    found = templated(environment(kubernetes={"node_timeout": 60.5}, tolerations=[own]))["spec"]["tolerations"]
    same = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 61}
    keys = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
    assert found == [own, *({"key": key, **same} for key in keys)]


def test_steps_of_the_file_see_what_the_program_will_see_but_no_devices() -> None:
    made = planned(
        build={"image": "x", "build_steps": ["pip install -r requirements.txt"]},
        environment={
            "env_vars": {"MINE": "x"},
            "resources": {"cpu": {"requests": 1}, "gpu": {"limits": 1}},
            "secret_refs": ["index"],
            "kubernetes": {"code": "image"},
        },
    )
    (step,) = templated(made)["spec"]["initContainers"]
    assert variables_of(step)["MINE"] == "x"
    assert step["resources"] == {"requests": {"cpu": "1"}}
    assert {"secretRef": {"name": "index"}} in step["envFrom"]


def test_a_quota_that_wants_every_container_to_ask_takes_all_steps() -> None:
    asked = {"cpu": {"requests": 1, "limits": 2}, "memory": {"limits": 512}, "gpu": {"limits": 1}}
    made = planned(
        build={"image": "x", "build_steps": ["true"]},
        environment={"resources": asked, "kubernetes": {"repository": "https://git.example/a"}},
    )
    found = templated(made)
    for step in found["spec"]["initContainers"]:
        assert step["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "512Mi"}}, step["name"]
    assert [step["name"] for step in found["spec"]["initContainers"]] == ["code", "prepare"]
    assert main_of(found)["resources"]["limits"]["nvidia.com/gpu"] == "1"


@pytest.mark.parametrize("steps", [[], ["true"]])
def test_steps_before_the_program_see_none_of_the_nodes_gpus(steps: list[str]) -> None:
    made = planned(build={"image": "x", "build_steps": steps}, environment={"resources": {"gpu": {"limits": 1}}})
    found = templated(made)
    assert "NVIDIA_VISIBLE_DEVICES" not in variables_of(main_of(found))
    (step,) = found["spec"]["initContainers"]
    assert variables_of(step)["NVIDIA_VISIBLE_DEVICES"] == "none"


def test_devices_that_are_laid_over_are_seen() -> None:
    limits = {"nvidia.com/mig-1g.5gb": "1"}
    pod = {"spec": {"containers": [{"name": "phalanx", "resources": {"limits": limits}}]}}
    assert "NVIDIA_VISIBLE_DEVICES" not in variables_of(main_of(templated(environment(kubernetes={"pod": pod}))))
    pod = {"spec": {"containers": [{"name": "phalanx", "resources": {"limits": {"cpu": "1"}}}]}}
    seen_by = variables_of(main_of(templated(environment(kubernetes={"pod": pod}))))
    assert seen_by["NVIDIA_VISIBLE_DEVICES"] == "none"


def test_code_of_the_image_needs_nothing() -> None:
    made = environment(kubernetes={"code": "image"})
    found = templated(made)
    assert "initContainers" not in found["spec"]
    assert "/phalanx/code" not in [mount["mountPath"] for mount in main_of(found)["volumeMounts"]]
    assert volumes.code(made, ClusterTarget()) == ("none", None, None)


def test_code_of_a_volume() -> None:
    made = environment(kubernetes={"code_claim": "sources", "code_path": "project/a"})
    found = templated(made)
    mount = next(mount for mount in main_of(found)["volumeMounts"] if mount["mountPath"] == "/phalanx/code")
    assert mount == {"name": "code", "mountPath": "/phalanx/code", "subPath": "project/a"}
    assert "initContainers" not in found["spec"]


def test_code_of_a_repository_is_fetched_without_a_shell_reading_its_name() -> None:
    address = "https://git.example/a$(HOME)b;touch${IFS}pwned"
    made = planned(build={"image": "x", "branch": "main"}, environment={"kubernetes": {"repository": address}})
    step = templated(made, Settings(git_image="git:1"))["spec"]["initContainers"][0]
    assert (step["name"], step["image"]) == ("code", "git:1")
    shell, flag, script, *arguments = step["command"]
    assert (shell, flag) == ("/bin/sh", "-c")
    assert "pwned" not in script
    assert [seen(argument) for argument in arguments] == ["code", address, "main", "/phalanx/code/source"]
    assert volumes.code(made, ClusterTarget()).working == "/phalanx/code/source"


@pytest.mark.parametrize("revision", ["HEAD", "side", "v1", "commit"])
def test_what_is_fetched_is_the_revision_that_was_asked_for(tmp_path: Path, revision: str) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
        done = subprocess.run(
            ["git", *who, *words], cwd=tmp_path / "origin", check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    (tmp_path / "origin").mkdir()
    git("init", "-q")
    for name in ("HEAD", "side", "v1", "commit"):
        (tmp_path / "origin" / "said").write_text(name)
        git("add", "said")
        git("commit", "-qm", name)
        if name == "side":
            git("branch", "side")
        elif name == "v1":
            git("tag", "v1")
        elif name == "commit":
            revisions = {"commit": git("rev-parse", "HEAD")}
            git("reset", "-q", "--hard", "HEAD~3")
            git("branch", "kept", revisions["commit"])
    address = f"file://{tmp_path}/origin"
    made = environment(kubernetes={"repository": address, "revision": revisions.get(revision, revision)})
    command = templated(made)["spec"]["initContainers"][0]["command"]
    target = tmp_path / "code"
    for _ in range(2):  # a step that is started again finds what it did before
        subprocess.run([*command[:-1], str(target)], check=True, capture_output=True)
        assert (target / "said").read_text() == revision


def test_a_revision_is_never_an_option_of_git() -> None:
    made = planned(
        build={"image": "x", "branch": "--upload-pack=touch pwned"},
        environment={"kubernetes": {"repository": "https://git.example/x"}},
    )
    (said,) = refused(made)
    assert "not a branch" in said


def test_a_path_never_leads_out_of_its_volume() -> None:
    (said,) = refused(environment(data_refs=["a"]), Settings(stores={"a": DataVolume(claim="c", path="x/../../y")}))
    assert "leaves its volume" in said


def test_five_hundred_members_take_no_time() -> None:
    made = planned(framework="pytorch", environment={"replicas": {"n_workers": 500}})
    workers = [replica for replica in made.replicas if replica.role == "worker"]
    start = time.process_time()
    template = pods.template(made, workers, ClusterTarget(), tables=TABLES)
    assert time.process_time() - start < 2
    assert_valid(template)


def test_more_members_than_a_variable_can_name_are_refused() -> None:
    made = planned(framework="pytorch", environment={"replicas": {"n_workers": 12_000}})
    workers = [replica for replica in made.replicas if replica.role == "worker"]
    with pytest.raises(CallError, match="too many replicas"):
        pods.template(made, workers, ClusterTarget(), tables=TABLES)
