"""Parses the records of W&B's files that describe a run into plain values.

The numbers of the fields are those of `wandb_internal.proto`; they are the same in all versions since 0.10, and
versions to come may only add to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from phalanx.formats.protobuf import Malformed, Value, double, fields, latest, raw, signed, text

HISTORY, SUMMARY, CONFIG, STATS, ARTIFACT, TENSORBOARD, ALERT, METRIC = 2, 3, 5, 7, 8, 9, 10, 12
OUTPUT, RAW_OUTPUT, RUN, EXIT = 4, 13, 17, 18

Path = tuple[str, ...]  # a key within nested mappings


class RunRecord(NamedTuple):
    run_id: str = ""
    entity: str = ""
    project: str = ""
    group: str = ""
    job_type: str = ""
    name: str = ""
    notes: str = ""
    tags: tuple[str, ...] = ()
    sweep: str = ""
    started: float | None = None
    commit: str = ""
    config: tuple[tuple[Path, Any], ...] = ()


class Content(NamedTuple):
    """One file of an artifact."""

    path: str
    digest: str
    reference: str
    local_path: str


class ArtifactRecord(NamedTuple):
    type: str
    name: str
    description: str
    aliases: tuple[str, ...]
    contents: tuple[Content, ...]


def kind_of(record: bytes) -> tuple[int, bytes]:
    """The kind of a record, and its message. Raises Malformed, as do all functions here."""
    for number, _, value in fields(record):
        if number not in (1, 16, 19, 200) and isinstance(value, bytes):
            return number, value
    return 0, b""


def items(message: bytes, number: int = 1) -> Iterator[tuple[Path, Any]]:
    """The keys and values of a history, a summary or a config."""
    for found, _, value in fields(message):
        if found == number:
            yield _item(raw(value))


def removed(message: bytes) -> Iterator[Path]:
    return (path for path, _ in items(message, 2))


def _item(data: bytes) -> tuple[Path, Any]:
    key, nested, held = "", [], None  # type: str, list[str], Any
    for number, _, value in fields(data):
        if number == 1:
            key = text(value)
        elif number == 2:
            nested.append(text(value))
        else:
            held = _held(number, value, held)
    return (tuple(nested) if nested else (key,)), held


def _held(number: int, value: Value, before: Any) -> Any:
    """A value: as JSON, or since 0.31 with its own type."""
    if number in (8, 16):
        return _json(text(value))
    if number == 4:
        return bool(value)
    if number == 5 and isinstance(value, int):
        return value >> 1 ^ -(value & 1)  # zigzag
    if number == 6:
        return double(value)
    return text(value) if number == 7 else before


def _json(given: str) -> Any:
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        raise Malformed("a value that is not JSON") from None


def step_of(history: bytes) -> int | None:
    step = latest(history).get(2)
    return None if step is None else signed(latest(raw(step)).get(1, 0))


def _seconds(timestamp: bytes) -> float:
    found = latest(timestamp)
    return signed(found.get(1, 0)) + signed(found.get(2, 0)) / 1e9


def run_record(message: bytes) -> RunRecord:
    names = {1: "run_id", 2: "entity", 3: "project", 6: "group", 7: "job_type", 8: "name", 9: "notes", 12: "sweep"}
    found: dict[str, Any] = {}
    tags = []
    for number, _, value in fields(message):
        if number in names:
            found[names[number]] = text(value)
        elif number == 4:
            found["config"] = tuple(items(raw(value)))
        elif number == 10:
            tags.append(text(value))
        elif number == 17:
            found["started"] = _seconds(raw(value))
        elif number == 21:
            found["commit"] = text(latest(raw(value)).get(2, b""))
    return RunRecord(**found, tags=tuple(tags))


def printed(message: bytes) -> bytes:
    return raw(latest(message).get(3, b""))


def exit_record(message: bytes) -> tuple[int, int]:
    """The exit code and the runtime in seconds."""
    found = latest(message)
    return signed(found.get(1, 0)), signed(found.get(2, 0))


def artifact_record(message: bytes) -> ArtifactRecord:
    names = {4: "type", 5: "name", 7: "description"}
    texts = dict.fromkeys(names.values(), "")
    aliases, contents = [], []
    for number, _, value in fields(message):
        if number in names:
            texts[names[number]] = text(value)
        elif number == 11:
            aliases.append(text(value))
        elif number == 12:
            contents = [_content(raw(part)) for inner, _, part in fields(raw(value)) if inner == 4]
    return ArtifactRecord(texts["type"], texts["name"], texts["description"], tuple(aliases), tuple(contents))


def _content(data: bytes) -> Content:
    found = latest(data)
    return Content(*(text(found.get(number, b"")) for number in (1, 2, 3, 6)))
