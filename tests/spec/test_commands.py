"""`run.cmd` as one line for bash."""

from __future__ import annotations

import pytest

from phalanx.spec.commands import fold, has_several_lines, join
from tests.spec.helpers import EXPERIMENT, load_text, notes_of

SEVERAL = "several lines read as one command, as Polyaxon does; write a list to run several"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("python train.py", "python train.py"),
        ("  python   train.py\t--lr  1 ", "python train.py --lr 1"),
        ("python train.py \\\n  --lr 1 \\\n  --batch 2", "python train.py --lr 1 --batch 2"),
        ("python train.py \\\r\n  --lr 1", "python train.py --lr 1"),
        ("python train.py \\  \n --lr 1", "python train.py --lr 1"),
        ("python train.py \\ --lr 1", "python train.py --lr 1"),
        ("python train.py \\", "python train.py"),
        ("\\ a", "a"),
        ("a\nb", "a b"),
        ("a\n\n\nb\n", "a b"),
        (r"grep 'a\.b' c\ d", r"grep 'a\.b' c d"),
        (r"--a=1\ --b=2", "--a=1 --b=2"),
        (r"tr '\n' ' '", r"tr '\n' ' '"),
        ("", ""),
        ("\\", ""),
    ],
)
def test_white_space_is_folded_and_stray_backslashes_go(text: str, line: str) -> None:
    assert fold(text) == line


@pytest.mark.parametrize(
    ("text", "several"),
    [("a", False), ("a\n", False), ("a \\\nb", False), ("a\nb", True), ("\n\na\n\n", False), ("a \\\nb\nc", True)],
)
def test_lines_that_no_backslash_joins_are_several(text: str, several: bool) -> None:
    assert has_several_lines(text) is several


def test_several_commands_run_one_after_another_as_long_as_each_succeeds() -> None:
    assert join(("a", " b  c ", "", "\\", "d")) == "a && b c && d"
    assert join(()) == ""


def test_a_list_of_commands_is_one_line() -> None:
    assert (
        load_text(EXPERIMENT + "run:\n  cmd:\n  - mkdir out\n  - python  train.py\n").command
        == "mkdir out && python train.py"
    )


def test_a_block_of_lines_is_one_command_with_a_note() -> None:
    text = EXPERIMENT + "run:\n  cmd: |\n    echo a\n    echo b\n"
    assert load_text(text).command == "echo a echo b"
    assert notes_of(text) == [SEVERAL]


def test_lines_joined_by_backslashes_need_no_note() -> None:
    text = EXPERIMENT + "run:\n  cmd: |\n    python train.py \\\n      --lr 1 \\\n      --batch 2\n"
    assert load_text(text).command == "python train.py --lr 1 --batch 2"
    assert notes_of(text) == []


@pytest.mark.parametrize("value", ["null", "''", "' '", "[]", "['', '\\']"])
def test_a_command_of_nothing_is_none(value: str) -> None:
    assert load_text(f"{EXPERIMENT}run: {{cmd: {value}}}\n").command is None


@pytest.mark.parametrize(
    ("template", "command"),
    [
        ("{{ n }}", "5"),
        ("'{{ n }}'", "'5'"),
        ("run {{ n }}  {{ t }}", "run 5 a b"),
        ("{{ t }}", "a b"),
        ("{{ f }}", "1e-3"),
    ],
)
def test_templates_of_a_command_give_text(template: str, command: str) -> None:
    text = f'{EXPERIMENT}params: {{n: 5, t: "a   b", f: 1e-3}}\nrun: {{cmd: "{template}"}}\n'
    assert load_text(text).command == command


def test_each_command_of_a_list_is_a_template() -> None:
    assert (
        load_text(EXPERIMENT + "params: {n: 5}\nrun: {cmd: ['a {{ n }}', 'b {{ n + 1 }}']}\n").command == "a 5 && b 6"
    )
