"""Reads TensorBoard's event files, also while they are written. Standard library only.

A file is a sequence of records: length, its checksum, data, their checksum; the data are one `Event` message. Reading
any file raises nothing: what cannot be parsed is skipped and counted.
"""

from __future__ import annotations

import math
import os
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple

from phalanx.formats import tensor_proto
from phalanx.formats.protobuf import Malformed, Value, double, fields, latest, raw, reals, signed, single, text

MAX_RECORD = 64 << 20  # a longer one (a graph with its weights) is skipped without being read
MAX_LENGTH = 1 << 31  # no message can be longer: such a length is damage
# Checksums in pure Python run at some 10 MB/s. Scalars are far below this size and are all verified. A longer record is
# an image or a histogram: its length is verified, which keeps the reader in step, and a damaged one fails to parse.
MAX_VERIFIED = 4096
SEARCH = 8 << 20  # bytes of damage searched at once
MAX_TAG = 1000  # characters
MAX_BUCKETS = 20_000  # of a histogram

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_HEAD = 12
_PNG = b"\x89PNG\r\n\x1a\n"
_KINDS_OF_IMAGES = (_PNG, b"\xff\xd8\xff", b"GIF8")
_HPARAMS = "_hparams_/session_start_info"
_HPARAM_KINDS: dict[int, Callable[[Value], float | str]] = {2: double, 3: text, 4: bool}


class ScalarSummary(NamedTuple):
    tag: str
    step: int
    time: float
    value: float


class ImageSummary(NamedTuple):
    """An encoded picture: PNG, JPEG or GIF. Several of one tag and step are distinguished by their index."""

    tag: str
    step: int
    time: float
    data: bytes
    place: int = 0


class TextSummary(NamedTuple):
    tag: str
    step: int
    time: float
    text: str


class HistogramSummary(NamedTuple):
    """One more edge than counts."""

    tag: str
    step: int
    time: float
    edges: list[float]
    counts: list[float]


class HparamsSummary(NamedTuple):
    """The hyperparameters of a session of the plugin `hparams`."""

    tag: str
    step: int
    time: float
    values: dict[str, Any]


Item = ScalarSummary | ImageSummary | TextSummary | HistogramSummary | HparamsSummary


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # noqa: PLW2901 - the register
        table.append(byte)
    return table


_CRC = _crc_table()


def masked_crc(data: bytes) -> int:
    """CRC-32C, masked as in TFRecord, so that checksums of data that contain checksums do not degenerate."""
    table, crc = _CRC, 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(maxsize=4096)
def _length_crc(data: bytes) -> int:
    """Cached: the records of a file have few different lengths."""
    return masked_crc(data)


def _length_at(data: bytes, position: int) -> int | None:
    """The length of the record that begins there; None when none does."""
    if position + _HEAD > len(data):
        return None
    head = data[position : position + 8]
    (length,) = _LENGTH.unpack(head)
    (claimed,) = _CHECKSUM.unpack_from(data, position + 8)
    return length if length < MAX_LENGTH and _length_crc(head) == claimed else None


class EventFileReader:
    """Follows one file. Store `offset` and pass it again to continue where an earlier reader stopped.

    `skipped` counts what was skipped, by kind: `damage` in bytes, all others in items.
    """

    def __init__(self, path: str | os.PathLike[str], offset: int = 0) -> None:
        self.path = path
        self.offset = offset  # everything before it has been returned
        self.skipped: Counter[str] = Counter()
        self._searched: int | None = None  # the file's size when nothing whole was found behind damage

    def poll(self, budget_bytes: int = 64 << 20) -> Iterator[Item]:
        """What was finished since the last call, from about as many bytes, yet at least from one record. A record that
        is unfinished at the end is waited for, and so is damage: a network filesystem may show zeros for a while."""
        try:
            stream = open(self.path, "rb", buffering=1 << 18)  # noqa: SIM115 - closed below, by `with`
        except OSError:
            return
        with stream:
            try:
                size = os.fstat(stream.fileno()).st_size
                if size < self.offset:
                    self.offset = 0  # another file by the same name
                stop = self.offset + max(1, budget_bytes)
                while self.offset < stop:
                    data = self._next(stream, size)
                    if data is None:
                        return
                    if data:
                        yield from self._items(data)
                    self.offset = stream.tell()
            except OSError:
                self.skipped["unreadable"] += 1

    def _next(self, stream: BinaryIO, size: int) -> bytes | None:
        """The data of the next record, with the stream after it. Empty: it was skipped. None: not complete yet."""
        stream.seek(self.offset)
        head = stream.read(_HEAD)
        if len(head) < _HEAD:
            return None
        length = _length_at(head, 0)
        if length is None:
            return b"" if self._search(stream, size) else None
        if self.offset + _HEAD + length + 4 > size:
            return None
        if length > MAX_RECORD:
            stream.seek(length + 4, os.SEEK_CUR)
            self.skipped["too large"] += 1
            return b""
        data = stream.read(length + 4)
        if len(data) < length + 4:
            return None
        if length <= MAX_VERIFIED and masked_crc(data[:-4]) != _CHECKSUM.unpack_from(data, length)[0]:
            self.skipped["damage"] += _HEAD + length + 4
            return b""
        return data[:-4]

    def _search(self, stream: BinaryIO, size: int) -> bool:
        """Move the stream to the next record after damage. False: the data may still turn out to be valid."""
        if self._searched == size:
            return False
        stream.seek(self.offset)
        window = stream.read(SEARCH)
        found = _find_record(window)
        if found is None:
            if self.offset + len(window) >= size:
                self._searched = size
                return False
            found = len(window) - _HEAD + 1
        self.skipped["damage"] += found
        stream.seek(self.offset + found)
        return True

    def _items(self, data: bytes) -> list[Item]:
        try:
            return list(_event(data, self.skipped))
        except (Malformed, ValueError, OverflowError, struct.error):
            self.skipped["malformed"] += 1
            return []


def _find_record(window: bytes) -> int | None:
    """Where the next record begins. The upper half of its length is zero: only there it is worth a checksum."""
    zeros = window.find(bytes(4), 1)
    while zeros != -1:
        if zeros >= 5 and _length_at(window, zeros - 4) is not None:
            return zeros - 4
        zeros = window.find(bytes(4), zeros + 1)
    return None


def _event(data: bytes, skipped: Counter[str]) -> Iterator[Item]:
    time, step, summaries = 0.0, 0, []
    for number, _, value in fields(data):
        if number == 1:
            time = double(value)
        elif number == 2:
            step = signed(value)
        elif number == 5:
            summaries.append(raw(value))
        elif number in (4, 9):
            skipped["graph"] += 1
    if not math.isfinite(time):
        time = 0.0
    for summary in summaries:
        for number, _, value in fields(summary):
            if number == 1:
                yield from _value(raw(value), step, time, skipped)


class _Parts(NamedTuple):
    """The fields of one value of a summary."""

    tag: str
    plugin: str
    content: bytes  # of the plugin
    kind: int  # the field's number
    value: int | bytes


def _value(data: bytes, step: int, time: float, skipped: Counter[str]) -> Iterator[Item]:
    parts = _parts(data)
    tag = parts.tag
    if not tag or len(tag) > MAX_TAG:
        skipped["without a usable name"] += 1
    elif parts.kind == 2:
        yield ScalarSummary(tag, step, time, single(parts.value))
    elif parts.plugin == "hparams" and tag == _HPARAMS:
        yield HparamsSummary(tag, step, time, _hparams(parts.content, skipped))
    elif parts.kind == 4:
        yield _old_image(tag, step, time, raw(parts.value))
    elif parts.kind == 5:
        yield from _old_histogram(tag, step, time, raw(parts.value))
    elif parts.kind == 8:
        found = list(_tensor(parts, step, time))
        if not found and parts.plugin != "histograms":
            skipped[parts.plugin or "tensor"] += 1
        yield from found
    elif parts.plugin != "hparams":
        skipped["audio" if parts.kind == 6 else "other"] += 1


def _parts(data: bytes) -> _Parts:
    tag = plugin = ""
    content, kind = b"", 0
    held: int | bytes = b""
    for number, _, value in fields(data):
        if number == 1:
            tag = text(value)
        elif number == 9:
            plugin, content = _metadata(raw(value))
        elif number != 7:
            kind, held = number, value
    return _Parts(tag, plugin, content, kind, held)


def _metadata(data: bytes) -> tuple[str, bytes]:
    """The plugin of a value, and its plugin data."""
    about = latest(raw(latest(data).get(1, b"")))
    return text(about.get(1, b"")), raw(about.get(2, b""))


def _tensor(parts: _Parts, step: int, time: float) -> Iterator[Item]:
    """The items of a tensor. Writers may name the plugin only once per tag, so the shape is used as well."""
    tensor = tensor_proto.parse(raw(parts.value))
    plugin, tag = parts.plugin, parts.tag
    if tensor.strings is not None:
        strings = tensor.strings
        is_image = len(strings) > 2 and strings[2].startswith(_KINDS_OF_IMAGES)
        if is_image and plugin in ("", "images"):
            for index, image in enumerate(strings[2:]):  # after width and height
                if image.startswith(_KINDS_OF_IMAGES):
                    yield ImageSummary(tag, step, time, image, index)
        elif not is_image and plugin in ("", "text"):
            said = "\n".join(part.decode("utf-8", "replace") for part in strings)
            yield TextSummary(tag[: -len("/text_summary")] if tag.endswith("/text_summary") else tag, step, time, said)
    elif plugin in ("", "scalars") and len(tensor.values) == 1:
        yield ScalarSummary(tag, step, time, tensor.values[0])
    elif plugin in ("", "histograms") and len(tensor.shape) == 2 and tensor.shape[1] == 3:
        yield from _histogram(tag, step, time, tensor.values)


def _old_image(tag: str, step: int, time: float, data: bytes) -> ImageSummary:
    encoded = raw(latest(data).get(4, b""))
    if not encoded.startswith(_KINDS_OF_IMAGES):
        raise Malformed("not a picture")
    return ImageSummary(tag, step, time, encoded)


def _histogram(tag: str, step: int, time: float, values: Sequence[float]) -> Iterator[HistogramSummary]:
    """Rows of left, right and count."""
    if values:
        yield _checked(HistogramSummary(tag, step, time, [*values[::3], values[-2]], list(values[2::3])))


def _old_histogram(tag: str, step: int, time: float, data: bytes) -> Iterator[HistogramSummary]:
    """Buckets by their right ends. The outermost ones are empty or endless: they are cut to what was really seen."""
    low, high = math.nan, math.nan
    ends: list[float] = []
    counts: list[float] = []
    for number, wire, value in fields(data):
        if number == 1:
            low = double(value)
        elif number == 2:
            high = double(value)
        elif number in (6, 7):
            (ends if number == 6 else counts).extend(reals(wire, value, "d"))
            if len(ends) + len(counts) > 2 * MAX_BUCKETS:
                raise Malformed("too many buckets")
    if len(ends) != len(counts):
        raise Malformed("not as many buckets as ends")
    filled = [index for index, count in enumerate(counts) if count]
    if not filled:
        return
    first, last = filled[0], filled[-1]
    left = ends[first - 1] if first else low
    edges = [min(max(edge, low), high) for edge in [left, *ends[first : last + 1]]]
    yield _checked(HistogramSummary(tag, step, time, edges, counts[first : last + 1]))


def _checked(histogram: HistogramSummary) -> HistogramSummary:
    edges, counts = histogram.edges, histogram.counts
    if len(counts) > MAX_BUCKETS or not all(map(math.isfinite, [*edges, *counts])):
        raise Malformed("not a histogram")
    if any(right < left for left, right in pairwise(edges)):
        raise Malformed("edges that do not rise")
    return histogram


def _hparams(content: bytes, skipped: Counter[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for number, _, entry in fields(raw(latest(content).get(3, b""))):
        if number == 1:
            name, value = _hparam(raw(entry))
            if value is None:
                skipped["hparams"] += 1
            elif name:
                values[name[:MAX_TAG]] = value
    return values


def _hparam(entry: bytes) -> tuple[str, float | str | None]:
    """A name and its number, string or boolean; None for anything else."""
    found = latest(entry)
    held: float | str | None = None
    for kind, value in latest(raw(found.get(2, b""))).items():
        if kind in _HPARAM_KINDS:
            held = _HPARAM_KINDS[kind](value)
    return text(found.get(1, b"")), held
