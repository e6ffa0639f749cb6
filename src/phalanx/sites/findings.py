"""What a site has to say of a plan: the words for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from phalanx.spec.suggestions import did_you_mean

ERROR, ADVICE = "error", "advice"
LISTED = 12  # names that a message may list


class SiteFinding(NamedTuple):
    """`path` is where in the user's file it can be changed."""

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
    return did_you_mean(name, every) or f"there are {join_names(every)}"


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"
