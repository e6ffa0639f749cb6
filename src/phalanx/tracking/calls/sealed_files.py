"""The files of a function's run, and the seals that are checked before anything in them is unpickled.

A call file has the function and the arguments of one call or of many. Its name is its SHA-256 digest, which is part of
the command of the run, so a replaced file is refused.

    phalanx-call 1
    {"key": "…", "function": [0, 61], "calls": [[61, 40], …], …}    offsets and sizes in the body
    body: pickles

A sealed file has a result, an exception, or what to run after a checkpoint. The seal is the HMAC-SHA256 of all that
follows, with the key of the call file; the header names the run, attempt and rank that it belongs to.

    phalanx-sealed 1 <seal>
    {"kind": "result", "run": "…", "attempt": 1, "rank": 0, …}
    body: a pickle

Standard library only, Python 3.8+.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from phalanx.run_paths import attempt_name

CALL_MARK, SEALED_MARK = b"phalanx-call 1", b"phalanx-sealed 1"
FOLDER = "function"  # in a run's folder: its call file; in its outputs: the sealed files
RESULT, EXCEPTION, CHECKPOINT = "result", "exception", "checkpoint"


class UntrustedFile(Exception):
    """A file is not what this run wrote. The message says why."""


class CallFile(NamedTuple):
    """The call of a run, or the calls of a batch. Nothing is unpickled yet."""

    key: bytes
    function: bytes
    calls: list[bytes]
    facts: dict[str, Any]  # by_value, python, paths, name


class SealedFile(NamedTuple):
    header: dict[str, Any]
    body: bytes


def call_name(digest: str) -> str:
    """The name of a call file, in the folder of the run."""
    return f"call-{digest}"


def code_name(digest: str) -> str:
    """The name of a call file that is sent with the code, in the working folder."""
    return f".phalanx-call-{digest}"


def result_name(rank: int, attempt: int) -> str:
    """The name of a rank's result or exception, in the outputs."""
    return f"{FOLDER}/rank-{rank}.{attempt_name(attempt)}"


CHECKPOINT_NAME = f"{FOLDER}/checkpoint"  # in the outputs


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Calls ----------------------------------------------------------------------------------------------------------------


def encode_call(key: bytes, function: bytes, calls: Sequence[bytes], facts: dict[str, Any]) -> bytes:
    ranges, at = [], len(function)
    for one in calls:
        ranges.append([at, len(one)])
        at += len(one)
    header = {**facts, "key": key.hex(), "function": [0, len(function)], "calls": ranges}
    return b"\n".join([CALL_MARK, json.dumps(header).encode(), function + b"".join(calls)])


def decode_call(data: bytes, digest: str) -> CallFile:
    """Raises UntrustedFile if it is not the file with this digest."""
    if not hmac.compare_digest(digest_of(data), digest):
        raise UntrustedFile("its content is not the one that was submitted")
    try:
        mark, text, body = data.split(b"\n", 2)
        if mark != CALL_MARK:
            raise ValueError(mark)
        header = json.loads(text)
        start, size = header.pop("function")
        function = body[start : start + size]
        calls = [body[start : start + size] for start, size in header.pop("calls")]
        return CallFile(bytes.fromhex(header.pop("key")), function, calls, header)
    except (ValueError, KeyError, TypeError):
        raise UntrustedFile("another version of Phalanx wrote it") from None


# Results --------------------------------------------------------------------------------------------------------------


def seal(key: bytes, header: dict[str, Any], body: bytes) -> bytes:
    sealed = json.dumps(header).encode() + b"\n" + body
    return SEALED_MARK + b" " + _seal_of(key, sealed) + b"\n" + sealed


def unseal(key: bytes, data: bytes, **expected: Any) -> SealedFile:
    """The content of a sealed file. `expected`: the values that its header must have. Raises UntrustedFile."""
    start, _, sealed = data.partition(b"\n")
    mark, _, own = start.rpartition(b" ")
    if mark != SEALED_MARK:
        raise UntrustedFile("it is not a result, or another version of Phalanx wrote it")
    if not hmac.compare_digest(own, _seal_of(key, sealed)):
        raise UntrustedFile("its seal does not match: it was changed, or another run wrote it")
    text, _, body = sealed.partition(b"\n")
    header = json.loads(text)
    for name, value in expected.items():
        if header.get(name) != value:
            raise UntrustedFile(f"it belongs to {name} {header.get(name)}, not {value}")
    return SealedFile(header, body)


def _seal_of(key: bytes, sealed: bytes) -> bytes:
    return hmac.new(key, sealed, hashlib.sha256).hexdigest().encode()


def read_regular(path: str) -> bytes:
    """The content of a file, not of what a link leads to. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read()
