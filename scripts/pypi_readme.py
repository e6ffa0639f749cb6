"""The README as PyPI shows it: without pictures and links that only work in the repository.

Text between `<!-- not on PyPI -->` and `<!-- end -->` is removed, and relative links become plain text.
"""

from __future__ import annotations

import re

LEFT_OUT = re.compile(r"<!-- not on PyPI -->\n.*?<!-- end -->\n\n?", re.DOTALL)
RELATIVE_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?://)[^)]*\)")


def pypi_readme(text: str) -> str:
    return RELATIVE_LINK.sub(r"\1", LEFT_OUT.sub("", text))
