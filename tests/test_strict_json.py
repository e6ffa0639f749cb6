"""JSON without NaN."""

from __future__ import annotations

import json
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from phalanx import strict_json
from phalanx.cli.render.output import print_json
from phalanx.exchange.table_files import json_line
from phalanx.server.http.responses import encoded


def _refuse(text: str) -> Any:
    raise AssertionError(f"{text} is not JSON")


def test_odd_numbers_are_strings_wherever_they_are() -> None:
    data = {"a": nan, "b": [inf, (-inf, 1.5)], "c": {"d": nan}, "e": "nan", "f": None}
    expected = {"a": "NaN", "b": ["Infinity", ["-Infinity", 1.5]], "c": {"d": "NaN"}, "e": "nan", "f": None}
    assert json.loads(strict_json.dumps(data), parse_constant=_refuse) == expected
    assert json.loads(strict_json.dumps(data, indent=1), parse_constant=_refuse) == expected


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_commands_exports_and_the_server_spell_them_alike(value: float, capsys: pytest.CaptureFixture[str]) -> None:
    print_json([value])
    texts = {capsys.readouterr().out.strip(), json_line([value]).strip(), encoded([value]).decode()}
    (text,) = texts
    (found,) = json.loads(text, parse_constant=_refuse)
    assert repr(float(found)) == repr(value)


def test_a_finite_document_is_as_json_writes_it() -> None:
    data = {"a": [1, 2.5, "x"], "b": True}
    assert strict_json.dumps(data, separators=(",", ":")) == json.dumps(data, separators=(",", ":"))


def test_the_page_reads_the_same_spellings() -> None:
    source = (Path(__file__).resolve().parent.parent / "web" / "src" / "format.ts").read_text()
    assert all(f'"{text}"' in source for text in ("NaN", "Infinity", "-Infinity"))
