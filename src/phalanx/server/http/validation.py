"""What is wrong with the fields of a request, in words: pydantic's errors as one RequestError."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from phalanx.server.http.responses import RequestError
from phalanx.spec.suggestions import did_you_mean

MOST_SHOWN = 20  # faults of one response
LONGEST_NAME = 100

_MESSAGES = {
    "missing": "is required",
    "string_type": "must be a string",
    "string_unicode": "must be a string without lone surrogates",
    "string_too_long": "must have at most {max_length:,} characters",
    "string_too_short": "must have at least {min_length:,} characters",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than_equal": "must be at least {ge:,}",
    "greater_than": "must be greater than {gt:,}",
    "less_than_equal": "must be at most {le:,}",
    "less_than": "must be less than {lt:,}",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "too_long": "must have at most {max_length:,} entries",
    "too_short": "must have at least {min_length:,} entries",
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
}

Fields = Mapping[tuple[str, ...], Sequence[str]]


def field_names(model: type[BaseModel], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Sequence[str]]:
    """The fields of a model and of the models in it, by the path to each model; positions in lists are left out."""
    found: dict[tuple[str, ...], Sequence[str]] = {path: list(model.model_fields)}
    for name, field in model.model_fields.items():
        for inner in _models_in(field.annotation):
            found |= field_names(inner, (*path, name))
    return found


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if get_origin(annotation) is not None:
        for argument in get_args(annotation):
            yield from _models_in(argument)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation


def invalid_fields(errors: Sequence[Any], known: Fields) -> RequestError:
    """All faults of a request: the message has them in words, `fields` one by one."""
    faults = [_fault(error, known) for error in errors]
    shown = faults[:MOST_SHOWN]
    more = f"; and {len(faults) - len(shown)} more" if len(faults) > len(shown) else ""
    message = "; ".join(f"`{fault['field']}` {fault['message']}" for fault in shown) + more
    hints = [fault["hint"] for fault in shown if "hint" in fault]
    return RequestError(400, message, "; ".join(dict.fromkeys(hints)) or None, fields=shown)


def _fault(error: Any, known: Fields) -> dict[str, str]:
    steps, kind = error["loc"], error["type"]
    place = _place(steps)
    if kind == "extra_forbidden":
        inside = tuple(step for step in steps[:-1] if isinstance(step, str))
        names = known.get(inside, ())
        hint = did_you_mean(str(steps[-1]), names) or f"the fields are {', '.join(names)}"
        return {"field": place, "message": "is not a field of this request", "hint": hint}
    return {"field": place, "message": _message(kind, error)}


def _message(kind: str, error: Any) -> str:
    if kind == "value_error":  # raised by a validator of ours
        return str(error["ctx"]["error"])
    form = _MESSAGES.get(kind)
    if form is None:
        said = str(error["msg"])
        return said[:1].lower() + said[1:]
    return form.format(**error.get("ctx", {}))


def _place(steps: Sequence[str | int]) -> str:
    """As one would write it: `files[0].text`."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f"{'.' if text else ''}{step[:LONGEST_NAME]}"
    return text or "body"
