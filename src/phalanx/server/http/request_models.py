"""Request bodies as pydantic models: read within bounds first, then validated, with all faults in one answer.

FastAPI's own body parameters are not used: it reads a body before the caller is authorised.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema
from starlette.concurrency import run_in_threadpool

from phalanx.naming import has_control_characters
from phalanx.server.http.bodies import bounded, json_bytes, json_object
from phalanx.server.http.responses import RequestError
from phalanx.server.http.validation import field_names, invalid_fields

SMALL = 64 << 10  # bytes that are parsed at once; a larger body would block all other requests meanwhile
LONGEST_TEXT = 100_000
MOST_ENTRIES = 10_000
LONGEST_WORD = 500


class RequestModel(BaseModel):
    """The base of request bodies: values are not converted, and unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def one_line(name: str) -> str:
    """The validator of names."""
    if has_control_characters(name):
        raise ValueError("must not contain line breaks or other control characters")
    return name


def _distinct(words: list[str]) -> list[str]:
    return [one_line(word[:LONGEST_WORD]) for word in dict.fromkeys(words)]


Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Word = Annotated[str, Field(max_length=LONGEST_WORD), AfterValidator(one_line)]
Tags = Annotated[list[str], Field(max_length=MOST_ENTRIES), AfterValidator(_distinct)]
Entries = Annotated[dict[str, Any], Field(max_length=MOST_ENTRIES)]
Seconds = Annotated[float, Field(ge=0, lt=4e9, allow_inf_nan=False, description="seconds since 1970")]


def raw_text(longest: int) -> Any:
    """The type of a string that may hold lone surrogates: bytes that are not UTF-8 are sent as such. pydantic's own
    strings refuse them."""

    def check(found: object) -> str:
        if not isinstance(found, str) or len(found) > longest:
            raise ValueError(f"must be a string of up to {longest:,} characters")
        return found

    return Annotated[str, PlainValidator(check), WithJsonSchema({"type": "string", "maxLength": longest})]


Body = TypeVar("Body", bound=RequestModel)


class JsonBodyReader(Generic[Body]):
    """The dependency that reads and validates a body. The OpenAPI document takes the model from it."""

    def __init__(self, model: type[Body], most: int | None) -> None:
        self.model = model
        self.most = most

    @property
    def is_required(self) -> bool:
        return any(field.is_required() for field in self.model.model_fields.values())

    async def __call__(self, request: Request) -> Body:
        """Raises RequestError."""
        raw = await (json_bytes(request) if self.most is None else bounded(request, self.most))
        check_json_type(request, raw)
        return self.parsed(raw) if len(raw) < SMALL else await run_in_threadpool(self.parsed, raw)

    def parsed(self, raw: bytes) -> Body:
        """Raises RequestError with all faults of the body."""
        found = json_object(raw)
        try:
            return self.model.model_validate(found)
        except ValidationError as fault:
            raise invalid_fields(fault.errors(include_url=False), field_names(self.model)) from None


def json_body(model: type[Body], most: int | None = None) -> Any:
    """For the signature of a handler: `body: Annotated[RunChange, json_body(RunChange)]`. `most`: bytes, if fewer than
    for other bodies."""
    return Depends(JsonBodyReader(model, most))


def check_json_type(request: Request, raw: bytes) -> None:
    """A body without a declared type counts as JSON. Raises RequestError for another type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if raw and kind and kind != "application/json" and not kind.endswith("+json"):
        hint = "send the header `Content-Type: application/json`"
        raise RequestError(415, f"the body must be JSON, not `{kind[:100]}`", hint)
