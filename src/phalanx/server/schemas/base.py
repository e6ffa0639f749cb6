"""The base of response models, and the values that many of them have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class ResponseModel(BaseModel):
    """The base of response bodies. A field without a default is always there."""

    model_config = ConfigDict(extra="forbid", strict=True)


Number = Annotated[
    float | Literal["NaN", "Infinity", "-Infinity"],
    Field(description="JSON has no NaN and no infinities: they are strings"),
]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}, description="ISO 8601, in UTC")]
Seconds = Annotated[float, Field(description="seconds since 1970")]
Json = Any  # as the user or the training code wrote it
Count = Annotated[int, Field(ge=0, description="how many there are in all, on all pages")]


class Page(ResponseModel):
    """One page of a list."""

    count: Count
