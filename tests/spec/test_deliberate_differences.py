"""Where Phalanx does not do as Polyaxon did, on purpose: one test for each difference."""

from __future__ import annotations

import pytest

from phalanx.cli.render.plan_summary import plan_of
from phalanx.spec import Amount, Resources
from phalanx.spec.groups import suggestion
from tests.spec.helpers import EXPERIMENT, GROUP, error_of, errors_of, load_text

REPLICAS = EXPERIMENT + "framework: tensorflow\nenvironment: {replicas: {n_workers: 2, n_ps: 1, %s}}\n"


def test_an_undefined_name_in_a_template_is_an_error_with_a_suggestion_not_an_empty_text() -> None:
    error = error_of(EXPERIMENT + "params: {rate: 0.1}\nrun:\n  cmd: train --lr {{ rte }}\n")
    assert error.message == "unknown param `rte`"
    assert error.suggestion == "did you mean `rate`?"
    assert (error.path, error.place.line, error.place.column) == ("run.cmd", 5, 8)


def test_matrix_values_win_over_params_of_the_same_name() -> None:
    group = load_text(GROUP + "params: {lr: 1}\nhptuning: {matrix: {lr: {values: [2, 3]}}}\nrun: {cmd: 'x {{ lr }}'}\n")
    assert group.command == "x 2"
    assert suggestion(group, {"lr": 3}).command == "x 3"
    assert suggestion(group, {"lr": 3}).params == {"lr": 3}


def test_an_index_that_no_replica_has_is_an_error_not_ignored_and_counted() -> None:
    assert error_of(REPLICAS % "worker: [{index: 2}]").message.startswith("there is no worker 2")
    assert error_of(REPLICAS % "ps: [{index: 1}]").message.startswith("there is no ps 1")


def test_an_index_that_is_listed_twice_is_an_error() -> None:
    assert error_of(REPLICAS % "worker: [{index: 1}, {index: 1}]").message == "worker 1 is listed twice"


def test_an_entry_without_an_index_is_an_error() -> None:
    error = error_of(REPLICAS % "worker: [{resources: {cpu: {requests: 1}}}]")
    assert error.message == "this entry of `worker` has no `index`"


@pytest.mark.parametrize("key", ["n_workers", "n_ps"])
def test_a_negative_count_is_an_error(key: str) -> None:
    error = error_of(f"{EXPERIMENT}framework: tensorflow\nenvironment: {{replicas: {{{key}: -1}}}}\n")
    assert error.path == f"environment.replicas.{key}"


@pytest.mark.parametrize("name", ["cpu", "memory", "gpu", "tpu"])
def test_a_limit_below_its_request_is_an_error(name: str) -> None:
    error = error_of(f"{EXPERIMENT}environment: {{resources: {{{name}: {{requests: 2, limits: 1}}}}}}\n")
    assert error.message == "the limit (1) is below the request (2)"


def test_quantities_with_units_are_accepted_as_well_as_bare_numbers() -> None:
    units = load_text(EXPERIMENT + "environment: {resources: {cpu: {requests: 500m}, memory: {limits: 2Gi}}}\n")
    bare = load_text(EXPERIMENT + "environment: {resources: {cpu: {requests: 0.5}, memory: {limits: 2048}}}\n")
    assert units.environment.settings.resources == Resources(cpu=Amount(0.5), memory=Amount(None, 2048.0))
    assert units == bare


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("experiment", ""),
        ("group", "hptuning: {matrix: {a: {values: [1]}}}\n"),
        ("job", ""),
        ("build", "image: x\n"),
        ("notebook", ""),
        ("tensorboard", ""),
    ],
)
def test_labels_annotations_and_env_vars_work_everywhere(kind: str, body: str) -> None:
    environment = "environment: {labels: {a: b}, annotations: {c: d}, env_vars: [[E, f]]}\n"
    settings = load_text(f"version: 1\nkind: {kind}\n{body}{environment}").environment.settings
    assert settings.labels == {"a": "b"}
    assert settings.annotations == {"c": "d"}
    assert settings.env_vars == (("E", "f"),)


def test_labels_annotations_and_env_vars_work_for_single_replicas() -> None:
    spec = load_text(REPLICAS % "worker: [{index: 1, labels: {a: b}, annotations: {c: d}, env_vars: {E: f}}]")
    assert spec.environment.replicas is not None
    settings = spec.environment.replicas.worker[1]
    assert (settings.labels, settings.annotations, settings.env_vars) == ({"a": "b"}, {"c": "d"}, (("E", "f"),))


def test_replicas_work_in_groups() -> None:
    text = "framework: pytorch\nhptuning: {matrix: {a: {values: [1]}}}\nenvironment: {replicas: {n_workers: 3}}\n"
    plan = plan_of(load_text(GROUP + text))
    assert plan is not None
    assert plan.roles == {"master": 1, "worker": 3}


def test_a_worker_without_a_gpu_has_none() -> None:
    text = REPLICAS % (
        "default_worker: {resources: {cpu: {requests: 1}, gpu: {limits: 1}}}, "
        "worker: [{index: 1, resources: {cpu: {requests: 4}}}]"
    )
    replicas = load_text(text).environment.replicas
    assert replicas is not None
    assert replicas.worker[1].resources == Resources(cpu=Amount(4.0))
    plan = plan_of(load_text(text))
    assert plan is not None
    assert plan.totals.gpu == Amount(None, 1.0)


@pytest.mark.parametrize("backend", ["local", "slurm", "kubernetes"])
def test_further_backends_are_known(backend: str) -> None:
    assert load_text(f"{EXPERIMENT}backend: {backend}\n").backend == backend


def test_gpu_request_is_read_as_requests_not_dropped() -> None:
    spec = load_text(EXPERIMENT + "environment: {resources: {gpu: {request: 1, limits: 1}}}\n")
    assert spec.environment.settings.resources == Resources(gpu=Amount(1.0, 1.0))


def test_resources_of_single_workers_in_their_old_list_are_read_not_ignored() -> None:
    spec = load_text(REPLICAS % "worker_resources: [{index: 1, cpu: {requests: 4}}]")
    assert spec.environment.replicas is not None
    assert spec.environment.replicas.worker[1].resources == Resources(cpu=Amount(4.0))


def test_a_param_of_the_command_line_goes_together_with_declarations() -> None:
    assert load_text(EXPERIMENT + "declarations: {lr: 1}\n", lr="2").params == {"lr": 2}


def test_a_whole_number_suits_an_input_of_type_float() -> None:
    assert load_text(EXPERIMENT + "inputs: [{name: lr, type: float}]\nparams: {lr: 1}\n").params == {"lr": 1}


def test_a_quoted_number_stays_text_and_an_unquoted_exponent_is_a_number() -> None:
    spec = load_text(EXPERIMENT + "params: {a: '1', b: '{{ a }}', c: 1e-3}\n")
    assert spec.params == {"a": "1", "b": "1", "c": 0.001}


def test_a_number_in_a_command_has_the_characters_of_the_file() -> None:
    text = "params: {a: 0123456, b: 1e-3, c: yes, d: 1234e56, e: 12e4567, f: true}\n"
    command = "{{ a }} {{ b }} {{ c }} {{ d }} {{ e }} {{ f }}"
    spec = load_text(EXPERIMENT + text + f"run: {{cmd: '{command}'}}\n")
    assert spec.command == "0123456 1e-3 yes 1234e56 12e4567 True"
    assert spec.params == {"a": 42798, "b": 0.001, "c": True, "d": "1234e56", "e": "12e4567", "f": True}


def test_a_date_is_text() -> None:
    assert load_text(EXPERIMENT + "params: {day: 2024-01-01}\n").params == {"day": "2024-01-01"}


def test_a_number_for_an_input_of_text_is_its_characters() -> None:
    text = "inputs: [{name: id, type: str}]\nparams: {id: 0123}\n"
    assert load_text(EXPERIMENT + text).params == {"id": "0123"}


def test_a_range_with_colons_is_a_range_not_a_number_of_base_60() -> None:
    search = load_text(GROUP + "hptuning: {matrix: {a: {range: 1:10:2}}}\n").search
    assert search is not None
    assert search.matrix[0].values == (1, 3, 5, 7, 9)


@pytest.mark.parametrize("kind", ["job", "build", "notebook", "tensorboard"])
def test_no_kind_needs_a_build_an_image_or_a_command(kind: str) -> None:
    assert load_text(f"version: 1\nkind: {kind}\n").kind == kind


def test_mpi_is_a_framework_whose_workers_have_no_master() -> None:
    plan = plan_of(load_text(EXPERIMENT + "framework: mpi\nenvironment: {replicas: {n_workers: 4}}\nrun: {cmd: x}\n"))
    assert plan is not None
    assert plan.roles == {"worker": 4}


def test_settings_of_single_workers_work_with_the_mpi_backend() -> None:
    text = (
        "backend: mpi\nenvironment: {replicas: {n_workers: 2, worker: [{index: 1, resources: {cpu: {requests: 3}}}]}}\n"
    )
    plan = plan_of(load_text(EXPERIMENT + "framework: horovod\n" + text))
    assert plan is not None
    assert [replica.resources.cpu for replica in plan.replicas] == [None, Amount(3.0)]


def test_a_distribution_without_a_named_search_is_searched_at_random() -> None:
    search = load_text(GROUP + "hptuning: {matrix: {a: {uniform: '0:1'}}}\n").search
    assert search is not None
    assert search.algorithm == "random_search"


def test_all_faults_are_reported_at_once_not_only_the_first() -> None:
    assert len(errors_of(EXPERIMENT + "foo: 1\nrun: x\ntags: {a: 1}\n")) == 3
