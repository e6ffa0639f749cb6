"""Every section and field, what is said when one is wrong, and the schema that editors read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from phalanx.errors import Location, SpecErrors
from phalanx.spec import Amount, Kind, Resources, load
from phalanx.spec.cluster_fields import KUBERNETES, PYTHON, SLURM
from phalanx.spec.model import Environment, OutputsRefs, ReplicaSettings
from phalanx.spec.pipelines.fields import OP
from phalanx.spec.schema import BUILD_FIELDS, REPLICA_FIELDS, REPLICAS, json_schema, sections
from phalanx.spec.section_fields import HPTUNING
from phalanx.spec.yaml_writer import modern_document
from tests.spec.helpers import EXPERIMENT, FILE, GROUP, error_of, errors_of, load_text, messages_of, where

TENSORFLOW = EXPERIMENT + "framework: tensorflow\n"


# invalid values in places that others depend on ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "environment",
    [
        "{replicas: {n_workers: 2, worker: [{index: '{{ i }}'}]}}",
        "{replicas: {n_workers: '{{ i }}', worker: [{index: 0}]}}",
        "{tensorflow: {n_workers: 2, worker_resources: [{index: '{{ i }}', cpu: 1}]}}",
        "{resources: {cpu: {requests: '{{ i }}', limits: 1}}}",
    ],
)
def test_a_template_that_fails_is_reported_once_also_where_others_depend_on_it(environment: str) -> None:
    assert error_of(TENSORFLOW + f"environment: {environment}\n").message == "unknown param `i`"


@pytest.mark.parametrize("name", ["[loss]", "{a: 1}", "5", "true", "[[1]]"])
@pytest.mark.parametrize("key", ["inputs", "outputs"])
def test_a_name_that_is_no_text_is_an_error(key: str, name: str) -> None:
    fault = error_of(EXPERIMENT + f"{key}: [{{name: {name}, type: str}}]\n")
    assert fault.path == f"{key}[0].name"
    assert fault.message.startswith("expected text, found ")


# every field -------------------------------------------------------------------------------------------------


def test_every_field_of_the_environment_comes_through() -> None:
    spec = load_text(
        EXPERIMENT
        + """
environment:
  resources: {cpu: {requests: 1, limits: 2}, memory: {requests: 256}, gpu: {limits: 1}, tpu: {requests: 8, limits: 8}}
  env_vars: [[A, 1], [B, true], [C, null], [D, "text"]]
  node_selector: {disk: ssd, zone: 1}
  affinity: {nodeAffinity: {weights: [1, 2]}}
  tolerations: [{key: a, operator: Exists}]
  labels: {team: vision, size: 2, on: true}
  annotations: {note: x}
  service_account: robot
  image_pull_secrets: [s1]
  secret_refs: [s2, s3]
  config_map_refs: [c1]
  data_refs: [d1]
  artifact_refs: [a1]
  max_restarts: 3
  timeout: 1h30m
  stall_timeout: 10m
  outputs: {jobs: [1, two], experiments: [3]}
"""
    )
    assert spec.environment == Environment(
        settings=ReplicaSettings(
            resources=Resources(Amount(1.0, 2.0), Amount(256.0, None), Amount(None, 1.0), Amount(8.0, 8.0)),
            env_vars=(("A", "1"), ("B", "true"), ("C", ""), ("D", "text")),
            node_selector={"disk": "ssd", "zone": "1"},
            affinity={"nodeAffinity": {"weights": (1, 2)}},
            tolerations=({"key": "a", "operator": "Exists"},),
            labels={"team": "vision", "size": "2", "on": "true"},
            annotations={"note": "x"},
            service_account="robot",
            image_pull_secrets=("s1",),
            secret_refs=("s2", "s3"),
            config_map_refs=("c1",),
            data_refs=("d1",),
            artifact_refs=("a1",),
            max_restarts=3,
        ),
        timeout_s=5400.0,
        stall_timeout_s=600.0,
        outputs=OutputsRefs(("1", "two"), ("3",)),
    )


def test_every_field_of_the_replicas_comes_through() -> None:
    replicas = load_text(
        EXPERIMENT
        + """
framework: tensorflow
environment:
  replicas:
    n_workers: 2
    n_ps: "1"
    default_worker: {resources: {cpu: {requests: 1}}}
    default_ps: {node_selector: {a: b}}
    worker: [{index: 1, resources: {gpu: {limits: 1}}}]
    ps: [{index: "0", max_restarts: 1}]
    master_task: chief
    launcher: MPIRUN
    processes: 1
    delay_workers_by_global_step: "true"
"""
    ).environment.replicas
    assert replicas is not None
    assert (replicas.n_workers, replicas.n_ps) == (2, 1)
    assert replicas.default_worker == ReplicaSettings(resources=Resources(cpu=Amount(1.0)))
    assert replicas.default_ps == ReplicaSettings(node_selector={"a": "b"})
    assert dict(replicas.worker) == {1: ReplicaSettings(resources=Resources(gpu=Amount(None, 1.0)))}
    assert dict(replicas.ps) == {0: ReplicaSettings(max_restarts=1)}
    assert (replicas.master_task, replicas.launcher, replicas.processes) == ("chief", "mpirun", 1)
    assert replicas.delay_workers_by_global_step is True


def test_every_field_of_the_build_comes_through() -> None:
    text = """
image: python:3.11
context: .
build_steps: [pip install x]
env_vars: {A: 1}
lang_env: C.UTF-8
commit: 1234567
branch: main
nocache: true
backend: Kaniko
"""
    nested = load_text(EXPERIMENT + "build:" + text.replace("\n", "\n  ") + "\n").build
    own = load_text("version: 1\nkind: build" + text).build
    assert nested == own
    assert nested is not None
    assert nested.image == "python:3.11"
    assert nested.build_steps == ("pip install x",)
    assert nested.env_vars == (("A", "1"),)
    assert (nested.commit, nested.branch, nested.nocache, nested.backend) == ("1234567", "main", True, "kaniko")


def test_the_header_comes_through() -> None:
    spec = load_text(
        EXPERIMENT + "name: a-b_C1\ndescription: words\ntags: [a, b, a, 3]\nlogging: {level: error, formatter: f}\n"
    )
    assert (spec.name, spec.description, spec.tags) == ("a-b_C1", "words", ("a", "b", "3"))
    assert (spec.logging.level, spec.logging.formatter) == ("ERROR", "f")


def test_one_tag_may_stand_without_a_list() -> None:
    assert load_text(EXPERIMENT + "tags: alone\n").tags == ("alone",)


def test_an_experiment_needs_nothing_but_its_kind() -> None:
    spec = load_text(EXPERIMENT)
    assert (spec.kind, spec.command, spec.build, spec.environment) == (Kind.EXPERIMENT, None, None, Environment())
    assert spec.logging.level == "INFO"


def test_a_null_is_as_good_as_absent() -> None:
    text = "name: null\ntags: ~\nparams:\nbuild:\nrun: {cmd: null}\n"
    spec = load_text(EXPERIMENT + text + "environment: {resources: {cpu: null}, replicas: null}\n")
    assert spec.environment.settings.resources == Resources()
    assert (spec.name, spec.tags, spec.build, spec.command) == (None, (), None, None)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("experiment", "run: {cmd: x}"),
        ("group", "hptuning: {matrix: {a: {values: [1]}}}\nrun: {cmd: x}"),
        ("job", "build: {image: x}\nrun: {cmd: x}"),
        ("build", "image: x"),
        ("notebook", "build: {image: x}\nbackend: lab"),
        ("tensorboard", "build: {image: x}"),
        ("pipeline", "ops: [{name: a, template: {path: x.yml}}]"),
    ],
)
def test_every_kind_is_read(kind: str, body: str) -> None:
    assert load_text(f"version: 1\nkind: {kind}\n{body}\n").kind == kind


@pytest.mark.parametrize("backend", ["native", "local", "slurm", "kubernetes", "kubeflow", "mpi", "other"])
def test_every_backend_of_an_experiment_is_known(backend: str) -> None:
    assert load_text(f"{EXPERIMENT}backend: {backend}\n").backend == backend


def test_a_spec_cannot_be_changed() -> None:
    spec = load_text(EXPERIMENT + "params: {a: {b: [1]}}\n")
    for change in (
        lambda: setattr(spec, "name", "other"),
        lambda: spec.params.update(a=1),  # type: ignore[attr-defined]
        lambda: spec.document["params"].update(a=1),
    ):
        with pytest.raises((AttributeError, TypeError)):
            change()
    assert spec.params["a"]["b"] == (1,)


# unknown keys and wrong values -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "path", "message", "suggestion"),
    [
        ("framwork: pytorch\n", (3, 1), "framwork", "unknown key `framwork` in a file of kind experiment",
         "did you mean `framework`?"),
        ("environment:\n  resorces: {}\n", (4, 3), "environment.resorces", "unknown key `resorces` in environment",
         "did you mean `resources`?"),
        ("environment: {resources: {gpus: {limits: 1}}}\n", (3, 27), "environment.resources.gpus",
         "unknown key `gpus` in resources", "write `gpu: ...`"),
        ("environment: {resources: {cpu: {requsts: 1}}}\n", (3, 33), "environment.resources.cpu.requsts",
         "unknown key `requsts` in resources.cpu", "did you mean `requests`?"),
        ("run:\n  command: x\n", (4, 3), "run.command", "unknown key `command` in run", "write `cmd: ...`"),
        ("build: {imge: x}\n", (3, 9), "build.imge", "unknown key `imge` in build", "did you mean `image`?"),
        ("logging: {lvel: INFO}\n", (3, 11), "logging.lvel", "unknown key `lvel` in logging", "did you mean `level`?"),
        ("xyzzy: 1\n", (3, 1), "xyzzy", "unknown key `xyzzy` in a file of kind experiment", None),
        ("hptuning: {}\n", (3, 1), "hptuning", "unknown key `hptuning` in a file of kind experiment",
         "`hptuning` belongs to `kind: group`"),
        ("ops: []\n", (3, 1), "ops", "unknown key `ops` in a file of kind experiment",
         "`ops` belongs to `kind: pipeline`"),
        ("image: x\n", (3, 1), "image", "unknown key `image` in a file of kind experiment",
         "write `build: {image: ...}`"),
    ],
)  # fmt: skip
def test_an_unknown_key_is_reported_with_its_place_and_what_was_meant(
    text: str, place: tuple[int, int], path: str, message: str, suggestion: str | None
) -> None:
    error = error_of(EXPERIMENT + text)
    assert where(error) == place
    assert error.path == path
    assert error.message == message
    assert error.suggestion == suggestion
    assert error.place.width == len(path.rsplit(".", maxsplit=1)[-1])


@pytest.mark.parametrize(
    ("text", "place", "path", "message"),
    [
        ("run: python train.py\n", (3, 6), "run", "expected a map, found the text `python train.py`"),
        ("run: {cmd: {a: 1}}\n", (3, 12), "run.cmd", "expected a list (of a command), found a map"),
        ("run: {cmd: [a, 5]}\n", (3, 16), "run.cmd[1]", "expected a command, found the number 5"),
        ("environment: []\n", (3, 14), "environment", "expected a map, found an empty list"),
        ("params: [1]\n", (3, 9), "params", "expected a map, found a list"),
        ("name: a b\n", (3, 7), "name", "expected a name of letters, digits, `-` and `_`, found the text `a b`"),
        ("tags: {a: 1}\n", (3, 7), "tags", "expected a list (of text), found a map"),
        ("description: true\n", (3, 14), "description", "expected text, found `true`"),
        ("logging: {level: loud}\n", (3, 18), "logging.level",
         "expected one of DEBUG, INFO, WARN, ERROR, FATAL, found the text `loud`"),
        ("environment: {max_restarts: -1}\n", (3, 29), "environment.max_restarts",
         "expected a whole number of at least 0, found the number -1"),
        ("environment: {max_restarts: 1.5}\n", (3, 29), "environment.max_restarts",
         "expected a whole number of at least 0, found the number 1.5"),
        ("environment: {secret_refs: s}\n", (3, 28), "environment.secret_refs",
         "expected a list (of a name of letters, digits, `-`, `_` and `.`), found the text `s`"),
        ("environment: {labels: {a: [1]}}\n", (3, 27), "environment.labels.a", "expected text, found a list"),
        ("environment: {env_vars: [[A]]}\n", (3, 26), "environment.env_vars[0]", "expected a pair, found a list"),
        ("environment: {env_vars: 5}\n", (3, 25), "environment.env_vars",
         "expected a list of `[NAME, value]` pairs, or a map, found the number 5"),
        ("environment: {env_vars: [[A B, 1]]}\n", (3, 27), "environment.env_vars[0][0]",
         "`A B` is not a valid environment variable name"),
        ("environment: {env_vars: {A: {b: 1}}}\n", (3, 29), "environment.env_vars.A",
         "expected text or a number, found a map"),
        ("environment: {timeout: soon}\n", (3, 24), "environment.timeout",
         'expected a time (seconds, or "90m", "1d12h"), found the text `soon`'),
        ("environment: {resources: {cpu: {requests: many}}}\n", (3, 43), "environment.resources.cpu.requests",
         'expected a number of CPUs (2, 0.5, "500m"), found the text `many`'),
        ("environment: {resources: {cpu: {requests: true}}}\n", (3, 43), "environment.resources.cpu.requests",
         'expected a number of CPUs (2, 0.5, "500m"), found `true`'),
        ("environment: {resources: {cpu: [1]}}\n", (3, 32), "environment.resources.cpu",
         "expected a map, found a list"),
        ("build: {nocache: maybe}\n", (3, 18), "build.nocache", "expected true or false, found the text `maybe`"),
        ("build: {image: a b}\n", (3, 16), "build.image",
         "`a b` is not an image name: it is empty or contains white space"),
        ("build: {image: 'a:b:c'}\n", (3, 16), "build.image", "`a:b:c` is not an image name"),
        ("build: {image: x, dockerfile: y}\n", (3, 19), "build.dockerfile",
         "`image` and `dockerfile` exclude each other"),
        ("backend: nowhere\n", (3, 10), "backend", "unknown backend `nowhere`"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_reported_with_its_place(text: str, place: tuple[int, int], path: str, message: str) -> None:
    error = error_of(EXPERIMENT + text)
    assert error.message == message
    assert error.path == path
    assert where(error) == place


@pytest.mark.parametrize(
    "image", ["a", "a:b", "registry:5000/a", "registry:5000/a:b", "a/b/c:d", "a@sha256:12", "reg:1/a@sha256:1"]
)
def test_the_name_of_an_image_may_have_a_registry_a_tag_or_a_digest(image: str) -> None:
    build = load_text(f"{EXPERIMENT}build: {{image: '{image}'}}\n").build
    assert build is not None
    assert build.image == image


@pytest.mark.parametrize(
    ("kind", "suggestion"),
    [
        ("experment", "did you mean `experiment`?"),
        ("plugin", "Polyaxon 0.1.1 split it: write `kind: notebook` or `kind: tensorboard`"),
        ("xyzzy", None),
    ],
)
def test_an_unknown_kind_is_reported_with_what_was_meant(kind: str, suggestion: str | None) -> None:
    error = error_of(f"version: 1\nkind: {kind}\n")
    assert error.message == f"expected one of {', '.join(Kind)}, found the text `{kind}`"
    assert error.suggestion == suggestion
    assert where(error) == (2, 7)


@pytest.mark.parametrize("version", ["2", "1.2", "0.9", "true", "[1]", "{a: 1}", "one", ".nan", "'2'"])
def test_another_version_is_a_fault(version: str) -> None:
    error = error_of(f"version: {version}\nkind: experiment\n")
    assert error.message.startswith("expected version 1, found")
    assert error.suggestion == "write `version: 1`"
    assert where(error) == (1, 10)


def test_a_number_in_place_of_text_says_how_to_write_it() -> None:
    error = error_of(EXPERIMENT + "description: 5\n")
    assert (error.message, error.suggestion) == ("expected text, found the number 5", 'write "5"')


def test_a_job_has_no_replicas_and_says_who_has() -> None:
    error = error_of("version: 1\nkind: job\nenvironment: {replicas: {n_workers: 1}}\n")
    assert error.message == "unknown key `replicas` in environment"
    assert error.suggestion == "`replicas` is only allowed in `kind: experiment` and `kind: group`"


def test_the_error_of_a_group_without_its_matrix_says_where_it_belongs() -> None:
    assert error_of(GROUP).path == "hptuning"
    error = error_of(GROUP + "hptuning: {concurrency: 2}\n")
    assert error.path == "hptuning.matrix"
    assert error.message == "hptuning needs `matrix`: the parameters to try"
    assert where(error) == (3, 1)


# replicas and resources --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bound", [".nan", ".inf", "-.inf", "-1", "'-500m'", "1e400", "nan", "'1e400'", "9" * 400, "0x" + "f" * 400]
)
@pytest.mark.parametrize("name", ["cpu", "memory", "gpu", "tpu"])
def test_an_amount_that_is_no_amount_is_a_fault(name: str, bound: str) -> None:
    error = error_of(f"{EXPERIMENT}environment: {{resources: {{{name}: {{requests: {bound}}}}}}}\n")
    assert error.path == f"environment.resources.{name}.requests"
    assert error.message.startswith("expected ")
    assert len(error.message) < 200


@pytest.mark.parametrize(
    "count", ["-1", "1.5", "two", ".nan", ".inf", "true", "[1]", "'1e400'", "1e400", "9" * 400, "'-2'"]
)
@pytest.mark.parametrize("key", ["n_workers", "n_ps"])
def test_a_count_that_is_no_count_is_a_fault(key: str, count: str) -> None:
    error = error_of(f"{TENSORFLOW}environment: {{replicas: {{{key}: {count}}}}}\n")
    assert error.path == f"environment.replicas.{key}"
    assert error.message.startswith("expected a whole number")
    assert len(error.message) < 200


@pytest.mark.parametrize("count", ["1e300", "10000000000", "1" + "0" * 30])
def test_more_replicas_than_any_cluster_has_are_a_fault(count: str) -> None:
    error = error_of(f"{TENSORFLOW}environment: {{replicas: {{n_workers: {count}}}}}\n")
    assert error.path == "environment.replicas.n_workers"


@pytest.mark.parametrize("index", ["'1e400'", "1e400", ".nan", "9" * 400, "-1", "1.5", "one", "[0]", "true"])
def test_an_index_that_is_no_index_is_a_fault(index: str) -> None:
    errors = errors_of(f"{TENSORFLOW}environment: {{replicas: {{n_workers: 2, worker: [{{index: {index}}}]}}}}\n")
    assert errors
    assert all(error.path == "environment.replicas.worker[0].index" for error in errors)


def test_a_limit_below_its_request_is_reported_at_the_limit() -> None:
    error = error_of(EXPERIMENT + "environment:\n  resources:\n    memory:\n      requests: 2Gi\n      limits: 512Mi\n")
    assert error.message == "the limit (512) is below the request (2048)"
    assert error.path == "environment.resources.memory.limits"
    assert where(error) == (7, 15)
    assert error.place.width == len("512Mi")


def test_an_index_that_is_out_of_range_is_reported_with_the_range() -> None:
    text = "    n_workers: 2\n    worker:\n    - index: 2\n      resources: {}\n    ps: [{index: 0}]\n"
    errors = errors_of(TENSORFLOW + "environment:\n  replicas:\n" + text)
    assert [(where(error), error.path, error.message) for error in errors] == [
        (
            (8, 14),
            "environment.replicas.worker[0].index",
            "there is no worker 2: `n_workers: 2` gives workers 0 to 1",
        ),
        ((10, 18), "environment.replicas.ps[0].index", "there is no ps 0: `n_ps: 0` gives no ps at all"),
    ]


def test_an_index_that_is_listed_twice_is_reported_at_the_second() -> None:
    error = error_of(TENSORFLOW + "environment: {replicas: {n_workers: 2, worker: [{index: 1}, {index: 1}]}}\n")
    assert (where(error), error.message) == ((4, 69), "worker 1 is listed twice")


def test_an_entry_without_an_index_says_what_to_write() -> None:
    error = error_of(TENSORFLOW + "environment: {replicas: {n_workers: 2, worker: [{index: 0}, {resources: {}}]}}\n")
    assert error.path == "environment.replicas.worker[1].index"
    assert error.message == "this entry of `worker` has no `index`"
    assert error.suggestion == "write `index: 1`"


def test_a_wrong_count_does_not_blame_the_indices_too() -> None:
    error = error_of(TENSORFLOW + "environment: {replicas: {n_workers: many, worker: [{index: 5}]}}\n")
    assert error.path == "environment.replicas.n_workers"


# all faults at once ------------------------------------------------------------------------------------------


def test_all_faults_of_a_file_are_reported_at_once_in_the_order_of_their_places() -> None:
    errors = errors_of(
        """version: 3
kind: experiment
nme: x
tags: {a: 1}
params: {lr: "{{ missing }}"}
environment:
  resources: {cpu: {requests: 4, limits: 2}, gpu: {limit: -1}}
  replicas:
    n_workers: 1
    worker: [{index: 4}, {index: 0, foo: 1}]
build: {image: "a b"}
backend: kuberntes
run:
  cmd: "train {{ rate }}"
"""
    )
    assert [(error.path, where(error)) for error in errors] == [
        ("version", (1, 10)),
        ("nme", (3, 1)),
        ("tags", (4, 7)),
        ("params.lr", (5, 14)),
        ("environment.resources.cpu.limits", (7, 42)),
        ("environment.resources.gpu.limit", (7, 59)),
        ("environment.replicas.worker[0].index", (10, 22)),
        ("environment.replicas.worker[1].foo", (10, 37)),
        ("build.image", (11, 16)),
        ("backend", (12, 10)),
        ("run.cmd", (14, 8)),
    ]
    suggestions = {error.path: error.suggestion for error in errors}
    assert suggestions["nme"] == "did you mean `name`?"
    assert suggestions["backend"] == "did you mean `kubernetes`?"


def test_a_fault_of_an_unknown_key_does_not_hide_what_a_search_still_needs() -> None:
    errors = errors_of(
        GROUP
        + "foo: 1\nhptuning:\n  matrix: {a: {values: [1]}}\n  bo:\n    n_initial_trials: 1\n    n_iterations: 2\n"
        + "    metric: {name: loss}\n    utility_function: {acquisition_function: ucb}\n"
    )
    assert [error.path for error in errors] == ["foo", "hptuning.bo.utility_function.kappa"]


@pytest.mark.parametrize("value", ["many", "-1", "true"])
def test_a_bare_amount_that_is_wrong_is_reported_once(value: str) -> None:
    error = error_of(f"{EXPERIMENT}environment: {{resources: {{gpu: {value}}}}}\n")
    assert (error.path, where(error)) == ("environment.resources.gpu", (3, 32))


def test_no_fault_is_reported_twice() -> None:
    errors = errors_of(
        GROUP + "hptuning: {matrix: {a: {valus: [1]}}, concurrency: x}\ninputs: [{nme: a}]\nparams: {b: '{{ c }}'}\n"
    )
    assert len({(error.place, error.message) for error in errors}) == len(errors) == 5


# what an error is --------------------------------------------------------------------------------------------


def test_an_error_says_everything_in_one_line_and_as_json() -> None:
    error = error_of(EXPERIMENT + "framwork: pytorch\n")
    assert str(error) == (
        f"{FILE}:3:1: framwork: unknown key `framwork` in a file of kind experiment (did you mean `framework`?)"
    )
    assert error.as_json() == {
        "file": FILE,
        "line": 3,
        "column": 1,
        "path": "framwork",
        "message": "unknown key `framwork` in a file of kind experiment",
        "suggestion": "did you mean `framework`?",
    }
    assert error.place == Location(FILE, 3, 1, 8, "framwork: pytorch")


def test_a_note_is_reported_as_json_without_a_suggestion() -> None:
    (note,) = load_text(EXPERIMENT + "declarations: {}\n").notes
    assert note.as_json() == {
        "file": FILE,
        "line": 3,
        "column": 1,
        "path": "declarations",
        "message": "`declarations` read as `params`",
    }


def test_the_text_of_all_errors_is_one_line_each() -> None:
    with pytest.raises(SpecErrors) as caught:
        load([("a.yml", b"version: 1\nkind: job\nfoo: 1\nbar: 2\n")])
    assert str(caught.value).splitlines() == [str(error) for error in caught.value.errors]
    assert len(caught.value.errors) == 2


# the schema for editors --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_json_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    json.dumps(json_schema())


def _object(schema: dict[str, Any]) -> dict[str, Any]:
    """The map among the alternatives of a schema."""
    if "properties" in schema:
        return schema
    for alternative in schema.get("anyOf", [schema.get("items", {})]):
        found = _object(alternative)
        if found:
            return found
    return {}


def _field(schema: dict[str, Any], *path: str) -> dict[str, Any]:
    for key in path:
        schema = _object(schema)["properties"][key]
    return schema


def _fields(schema: dict[str, Any], *path: str) -> set[str]:
    return set(_object(_field(schema, *path))["properties"])


def test_every_field_of_the_json_schema_has_a_description() -> None:
    def walk(schema: Any) -> Iterator[tuple[str, Any]]:
        children = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
        for child in children:
            yield from walk(child)
        if isinstance(schema, dict) and isinstance(schema.get("properties"), dict) and "pvalues" not in str(schema):
            yield from schema["properties"].items()

    for kind in json_schema()["$defs"].values():
        found = list(walk(kind))
        assert len(found) > 15
        assert [key for key, child in found if not child.get("description")] == []


def test_every_field_that_is_read_is_in_the_json_schema() -> None:
    definitions = json_schema()["$defs"]
    assert set(definitions) == set(Kind)
    for kind in Kind:
        assert _fields(definitions[kind]) == set(sections(kind).fields)
    experiment = definitions["experiment"]
    own = {"timeout", "stall_timeout", "hold", "outputs", "replicas", "slurm", "kubernetes", "python"}
    assert _fields(experiment, "environment") == {*REPLICA_FIELDS, *own}
    assert _fields(experiment, "environment", "slurm") == set(SLURM.fields)
    assert _fields(experiment, "environment", "kubernetes") == set(KUBERNETES.fields)
    assert _fields(experiment, "environment", "python") == set(PYTHON.fields)
    assert _fields(experiment, "environment", "replicas") == set(REPLICAS.fields)
    assert _fields(experiment, "environment", "replicas", "worker") == {*REPLICA_FIELDS, "index"}
    assert _fields(definitions["build"]) >= set(BUILD_FIELDS)
    assert _fields(definitions["group"], "hptuning") == set(HPTUNING.fields)
    assert _fields(definitions["pipeline"], "ops") == set(OP.fields)


VALID = [
    EXPERIMENT,
    EXPERIMENT + "tags: a\nrun: {cmd: [a, b]}\nbuild: {image: x, env_vars: [[A, 1]]}\n",
    EXPERIMENT + "build: {ref: 5}\nparams: {n: 2}\nname: '{{ n }}'\nlogging: {level: INFO}\n",
    EXPERIMENT
    + "environment: {labels: {a: 1}, timeout: 1h, resources: {cpu: {requests: 500m}, memory: {limits: 2Gi}}}\n",
    EXPERIMENT + "inputs: [{name: a, type: int, default: 3, is_optional: true}]\nparams: {a: 3}\n",
    TENSORFLOW + "environment: {replicas: {n_workers: '2', worker: [{index: 1, max_restarts: 2}]}}\n",
    TENSORFLOW + "environment: {replicas: {n_workers: 2, master_task: chief}}\n",
    EXPERIMENT + "environment: {kubernetes: {queue: a.b, ttl: 1h, shm: 2Gi, code_claim: c, code_path: d/e, pod: {}}}\n",
    GROUP + "hptuning: {concurrency: 2, matrix: {a: {values: [1]}, b: {range: '0:1:0.5'}, c: {linspace: [0, 1, 2]}}}\n",
    GROUP + "hptuning: {matrix: {a: {uniform: {low: 0, high: 1}}}, random_search: {n_experiments: 3}}\n",
    "version: 1\nkind: job\nbuild: {dockerfile: D}\nrun: {cmd: x}\n",
    "version: 1\nkind: build\nimage: x\nnocache: true\n",
    "version: 1\nkind: notebook\nbackend: lab\n",
    "version: 1\nkind: tensorboard\nenvironment: {outputs: {jobs: [1]}}\n",
    "version: 1\nkind: pipeline\nops: [{name: a, template: {path: x}, trigger: all_done}]\n",
]


@pytest.mark.parametrize("text", VALID)
def test_the_modern_form_of_a_valid_file_fits_the_json_schema(text: str) -> None:
    document = modern_document(load_text(text))
    jsonschema.Draft202012Validator(json_schema()).validate(document)


@pytest.mark.parametrize(
    "document",
    [
        {"version": 1},
        {"version": 2, "kind": "job"},
        {"version": 1, "kind": "nonsense"},
        {"version": 1, "kind": "job", "foo": 1},
        {"version": 1, "kind": "job", "environment": {"replicas": {}}},
        {"version": 1, "kind": "group"},
        {"version": 1, "kind": "group", "hptuning": {"matrix": {}}},
        {"version": 1, "kind": "group", "hptuning": {"matrix": {"a": {"valus": [1]}}}},
        {"version": 1, "kind": "experiment", "environment": {"replicas": {"n_workers": -1}}},
        {"version": 1, "kind": "experiment", "logging": {"level": "LOUD"}},
        {"version": 1, "kind": "experiment", "tags": {"a": 1}},
        {"version": 1, "kind": "experiment", "name": "a b"},
    ],
)
def test_a_wrong_file_does_not_fit_the_json_schema_either(document: dict[str, Any]) -> None:
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid(document)
    assert messages_of(json.dumps(document)) or document == {"version": 1}


def test_replicas_and_their_processes_are_bounded_together() -> None:
    replicas = "framework: pytorch\nenvironment: {{replicas: {{n_workers: {}, processes: {}}}}}\n"
    assert load_text(EXPERIMENT + replicas.format(999, 100)).environment.replicas is not None
    error = error_of(EXPERIMENT + replicas.format(1000, 100))
    assert error.message == "1001 replicas with so many processes each are more than 100000 in total"
    assert error.place.line == 4
