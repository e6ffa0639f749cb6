"""Several files as one."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.spec.tree import merge
from tests.spec.helpers import EXPERIMENT, error_of, errors_of, load_texts, tree_of, where


def _merged(*layers: Any) -> Any:
    root = tree_of(layers[0])
    for layer in layers[1:]:
        root = merge(root, tree_of(layer))
    return root.plain()


@pytest.mark.parametrize(
    ("earlier", "later", "together"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": {"x": 1, "y": 1}}, {"a": {"y": 2, "z": 2}}, {"a": {"x": 1, "y": 2, "z": 2}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": {"x": 1}}, {"a": None}, {"a": None}),
        ({"a": {"x": 1}}, {"a": "text"}, {"a": "text"}),
        ({"a": "text"}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({"a": None}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({"a": {"x": 1}}, {"a": {}}, {"a": {"x": 1}}),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": {"d": 2}}}, {"a": {"b": {"c": 1, "d": 2}}}),
        ({"a": [{"x": 1}]}, {"a": [{"y": 2}]}, {"a": [{"y": 2}]}),
    ],
)
def test_maps_merge_key_by_key_and_anything_else_is_replaced(earlier: Any, later: Any, together: Any) -> None:
    assert _merged(earlier, later) == together


def test_what_a_text_hid_stays_hidden_when_a_map_comes_after_it() -> None:
    assert _merged({"a": {"x": 1}}, {"a": "text"}, {"a": {"y": 2}}) == {"a": {"y": 2}}


@pytest.mark.parametrize("between", [None, "text", 5, [1], False])
def test_what_was_hidden_stays_hidden_whichever_pair_is_merged_first(between: Any) -> None:
    first, second, third = tree_of({"a": {"x": 1}}), tree_of({"a": between}), tree_of({"a": {"y": 2}})
    assert merge(merge(first, second), third).plain() == {"a": {"y": 2}}
    assert merge(first, merge(second, third)).plain() == {"a": {"y": 2}}


def test_merging_changes_neither_layer() -> None:
    earlier, later = tree_of({"a": {"x": 1}}), tree_of({"a": {"y": 2}, "b": 3})
    merge(earlier, later)
    assert earlier.plain() == {"a": {"x": 1}}
    assert later.plain() == {"a": {"y": 2}, "b": 3}


def test_the_order_of_keys_is_that_of_their_first_layer() -> None:
    assert list(_merged({"a": 1, "b": 1}, {"c": 2, "a": 2})) == ["a", "b", "c"]


# through the loader ------------------------------------------------------------------------------------------


def test_a_later_file_changes_one_param_and_keeps_the_others() -> None:
    spec = load_texts(f"{EXPERIMENT}params: {{lr: 0.1, batch: 32}}\n", "params: {lr: 0.2}\n")
    assert spec.params == {"lr": 0.2, "batch": 32}


def test_a_later_file_needs_neither_version_nor_kind() -> None:
    assert load_texts("version: 1\nkind: job\nrun: {cmd: a}\n", "run: {cmd: b}\n").notes == ()


def test_three_files_are_laid_over_each_other_in_order() -> None:
    spec = load_texts(f"{EXPERIMENT}run: {{cmd: a}}\nname: a\n", "run: {cmd: b}\ntags: [b]\n", "run: {cmd: c}\n")
    assert (spec.command, spec.name, spec.tags) == ("c", "a", ("b",))


def test_a_null_in_a_later_file_takes_a_section_away() -> None:
    spec = load_texts(f"{EXPERIMENT}build: {{image: x}}\nenvironment: {{max_restarts: 3}}\n", "build: null\n")
    assert spec.build is None
    assert spec.environment.settings.max_restarts == 3


def test_a_list_in_a_later_file_replaces_the_whole_list() -> None:
    assert load_texts(f"{EXPERIMENT}tags: [a, b]\n", "tags: [c]\n").tags == ("c",)


def test_a_later_file_may_complete_an_amount() -> None:
    base = f"{EXPERIMENT}environment: {{resources: {{cpu: {{requests: 1}}}}}}\n"
    spec = load_texts(base, "environment: {resources: {cpu: {limits: 4}}}\n")
    assert spec.environment.settings.resources is not None
    assert spec.environment.settings.resources.cpu == (1.0, 4.0)


def test_files_of_different_age_go_together() -> None:
    old = f"{EXPERIMENT}declarations: {{lr: 0.1}}\nenvironment: {{tensorflow: {{n_workers: 2, n_ps: 1}}}}\n"
    new = "params: {lr: 0.2}\nenvironment: {replicas: {n_workers: 5}}\n"
    spec = load_texts(old, new)
    assert spec.framework == "tensorflow"
    assert spec.params == {"lr": 0.2}
    assert spec.environment.replicas is not None
    assert (spec.environment.replicas.n_workers, spec.environment.replicas.n_ps) == (5, 1)


def test_a_loose_count_in_a_later_file_does_not_change_the_framework_of_an_earlier_one() -> None:
    spec = load_texts(f"{EXPERIMENT}framework: pytorch\n", "environment: {n_workers: 3}\n")
    assert spec.framework == "pytorch"
    assert spec.environment.replicas is not None
    assert spec.environment.replicas.n_workers == 3


def test_the_command_line_comes_after_all_files() -> None:
    spec = load_texts(f"{EXPERIMENT}params: {{lr: 0.1}}\n", "params: {lr: 0.2}\n", lr="0.3")
    assert spec.params == {"lr": 0.3}


def test_the_command_line_goes_together_with_declarations() -> None:
    spec = load_texts(f"{EXPERIMENT}declarations: {{lr: 0.1, batch: 32}}\n", lr="0.3")
    assert spec.params == {"lr": 0.3, "batch": 32}


def test_a_fault_that_two_files_make_together_names_the_file_of_the_value() -> None:
    base = f"{EXPERIMENT}environment: {{resources: {{cpu: {{requests: 8}}}}}}\n"
    error = error_of(base, "environment:\n  resources:\n    cpu:\n      limits: 4\n")
    assert error.place.file == "1.yml"
    assert where(error) == (4, 15)
    assert error.path == "environment.resources.cpu.limits"


def test_faults_of_all_files_are_reported_at_once() -> None:
    errors = errors_of(f"{EXPERIMENT}foo: 1\n", "bar: 2\n", "environment: {baz: 3}\n")
    assert sorted((error.place.file, error.path) for error in errors) == [
        ("0.yml", "foo"),
        ("1.yml", "bar"),
        ("2.yml", "environment.baz"),
    ]


def test_files_that_cannot_be_read_are_reported_all_at_once() -> None:
    errors = errors_of("a: [\n", EXPERIMENT, b"\xff", "a: 1\na: 2\n")
    assert sorted(error.place.file for error in errors) == ["0.yml", "2.yml", "3.yml"]


# old forms that span several files -----------------------------------------------------------------------------------


BASE = "version: 1\nkind: group\nsettings: {matrix: {lr: {values: [1, 2, 3, 4]}}}\nrun: {cmd: 'x {{ lr }}'}\n"


def _notes(*texts: str) -> list[str]:
    return [note.message for note in load_texts(*texts).notes]


@pytest.mark.parametrize("key", ["concurrency", "concurrent_experiments"])
@pytest.mark.parametrize("is_first", [False, True])
def test_the_concurrency_of_one_file_belongs_to_the_matrix_of_another(key: str, is_first: bool) -> None:
    layers = [BASE, f"settings: {{{key}: 2}}\n"]
    spec = load_texts(*(reversed(layers) if is_first else layers))
    assert spec.search is not None
    assert spec.search.concurrency == 2
    assert "has no effect without a matrix" not in " ".join(note.message for note in spec.notes)


@pytest.mark.parametrize(
    "layers",
    [
        ("settings: {search_method: random}\n", "settings: {n_experiments: 2}\n"),
        ("settings: {n_experiments: 2}\n", "settings: {search_method: random}\n"),
        ("settings: {search_method: grid, n_experiments: 2}\n", "settings: {search_method: random}\n"),
        ("hptuning: {random_search: {}}\n", "settings: {n_experiments: 2}\n"),
        ("settings: {search_method: random, n_experiments: 3}\n", "settings: {n_experiments: 2}\n"),
    ],
)
def test_the_search_method_of_one_file_decides_about_the_number_in_another(layers: tuple[str, ...]) -> None:
    search = load_texts(BASE, *layers).search
    assert search is not None
    assert (search.algorithm, search.n_experiments) == ("random_search", 2)


def test_the_share_of_one_file_is_of_the_matrix_of_another() -> None:
    search = load_texts(BASE, "settings: {n_experiments: 0.5}\n").search
    assert search is not None
    assert (search.algorithm, search.n_experiments) == ("grid_search", 2)


def test_a_framework_in_a_later_file_is_that_of_replicas_in_the_oldest_form() -> None:
    layers = ("version: 1\nkind: experiment\nenvironment: {n_workers: 2}\n", "framework: pytorch\n")
    assert load_texts(*layers).framework == "pytorch"
    assert _notes(*layers) == ["`environment.n_workers` read as `environment.replicas.n_workers`"]


def test_replicas_in_the_oldest_form_in_two_files_are_tensorflow_with_one_note() -> None:
    layers = (f"{EXPERIMENT}environment: {{n_workers: 2}}\n", "environment: {n_ps: 1}\n")
    spec = load_texts(*layers)
    assert spec.framework == "tensorflow"
    assert spec.environment.replicas is not None
    assert (spec.environment.replicas.n_workers, spec.environment.replicas.n_ps) == (2, 1)
    assert len([note for note in _notes(*layers) if "framework: tensorflow" in note]) == 1


def test_an_empty_framework_section_in_a_later_file_takes_the_replicas_away() -> None:
    base = f"{EXPERIMENT}environment: {{tensorflow: {{n_workers: 2}}}}\n"
    assert load_texts(base, "environment: {tensorflow: null}\n").environment.replicas is None


def test_lists_of_one_attribute_replace_only_that_attribute_of_an_earlier_file() -> None:
    base = f"""{EXPERIMENT}environment:
  tensorflow:
    n_workers: 2
    worker_resources: [{{index: 0, cpu: {{requests: 1}}}}]
    worker_node_selectors: [{{index: 0, disk: ssd}}]
"""
    over = "environment: {tensorflow: {worker_resources: [{index: 1, cpu: {requests: 4}}]}}\n"
    replicas = load_texts(base, over).environment.replicas
    assert replicas is not None
    assert replicas.worker[0].resources is None
    assert replicas.worker[0].node_selector == {"disk": "ssd"}
    assert replicas.worker[1].resources is not None


def test_a_ref_beside_an_image_of_another_file_is_a_commit() -> None:
    spec = load_texts(f"{EXPERIMENT}build: {{image: a}}\n", "build: {ref: abc}\n")
    assert spec.build is not None
    assert (spec.build.image, spec.build.commit, spec.build.ref) == ("a", "abc", None)


def test_a_ref_that_replaces_the_image_of_another_file_is_an_earlier_build() -> None:
    spec = load_texts(f"{EXPERIMENT}build: {{image: a}}\n", "build: {image: null, ref: abc}\n")
    assert spec.build is not None
    assert (spec.build.image, spec.build.commit, spec.build.ref) == (None, None, "abc")


@pytest.mark.parametrize("over", ["image: b\n", "build: {image: b}\n"])
@pytest.mark.parametrize("base", ["image: a\n", "build: {image: a}\n"])
def test_a_build_in_either_form_is_overridden_by_one_in_either_form(base: str, over: str) -> None:
    spec = load_texts(f"version: 1\nkind: build\n{base}", over)
    assert spec.build is not None
    assert spec.build.image == "b"


def test_an_if_operator_may_span_two_files() -> None:
    base = f"{EXPERIMENT}params: {{fast: false}}\nrun: {{cmd: {{if: {{cond: '{{{{ fast }}}}', do: a, else_do: b}}}}}}\n"
    assert load_texts(base).command == "b"
    assert load_texts(base, "run: {cmd: {if: {else_do: c}}}\n").command == "c"
    assert load_texts(base, "run: {cmd: d}\n").command == "d"
