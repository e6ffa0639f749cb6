"""What a file or a site lays over a pod: merged as `kubectl patch` does it, and refused where the run would be lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx import plan, spec
from phalanx.backends.kubernetes.render import pod_patch, pods
from phalanx.backends.kubernetes.render.addresses import AddressTables
from phalanx.backends.kubernetes.render.pod_patch import merge
from phalanx.backends.kubernetes.target import ClusterTarget, Settings
from phalanx.errors import CallError
from phalanx.spec.model import KubernetesOptions
from tests.examples import examples

TABLES = AddressTables({"*": "host"}, {"*": 2222}, {"*": "/phalanx/run/data"})


def templated(pod: Any, site: Any = None, container: str = "phalanx") -> dict[str, Any]:
    """The template of a run whose file says `pod`. What the reader of files would refuse already gets through here."""
    file = {"version": 1, "kind": "job", "run": {"cmd": "true"}, "build": {"build_steps": ["make"]}}
    made = plan.make(spec.load_document("polyaxonfile.yml", file), "r-1")
    object.__setattr__(made, "kubernetes", KubernetesOptions(pod=pod))
    target = ClusterTarget(Settings(pod=site or {}))
    return pods.template(made, made.replicas, target, tables=TABLES, container=container)


def refused(pod: Any, site: Any = None) -> str:
    with pytest.raises(CallError) as fault:
        templated(pod, site)
    return str(fault.value)


def main_of(template: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = template["spec"]["containers"][0]
    return found


def test_maps_merge_and_null_takes_away() -> None:
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": None, "e": 4}, "d": None}) == {"a": {"c": 2, "e": 4}}


@pytest.mark.parametrize(
    ("field", "key"),
    [
        ("containers", "name"),
        ("initContainers", "name"),
        ("volumes", "name"),
        ("env", "name"),
        ("volumeMounts", "mountPath"),
        ("imagePullSecrets", "name"),
        ("hostAliases", "ip"),
        ("ports", "containerPort"),
        ("topologySpreadConstraints", "topologyKey"),
    ],
)
def test_lists_of_named_things_merge_by_their_key(field: str, key: str) -> None:
    value = {field: [{key: "a", "x": 1}, {key: "b", "x": 2}]}
    patch = {field: [{key: "b", "x": 3}, {key: "c", "x": 4}, {key: "a", "$patch": "delete"}]}
    assert merge(value, patch) == {field: [{key: "b", "x": 3}, {key: "c", "x": 4}]}


@pytest.mark.parametrize("field", ["tolerations", "args", "envFrom", "readinessGates"])
def test_other_lists_are_replaced(field: str) -> None:
    assert merge({field: [{"key": "a"}, {"key": "b"}]}, {field: [{"key": "c"}]}) == {field: [{"key": "c"}]}


def test_lists_and_maps_can_be_replaced_and_deleted() -> None:
    value = {"env": [{"name": "A", "value": "1"}], "securityContext": {"runAsUser": 1000, "fsGroup": 1}}
    assert merge(value, {"env": [{"$patch": "replace"}, {"name": "B", "value": "2"}]})["env"] == [
        {"name": "B", "value": "2"}
    ]
    assert merge(value, {"securityContext": {"$patch": "replace", "runAsUser": 0}})["securityContext"] == {
        "runAsUser": 0
    }
    assert merge(value, {"securityContext": {"$patch": "delete"}})["securityContext"] == {}
    assert merge(value, {"securityContext": {"$retainKeys": ["fsGroup"]}})["securityContext"] == {"fsGroup": 1}


def test_a_volume_of_another_kind_takes_the_place_of_the_first() -> None:
    value = {"volumes": [{"name": "run", "emptyDir": {"medium": "Memory"}}]}
    claim = {"name": "run", "persistentVolumeClaim": {"claimName": "c"}}
    assert merge(value, {"volumes": [claim]}) == {"volumes": [claim]}
    larger = {"name": "run", "emptyDir": {"sizeLimit": "1Gi"}}
    assert merge(value, {"volumes": [larger]}) == {
        "volumes": [{"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]
    }


def test_a_variable_from_elsewhere_takes_the_place_of_a_value() -> None:
    value = {"env": [{"name": "HOME", "value": "/a"}, {"name": "B", "value": "b"}]}
    secret = {"name": "HOME", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    assert merge(value, {"env": [secret]}) == {"env": [secret, {"name": "B", "value": "b"}]}
    assert merge({"env": [secret]}, {"env": [{"name": "HOME", "value": "/b"}]}) == {
        "env": [{"name": "HOME", "value": "/b"}]
    }


def test_a_file_may_say_the_spec_or_the_whole_template() -> None:
    alone = templated({"runtimeClassName": "nvidia"})
    whole = templated({"spec": {"runtimeClassName": "nvidia"}})
    assert alone == whole
    assert whole["spec"]["runtimeClassName"] == "nvidia"


def test_a_file_changes_what_it_names_and_nothing_else() -> None:
    plain = templated({})
    pod = {
        "metadata": {"annotations": {"example.com/inject": "false"}, "labels": {"team": "vision"}},
        "spec": {
            "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
            "containers": [
                {"name": "phalanx", "env": [{"name": "A", "value": "$(HOME)/a"}], "imagePullPolicy": "Always"},
                {"name": "proxy", "image": "envoy"},
            ],
            "volumes": [{"name": "cache", "emptyDir": {}}],
        },
    }
    found = templated(pod)
    assert found["metadata"]["labels"] == plain["metadata"]["labels"] | {"team": "vision"}
    assert found["spec"]["securityContext"]["runAsUser"] == 0
    assert found["spec"]["securityContext"]["fsGroup"] == 1000
    main = main_of(found)
    assert main["imagePullPolicy"] == "Always"
    assert main["env"] == [*main_of(plain)["env"], {"name": "A", "value": "$(HOME)/a"}]
    assert [container["name"] for container in found["spec"]["containers"]] == ["phalanx", "proxy"]
    assert found["spec"]["volumes"][-1] == {"name": "cache", "emptyDir": {}}


def test_the_file_has_the_last_word_over_the_site() -> None:
    site = {"priority": 5, "nodeSelector": {"zone": "a", "pool": "x"}}
    found = templated({"nodeSelector": {"zone": "b"}}, site)["spec"]
    assert found["priority"] == 5
    assert found["nodeSelector"] == {"zone": "b", "pool": "x"}


def test_our_container_is_called_phalanx_also_where_an_operator_wants_another_name() -> None:
    found = templated({"containers": [{"name": "phalanx", "tty": True}]}, container="pytorch")
    assert [container["name"] for container in found["spec"]["containers"]] == ["pytorch"]
    assert main_of(found)["tty"] is True


def test_other_sources_of_variables_do_not_lose_the_secret_of_the_run() -> None:
    found = templated({"containers": [{"name": "phalanx", "envFrom": [{"secretRef": {"name": "aws"}}]}]})
    assert main_of(found)["envFrom"] == [
        {"secretRef": {"name": "aws"}},
        {"secretRef": {"name": "phalanx-r-1", "optional": True}},
    ]


OURS: list[tuple[dict[str, Any], str]] = [
    ({"metadata": {"labels": {"phalanx.dev/run": "other"}}}, ".metadata.labels[phalanx.dev/run]"),
    ({"metadata": {"labels": None}}, ".metadata.labels[phalanx.dev/attempt]"),
    ({"metadata": {"annotations": {"phalanx.dev/more": "x"}}}, ".metadata.annotations[phalanx.dev/more]"),
    ({"metadata": {"labels": {"a b": "x"}}}, ".metadata.labels[a b]"),
    ({"metadata": {"labels": {"a": "x y"}}}, ".metadata.labels[a]"),
    ({"metadata": {"labels": {"a": True}}}, ".metadata.labels[a]"),
    ({"restartPolicy": "Always"}, ".spec.restartPolicy"),
    ({"restartPolicy": None}, ".spec.restartPolicy"),
    ({"hostname": "mine"}, ".spec.hostname"),
    ({"containers": [{"name": "phalanx", "command": ["sh"]}]}, ".spec.containers[phalanx].command"),
    ({"containers": [{"name": "phalanx", "args": None}]}, ".spec.containers[phalanx].args"),
    ({"containers": [{"name": "phalanx", "$patch": "delete"}]}, ".spec.containers[phalanx]"),
    ({"containers": None}, ".spec.containers[phalanx]"),
    ({"initContainers": [{"$patch": "replace"}]}, ".spec.initContainers[prepare]"),
    ({"initContainers": [{"name": "prepare", "command": []}]}, ".spec.initContainers[prepare].command"),
    ({"volumes": [{"name": "job", "$patch": "delete"}]}, ".spec.volumes[job]"),
    ({"volumes": [{"name": "agent", "emptyDir": {}}]}, ".spec.volumes[agent]"),
    (
        {"containers": [{"name": "phalanx", "volumeMounts": [{"$patch": "replace"}]}]},
        ".spec.containers[phalanx].volumeMounts[/phalanx/job]",
    ),
    (
        {"containers": [{"name": "phalanx", "volumeMounts": [{"name": "run", "mountPath": "/phalanx"}]}]},
        ".spec.containers[phalanx].volumeMounts[/phalanx]",
    ),
    (
        {"containers": [{"name": "phalanx", "env": [{"name": "PHALANX_MEMBERS", "value": "x"}]}]},
        ".spec.containers[phalanx].env[PHALANX_MEMBERS]",
    ),
    ({"containers": [{"name": "proxy"}]}, ".spec.containers[proxy].image"),
    ({"containers": [{"name": "A B", "image": "x"}]}, ".spec.containers[A B]"),
    ({"containers": [{"name": "prepare", "image": "x"}]}, ".spec.containers[prepare]"),
    (
        {"containers": [{"name": "p", "image": "x", "volumeMounts": [{"name": "gone", "mountPath": "/x"}]}]},
        ".spec.containers[p].volumeMounts",
    ),
    ({"volumes": [{"name": "Bad_Name", "emptyDir": {}}]}, ".spec.volumes[Bad_Name]"),
    ({"spec": None}, ".spec.containers[phalanx]"),
]


@pytest.mark.parametrize(("pod", "path"), OURS, ids=[path for _, path in OURS])
def test_what_makes_the_run_ours_cannot_be_taken_away(pod: dict[str, Any], path: str) -> None:
    assert f"`environment.kubernetes.pod{path}`: " in refused(pod)
    assert f"`kubernetes.yml: pod{path}`: " in refused({}, site=pod)


def test_all_faults_are_reported_at_once() -> None:
    said = refused({"restartPolicy": "Always", "containers": [{"name": "phalanx", "command": ["x"]}, {"name": "y"}]})
    assert len(said.splitlines()) == 3


def test_a_fault_of_the_site_is_reported_before_those_of_the_file() -> None:
    said = refused({"restartPolicy": "Always"}, site={"metadata": {"annotations": None}, "spec": None})
    assert "kubernetes.yml: pod.spec" in said
    assert "environment.kubernetes.pod" not in said


def test_the_plan_is_not_changed_by_rendering() -> None:
    pod = {"containers": [{"name": "phalanx", "tty": True}]}
    templated(pod, container="pytorch")
    assert pod == {"containers": [{"name": "phalanx", "tty": True}]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["spec", "metadata", "containers", "volumes", "env", "name", "$patch", "labels", "initContainers"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(pod=st.dictionaries(st.sampled_from(["spec", "metadata", "containers", "volumes", "$patch"]), JSON, max_size=3))
@examples(200)
def test_anything_at_all_gives_a_template_of_ours_or_a_fault(pod: dict[str, Any]) -> None:
    try:
        found = templated(pod)
    except CallError:
        return
    assert found["metadata"]["labels"]["phalanx.dev/run"] == "r-1"
    assert [c["command"] for c in found["spec"]["containers"] if c["name"] == "phalanx"] == [
        ["/bin/sh", "/phalanx/job/start.sh", "run"]
    ]


def test_plain_data_is_a_copy() -> None:
    value = {"a": [{"b": 1}]}
    copy = pod_patch.plain(value)
    copy["a"][0]["b"] = 2
    assert value == {"a": [{"b": 1}]}
