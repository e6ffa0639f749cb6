"""phalanx convert"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli.running import Answer, called, quick
from tests.cli.samples import ALL, GROUP, HEAD, SECTION


def converted(text: str, *arguments: str) -> Answer:
    answer = quick("convert", "-f", "-", *arguments, stdin=text)
    assert answer.code == 0, answer.err
    return answer


def summary(text: str) -> dict[str, object]:
    data: dict[str, object] = quick("check", "--json", "-f", "-", stdin=text).data
    return {key: value for key, value in data.items() if key != "notes"}


@pytest.mark.parametrize("name", ALL)
def test_converting_twice_changes_nothing(name: str) -> None:
    once = converted(ALL[name]).out
    assert converted(once).out == once


@pytest.mark.parametrize("name", ALL)
def test_the_modern_form_means_the_same(name: str) -> None:
    assert summary(converted(ALL[name]).out) == summary(ALL[name])


@pytest.mark.parametrize("name", ALL)
def test_the_modern_form_is_read_as_it_is_written(name: str) -> None:
    assert "read as" not in converted(converted(ALL[name]).out).err


@pytest.mark.parametrize("name", ALL)
def test_json_and_yaml_say_the_same(name: str) -> None:
    assert converted(ALL[name], "--json").data == yaml.safe_load(converted(ALL[name]).out)


def test_old_names_are_gone() -> None:
    answer = converted(SECTION)
    document = yaml.safe_load(answer.out)
    assert document["framework"] == "tensorflow"
    assert document["params"] == {"batch": 32}
    assert document["environment"]["replicas"] == {
        "n_workers": 2,
        "n_ps": 1,
        "delay_workers_by_global_step": True,
        "default_worker": {"resources": {"gpu": {"requests": 1, "limits": 1}}},
        "worker": [{"index": 1, "node_selector": {"a": "b"}}],
    }
    assert list(document)[:2] == ["version", "kind"]


def test_old_names_in_the_templates_of_a_pipeline_are_gone_too() -> None:
    text = """\
version: 1
kind: pipeline
ops: [{name: a, template: {name: t}}]
templates:
  - name: t
    kind: experiment
    declarations: {batch: 32}
    environment: {tensorflow: {n_workers: 2}}
    run: {cmd: "train {{ batch }}"}
"""
    (template,) = yaml.safe_load(converted(text).out)["templates"]
    assert template["params"] == {"batch": 32}
    assert template["framework"] == "tensorflow"
    assert template["environment"] == {"replicas": {"n_workers": 2}}


def test_templates_stay_as_they_are() -> None:
    assert "--lr={{ lr }} --units={{ units }}" in yaml.safe_load(converted(GROUP).out)["run"]["cmd"]
    assert yaml.safe_load(converted(SECTION).out)["run"]["cmd"] == "train --batch {{ batch }}"


def test_notes_go_to_standard_error_and_the_file_to_standard_output(tmp_path: Path) -> None:
    file = tmp_path / "old.yml"
    file.write_text(SECTION, encoding="utf-8")
    answer = called("convert", "-f", str(file))
    assert answer.code == 0
    assert f"note: {file}:3:1: `declarations` read as `params`" in answer.err.splitlines()
    assert all(line.startswith("note: ") for line in answer.err.splitlines())
    assert "note:" not in answer.out
    assert yaml.safe_load(answer.out)["params"] == {"batch": 32}


def test_several_files_and_params_become_one_file(tmp_path: Path) -> None:
    base, layer = tmp_path / "base.yml", tmp_path / "layer.yml"
    base.write_text(HEAD + "params: {a: 1, b: 2}\nrun: {cmd: ls}\n", encoding="utf-8")
    layer.write_text("declarations: {b: 3}\n", encoding="utf-8")
    answer = quick("convert", "-f", str(base), "-f", str(layer), "-P", "c=0.5")
    assert yaml.safe_load(answer.out)["params"] == {"a": 1, "b": 3, "c": 0.5}


LOOKALIKES = [
    "yes", "007", "08", "089", "1e-3", "1e5", "+5e1", "1.e3", "1_000", "1:10:2", "0x1F", "0o17", "0b11", ".5", ".inf",
    "~", "null", "on", "2020-01-01", "<<", "=", "it's", '"', "a: b", "# x", "- x", " x ", "", "a\nb\n", "é日本", "!tag",
    "*a", "&a", "%x", "@x", "`x`", "\x1b[31m\x07", "\x85", "\u2028", "\U0001f600", "\ufeff",
]  # fmt: skip


@pytest.mark.parametrize("value", LOOKALIKES)
def test_texts_that_look_like_something_else_stay_texts(value: str) -> None:
    escaped = "".join(f"\\U{ord(character):08x}" for character in value)
    once = converted(HEAD + f'params: {{"{escaped}": 1, value: "{escaped}"}}\nrun: {{cmd: ls}}\n').out
    assert converted(once, "--json").data["params"] == {value: 1, "value": value}
    assert converted(once).out == once


def test_a_bad_file_is_not_converted() -> None:
    answer = quick("convert", "-f", "-", stdin=HEAD + "rnu: 1\n")
    assert (answer.code, answer.out) == (1, "")
    assert quick("convert", "-f", "-", "--json", stdin=HEAD + "rnu: 1\n").data["ok"] is False
