"""Findings of a site check, and their wording."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from phalanx.spec.suggestions import did_you_mean

ERROR, ADVICE = "error", "advice"
LISTED = 12  # most names listed in a message


class SiteFinding(NamedTuple):
    """`path`: where to change it in the user's file."""

    severity: str
    path: str
    message: str
    suggestion: str | None = None

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


def join_names(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - LISTED} more" if len(every) > LISTED else ""
    return ", ".join(f"`{name}`" for name in every[:LISTED]) + more


def near(name: str, known: Iterable[str]) -> str:
    every = list(known)
    return did_you_mean(name, every) or f"available: {join_names(every)}"


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"
