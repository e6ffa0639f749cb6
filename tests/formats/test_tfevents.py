from __future__ import annotations

import math
import os
import random
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from phalanx.formats import tfevents
from phalanx.formats.tfevents import (
    EventFileReader,
    HistogramSummary,
    HparamsSummary,
    ImageSummary,
    Item,
    ScalarSummary,
    TextSummary,
    masked_crc,
)
from tests.examples import examples
from tests.formats.encoding import (
    data,
    double,
    number,
    png,
    single,
    tf_event,
    tf_record,
    tf_scalar,
    tf_tensor,
    tf_tensor_event,
)


@pytest.fixture(name="board")
def board_fixture(tmp_path: Path) -> Any:
    """TensorBoard's own format, written by a library that is not ours."""
    from tensorboardX import SummaryWriter  # type: ignore[import-untyped]

    return SummaryWriter(str(tmp_path / "board"))


def event_file(board: Any) -> Path:
    board.close()  # it has a thread of its own that writes
    (found,) = Path(board.logdir).glob("*tfevents*")
    return found


def everything(path: Path) -> list[Item]:
    return list(EventFileReader(path).poll())


def written(path: Path, *records: bytes) -> Path:
    path.write_bytes(b"".join(records))
    return path


def test_the_checksum_is_the_one_of_the_specification() -> None:
    """CRC-32C of 32 zeros is 8a9136aa (RFC 3720); then it is turned and shifted."""
    plain = 0x8A9136AA
    assert masked_crc(bytes(32)) == ((plain >> 15 | plain << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_scalars_of_tensorboardx_are_read(board: Any) -> None:
    before = time.time()
    for step in range(100):
        board.add_scalar("train/loss", 1 / (step + 1), step)
    board.add_scalar("at the end", -2.5, -7)
    follower = EventFileReader(event_file(board))
    found = list(follower.poll())
    assert [item.step for item in found] == [*range(100), -7]
    assert found[3] == ScalarSummary("train/loss", 3, found[3].time, 0.25)
    assert before - 1 < found[0].time < time.time() + 1
    assert follower.skipped == {}
    assert follower.offset == event_file(board).stat().st_size


def test_texts_of_tensorboardx_are_read_under_the_name_they_were_given(board: Any) -> None:
    board.add_text("notes", "**ümläut**", 3)
    (found,) = everything(event_file(board))
    assert found == TextSummary("notes", 3, found.time, "**ümläut**")


def test_histograms_of_tensorboardx_have_one_more_edge_than_counts_and_all_values(board: Any) -> None:
    import numpy

    values = numpy.concatenate([numpy.linspace(-3, 5, 999), [1e-9]])
    board.add_histogram("weights", values, 4)  # TensorFlow's growing buckets
    board.add_histogram("weights", values, 5, bins=10)
    for found in everything(event_file(board)):
        assert isinstance(found, HistogramSummary)
        assert len(found.edges) == len(found.counts) + 1
        assert sum(found.counts) == 1000
        assert (found.edges[0], found.edges[-1]) == (-3, 5)
        assert found.edges == sorted(found.edges)


def test_hyperparameters_of_tensorboardx_are_read(board: Any) -> None:
    board.add_hparams({"lr": 0.1, "optimizer": "adam", "nesterov": True}, {"accuracy": 0.9}, name="session")
    (path,) = Path(board.logdir).glob("session/*tfevents*")
    params, metric = everything(path)
    assert isinstance(params, HparamsSummary)
    assert params.values == {"lr": 0.1, "optimizer": "adam", "nesterov": True}
    assert isinstance(metric, ScalarSummary)
    assert (metric.tag, round(metric.value, 6)) == ("accuracy", 0.9)


def test_images_of_tensorboardx_are_read(board: Any) -> None:
    from tensorboardX.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

    image = Summary.Image(height=3, width=4, colorspace=1, encoded_image_string=png(4, 3))
    board._get_file_writer().add_summary(Summary(value=[Summary.Value(tag="digits", image=image)]), 9)
    (found,) = everything(event_file(board))
    assert found == ImageSummary("digits", 9, found.time, png(4, 3))


@pytest.mark.parametrize(
    ("kind", "content", "value"),
    [
        (1, data(4, struct.pack("<f", 0.5)), 0.5),
        (1, single(5, 0.5), 0.5),
        (2, data(4, struct.pack("<d", 1e-300)), 1e-300),
        (2, double(6, math.pi), math.pi),
        (3, number(7, -3), -3.0),
        (9, number(10, 1 << 40), float(1 << 40)),
        (9, data(4, struct.pack("<q", -9)), -9.0),
        (10, number(11, 1), 1.0),
        (14, data(13, number(0, 0x3F80)[1:]), 1.0),
        (14, data(4, b"\x80\xbf"), -1.0),
        (19, data(4, struct.pack("<e", 0.25)), 0.25),
        (19, number(13, 0x3C00), 1.0),
        (23, number(17, (1 << 64) - 1), float(1 << 64)),
    ],
)
@pytest.mark.parametrize("plugin", ["scalars", ""])
def test_scalars_of_tensorflow_2_are_tensors_of_any_type(
    tmp_path: Path, kind: int, content: bytes, value: float, plugin: str
) -> None:
    path = written(tmp_path / "e", tf_tensor_event("loss", tf_tensor(kind, (), content), plugin, step=8))
    assert everything(path) == [ScalarSummary("loss", 8, 1.7e9, value)]


def test_images_of_tensorflow_2_are_strings_after_their_size(tmp_path: Path) -> None:
    strings = b"".join(data(8, text) for text in (b"5", b"6", png(), png(3, 3)))
    path = written(tmp_path / "e", tf_tensor_event("shown", tf_tensor(7, (4,), strings), "images", step=1))
    assert everything(path) == [
        ImageSummary("shown", 1, 1.7e9, png(), 0),
        ImageSummary("shown", 1, 1.7e9, png(3, 3), 1),
    ]


@pytest.mark.parametrize("plugin", ["histograms", ""])
def test_histograms_of_tensorflow_2_are_rows_of_left_right_and_count(tmp_path: Path, plugin: str) -> None:
    rows = struct.pack("<6d", 0, 1, 10, 1, 2, 20)
    path = written(tmp_path / "e", tf_tensor_event("w", tf_tensor(2, (2, 3), data(4, rows)), plugin))
    assert everything(path) == [HistogramSummary("w", 0, 1.7e9, [0, 1, 2], [10, 20])]


def test_a_tensor_may_repeat_its_last_value(tmp_path: Path) -> None:
    values = b"".join(double(6, value) for value in (0.0, 0.0, 7.0))
    path = written(tmp_path / "e", tf_tensor_event("w", tf_tensor(2, (2, 3), values), "histograms"))
    assert everything(path) == [HistogramSummary("w", 0, 1.7e9, [0, 7, 7], [7, 7])]
    flat = written(tmp_path / "f", tf_tensor_event("s", tf_tensor(1, (1,), single(5, 2.0)), "scalars"))
    assert everything(flat) == [ScalarSummary("s", 0, 1.7e9, 2.0)]


def test_a_file_is_followed_while_it_grows_and_an_unfinished_record_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1"
    follower = EventFileReader(path)
    assert list(follower.poll()) == []  # not there yet
    records = [tf_scalar("loss", float(step), step) for step in range(3)]
    whole = b"".join(records)
    seen: list[int] = []
    for end in range(len(whole) + 1):
        path.write_bytes(whole[:end])
        seen += [item.step for item in follower.poll()]
        assert follower.offset <= end
    assert seen == [0, 1, 2]
    assert follower.skipped == {}


def test_the_offset_can_be_kept_and_given_again(tmp_path: Path) -> None:
    path = written(tmp_path / "e", *(tf_scalar("loss", 1.0, step) for step in range(10)))
    follower = EventFileReader(path)
    first = [item.step for item in follower.poll(budget_bytes=1)]
    assert first == [0]
    again = EventFileReader(path, follower.offset)
    assert [item.step for item in again.poll()] == list(range(1, 10))


def test_an_interrupted_reader_gets_its_last_record_again(tmp_path: Path) -> None:
    path = written(tmp_path / "e", tf_scalar("a", 1.0, 0), tf_scalar("a", 1.0, 1))
    follower = EventFileReader(path)
    for item in follower.poll():
        assert item.step == 0
        break
    assert [item.step for item in follower.poll()] == [0, 1]


def test_a_budget_bounds_what_is_read_and_everything_comes_in_the_end(tmp_path: Path) -> None:
    path = written(tmp_path / "e", *(tf_scalar("loss", 1.0, step) for step in range(100)))
    follower, seen, calls = EventFileReader(path), [], 0
    while follower.offset < path.stat().st_size:
        part = [item.step for item in follower.poll(budget_bytes=500)]
        assert 0 < len(part) < 20
        seen += part
        calls += 1
    assert seen == list(range(100))
    assert calls > 5


@pytest.mark.parametrize("place", [0, 5, 9, 14, 30])
def test_damage_is_passed_over_and_counted(tmp_path: Path, place: int) -> None:
    good = [tf_scalar("loss", 1.0, step) for step in range(3)]
    broken = bytearray(good[1])
    broken[place] ^= 0x40
    follower = EventFileReader(written(tmp_path / "e", good[0], bytes(broken), good[2]))
    assert [item.step for item in follower.poll()] == [0, 2]
    assert follower.skipped == {"damage": len(broken)}


def test_damage_at_the_end_is_waited_for_because_a_network_filesystem_may_show_zeros(tmp_path: Path) -> None:
    first, second = tf_scalar("a", 1.0, 0), tf_scalar("a", 2.0, 1)
    path = written(tmp_path / "e", first, bytes(len(second)))
    follower = EventFileReader(path)
    assert [item.step for item in follower.poll()] == [0]
    assert list(follower.poll()) == []
    assert (follower.offset, follower.skipped) == (len(first), {})
    path.write_bytes(first + second + tf_scalar("a", 3.0, 2))
    assert [item.step for item in follower.poll()] == [1, 2]


def test_much_damage_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfevents, "SEARCH", 1000)
    path = written(tmp_path / "e", os.urandom(5000).replace(b"\0", b"\1"), tf_scalar("a", 1.0, 5))
    follower = EventFileReader(path)
    assert [item.step for item in follower.poll()] == [5]
    assert follower.skipped == {"damage": 5000}


def test_another_file_of_the_same_name_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = written(tmp_path / "e", *(tf_scalar("a", 1.0, step) for step in range(5)))
    follower = EventFileReader(path)
    list(follower.poll())
    written(path, tf_scalar("b", 1.0, 77))
    assert [item.step for item in follower.poll()] == [77]


def test_a_length_without_end_takes_no_memory(tmp_path: Path) -> None:
    """Its checksum may be right: then it is a record that nobody will ever finish, or it is no record at all."""
    for length in (1 << 30, 1 << 31, 1 << 60):
        head = struct.pack("<Q", length)
        path = written(tmp_path / "e", head, struct.pack("<I", masked_crc(head)), tf_scalar("a", 1.0, 4))
        follower = EventFileReader(path)
        found = [item.step for item in follower.poll()]
        assert found == ([] if length < 1 << 31 else [4])


def test_a_record_that_is_too_large_is_passed_over_without_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tfevents, "MAX_RECORD", 100)
    path = written(tmp_path / "e", tf_record(bytes(200)), tf_scalar("a", 1.0, 4))
    follower = EventFileReader(path)
    assert [item.step for item in follower.poll()] == [4]
    assert follower.skipped == {"too large": 1}


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (data(1, "") + single(2, 1.0), "without a usable name"),
        (data(1, "x" * 2000) + single(2, 1.0), "without a usable name"),
        (data(1, "a") + data(6, b"RIFF"), "audio"),
        (data(1, "a") + data(4, data(4, b"not a picture")), "malformed"),
        (data(1, "a") + data(5, double(1, 0) + double(2, 1) + data(6, struct.pack("<d", 1))), "malformed"),
        (data(1, "a") + data(8, tf_tensor(1, (1 << 40,), b"")), "malformed"),
        (data(1, "a") + data(8, tf_tensor(1, (-1,), b"")), "malformed"),
        (data(1, "a") + data(8, tf_tensor(99, (), b"")), "malformed"),
        (data(1, "a") + data(8, tf_tensor(1, (6, 2), data(4, bytes(48)))), "tensor"),
        (data(1, "a") + data(9, data(1, data(1, "mesh"))) + data(8, tf_tensor(1, (), single(5, 1.0))), "mesh"),
    ],
)
def test_what_is_not_understood_is_counted_by_its_kind(tmp_path: Path, value: bytes, what: str) -> None:
    follower = EventFileReader(written(tmp_path / "e", tf_event(value), tf_scalar("after", 1.0, 1)))
    assert [item.tag for item in follower.poll()] == ["after"]
    assert follower.skipped == {what: 1}


def test_graphs_are_counted_and_times_that_are_none_are_zero(tmp_path: Path) -> None:
    graph = tf_record(double(1, 1.0) + data(4, b"a graph"))
    follower = EventFileReader(written(tmp_path / "e", graph, tf_scalar("a", 1.0, 1, time=math.nan)))
    assert [item.time for item in follower.poll()] == [0.0]
    assert follower.skipped == {"graph": 1}


def test_values_that_are_no_numbers_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "e", tf_scalar("a", math.nan), tf_scalar("a", -math.inf))
    first, second = everything(path)
    assert isinstance(first, ScalarSummary)
    assert isinstance(second, ScalarSummary)
    assert math.isnan(first.value)
    assert second.value == -math.inf


def test_the_outermost_buckets_of_old_histograms_are_cut_to_what_was_seen(tmp_path: Path) -> None:
    ends, counts = struct.pack("<4d", -1.0, 0.0, 1.0, 1.7e308), struct.pack("<4d", 0, 3, 0, 2)
    histogram = double(1, -0.5) + double(2, 8.0) + data(6, ends) + data(7, counts)
    path = written(tmp_path / "e", tf_event(data(1, "w") + data(5, histogram)))
    assert everything(path) == [HistogramSummary("w", 0, 1.7e9, [-0.5, 0.0, 1.0, 8.0], [3, 0, 2])]


def test_hyperparameters_that_are_lists_are_counted(tmp_path: Path) -> None:
    entry = data(1, data(1, "sizes") + data(2, data(6, b""))) + data(1, data(1, "lr") + data(2, double(2, 0.5)))
    content = data(3, entry)
    metadata = data(9, data(1, data(1, "hparams") + data(2, content)))
    follower = EventFileReader(written(tmp_path / "e", tf_event(data(1, "_hparams_/session_start_info") + metadata)))
    (found,) = follower.poll()
    assert isinstance(found, HparamsSummary)
    assert (found.values, follower.skipped) == ({"lr": 0.5}, {"hparams": 1})


@examples(150, HealthCheck.function_scoped_fixture)
@given(content=st.binary(max_size=300), framed=st.booleans())
def test_any_bytes_are_read_without_a_fault(tmp_path: Path, content: bytes, framed: bool) -> None:
    path = written(tmp_path / "e", tf_record(content) if framed else content, tf_scalar("after", 1.0, 1))
    follower = EventFileReader(path)
    found = list(follower.poll())
    assert found[-1:] == [ScalarSummary("after", 1, 1.7e9, 1.0)]
    assert follower.offset == path.stat().st_size


def test_records_with_bytes_changed_at_random_never_raise(tmp_path: Path) -> None:
    dice = random.Random(7)
    samples = [
        tf_tensor_event("w", tf_tensor(2, (2, 3), data(4, struct.pack("<6d", 0, 1, 9, 1, 2, 9))), "histograms"),
        tf_tensor_event("i", tf_tensor(7, (3,), b"".join(data(8, s) for s in (b"1", b"1", png()))), "images"),
        tf_scalar("s", 1.0),
    ]
    for _ in range(600):
        content = bytearray(dice.choice(samples)[12:-4])
        for _ in range(dice.randint(1, 4)):
            content[dice.randrange(len(content))] = dice.randrange(256)
        follower = EventFileReader(written(tmp_path / "e", tf_record(bytes(content))))
        list(follower.poll())
        assert follower.offset == (tmp_path / "e").stat().st_size


def test_a_folder_and_a_file_without_permission_give_nothing(tmp_path: Path) -> None:
    assert everything(tmp_path) == []
