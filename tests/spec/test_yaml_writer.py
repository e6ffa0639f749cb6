"""Spec to file: converting keeps the meaning, and converting twice changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from phalanx.spec.yaml_writer import modern_document, to_yaml
from tests.spec.helpers import EXPERIMENT, GROUP, assert_converts, load_text, load_texts

OLD = """
kind: experiment
declarations: {lr: 1e-3, layers: [1, 2], name: "{{ lr }}"}
settings: {logging: {level: WARNING}}
environment:
  resources: {gpu: {request: 1}, cpu: 2}
  node_selectors: {disk: ssd}
  persistence: {data: [d], outputs: o}
  tensorflow:
    n_workers: 2
    n_ps: 1
    default_worker_resources: {cpu: {requests: 1}}
    worker_resources: [{index: 1, gpu: {limits: 1}}]
run: {image: x, steps: [pip install y], cmd: "train --lr {{ lr }}"}
tags: a, b
"""


def test_the_oldest_form_converts_to_the_modern_one() -> None:
    text = assert_converts(load_text(OLD))
    assert yaml.safe_load(text.replace("1e-3", "0.001")) == {
        "version": 1,
        "kind": "experiment",
        "tags": ["a", "b"],
        "logging": {"level": "WARN"},
        "framework": "tensorflow",
        "params": {"lr": 0.001, "layers": [1, 2], "name": "{{ lr }}"},
        "environment": {
            "resources": {"gpu": {"requests": 1}, "cpu": {"requests": 2, "limits": 2}},
            "node_selector": {"disk": "ssd"},
            "replicas": {
                "n_workers": 2,
                "n_ps": 1,
                "default_worker": {"resources": {"cpu": {"requests": 1}}},
                "worker": [{"index": 1, "resources": {"gpu": {"limits": 1}}}],
            },
            "data_refs": ["d"],
            "artifact_refs": ["o"],
        },
        "build": {"image": "x", "build_steps": ["pip install y"]},
        "run": {"cmd": "train --lr {{ lr }}"},
    }


def test_sections_come_in_the_order_of_the_reference() -> None:
    text = "run: {cmd: x}\nparams: {a: 1}\nkind: experiment\ntags: [t]\nbuild: {image: i}\nname: n\nversion: 1\n"
    assert list(modern_document(load_text(text))) == ["version", "kind", "name", "tags", "params", "build", "run"]


def test_what_is_empty_is_left_out() -> None:
    text = EXPERIMENT + "params: {}\ntags: null\nenvironment: {}\nrun:\n"
    assert modern_document(load_text(text)) == {"version": 1, "kind": "experiment"}
    assert_converts(load_text(text))


def test_an_empty_build_means_the_same_when_it_is_left_out() -> None:
    assert_converts(load_text(EXPERIMENT + "build: {}\n"))


def test_templates_stay_templates() -> None:
    text = assert_converts(load_text(EXPERIMENT + "params: {n: 2}\nname: 'a{{ n }}'\nrun: {cmd: 'x {{ n + 1 }}'}\n"))
    assert "x {{ n + 1 }}" in text


def test_params_of_the_command_line_are_written_too() -> None:
    spec = load_texts(EXPERIMENT + "params: {a: 1}\n", a="2", b="text")
    assert modern_document(spec)["params"] == {"a": 2, "b": "text"}
    assert_converts(spec)


def test_several_files_become_one() -> None:
    spec = load_texts(EXPERIMENT + "declarations: {a: 1}\nbuild: {image: x}\n", "params: {b: 2}\nbuild: null\n")
    assert modern_document(spec) == {"version": 1, "kind": "experiment", "params": {"a": 1, "b": 2}}
    assert_converts(spec)


def test_the_modern_document_of_a_spec_may_be_changed_without_changing_the_spec() -> None:
    spec = load_text(EXPERIMENT + "params: {a: [1]}\n")
    modern_document(spec)["params"]["a"].append(2)
    assert modern_document(spec)["params"] == {"a": [1]}


@pytest.mark.parametrize(
    "text",
    [
        GROUP + "matrix: {a: {logspace: '0:1:3'}, b: {pvalues: [[x, 0.1], [y, 0.9]]}}\nsettings: {concurrency: 2}\n"
        "hptuning: {random_search: {n_experiments: 2}}\n",
        GROUP + "hptuning: {matrix: {a: {uniform: '0:1'}}, random_search: {n_experiments: 2}}\n"
        "run: {cmd: 'x {{ a }}'}\n",
        "kind: job\nexec: {cmd: [a, b]}\n",
        "kind: build\nbuild: {image: x, install: [a]}\n",
        "version: '1'\nkind: Notebook\nbuild: {image: x}\n",
        "kind: tensorboard\nenvironment: {outputs: {jobs: [1]}}\n",
        EXPERIMENT + "params: {d: m}\nrun: {cmd: {if: {cond: \"'{{ d }}' == 'm'\", do: a, else_do: b}}}\n",
        EXPERIMENT + "inputs: [{name: a, type: int, is_optional: true, default: 3}]\nrun: {cmd: 'x {{ a }}'}\n",
        EXPERIMENT + "environment: {timeout: 1d12h, resources: {cpu: {requests: 500m}, memory: {requests: 2Gi}}}\n",
        EXPERIMENT + "params: {d: '{{ jobs.1.outputs.x }}'}\n",
        EXPERIMENT + "environment: {n_workers: 2, n_ps: 1}\n",
        EXPERIMENT + "environment: {horovod: {n_workers: 2, n_ps: 1}}\n",
    ],
)  # fmt: skip
def test_every_dialect_converts(text: str) -> None:
    assert_converts(load_text(text))


def test_the_templates_of_a_pipeline_are_converted_too() -> None:
    text = assert_converts(
        load_text(
            "kind: pipeline\nops: [{name: a, template: {name: t}}]\n"
            "templates: [{name: t, declarations: {x: 1}, run: {image: i, cmd: 'x {{ x }}'}}]\n"
        )
    )
    assert "declarations" not in text


AWKWARD = [
    "", " ", "a: b", "- a", "#", "'", '"', "\\", "a\nb", "a\n", "\n", " a ", "\ta", "&a", "*a", "!a", "%a", "@a",
    "`a`", "null", "~", "true", "Yes", "off", "1", "-1", "1.5", "1e5", "1e-3", "1E5", "12e03", "08", "0o17", "0x1F",
    "0b1", "0x_", "1_000", ".5", "5.", ".inf", ".nan", "-.INF", "1:10", "1:10:2", "2019-01-01", "=", "<<", "? a",
    "|", ">", "---", "...", "é", "漢字", "\N{ROCKET}", "\u2028", "\x85", "\u00a0", "\ufeff", "x" * 300, "a b " * 80,
    "\x7f", "\x1b[0m",
]  # fmt: skip


@pytest.mark.parametrize("value", AWKWARD)
def test_a_text_is_written_so_that_it_reads_back_as_the_same_text(value: str) -> None:
    document: dict[str, Any] = {"version": 1, "kind": "experiment", "params": {"a": value, "l": [value]}}
    spec = load_text(to_yaml(document))
    assert spec.params == {"a": value, "l": (value,)}


@pytest.mark.parametrize("key", [key for key in AWKWARD if len(key) < 100])
def test_a_key_is_written_so_that_it_reads_back_as_the_same_key(key: str) -> None:
    document: dict[str, Any] = {"version": 1, "kind": "experiment", "params": {key: {key: 1}}}
    assert load_text(to_yaml(document)).params == {key: {key: 1}}


@pytest.mark.parametrize(
    "value",
    [0, -1, 10**30, 0.1, 1e-05, 1e20, 1.0, -0.0, float("inf"), float("-inf"), True, False, None, 0.30000000000000004],
)
def test_a_number_is_written_so_that_it_reads_back_as_the_same_number(value: float | None) -> None:
    document: dict[str, Any] = {"version": 1, "kind": "experiment", "params": {"a": value}}
    found = load_text(to_yaml(document)).params["a"]
    assert found == value
    assert type(found) is type(value)
