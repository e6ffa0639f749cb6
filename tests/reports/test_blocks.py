"""The blocks of reports, by the same examples as the page's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.reports.blocks import ChartBlock, MarkdownText, faults_of, parts_of
from tests.examples import examples

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "report_blocks.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=[str(number) for number in range(len(CASES))])
def test_a_report_is_split_as_on_the_page(case: dict[str, Any]) -> None:
    parts = parts_of(case["text"])
    assert [type(part).__name__.lower().removesuffix("block").removesuffix("text") for part in parts] == case["kinds"]
    assert [fault for part in parts if not isinstance(part, MarkdownText) for fault in part.faults] == case["faults"]


def test_faults_name_their_block() -> None:
    assert faults_of("```chart\nmetric: a\n```\n```table\nlimit: 0\n```") == [
        "block 2: `limit` must be a number from 1 to 100."
    ]


def test_a_huge_text_is_split_in_time() -> None:
    assert len(parts_of("```\n" * 20_000)) == 1


LINES = st.sampled_from(["```", "```chart", "~~~table", "~~~", "metric: a", "limit: 1e9", "range: 1..nan", "x", ""])


@examples(200)
@given(st.lists(LINES | st.text(max_size=20), max_size=30))
def test_any_text_has_parts(lines: list[str]) -> None:
    for part in parts_of("\n".join(lines)):
        assert not isinstance(part, ChartBlock) or (120 <= part.height <= 900 and 1 <= part.choice.limit <= 100)
