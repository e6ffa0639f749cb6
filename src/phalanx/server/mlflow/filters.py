"""MLflow's filter language: `metrics.loss < 0.1 AND params."opt" = 'adam' AND status = 'FINISHED'`.

A filter becomes conditions. The store evaluates them where there may be many rows; Python evaluates the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from phalanx.server.mlflow.errors import MlflowError, truncated

LONGEST = 20_000
MOST_CONDITIONS = 100
MOST_LISTED = 500

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>'(?:[^']|'')*' | "[^"]*")
      | (?P<number>[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)(?![\w.]))
      | (?P<sign><=|>=|!=|<>|=|<|>)
      | (?P<mark>[(),])
      | (?P<name>[^\W\d][\w-]*(?:\.(?:`[^`]*`|"[^"]*"|[^\s=<>!,()'"`]+))? | `[^`]*`)
    )""",
    re.VERBOSE,
)
_SORTING = re.compile(r"""\s*((?:\w+\.)?(?:`[^`]*`|"[^"]*"|[^\s`"]+))(?:\s+(asc|desc))?\s*""", re.IGNORECASE)
_ENTITIES = {
    **dict.fromkeys(("metric", "metrics"), "metric"),
    **dict.fromkeys(("param", "params", "parameter", "parameters"), "param"),
    **dict.fromkeys(("tag", "tags"), "tag"),
    **dict.fromkeys(("attribute", "attributes", "attr", "run"), "attribute"),
    **dict.fromkeys(("dataset", "datasets"), "dataset"),
}
_KEYWORDS = ("LIKE", "ILIKE", "IN", "NOT", "IS", "NULL", "AND", "OR")


class Condition(NamedTuple):
    """`sign` is one of = != < <= > >= LIKE ILIKE IN `NOT IN` `IS NULL` `IS NOT NULL`; the value is a string, a number,
    or a or a tuple of them."""

    entity: str
    key: str
    sign: str
    value: Any


class Sorting(NamedTuple):
    entity: str
    key: str
    downwards: bool


class _Token(NamedTuple):
    kind: str
    text: str


def conditions(text: str) -> list[Condition]:
    """Raises MlflowError that states what could not be parsed."""
    if len(text) > LONGEST:
        raise MlflowError(f"a filter may have at most {LONGEST} characters")
    tokens = _tokens(text)
    found: list[Condition] = []
    place = 0
    while place < len(tokens):
        if found:
            if _word(tokens[place]) != "AND":
                raise MlflowError(
                    f"Invalid clause(s) in filter string: expected AND at {truncated(tokens[place].text)}"
                )
            place += 1
        condition, place = _condition(tokens, place)
        found.append(condition)
        if len(found) > MOST_CONDITIONS:
            raise MlflowError(f"a filter may have at most {MOST_CONDITIONS} conditions")
    return found


def _tokens(text: str) -> list[_Token]:
    found = []
    place = 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise MlflowError(f"Invalid filter string: cannot parse {truncated(text[place:].strip())}")
        assert match.lastgroup is not None
        found.append(_Token(match.lastgroup, match[match.lastgroup]))
        place = match.end()
    return found


def _word(token: _Token | None) -> str:
    return token.text.upper() if token is not None and token.kind == "name" else ""


def _condition(tokens: list[_Token], place: int) -> tuple[Condition, int]:
    def at(more: int) -> _Token | None:
        return tokens[place + more] if place + more < len(tokens) else None

    first = at(0)
    if first is None or first.kind != "name" or _word(first) in _KEYWORDS:
        raise MlflowError(f"Invalid filter string: expected a name at {truncated(first.text if first else 'its end')}")
    entity, key = identifier(first.text)
    second, words = at(1), (_word(at(1)), _word(at(2)), _word(at(3)))
    if words[:2] == ("IS", "NULL"):
        return Condition(entity, key, "IS NULL", None), place + 3
    if words == ("IS", "NOT", "NULL"):
        return Condition(entity, key, "IS NOT NULL", None), place + 4
    if words[0] == "IN" or words[:2] == ("NOT", "IN"):
        start = place + (2 if words[0] == "IN" else 3)
        values, end = _listed(tokens, start)
        return Condition(entity, key, "IN" if words[0] == "IN" else "NOT IN", values), end
    if second is None or not (second.kind == "sign" or words[0] in ("LIKE", "ILIKE")):
        raise MlflowError(
            f"Invalid comparison clause in filter string at {truncated(first.text)}: expected a comparator"
        )
    sign = "!=" if second.text == "<>" else second.text.upper()
    return Condition(entity, key, sign, _value(at(2))), place + 3


def _listed(tokens: list[_Token], place: int) -> tuple[tuple[Any, ...], int]:
    values = []
    if place >= len(tokens) or tokens[place].text != "(":
        raise MlflowError("Invalid filter string: expected a list in brackets after IN")
    place += 1
    while place < len(tokens):
        values.append(_value(tokens[place]))
        after = tokens[place + 1].text if place + 1 < len(tokens) else ""
        place += 2
        if after == ")" and len(values) <= MOST_LISTED:
            return tuple(values), place
        if after != ",":
            break
    raise MlflowError(f"Invalid filter string: expected a closing bracket after a list of up to {MOST_LISTED} values")


def _value(token: _Token | None) -> str | float:
    if token is None or token.kind not in ("string", "number"):
        where = truncated(token.text) if token else "its end"
        raise MlflowError(f"Invalid filter string: expected a number or a quoted string value at {where}")
    if token.kind == "number":
        return float(token.text)
    inside = token.text[1:-1]
    return inside.replace("''", "'") if token.text[0] == "'" else inside


def identifier(text: str) -> tuple[str, str]:
    """The entity and the key of a name; a name without an entity is an attribute."""
    head, dot, rest = text.partition(".")
    if not dot or text.startswith("`"):
        return "attribute", unquoted(text)
    entity = _ENTITIES.get(head.lower())
    if entity is None:
        raise MlflowError(f"Invalid entity type '{head[:100]}'. Valid values are {sorted(set(_ENTITIES.values()))}")
    return entity, unquoted(rest)


def unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "`\"'" else text


def sortings(texts: list[str]) -> list[Sorting]:
    """Raises MlflowError."""
    found = []
    for text in texts[:20]:
        match = _SORTING.fullmatch(text)
        if match is None:
            raise MlflowError(f"Invalid order_by clause {truncated(text)}")
        entity, key = identifier(match[1])
        found.append(Sorting(entity, key, (match[2] or "").lower() == "desc"))
    return found


def like(text: str, wanted: str) -> bool:
    """SQL's LIKE. Not a regular expression: one with many wildcards would take exponential time."""
    place = at = 0
    again = None  # where to retry when the part after the last % does not match here
    while place < len(text):
        if at < len(wanted) and wanted[at] == "%":
            again = (place, at + 1)
            at += 1
        elif at < len(wanted) and wanted[at] in ("_", text[place]):
            place, at = place + 1, at + 1
        elif again is not None:
            again = (again[0] + 1, again[1])
            place, at = again
        else:
            return False
    return not wanted[at:].strip("%")


def holds(condition: Condition, value: Any) -> bool:
    """Whether a value satisfies a condition; None satisfies only `IS NULL`."""
    sign, wanted = condition.sign, condition.value
    if sign in ("IS NULL", "IS NOT NULL"):
        return (value is None) == (sign == "IS NULL")
    if value is None:
        return False
    if sign in ("IN", "NOT IN"):
        return (str(value) in tuple(map(str, wanted))) == (sign == "IN")
    if sign == "LIKE":
        return like(str(value), str(wanted))
    if sign == "ILIKE":
        return like(str(value).lower(), str(wanted).lower())
    if isinstance(value, str) != isinstance(wanted, str):
        value, wanted = str(value), str(wanted)
    return bool(_COMPARISONS[sign](value, wanted))


_COMPARISONS: Mapping[str, Any] = {
    "=": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}
