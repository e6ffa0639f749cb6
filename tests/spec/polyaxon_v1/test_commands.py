"""Commands of containers reach bash as the same words, whatever templates render."""

from __future__ import annotations

import json
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.spec import load
from phalanx.spec.commands import fold, quote
from tests.examples import examples

SHOW = ["python3", "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0{"), max_size=20)


def _command(args: list[str], params: dict[str, str] | None = None) -> str:
    component = {"version": 1.1, "kind": "component", "run": {"kind": "job", "container": {"image": "a"}}}
    component["run"]["container"] |= {"command": SHOW, "args": args}  # type: ignore[index]
    component["inputs"] = [{"name": name, "type": "str"} for name in params or {}]
    found = load([("file.yml", json.dumps(component).encode())], params or {}).command
    assert found is not None
    return found


def _words(command: str) -> list[str]:
    words: list[str] = json.loads(subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout)
    return words


def test_words_reach_the_program_as_they_were_written() -> None:
    words = [
        "a b",
        "it's",
        "$HOME",
        "`id`",
        "$(id)",
        ";",
        "a\nb",
        "two  blanks ",
        "\\",
        'q"q',
        "*",
        "ünï",
        "#x",
        "a\tb",
    ]
    assert _words(_command(words)) == words


def test_values_of_templates_are_one_word_each() -> None:
    value = "a; echo 'no' $(id)  \"x\"\n\\ "
    assert _words(_command(["--v={{ v }}", "{{ v }}", "{{ v|upper }}"], {"v": value})) == [
        f"--v={value}",
        value,
        value.upper(),
    ]


def test_words_that_render_to_nothing_are_dropped() -> None:
    assert _words(_command(["a", "{{ v }}", "", "b"], {"v": ""})) == ["a", "b"]


@given(TEXTS)
@examples(200)
def test_a_quoted_text_is_one_word_that_folding_keeps(text: str) -> None:
    word = quote(text)
    assert fold(f"a {word} b") == f"a {word} b" if text else word == ""


@pytest.mark.parametrize("text", ["a ${PHALANX_OUTPUTS}/x", "${PWD}"])
def test_variables_of_the_run_keep_their_meaning(text: str) -> None:
    assert '"${P' in quote(text)
    assert "'${P" not in quote(text)


def test_other_variables_are_text() -> None:
    assert quote("${HOME}") == "'${HOME}'"
