"""Which replicas of a run a text means: one rule for the CLI, REST and the page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from phalanx.errors import CallError
from phalanx.logs.replica_logs import LogSource

_RANKS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_LISTED = 20


def choose(sources: Sequence[LogSource], terms: Iterable[str]) -> list[LogSource]:
    """The replicas that the terms name: a name (`worker-3`), a role (`worker`), a rank (`3`) or ranks (`0-3`), or
    several with commas; all without terms. Raises CallError for a term that names none."""
    words = [word for term in terms for word in re.split(r"[\s,]+", term) if word]
    if not words:
        return list(sources)
    by_name = {source.name: {source} for source in sources}
    by_role: dict[str, set[LogSource]] = {}
    for source in sources:
        by_role.setdefault(source.role, set()).add(source)
    found: set[LogSource] = set()
    for word in words:
        there = by_name.get(word) or by_role.get(word) or _with_ranks(sources, word)
        if not there:
            raise CallError(f"the run has no replica `{word[:100]}`: {_known(sources, word)}")
        found |= there
    return [source for source in sources if source in found]


def _with_ranks(sources: Sequence[LogSource], word: str) -> set[LogSource]:
    match = _RANKS.fullmatch(word)
    if match is None:
        return set()
    first, last = int(match[1]), int(match[2] or match[1])
    return {source for source in sources if source.rank is not None and first <= source.rank <= last}


def _known(sources: Sequence[LogSource], word: str) -> str:
    from difflib import get_close_matches

    names = [source.name for source in sources]
    more = f", and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    near = get_close_matches(word, names[:10_000], n=1)
    return f"did you mean `{near[0]}`?" if near else f"it has {', '.join(names[:_LISTED]) or 'none'}{more}"
