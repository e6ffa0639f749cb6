"""Older ways to write a file: each is noted, and each comes to the spec that the modern form gives."""

from __future__ import annotations

import pytest

from phalanx.spec import Amount, Kind, Resources
from phalanx.spec.model import Environment, ReplicaSettings
from tests.spec.helpers import EXPERIMENT, GROUP, assert_converts, assert_same, error_of, load_text, notes_of, where

# the header --------------------------------------------------------------------------------------------------


def test_a_file_without_a_kind_is_an_experiment() -> None:
    assert_same("version: 1\nrun: {cmd: x}\n", EXPERIMENT + "run: {cmd: x}\n", "no `kind`: read as `kind: experiment`")


def test_a_file_with_a_matrix_and_no_kind_is_a_group() -> None:
    body = "hptuning: {matrix: {a: {values: [1]}}}\n"
    assert_same(f"version: 1\n{body}", GROUP + body, "no `kind`: read as `kind: group`")


def test_a_file_with_ops_and_no_kind_is_a_pipeline() -> None:
    body = "ops: [{name: a, template: {name: t}}]\ntemplates: [{kind: job, name: t, run: {cmd: x}}]\n"
    assert_same(f"version: 1\n{body}", f"version: 1\nkind: pipeline\n{body}", "no `kind`: read as `kind: pipeline`")


def test_a_kind_in_another_case_is_read() -> None:
    spec = assert_same("version: 1\nkind: Experiment\n", EXPERIMENT, "`Experiment` read as `experiment`")
    assert spec.kind is Kind.EXPERIMENT


def test_a_file_without_a_version_is_of_version_1() -> None:
    assert_same("kind: experiment\n", EXPERIMENT, "no `version`: read as `version: 1`")


@pytest.mark.parametrize("version", ["1", "1.0"])
def test_a_version_that_is_text_is_read(version: str) -> None:
    assert_same(f'version: "{version}"\nkind: experiment\n', EXPERIMENT, f'`"{version}"` read as 1')


def test_a_version_of_1_point_0_is_1() -> None:
    assert_same("version: 1.0\nkind: experiment\n", EXPERIMENT)


def test_tags_in_one_text_are_a_list() -> None:
    spec = assert_same(EXPERIMENT + "tags: a, b ,c\n", EXPERIMENT + "tags: [a, b, c]\n", "`a, b ,c` read as a list")
    assert spec.tags == ("a", "b", "c")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("pytroch", "pytorch"),
        ("tf", "tensorflow"),
        ("torch", "pytorch"),
        ("TensorFlow", "tensorflow"),
        ("MXNet", "mxnet"),
    ],
)
def test_a_framework_by_another_spelling_is_read(written: str, read: str) -> None:
    assert_same(
        f"{EXPERIMENT}framework: {written}\n", f"{EXPERIMENT}framework: {read}\n", f"`{written}` read as `{read}`"
    )


def test_a_framework_that_is_only_a_label_stays_as_it_is() -> None:
    spec = load_text(EXPERIMENT + "framework: scikit-learn\n")
    assert (spec.framework, spec.notes) == ("scikit-learn", ())


@pytest.mark.parametrize(("written", "read"), [("WARNING", "WARN"), ("critical", "FATAL")])
def test_a_log_level_by_pythons_name_is_read(written: str, read: str) -> None:
    spec = assert_same(
        f"{EXPERIMENT}logging: {{level: {written}}}\n",
        f"{EXPERIMENT}logging: {{level: {read}}}\n",
        f"`{written}` read as `{read}`",
    )
    assert spec.logging.level == read


def test_a_log_level_in_lower_case_needs_no_note() -> None:
    assert_same(EXPERIMENT + "logging: {level: debug}\n", EXPERIMENT + "logging: {level: DEBUG}\n")


# sections ----------------------------------------------------------------------------------------------------


def test_declarations_are_params() -> None:
    old, new = EXPERIMENT + "declarations: {lr: 0.1}\n", EXPERIMENT + "params: {lr: 0.1}\n"
    assert assert_same(old, new, "`declarations` read as `params`").params == {"lr": 0.1}


def test_exec_is_run() -> None:
    assert_same(EXPERIMENT + "exec: {cmd: x}\n", EXPERIMENT + "run: {cmd: x}\n", "`exec` read as `run`")


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ("declarations", "params", ("{a: 1}", "{a: 2}")),
        ("exec", "run", ("{cmd: x}", "{cmd: x}")),
    ],
)
def test_an_old_and_a_new_name_at_once_are_a_fault(old: str, new: str, values: tuple[str, str]) -> None:
    error = error_of(f"{EXPERIMENT}{old}: {values[0]}\n{new}: {values[1]}\n")
    assert error.message == f"`{old}` is the old name of `{new}`, which is also set"
    assert error.suggestion == f"keep only `{new}`"
    assert where(error) == (3, 1)
    assert error.path == old


@pytest.mark.parametrize(
    ("section", "note"),
    [
        ("project: {name: x}\n", "`project` is not used: it is chosen with `--project NAME`"),
        ("logging: {path: logs/x}\n", "`path` is not used: it is set by the run's folder"),
        ("logging: {run_config: {}}\n", "`run_config` is not used: it has no effect inside `logging`"),
        (
            "logging: {delay_workers_by_global_step: true}\n",
            "`delay_workers_by_global_step` is not used: it has no effect inside `logging`",
        ),
        ("environment: {cluster_uuid: abc}\n", "`cluster_uuid` is not used: it is set by the run"),
        ("environment: {outputs: {foo: 1}}\n", "`foo` is not used: it names neither `jobs` nor `experiments`"),
        (
            "environment: {run_config: {a: 1}}\n",
            "`run_config` is not used: it held TensorFlow settings, which the training code now sets itself",
        ),
        (
            "environment: {config: {a: 1}}\n",
            "`config` is not used: it held TensorFlow settings, which the training code now sets itself",
        ),
    ],
)
def test_what_has_no_use_any_more_is_noted_and_left_out(section: str, note: str) -> None:
    spec = load_text(EXPERIMENT + section)
    assert [found.message for found in spec.notes] == [note]
    assert spec.environment.settings == ReplicaSettings()
    assert spec.logging.level == "INFO"


@pytest.mark.parametrize("section", ["model", "train", "eval"])
def test_a_section_of_polyaxons_tensorflow_library_is_noted_and_left_out(section: str) -> None:
    spec = load_text(f"{EXPERIMENT}{section}: {{anything: {{at: [all]}}}}\nrun: {{cmd: x}}\n")
    assert spec == load_text(EXPERIMENT + "run: {cmd: x}\n")
    (note,) = spec.notes
    assert note.message.startswith(f"`{section}` is not used: Polyaxon's TensorFlow library ended with release 0.4")
    assert where(note) == (3, 1)


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("image", "image", "x"),
        ("dockerfile", "dockerfile", "x"),
        ("build_steps", "build_steps", "[a]"),
        ("steps", "build_steps", "[a]"),
        ("install", "build_steps", "[a]"),
        ("env_vars", "env_vars", "[[A, b]]"),
        ("envs", "env_vars", "[[A, b]]"),
    ],
)
def test_a_field_of_the_build_inside_run_is_read(old: str, new: str, value: str) -> None:
    assert_same(
        f"{EXPERIMENT}run: {{{old}: {value}, cmd: c}}\n",
        f"{EXPERIMENT}build: {{{new}: {value}}}\nrun: {{cmd: c}}\n",
        f"`run.{old}` read as `build.{new}`",
    )


@pytest.mark.parametrize(
    ("old", "modern", "note"),
    [
        (
            "run: {git: url, cmd: c}",
            "run: {cmd: c}",
            "`git` is not used: it was replaced by `build.commit` and `build.branch`",
        ),
        ("run: {image: x}", "build: {image: x}", "`run.image` read as `build.image`"),
        ("build: {install: [a]}", "build: {build_steps: [a]}", "`install` read as `build_steps`"),
        ("build: {steps: [a]}", "build: {build_steps: [a]}", "`steps` read as `build_steps`"),
        ("build: {image: x, ref: abc}", "build: {image: x, commit: abc}", "`ref` read as `commit`"),
        (
            "build: {git: url, image: x}",
            "build: {image: x}",
            "`git` is not used: it was replaced by `commit` and `branch`",
        ),
        ("backend: external", "backend: other", "`external` read as `other`"),
        ("build: {image: x, name: y}", "build: {image: x}", "`name` is not used: it has no effect inside `build`"),
        ("build: {image: x, kind: build}", "build: {image: x}", "`kind` is not used: it has no effect inside `build`"),
    ],
)
def test_what_has_another_name_or_no_meaning_any_more_is_noted(old: str, modern: str, note: str) -> None:
    assert_same(f"{EXPERIMENT}{old}\n", f"{EXPERIMENT}{modern}\n", note)


def test_a_field_of_a_build_in_two_homes_is_a_fault() -> None:
    error = error_of(EXPERIMENT + "build: {image: a}\nrun: {image: b, cmd: c}\n")
    assert error.message == "`image` means `build.image`, which is also set"
    assert error.suggestion == "keep only `build.image`"
    assert where(error) == (4, 7)


@pytest.mark.parametrize("kind", ["build", "Build"])
def test_the_fields_of_a_build_file_may_stand_in_a_section(kind: str) -> None:
    spec = load_text(f"version: 1\nkind: {kind}\nbuild: {{image: x, build_steps: [a]}}\n")
    assert spec == load_text("version: 1\nkind: build\nimage: x\nbuild_steps: [a]\n")
    assert "`build` read as the top of the file" in [note.message for note in spec.notes]


def test_the_if_operator_of_a_command_is_a_template() -> None:
    text = "params: {model: MODEL}\nrun:\n  cmd:\n    if:\n      cond: \"'DNA' == '{{ model }}'\"\n"
    text += "      do: python a\n      else_do: python b\n"
    assert load_text(EXPERIMENT + text.replace("MODEL", "DNA")).command == "python a"
    assert load_text(EXPERIMENT + text.replace("MODEL", "RNA")).command == "python b"
    assert notes_of(EXPERIMENT + text) == ["the `if` operator read as a template"]


def test_the_if_operator_may_compare_numbers_and_have_no_other_branch() -> None:
    text = "params: {gpus: %d}\nrun: {cmd: {if: {cond: '{{ gpus }} > 1', do: 'many {{ gpus }}'}}}\n"
    assert load_text(EXPERIMENT + text % 4).command == "many 4"
    assert load_text(EXPERIMENT + text % 1).command is None


@pytest.mark.parametrize("operator", ["{do: x}", "{cond: 'true'}", "{cond: 1, do: x}", "5", "{}"])
def test_an_if_operator_without_its_parts_is_one_fault(operator: str) -> None:
    error = error_of(f"{EXPERIMENT}run: {{cmd: {{if: {operator}}}}}\n")
    assert error.message == "the `if` operator needs `cond` and `do`, both text"
    assert error.path == "run.cmd"


# settings and matrix -----------------------------------------------------------------------------------------


def test_settings_are_spread_over_their_sections() -> None:
    old = GROUP + (
        "settings:\n  logging: {level: DEBUG}\n  environment: {max_restarts: 2}\n  concurrency: 3\n  seed: 7\n"
        "  matrix: {lr: {values: [1, 2]}}\n  random_search: {n_experiments: 2}\n"
    )
    new = GROUP + (
        "logging: {level: DEBUG}\nenvironment: {max_restarts: 2}\n"
        "hptuning: {concurrency: 3, seed: 7, matrix: {lr: {values: [1, 2]}}, random_search: {n_experiments: 2}}\n"
    )
    assert_same(
        old, new,
        "`settings.logging` read as `logging`", "`settings.environment` read as `environment`",
        "`settings.concurrency` read as `hptuning.concurrency`", "`settings.seed` read as `hptuning.seed`",
        "`settings.matrix` read as `hptuning.matrix`", "`settings.random_search` read as `hptuning.random_search`",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "search"), [("random", "random_search"), ("grid", "grid_search"), ("RANDOM", "random_search")]
)
def test_a_search_method_with_a_number_of_experiments_is_a_search(method: str, search: str) -> None:
    spec = load_text(
        f"{GROUP}settings: {{search_method: {method}, n_experiments: 5, concurrent_experiments: 2, run_type: local}}\n"
        "matrix: {lr: {values: [1, 2, 3]}}\n"
    )
    assert spec.search is not None
    assert (spec.search.algorithm, spec.search.n_experiments, spec.search.concurrency) == (search, 5, 2)
    assert {note.message for note in spec.notes} == {
        "`matrix` read as `hptuning.matrix`",
        "`run_type` is not used: it is set by `backend`",
        f"`settings.n_experiments` read as `hptuning.{search}.n_experiments`",
        "`settings.concurrent_experiments` read as `hptuning.concurrency`",
    }


def test_what_is_left_of_settings_is_an_unknown_key() -> None:
    error = error_of(EXPERIMENT + "settings: {logging: {level: INFO}, enviroment: {}}\n")
    assert error.message == "unknown key `enviroment` in settings"
    assert error.suggestion == "did you mean `environment`?"
    assert (error.path, where(error)) == ("settings.enviroment", (3, 36))


def test_a_random_search_method_without_a_number_of_experiments_is_a_random_search() -> None:
    text = GROUP + "settings: {search_method: random, matrix: {a: {values: [1, 2]}}}\n"
    spec = load_text(text)
    assert spec.search is not None
    assert spec.search.algorithm == "random_search"
    assert "`search_method: random` read as `hptuning.random_search`" in notes_of(text)


def test_the_settings_of_a_search_without_a_matrix_are_left_out() -> None:
    text = EXPERIMENT + "settings: {concurrent_experiments: 2, search_method: grid, export_strategies: x}\n"
    assert load_text(text) == load_text(EXPERIMENT)
    assert sorted(notes_of(text)) == [
        "`concurrent_experiments` is not used: it has no effect without a matrix",
        "`export_strategies` is not used: it belonged to Polyaxon's TensorFlow library",
        "`search_method` is not used: it has no effect without a matrix",
    ]


def test_settings_that_are_no_map_are_an_unknown_key() -> None:
    assert error_of(EXPERIMENT + "settings: [1]\n").message.startswith("unknown key `settings`")


def test_a_matrix_at_the_top_belongs_to_hptuning() -> None:
    old, new = GROUP + "matrix: {a: {values: [1]}}\n", GROUP + "hptuning: {matrix: {a: {values: [1]}}}\n"
    assert_same(old, new, "`matrix` read as `hptuning.matrix`")


def test_a_matrix_in_two_homes_is_a_fault() -> None:
    error = error_of(GROUP + "hptuning: {matrix: {a: {values: [1]}}}\nmatrix: {a: {values: [2]}}\n")
    assert error.message == "`matrix` means `hptuning.matrix`, which is also set"
    assert where(error) == (4, 1)


@pytest.mark.parametrize(("higher", "optimization"), [("true", "maximize"), ("false", "minimize")])
def test_early_stopping_by_higher_is_an_optimization(higher: str, optimization: str) -> None:
    text = GROUP + "hptuning: {matrix: {a: {values: [1]}}, early_stopping: [{metric: loss, value: 1, %s}]}\n"
    spec = assert_same(
        text % f"higher: {higher}", text % f"optimization: {optimization}", f"`higher: {higher}` read as `optimization`"
    )
    assert spec.search is not None
    assert spec.search.early_stopping[0]["optimization"] == optimization


def test_logging_inside_hptuning_is_left_out() -> None:
    text = GROUP + "hptuning: {matrix: {a: {values: [1]}}%s}\n"
    assert_same(
        text % ", logging: {level: DEBUG}", text % "", "`logging` is not used: it has no effect inside `hptuning`"
    )


# all of them -----------------------------------------------------------------------------------------------


def test_a_note_names_the_place_and_path_that_the_user_wrote() -> None:
    text = (
        "environment:\n  tensorflow:\n    n_workers: 1\n    default_worker_resources:\n      gpu:\n        request: 1\n"
    )
    note = next(note for note in load_text(EXPERIMENT + text).notes if "gpu.request" in note.message)
    assert note.path == "environment.tensorflow.default_worker_resources.gpu.request"
    assert where(note) == (8, 9)
    assert note.place.excerpt == "        request: 1"


def test_notes_come_in_the_order_of_their_places() -> None:
    text = "kind: experiment\ndeclarations: {a: 1}\nenvironment: {node_selectors: {a: b}}\nexec: {cmd: x}\n"
    lines = [note.place.line for note in load_text(text).notes]
    assert lines == sorted(lines) == [1, 2, 3, 4]


def test_every_dialect_of_the_same_run_gives_the_same_spec() -> None:
    oldest = (
        "    n_workers: 2\n    n_ps: 1\n    default_worker_resources: {cpu: {requests: 1}}\n"
        "    worker_resources: [{index: 1, gpu: {requests: 1}}]\n"
        "    ps_resources: [{index: 0, memory: {requests: 64}}]\n"
    )
    newer = (
        "    n_workers: 2\n    n_ps: 1\n    default_worker: {resources: {cpu: {requests: 1}}}\n"
        "    worker: [{index: 1, resources: {gpu: {requests: 1}}}]\n"
        "    ps: [{index: 0, resources: {memory: {requests: 64}}}]\n"
    )
    first, *others = [
        load_text(EXPERIMENT + text)
        for text in (
            "environment:\n" + oldest,
            "environment:\n  tensorflow:\n" + oldest,
            "environment:\n  tensorflow:\n" + newer,
            "environment:\n  framework: tensorflow\n  distribution:\n" + newer,
            "framework: tensorflow\nenvironment:\n  replicas:\n" + newer,
        )
    ]
    assert first.environment.replicas is not None
    assert first.environment.replicas.worker[1] == ReplicaSettings(resources=Resources(gpu=Amount(1.0)))
    assert all(other == first for other in others)


def test_the_environment_of_a_build_is_its_own() -> None:
    spec = load_text(
        f"{EXPERIMENT}build: {{image: x, environment: {{resources: {{cpu: 2}}, node_selectors: {{a: b}}}}}}\n"
    )
    assert spec.build is not None
    assert spec.build.environment is not None
    settings = spec.build.environment.settings
    assert settings.resources is not None
    assert settings.resources.cpu == Amount(2.0, 2.0)
    assert settings.node_selector == {"a": "b"}
    assert spec.environment == Environment()
    assert "node_selector:" in assert_converts(spec, has_notes=False)


def test_the_environment_of_a_build_is_checked() -> None:
    error = error_of(f"{EXPERIMENT}build: {{image: x, environment: {{resorces: {{}}}}}}\n")
    assert error.path == "build.environment.resorces"
    assert error.suggestion == "did you mean `resources`?"


def test_the_environment_in_the_section_of_a_build_file_is_that_of_the_build() -> None:
    spec = load_text("version: 1\nkind: build\nbuild: {image: x, environment: {max_restarts: 2}}\n")
    assert spec.environment.settings.max_restarts == 2


@pytest.mark.parametrize(
    ("share", "number"), [("0.3", 3), ("0.29", 2), ("0.01", 1), ("0.999", 9), ("0.5", 5), ("1", 1), ("4", 4)]
)
@pytest.mark.parametrize("method", ["random", "grid"])
def test_a_fraction_as_the_number_of_experiments_is_a_share_of_the_matrix(share: str, number: int, method: str) -> None:
    settings = f"settings: {{search_method: {method}, n_experiments: {share}}}\n"
    spec = load_text(f"{GROUP}{settings}matrix: {{a: {{values: [1, 2]}}, b: {{range: '0:5:1'}}}}\n")
    assert spec.search is not None
    assert (spec.search.algorithm, spec.search.n_experiments) == (f"{method}_search", number)
    assert_converts(spec)


def test_a_share_is_noted_with_its_number() -> None:
    notes = notes_of(f"{GROUP}settings: {{n_experiments: 0.3, matrix: {{a: {{range: '0:10:1'}}}}}}\n")
    assert "`settings.n_experiments: 0.3` read as `hptuning.grid_search.n_experiments: 3`, a share of 10" in notes


def test_a_share_of_a_matrix_without_an_end_is_an_error() -> None:
    error = error_of(f"{GROUP}settings: {{n_experiments: 0.3, matrix: {{a: {{uniform: '0:1'}}}}}}\n")
    assert error.message == "a share of the experiments requires a matrix of listed values"
    assert error.suggestion == "write the number of experiments, such as `n_experiments: 10`"


def test_a_share_of_a_wrong_matrix_adds_no_error() -> None:
    error = error_of(f"{GROUP}settings: {{n_experiments: 0.3, matrix: {{a: {{values: []}}}}}}\n")
    assert error.message == "expected a list of values, found an empty list"
