"""The page 'Write a backend' shows the example that the tests run."""

from __future__ import annotations

import re
from pathlib import Path

from tests.backends.third_party.installation import MODULE

PAGE = Path(__file__).parents[3] / "docs" / "develop" / "write-a-backend.md"


def test_all_code_of_the_page_is_the_code_of_the_example() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    example = MODULE.read_text()
    assert [block for block in blocks if block.strip() not in example] == []
