"""phalanx schema"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.cli.running import called, quick
from tests.cli.samples import ALL, HEAD


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(quick("schema").data)


def faults(document: Any) -> list[str]:
    return [f"{list(error.absolute_path)}: {error.message[:200]}" for error in validator().iter_errors(document)]


@pytest.mark.slow
def test_it_is_a_json_schema() -> None:
    answer = called("schema")
    assert (answer.code, answer.err) == (0, "")
    assert answer.data["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(answer.data)
    assert quick("schema", "--json").data == answer.data


@pytest.mark.parametrize("name", ALL)
def test_the_modern_form_of_every_kind_and_dialect_fits(name: str) -> None:
    answer = quick("convert", "--json", "-f", "-", stdin=ALL[name])
    assert answer.code == 0
    assert faults(answer.data) == []


AWKWARD = {
    "an empty section inside another": "build: {image: 'busybox:1', env_vars: }\nrun: {cmd: ls}\n",
    "nothing said of the resources": "environment: {resources: , node_selector: null}\nrun: {cmd: ls}\n",
    "words in small letters": "logging: {level: info}\nrun: {cmd: ls}\n",
    "numbers as text": 'framework: jax\nenvironment: {replicas: {n_workers: "2"}}\nrun: {cmd: ls}\n',
    "a lone tag": "tags: one\nrun: {cmd: ls}\n",
    "templates for numbers": "params: {n: 2}\nframework: jax\nenvironment: {replicas: {n_workers: '{{ n }}'}}\n",
    "a template for a list": "params: {refs: [a, b]}\nenvironment: {data_refs: '{{ refs }}'}\nrun: {cmd: ls}\n",
    "a template for a map": "params: {r: {cpu: {requests: 1}}}\nenvironment: {resources: '{{ r }}'}\nrun: {cmd: ls}\n",
    "a template for a word": "params: {l: DEBUG}\nlogging: {level: '{{ l }}'}\nrun: {cmd: ls}\n",
}


@pytest.mark.parametrize("name", AWKWARD)
def test_a_valid_value_fits_after_conversion(name: str) -> None:
    answer = quick("convert", "--json", "-f", "-", stdin=HEAD + AWKWARD[name])
    assert answer.code == 0, answer.out
    assert faults(answer.data) == []


WRONG = {
    "no version": "kind: job\nrun: {cmd: ls}\n",
    "no kind": "version: 1\nrun: {cmd: ls}\n",
    "another version": "version: 2\nkind: job\nrun: {cmd: ls}\n",
    "another kind": "version: 1\nkind: jobs\nrun: {cmd: ls}\n",
    "an unknown section": HEAD + "rnu: {cmd: ls}\n",
    "an unknown key": HEAD + "environment: {resource: {}}\n",
    "an unknown key far below": HEAD + "environment: {resources: {cpu: {requets: 1}}}\n",
    "a name with a space": HEAD + "name: two words\n",
    "a command without cmd": HEAD + "run: ls\n",
    "a negative count": HEAD + "framework: jax\nenvironment: {replicas: {n_workers: -1}}\n",
    "half a worker": HEAD + "framework: jax\nenvironment: {replicas: {n_workers: 1.5}}\n",
    "tags as a map": HEAD + "tags: {a: b}\n",
    "variables that are no pairs": HEAD + "environment: {env_vars: [[A]]}\n",
    "a level that is none": HEAD + "logging: {level: LOUD}\n",
    "a search in an experiment": HEAD + "hptuning: {matrix: {a: {values: [1]}}}\n",
    "a group without a search": "version: 1\nkind: group\nrun: {cmd: ls}\n",
    "a matrix entry with two forms": "version: 1\nkind: group\nhptuning: {matrix: {a: {values: [1], range: 0}}}\n",
    "replicas in a job": "version: 1\nkind: job\nenvironment: {replicas: {n_workers: 1}}\nrun: {cmd: ls}\n",
    "a command in a notebook": "version: 1\nkind: notebook\nrun: {cmd: ls}\n",
    "an input without a name": HEAD + "inputs: [{type: int}]\n",
    "an op without a template": "version: 1\nkind: pipeline\nops: [{name: a}]\n",
    "a list": "[]",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_does_not_fit(name: str) -> None:
    assert faults(yaml.safe_load(WRONG[name])) != []


@pytest.mark.parametrize("name", [name for name in WRONG if not name.startswith("no ")])
def test_what_does_not_fit_is_wrong_to_check_too(name: str) -> None:
    assert quick("check", "-f", "-", stdin=WRONG[name]).code == 1


def test_every_key_is_described() -> None:
    def undescribed(schema: Any, path: str) -> list[str]:
        found = []
        for key, child in schema.get("properties", {}).items():
            if not child.get("description"):
                found.append(f"{path}.{key}")
            found += undescribed(child, f"{path}.{key}")
        return found

    definitions = quick("schema").data["$defs"]
    assert set(definitions) == {"experiment", "group", "job", "build", "notebook", "tensorboard", "pipeline"}
    for kind, schema in definitions.items():
        assert undescribed(schema, kind) == []
