"""Event files that we write are those that we read."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from phalanx.formats.tfevents import EventFileReader, ScalarSummary
from phalanx.formats.tfevents_writer import EventFileWriter
from tests.examples import examples

POINTS = st.tuples(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    st.integers(-(2**62), 2**62),
    st.floats(0, 2e9),
    st.floats(),
)


def as_single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


@examples(100)
@given(st.lists(POINTS, max_size=20))
def test_what_is_written_is_read_also_while_it_is_written(points: list[tuple[str, int, float, float]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "events.out.tfevents.1.here"
        writer, reader = EventFileWriter(path, 1.0), EventFileReader(path)
        found: list[object] = []
        for tag, step, at, value in points:
            writer.scalar(tag, step, at, value)
            writer.flush()
            found += reader.poll()
        writer.close()
        found += reader.poll()
        expected = [ScalarSummary(tag, step, at, as_single(value)) for tag, step, at, value in points]
        assert repr(found) == repr(expected)
        assert not reader.skipped
        assert reader.offset == path.stat().st_size
