""" "Did you mean …?" suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word closest to the written one, if any is close."""
    from difflib import get_close_matches

    by_fold = {name.casefold(): name for name in known}
    found = get_close_matches(word[:80].casefold(), list(by_fold), n=1, cutoff=0.66)
    return by_fold[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    match = nearest(word, known)
    return f"did you mean `{match}`?" if match else None
