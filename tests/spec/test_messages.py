"""Files as people write them by mistake, and the exact messages about them.

`wrong_files.txt` has one case after another: `=== name`, the file, `---`, and what `phalanx check` prints without the
excerpts of lines. PHALANX_UPDATE_GOLDEN=1 writes the messages again; read the difference as a user would.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from phalanx.errors import SpecError, SpecErrors
from phalanx.plan import framework_checks
from tests.backends.golden import UPDATE
from tests.spec.helpers import FILE

TABLE = Path(__file__).with_name("wrong_files.txt")


class WrongFile(NamedTuple):
    name: str
    text: str
    messages: str


def _table() -> list[WrongFile]:
    cases = []
    for block in TABLE.read_text(encoding="utf-8").split("=== ")[1:]:
        name, rest = block.split("\n", maxsplit=1)
        text, messages = rest.split("---\n")
        cases.append(WrongFile(name, text, messages.strip("\n") + "\n"))
    return cases


CASES = _table()


def _errors(text: str) -> tuple[SpecError, ...]:
    with pytest.raises(SpecErrors) as faults:
        framework_checks.load([(FILE, text.encode())], {})
    return faults.value.errors


def _printed(text: str) -> str:
    lines = []
    for error in _errors(text):
        lines.append(f"{error.place.line}:{error.place.column}: {error.path}: {error.message}")
        if error.suggestion:
            lines.append(f"  hint: {error.suggestion}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_wrong_file_gets_exactly_these_messages(case: WrongFile) -> None:
    if os.environ.get(UPDATE):
        cases = [f"=== {one.name}\n{one.text}---\n{_printed(one.text)}" for one in CASES]
        TABLE.write_text("\n".join(cases), encoding="utf-8")
        return
    assert _printed(case.text) == case.messages


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_message_has_a_line_a_key_and_what_to_write(case: WrongFile) -> None:
    for error in _errors(case.text):
        assert error.place.line >= 1
        assert error.path or "must be a map of sections" in error.message
        assert error.suggestion or error.message.startswith("expected ") or " must be " in error.message
        assert "\n" not in f"{error.message}{error.path}{error.suggestion}"


def test_the_table_is_long_enough_to_be_of_use() -> None:
    assert len(CASES) >= 30
    assert len({case.name for case in CASES}) == len(CASES)
