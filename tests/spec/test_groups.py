"""A group's suggestions as experiments."""

from __future__ import annotations

import json

from phalanx.spec import Amount, Kind, Resources, load_document
from phalanx.spec.groups import first_suggestion, search_settings, suggestion
from phalanx.spec.model import thaw
from phalanx.tune.decision import decide
from phalanx.tune.history import History
from phalanx.tune.model import Metric, SearchSettings, StoppingRule
from tests.spec.helpers import EXPERIMENT, GROUP, error_of, load_text, messages_of

TEXT = (
    GROUP
    + """
name: search
params: {batch: 32, lr: 1}
hptuning: {matrix: {lr: {values: [0.1, 0.2]}, model: {values: [a, b]}}}
environment: {resources: {gpu: {limits: "{{ 1 if model == 'a' else 2 }}"}}}
run: {cmd: "train --lr {{ lr }} --model {{ model }} --batch {{ batch }}"}
"""
)


def test_a_suggestion_is_the_experiment_that_the_file_would_be_with_its_values() -> None:
    group = load_text(TEXT)
    made = suggestion(group, {"lr": 0.2, "model": "b"})
    written = EXPERIMENT + (
        "name: search\nparams: {batch: 32, lr: 0.2, model: b}\nenvironment: {resources: {gpu: {limits: 2}}}\n"
        "run: {cmd: train --lr 0.2 --model b --batch 32}\n"
    )
    assert made == load_text(written)
    assert made.kind is Kind.EXPERIMENT
    assert made.search is None


def test_the_values_of_a_suggestion_win_over_params_of_the_same_name() -> None:
    assert suggestion(load_text(TEXT), {"lr": 0.2, "model": "b"}).params["lr"] == 0.2


def test_the_first_suggestion_takes_the_first_values() -> None:
    made = first_suggestion(load_text(TEXT))
    assert made.command == "train --lr 0.1 --model a --batch 32"
    assert made.environment.settings.resources == Resources(gpu=Amount(None, 1.0))


def test_a_group_shows_what_its_first_suggestion_would_give() -> None:
    group = load_text(TEXT)
    assert group.command == "train --lr 0.1 --model a --batch 32"
    assert group.params == {"batch": 32, "lr": 1}


def test_making_a_suggestion_leaves_the_group_as_it_was() -> None:
    group = load_text(TEXT)
    before = thaw(group.document)
    suggestion(group, {"lr": 0.2, "model": "b"})
    assert thaw(group.document) == before


def test_a_suggestion_may_be_a_list_or_a_map() -> None:
    group = load_text(GROUP + "hptuning: {matrix: {sizes: {values: [[1, 2], [3]]}}}\nrun: {cmd: 'x {{ sizes[0] }}'}\n")
    assert group.search is not None
    assert group.search.matrix[0].values is not None
    assert suggestion(group, {"sizes": group.search.matrix[0].values[1]}).command == "x 3"


def test_params_of_a_group_may_be_made_of_its_matrix() -> None:
    group = load_text(
        GROUP
        + "hptuning: {matrix: {n: {values: [2, 3]}}}\nparams: {twice: '{{ n * 2 }}'}\nrun: {cmd: 'x {{ twice }}'}\n"
    )
    assert suggestion(group, {"n": 3}).command == "x 6"


def test_declared_inputs_of_a_group_may_come_from_its_matrix() -> None:
    group = load_text(
        GROUP + "inputs: [{name: lr, type: float}, {name: n, type: int}]\nparams: {n: 1}\n"
        "hptuning: {matrix: {lr: {values: [0.1]}, other: {values: [x]}}}\n"
        "run: {cmd: 'x {{ lr }} {{ other }} {{ n }}'}\n"
    )
    assert suggestion(group, {"lr": 0.1, "other": "x"}).command == "x 0.1 x 1"


def test_a_matrix_value_of_another_type_than_its_input_is_a_fault() -> None:
    text = GROUP + "inputs: [{name: n, type: int}]\nhptuning: {matrix: {n: {values: [text]}}}\n"
    assert any("`n` must be a whole number" in message for message in messages_of(text))


def test_a_name_that_neither_params_nor_matrix_give_is_a_fault() -> None:
    error = error_of(GROUP + "hptuning: {matrix: {rate: {values: [1]}}}\nrun: {cmd: 'x {{ rte }}'}\n")
    assert (error.message, error.suggestion) == ("unknown param `rte`", "did you mean `rate`?")


def test_replicas_work_in_groups_and_may_depend_on_the_matrix() -> None:
    group = load_text(
        GROUP + "framework: pytorch\nhptuning: {matrix: {n: {values: [1, 3]}}}\n"
        "environment: {replicas: {n_workers: '{{ n }}', worker: [{index: 0, max_restarts: 1}]}}\n"
    )
    replicas = suggestion(group, {"n": 3}).environment.replicas
    assert replicas is not None
    assert replicas.n_workers == 3


def test_the_document_of_a_spec_is_as_good_as_its_file() -> None:
    spec = load_text(TEXT)
    assert load_document("again", thaw(spec.document)) == spec
    assert load_document("again", spec.document) == spec


def test_a_value_of_a_journal_has_the_characters_of_the_file_again() -> None:
    group = load_text(GROUP + "hptuning: {matrix: {lr: {values: [1e-3, yes, 0x1F, 1, a]}}}\nrun: {cmd: 'x {{ lr }}'}\n")
    assert [suggestion(group, {"lr": value}).command for value in (0.001, True, 31, 1, "a", 0.002)] == [
        "x 1e-3", "x yes", "x 0x1F", "x 1", "x a", "x 0.002",
    ]  # fmt: skip


def test_the_search_of_a_group_is_plain_data() -> None:
    text = """hptuning:
  matrix: {lr: {values: [1e-3, ~, yes]}, layers: {range: 1:4:1}}
  seed: 0
  asha:
    n_experiments: 9
    max_iter: 9
    eta: 3
    resource: {name: epochs, type: int}
    metric: {name: loss, optimization: minimize}
  early_stopping: [{metric: loss, optimization: minimize, policy: {kind: median, evaluation_interval: 2}}]
run: {cmd: 'x {{ lr }} {{ layers }} {{ epochs }}'}
"""
    search = load_text(GROUP + text).search
    assert search is not None
    made = search_settings(search, "the group's id")
    assert (made.algorithm, made.n, made.seed, made.metric) == ("asha", 9, 0, Metric("loss", maximize=False))
    assert made.early_stopping == (StoppingRule(Metric("loss", maximize=False), None, "median", 2),)
    again = SearchSettings.from_json(json.loads(json.dumps(made.as_json())))
    assert again == made
    assert [dimension.values for dimension in again.dimensions] == [(0.001, None, True), (1, 2, 3)]
    assert decide(again, History(), 2) == decide(made, History(), 2)
    assert search_settings(search._replace(seed=None), "the group's id").seed == "the group's id"


def test_a_repeated_search_has_a_seed_that_nothing_else_sets() -> None:
    text = "hptuning: {repeat: 3, matrix: {%s: {values: [1, 2]}}}\nrun: {cmd: 'x {{ seed }}'}\n"
    group = load_text(GROUP + text % "lr")
    assert group.search is not None
    assert (group.search.repeats, first_suggestion(group).command) == (3, "x 0")
    assert "`repeat` sets the param `seed`" in error_of(GROUP + text % "seed").message
