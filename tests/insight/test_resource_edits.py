from __future__ import annotations

from typing import Any

import pytest

from phalanx.errors import CallError
from phalanx.insight.resource_edits import Change, changed, with_workers
from phalanx.stored_plan import ResourceAmount
from tests.insight.samples import file, planned

NOTHING = ResourceAmount()


def memory(role: str, indices: set[int], mib: float, text: str, asked: ResourceAmount = NOTHING) -> Change:
    return Change(role, frozenset(indices), "memory", asked, mib, text)


def test_only_what_is_spoken_of_changes() -> None:
    document = file(
        {"resources": {"cpu": {"requests": 2}, "tpu": {"limits": 1}}, "node_selector": {"a": "b"}, "timeout": "1h"},
        name="it",
        params={"lr": 0.1},
    )
    result = changed(document, {"master": 1}, [Change("master", frozenset([0]), "cpu", ResourceAmount(2), 1, 1)], "20m")
    resources = {"cpu": {"requests": 1}, "tpu": {"limits": 1}}
    environment = {**document["environment"], "timeout": "20m", "resources": resources}
    assert result == {**document, "environment": environment}
    assert document["environment"]["timeout"] == "1h"  # ours is a copy


@pytest.mark.parametrize(
    ("asked", "both", "expected"),
    [
        ({}, False, {"requests": "2Gi"}),
        ({"requests": 4096}, False, {"requests": "2Gi"}),
        ({"limits": 4096}, False, {"limits": "2Gi"}),
        ({"requests": 4096, "limits": 4096}, False, {"requests": "2Gi", "limits": "2Gi"}),
        ({"requests": 4096, "limits": 8192}, False, {"requests": "2Gi", "limits": 8192}),
        ({"requests": 4096, "limits": 8192}, True, {"requests": "2Gi", "limits": "2Gi"}),
        ({"requests": 512, "limits": 1024}, False, {"requests": "2Gi", "limits": "2Gi"}),
    ],
)
def test_requests_and_limits_stay_what_they_were_to_each_other(
    asked: dict[str, float], both: bool, expected: dict[str, Any]
) -> None:
    document = file({"resources": {"memory": asked}} if asked else {})
    change = Change("master", frozenset([0]), "memory", ResourceAmount(**asked), 2048, "2Gi", is_for_both=both)
    assert changed(document, {"master": 1}, [change])["environment"]["resources"]["memory"] == expected


def test_none_of_a_resource_takes_it_out_of_the_file() -> None:
    document = file({"resources": {"gpu": {"limits": 1}}})
    result = changed(document, {"master": 1}, [Change("master", frozenset([0]), "gpu", ResourceAmount(None, 1), 0, 0)])
    assert "environment" not in result


WORKERS = {"n_workers": 3, "default_worker": {"resources": {"memory": {"requests": 4096}}}}


def test_all_of_a_role_are_changed_by_its_default() -> None:
    document = file({"replicas": WORKERS}, framework="pytorch")
    result = changed(document, {"worker": 3}, [memory("worker", {0, 1, 2}, 1024, "1Gi", ResourceAmount(4096))])
    assert result["environment"]["replicas"]["default_worker"] == {"resources": {"memory": {"requests": "1Gi"}}}


def test_settings_of_single_replicas_are_honoured() -> None:
    own = {"index": 1, "resources": {"memory": {"requests": 8192}}, "env_vars": [["A", "1"]]}
    document = file({"replicas": {**WORKERS, "worker": [own]}}, framework="pytorch")
    result = changed(
        document,
        {"worker": 3},
        [
            memory("worker", {0, 2}, 1024, "1Gi", ResourceAmount(4096)),
            memory("worker", {1}, 2048, "2Gi", ResourceAmount(8192)),
        ],
    )
    replicas = result["environment"]["replicas"]
    assert replicas["default_worker"]["resources"]["memory"] == {"requests": "1Gi"}
    (before,) = document["environment"]["replicas"]["worker"]
    assert replicas["worker"] == [{**before, "resources": {"memory": {"requests": "2Gi"}}}]


def test_where_all_need_the_same_the_default_says_it_and_no_one_else() -> None:
    own = [{"index": 1, "resources": {"memory": {"requests": 8192}}}]
    document = file({"replicas": {**WORKERS, "worker": own}}, framework="pytorch")
    same = [
        memory("worker", {0, 2}, 1024, "1Gi", ResourceAmount(4096)),
        memory("worker", {1}, 1024, "1Gi", ResourceAmount(8192)),
    ]
    replicas = changed(document, {"worker": 3}, same)["environment"]["replicas"]
    assert replicas == {"n_workers": 3, "default_worker": {"resources": {"memory": {"requests": "1Gi"}}}}
    every = [{"index": index, "resources": {"memory": {"requests": 8192 + index}}} for index in range(3)]
    document = file({"replicas": {"n_workers": 3, "worker": every}}, framework="pytorch")
    same = [memory("worker", {index}, 1024, "1Gi", ResourceAmount(8192 + index)) for index in range(3)]
    assert changed(document, {"worker": 3}, same)["environment"]["replicas"] == replicas


def test_a_replica_that_asks_for_nothing_any_more_does_not_fall_back_to_the_default() -> None:
    replicas = {
        "n_workers": 2,
        "default_worker": {"resources": {"gpu": {"requests": 1}}},
        "worker": [{"index": 1, "resources": {"gpu": {"requests": 2}}}],
    }
    document = file({"replicas": replicas}, framework="pytorch")
    result = changed(document, {"worker": 2}, [Change("worker", frozenset([1]), "gpu", ResourceAmount(2), 0, 0)])
    assert not planned(result).by_name["worker-1"].amount("gpu").requests


@pytest.mark.parametrize(("framework", "role"), [("tensorflow", "ps"), ("mxnet", "server")])
def test_ps_of_the_file_are_meant_under_any_name_of_the_framework(framework: str, role: str) -> None:
    document = file({"replicas": {"n_workers": 1, "n_ps": 2}}, framework=framework)
    result = changed(document, planned(document).roles, [memory(role, {0, 1}, 512, "512Mi")])
    asked = {one.number: one.amount("memory") for one in planned(result).replicas if one.role == role}
    assert asked == {index: ResourceAmount(512) for index in (0, 1)}


def test_an_index_that_is_a_template_is_left_to_people() -> None:
    document = file({"replicas": WORKERS}, framework="pytorch")
    document["environment"]["replicas"]["worker"] = [{"index": "{{ odd }}", "resources": {"cpu": {"requests": 1}}}]
    with pytest.raises(CallError, match="by hand"):
        changed(document, {"worker": 3}, [memory("worker", {0, 1, 2}, 1024, "1Gi")])


def test_fewer_workers_have_no_settings_for_those_that_are_gone() -> None:
    own = [{"index": index, "max_restarts": 1} for index in range(3)]
    document = file({"replicas": {**WORKERS, "worker": own}}, framework="pytorch")
    assert planned(with_workers(document, 2)).roles == {"master": 1, "worker": 2}
    assert planned(with_workers(document, 0)).roles == {"master": 1}
    assert planned(with_workers(file({}, framework="pytorch"), 4)).roles["worker"] == 4
