"""Older ways to write an environment and its replicas."""

from __future__ import annotations

import pytest

from phalanx.spec import Amount, Resources, Spec
from phalanx.spec.model import Replicas, ReplicaSettings
from tests.spec.helpers import EXPERIMENT, assert_same, error_of, errors_of, load_limited, load_text, notes_of, where

REPLICAS = EXPERIMENT + "framework: pytorch\nenvironment:\n  replicas:\n    n_workers: 2\n"
CPU = Resources(cpu=Amount(1.0, 2.0))


def _replicas(spec: Spec) -> Replicas:
    assert spec.environment.replicas is not None
    return spec.environment.replicas


def _settings(settings: ReplicaSettings | None) -> ReplicaSettings:
    assert settings is not None
    return settings


# replicas ----------------------------------------------------------------------------------------------------

BODY = (
    "    n_workers: 3\n    default_worker: {resources: {cpu: {requests: 1, limits: 2}}}\n"
    "    worker:\n    - {index: 2, resources: {gpu: {limits: 1}}}\n"
)
MODERN = EXPERIMENT + "framework: %s\nenvironment:\n  replicas:\n" + BODY


@pytest.mark.parametrize("name", ["tensorflow", "mxnet", "horovod", "pytorch"])
def test_the_section_of_a_framework_is_framework_and_replicas(name: str) -> None:
    spec = assert_same(
        f"{EXPERIMENT}environment:\n  {name}:\n{BODY}",
        MODERN % name,
        f"`environment.{name}` read as `framework: {name}` and `environment.replicas`",
    )
    replicas = _replicas(spec)
    assert replicas.n_workers == 3
    assert _settings(replicas.default_worker).resources == CPU
    assert replicas.worker[2].resources == Resources(gpu=Amount(None, 1.0))


@pytest.mark.parametrize("name", ["tensorflow", "mxnet"])
def test_the_oldest_form_with_lists_of_resources_is_the_same(name: str) -> None:
    old = (
        f"environment:\n  {name}:\n    n_workers: 3\n"
        "    default_worker_resources: {cpu: {requests: 1, limits: 2}}\n"
        "    worker_resources:\n    - {index: 2, gpu: {limits: 1}}\n"
    )
    assert_same(
        EXPERIMENT + old,
        MODERN % name,
        f"`environment.{name}` read as `framework: {name}` and `environment.replicas`",
        f"`environment.{name}.default_worker_resources` read as `default_worker.resources`",
        "`worker_resources` read as `worker[].resources`",
    )


def test_parameter_servers_have_the_same_older_forms_as_workers() -> None:
    old = (
        "environment:\n  tensorflow:\n    n_ps: 2\n    default_ps_resources: {cpu: {requests: 1, limits: 2}}\n"
        "    ps_resources: [{index: 1, memory: {requests: 256}}]\n    default_ps_node_selectors: {disk: ssd}\n"
        "    ps_node_selectors: [{index: 1, disk: hdd}]\n"
    )
    replicas = _replicas(load_text(EXPERIMENT + old))
    assert replicas.n_ps == 2
    assert _settings(replicas.default_ps).resources == CPU
    assert _settings(replicas.default_ps).node_selector == {"disk": "ssd"}
    assert replicas.ps[1].resources == Resources(memory=Amount(256.0, None))
    assert replicas.ps[1].node_selector == {"disk": "hdd"}
    assert "`ps_node_selectors` read as `ps[].node_selector`" in notes_of(EXPERIMENT + old)


def test_lists_of_resources_are_read_in_the_modern_section_too() -> None:
    spec = load_text(REPLICAS + "    worker_resources: [{index: 0, cpu: {requests: 1}}]\n")
    assert _replicas(spec).worker[0].resources == Resources(cpu=Amount(1.0, None))
    assert [note.message for note in spec.notes] == ["`worker_resources` read as `worker[].resources`"]


def test_a_list_of_resources_joins_the_worker_of_the_same_index() -> None:
    text = REPLICAS + (
        "    worker: [{index: 1, node_selector: {a: b}}]\n"
        "    worker_resources: [{index: 1, cpu: {requests: 1}}, {index: 0, cpu: {requests: 2}}]\n"
    )
    workers = _replicas(load_text(text)).worker
    assert workers[1] == ReplicaSettings(node_selector={"a": "b"}, resources=Resources(cpu=Amount(1.0)))
    assert workers[0] == ReplicaSettings(resources=Resources(cpu=Amount(2.0)))


def test_a_worker_whose_resources_stand_in_both_lists_is_a_fault() -> None:
    text = REPLICAS + (
        "    worker: [{index: 1, resources: {cpu: {requests: 1}}}]\n"
        "    worker_resources: [{index: 1, cpu: {requests: 1}}]\n"
    )
    assert [error.message for error in errors_of(text)] == ["worker 1 has `resources` twice"]


@pytest.mark.parametrize("value", ["5", "{cpu: {requests: 1}}", "text"])
def test_a_list_of_resources_that_is_no_list_is_a_fault(value: str) -> None:
    error = error_of(f"{REPLICAS}    worker_resources: {value}\n")
    assert error.message == "`worker_resources` must be a list of entries with an `index`"


@pytest.mark.parametrize("worker", ["[5]", "[null]", "[[1]]", "[{}]", "5", "{a: 1}"])
@pytest.mark.parametrize(
    "entry", ["{index: null, cpu: {requests: 1}}", "{cpu: {requests: 1}}", "5", "null", "{index: [1]}"]
)
def test_lists_of_resources_beside_nonsense_are_faults(worker: str, entry: str) -> None:
    assert errors_of(f"{REPLICAS}    worker: {worker}\n    worker_resources: [{entry}]\n")


def test_the_misspelt_section_of_polyaxons_guide_is_pytorch() -> None:
    spec = assert_same(
        EXPERIMENT + "environment: {pytroch: {n_workers: 2}}\n",
        EXPERIMENT + "framework: pytorch\nenvironment: {replicas: {n_workers: 2}}\n",
        "`environment.pytroch` read as `framework: pytorch` and `environment.replicas`",
    )
    assert spec.framework == "pytorch"


def test_a_section_of_a_framework_that_is_empty_is_a_framework_without_replicas() -> None:
    spec = load_text(EXPERIMENT + "environment:\n  tensorflow:\n")
    assert spec.framework == "tensorflow"
    assert spec.environment.replicas is None


@pytest.mark.parametrize("name", ["horovod", "pytorch"])
def test_parameter_servers_of_a_framework_that_has_none_are_left_out(name: str) -> None:
    spec = load_text(f"{EXPERIMENT}environment: {{{name}: {{n_workers: 2, n_ps: 1}}}}\n")
    assert _replicas(spec).n_ps == 0
    assert f"`n_ps` is not used: it has no effect with {name}, which has no parameter servers" in [
        note.message for note in spec.notes
    ]


def test_distribution_is_replicas() -> None:
    assert_same(
        EXPERIMENT + "framework: mxnet\nenvironment: {distribution: {n_workers: 2}}\n",
        EXPERIMENT + "framework: mxnet\nenvironment: {replicas: {n_workers: 2}}\n",
        "`distribution` read as `replicas`",
    )


def test_framework_and_backend_inside_environment_move_out() -> None:
    assert_same(
        EXPERIMENT + "environment: {framework: mxnet, backend: kubeflow, replicas: {n_workers: 2}}\n",
        EXPERIMENT + "framework: mxnet\nbackend: kubeflow\nenvironment: {replicas: {n_workers: 2}}\n",
        "`environment.framework` read as `framework`",
        "`environment.backend` read as `backend`",
    )


def test_counts_directly_in_environment_are_the_first_releases_tensorflow() -> None:
    counts = "{n_workers: 2, n_ps: 1, delay_workers_by_global_step: true}"
    assert_same(
        f"{EXPERIMENT}environment: {counts}\n",
        f"{EXPERIMENT}framework: tensorflow\nenvironment: {{replicas: {counts}}}\n",
        "read as `framework: tensorflow`, the only framework when this form was in use",
        "`environment.n_workers` read as `environment.replicas.n_workers`",
        "`environment.n_ps` read as `environment.replicas.n_ps`",
        "`environment.delay_workers_by_global_step` read as `environment.replicas.delay_workers_by_global_step`",
    )


def test_overrides_beside_replicas_move_into_them() -> None:
    assert_same(
        REPLICAS + "  default_worker: {max_restarts: 1}\n  worker: [{index: 1}]\n",
        REPLICAS + "    default_worker: {max_restarts: 1}\n    worker: [{index: 1}]\n",
        "`environment.default_worker` read as `environment.replicas.default_worker`",
        "`environment.worker` read as `environment.replicas.worker`",
    )


@pytest.mark.parametrize(
    "key", ["run_config", "worker_config", "ps_configs", "default_worker_config", "default_ps_configs"]
)
def test_tensorflows_own_settings_are_left_out_of_replicas(key: str) -> None:
    spec = assert_same(
        f"{EXPERIMENT}framework: tensorflow\nenvironment: {{replicas: {{n_workers: 1, {key}: {{a: 1}}}}}}\n",
        f"{EXPERIMENT}framework: tensorflow\nenvironment: {{replicas: {{n_workers: 1}}}}\n",
        f"`{key}` is not used: it held TensorFlow settings, which the training code now sets itself",
    )
    assert _replicas(spec).n_workers == 1


def test_two_frameworks_are_a_fault_at_the_second_one() -> None:
    error = error_of(EXPERIMENT + "environment:\n  tensorflow: {n_workers: 1}\n  pytorch: {n_workers: 1}\n")
    assert error.message == "a run has one framework; `tensorflow` and `pytorch` are both set"
    assert where(error) == (5, 3)
    assert error.path == "environment.pytorch"
    assert error.place.width == len("pytorch")


def test_a_framework_that_contradicts_its_section_is_a_fault() -> None:
    error = error_of(EXPERIMENT + "framework: mxnet\nenvironment:\n  pytorch: {n_workers: 1}\n")
    assert error.message == "`framework: mxnet` conflicts with `environment.pytorch`"
    assert where(error) == (5, 3)


def test_a_framework_that_says_the_same_as_its_section_is_fine() -> None:
    assert load_text(EXPERIMENT + "framework: torch\nenvironment: {pytorch: {n_workers: 1}}\n").framework == "pytorch"


def test_a_section_of_a_framework_beside_replicas_is_a_fault() -> None:
    error = error_of(EXPERIMENT + "environment: {replicas: {n_workers: 1}, tensorflow: {n_workers: 1}}\n")
    assert error.message == "`environment.tensorflow` and `environment.replicas` define the replicas twice"
    assert error.suggestion == "keep `replicas`"


# settings of a replica ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("node_selectors", "node_selector", "{disk: ssd}"),
        ("configmap_refs", "config_map_refs", "[a]"),
        ("configmaps", "config_map_refs", "[a]"),
        ("secrets", "secret_refs", "[a]"),
        ("max_retries", "max_restarts", "3"),
        ("backoff_limit", "max_restarts", "3"),
        ("data_persistence", "data_refs", "[a]"),
        ("outputs_persistence", "artifact_refs", "[a]"),
    ],
)
def test_an_older_name_in_environment_is_read(old: str, new: str, value: str) -> None:
    assert_same(
        f"{EXPERIMENT}environment: {{{old}: {value}}}\n",
        f"{EXPERIMENT}environment: {{{new}: {value}}}\n",
        f"`{old}` read as `{new}`",
    )


def test_an_older_name_in_the_settings_of_a_worker_is_read() -> None:
    text = REPLICAS + "    default_worker: {node_selectors: {a: b}}\n    worker: [{index: 0, configmaps: [c]}]\n"
    replicas = _replicas(load_text(text))
    assert _settings(replicas.default_worker).node_selector == {"a": "b"}
    assert replicas.worker[0].config_map_refs == ("c",)
    assert notes_of(text) == ["`node_selectors` read as `node_selector`", "`configmaps` read as `config_map_refs`"]


def test_persistence_is_data_refs_and_artifact_refs() -> None:
    spec = assert_same(
        EXPERIMENT + "environment: {persistence: {data: [a, b], outputs: c}}\n",
        EXPERIMENT + "environment: {data_refs: [a, b], artifact_refs: [c]}\n",
        "`environment.persistence.data` read as `data_refs`",
        "`environment.persistence.outputs` read as `artifact_refs`",
    )
    assert spec.environment.settings.artifact_refs == ("c",)


def test_a_single_outputs_store_is_a_list_of_one() -> None:
    spec = load_text(EXPERIMENT + "environment: {outputs_persistence: a}\n")
    assert spec.environment.settings.artifact_refs == ("a",)


@pytest.mark.parametrize(
    ("value", "message"),
    [("{foo: 1}", "unknown key `foo` in persistence"), ("5", "`persistence` must be a map of `data` and `outputs`")],
)
def test_persistence_that_says_something_else_is_a_fault(value: str, message: str) -> None:
    assert error_of(f"{EXPERIMENT}environment: {{persistence: {value}}}\n").message == message


@pytest.mark.parametrize(("old", "new"), [("request", "requests"), ("limit", "limits")])
@pytest.mark.parametrize("name", ["cpu", "memory", "gpu", "tpu"])
def test_an_amount_in_the_singular_is_read(name: str, old: str, new: str) -> None:
    assert_same(
        f"{EXPERIMENT}environment: {{resources: {{{name}: {{{old}: 1}}}}}}\n",
        f"{EXPERIMENT}environment: {{resources: {{{name}: {{{new}: 1}}}}}}\n",
        f"`{name}.{old}` read as `{name}.{new}`",
    )


def test_an_amount_in_singular_and_plural_is_a_fault() -> None:
    error = error_of(EXPERIMENT + "environment:\n  resources:\n    gpu: {requests: 1, request: 2}\n")
    assert error.message == "`request` is the old name of `requests`, which is also set"
    assert where(error) == (5, 24)


def test_a_bare_amount_is_both_request_and_limit() -> None:
    spec = assert_same(
        EXPERIMENT + "environment: {resources: {gpu: 2, memory: 512}}\n",
        EXPERIMENT
        + "environment: {resources: {gpu: {requests: 2, limits: 2}, memory: {requests: 512, limits: 512}}}\n",
        "`gpu: 2` read as both `requests` and `limits`",
        "`memory: 512` read as both `requests` and `limits`",
    )
    assert spec.environment.settings.resources == Resources(memory=Amount(512.0, 512.0), gpu=Amount(2.0, 2.0))


def test_the_resources_of_the_master_had_a_name_of_their_own() -> None:
    old = "environment:\n  n_workers: 1\n  master_resources: {cpu: {requests: 2, limits: 2}}\n"
    modern = "environment:\n  replicas: {n_workers: 1}\n  resources: {cpu: {requests: 2, limits: 2}}\n"
    assert_same(
        EXPERIMENT + old,
        f"{EXPERIMENT}framework: tensorflow\n{modern}",
        "`environment.n_workers` read as `environment.replicas.n_workers`",
        "`master_resources` read as `resources`",
        "read as `framework: tensorflow`, the only framework when this form was in use",
    )


@pytest.mark.parametrize("key", ["master_config", "worker_configs", "default_worker_config", "default_ps_config"])
def test_tensorflows_own_settings_directly_in_environment_get_one_note(key: str) -> None:
    note = f"`{key}` is not used: it held TensorFlow settings, which the training code now sets itself"
    assert_same(f"{EXPERIMENT}environment: {{{key}: {{a: 1}}}}\n", f"{EXPERIMENT}environment: {{}}\n", note)


@pytest.mark.slow
def test_many_entries_in_an_old_list_are_quick() -> None:
    entries = "\n".join(f"    - {{index: {index}, cpu: 1}}" for index in range(20_000))
    text = f"{EXPERIMENT}environment:\n  tensorflow:\n    n_workers: 20000\n    worker_resources:\n{entries}\n"
    assert load_limited(text, cpu_s=20).ended == "spec"
