"""Names of models, their aliases, and references to versions: `name`, `name/3`, `name@champion`."""

from __future__ import annotations

import re
import unicodedata

from phalanx.errors import CallError

LONGEST_NAME = 100
_BAD = re.compile(r"[/:@\\]")


def check_name(name: str, what: str = "a model's name") -> str:
    """The name in its normal form. Raises CallError for an ambiguous one."""
    name = unicodedata.normalize("NFC", name)
    fault = _fault(name)
    if fault:
        raise CallError(f"{what} {fault}: try `{fitting_name(name)}`")
    return name


def _fault(name: str) -> str:
    if not name:
        return "cannot be empty"
    if len(name) > LONGEST_NAME or len(name.encode("utf-8", "replace")) > 2 * LONGEST_NAME:
        return f"may have at most {LONGEST_NAME} characters"
    if _BAD.search(name):
        return "cannot contain / : @ or \\"
    if not name.isprintable():
        return "cannot contain line breaks or invisible characters"
    if name[0] in ".- " or name[-1] == " ":
        return "cannot start with a dot, a dash or a space, nor end with a space"
    return ""


def fitting_name(name: str) -> str:
    """The nearest allowed name: what training code logged is never rejected."""
    name = unicodedata.normalize("NFC", name)
    clean = "".join(c if c.isprintable() and not _BAD.match(c) else "_" for c in name)
    clean = clean.lstrip(".- ").encode("utf-8", "replace")[:LONGEST_NAME].decode("utf-8", "ignore").rstrip()
    return clean or "model"


def check_alias(alias: str) -> str:
    alias = check_name(alias, "an alias")
    if alias.lower() == "latest" or re.fullmatch(r"v?[0-9]+", alias):
        raise CallError(f"`{alias}` cannot be an alias: it looks like a version; write a word, such as `champion`")
    return alias


def split_reference(reference: str) -> tuple[str, int | str | None]:
    """`name`, `name/3` or `name@alias`: the name, and a number, an alias, or None for the latest. Raises CallError."""
    name, slash, number = reference.rpartition("/")
    if slash:
        if not re.fullmatch(r"[0-9]{1,9}", number):
            raise CallError(f"`{reference}`: expected a version number after the /")
        return check_name(name), int(number)
    name, at, alias = reference.rpartition("@")
    if not at:
        return check_name(reference), None
    return check_name(name), None if alias == "latest" else check_name(alias, "an alias")
