"""Points are decoded as they were written, whatever happened to the files."""

from __future__ import annotations

import random
import struct
from math import inf, isnan, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx import spool
from phalanx.spool import JSON, MOMENT, NAMES, NO_STEP, POINTS, VALUE, PointWriter, frame, name_payload
from phalanx.store.records import Summary
from phalanx.store.series.points import PointFile, point_files
from phalanx.store.series.summaries import FolderSummaries
from tests.examples import examples

START = 1_700_000_000.0


def points_record(step: int, time: float, *values: tuple[int, float]) -> bytes:
    return frame(POINTS, MOMENT.pack(step, time) + b"".join(VALUE.pack(number, value) for number, value in values))


def name_record(number: int, name: str) -> bytes:
    return frame(NAMES, name_payload(number, name))


def decoded(path: Path) -> dict[str, list[tuple[int, float, float]]]:
    file = PointFile(path)
    file.poll()
    return triples(file)


def triples(file: PointFile) -> dict[str, list[tuple[int, float, float]]]:
    return {
        name: list(zip(columns.steps, columns.times, columns.values, strict=True))
        for name, columns in file.metrics.items()
    }


def slowly(data: bytes) -> dict[str, list[tuple[int, float, float]]]:
    """The same by the plain reader of the spool."""
    names: dict[int, str] = {}
    found: dict[str, list[tuple[int, float, float]]] = {}
    for kind, payload in spool.split(data)[0]:
        if kind == NAMES:
            names[struct.unpack_from("<I", payload)[0]] = payload[4:].decode()
            found.setdefault(names[struct.unpack_from("<I", payload)[0]], [])
        elif kind == POINTS:
            step, time = MOMENT.unpack_from(payload)
            for number, value in VALUE.iter_unpack(payload[MOMENT.size :]):
                found.setdefault(names.get(number, f"unnamed-{number}"), []).append((step, time, value))
    return found


def test_what_a_writer_wrote_is_read(tmp_path: Path) -> None:
    writer = PointWriter(tmp_path / "a.points")
    writer.add(1, START, {"loss": 0.5, "lr": 0.1})
    writer.add(None, START + 1, {"loss": 0.25})
    writer.add(-3, START + 2, {"lr": 0.2})
    writer.close()
    assert decoded(tmp_path / "a.points") == {
        "loss": [(1, START, 0.5), (NO_STEP, START + 1, 0.25)],
        "lr": [(1, START, 0.1), (-3, START + 2, 0.2)],
    }


def test_nan_and_infinities_are_kept(tmp_path: Path) -> None:
    writer = PointWriter(tmp_path / "a.points")
    for value in (nan, inf, -inf, 1.0):
        writer.add(0, START, {"loss": value})
    writer.close()
    values = [value for _, _, value in decoded(tmp_path / "a.points")["loss"]]
    assert isnan(values[0])
    assert values[1:] == [inf, -inf, 1.0]


def test_a_file_is_followed_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "a.points"
    records = [name_record(0, "loss"), *(points_record(step, START, (0, float(step))) for step in range(50))]
    data = b"".join(records)
    file = PointFile(path)
    new = 0
    for end in range(0, len(data) + 7, 7):  # records arrive torn, again and again
        path.write_bytes(data[:end])
        new += file.poll()
        assert file.poll() == 0
    assert new == 50
    assert [step for step, _, _ in triples(file)["loss"]] == list(range(50))
    assert file.skipped_bytes == 0


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        PointFile(tmp_path / "a.points").poll()


def test_another_file_of_the_same_name_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "a.points"
    path.write_bytes(name_record(0, "old") + points_record(0, START, (0, 1.0)))
    file = PointFile(path)
    file.poll()
    path.unlink()
    path.write_bytes(name_record(0, "new") + b"".join(points_record(step, START, (0, 2.0)) for step in range(9)))
    assert file.poll() == 9
    assert list(file.metrics) == ["new"]


def test_a_number_may_be_given_to_another_name(tmp_path: Path) -> None:
    """A file reopened by another writer, which counts from 0 again."""
    path = tmp_path / "a.points"
    for name in ("first", "second"):
        writer = PointWriter(path)
        writer.add(0, START, {name: 1.0})
        writer.add(1, START, {"both": 2.0})
        writer.close()
    found = decoded(path)
    assert {name: len(points) for name, points in found.items()} == {"first": 1, "second": 1, "both": 2}


def test_long_names_are_cut(tmp_path: Path) -> None:
    writer = PointWriter(tmp_path / "a.points")
    writer.add(0, START, {"ä" * 500: 1.0, "b" * 501: 2.0})
    writer.close()
    assert list(decoded(tmp_path / "a.points")) == ["ä" * 500, "b" * 499 + "…"]


def test_values_whose_name_was_lost_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a.points").write_bytes(points_record(3, START, (7, 1.5)))
    assert decoded(tmp_path / "a.points") == {"unnamed-7": [(3, START, 1.5)]}


@pytest.mark.parametrize("time", [nan, inf, -inf, -1.0, 1e300])
def test_a_clock_that_talks_nonsense_is_not_believed(tmp_path: Path, time: float) -> None:
    data = name_record(0, "loss") + points_record(0, START, (0, 1.0)) + points_record(1, time, (0, 2.0))
    (tmp_path / "a.points").write_bytes(data)
    assert [found for _, found, _ in decoded(tmp_path / "a.points")["loss"]] == [START, START]


def test_records_that_say_nothing_are_passed_over(tmp_path: Path) -> None:
    """Whole, but too short, of another kind, or with a rest that is no value."""
    data = name_record(0, "loss") + points_record(0, START, (0, 1.0))
    data += (
        frame(POINTS, b"") + frame(POINTS, b"12345") + frame(NAMES, b"12") + frame(JSON, b"{}") + frame(99, b"x" * 40)
    )
    data += frame(POINTS, MOMENT.pack(1, START)) + frame(POINTS, MOMENT.pack(2, START) + VALUE.pack(0, 3.0) + b"rest")
    (tmp_path / "a.points").write_bytes(data)
    assert decoded(tmp_path / "a.points") == {"loss": [(0, START, 1.0), (2, START, 3.0)]}


@pytest.mark.slow
def test_a_record_of_very_many_values_is_read(tmp_path: Path) -> None:
    values = [(number, float(number)) for number in range(90_000)]  # more than a chunk of the file
    names = b"".join(name_record(number, f"m{number}") for number in range(90_000))
    (tmp_path / "a.points").write_bytes(names + points_record(5, START, *values) + points_record(6, START, (1, 2.0)))
    found = decoded(tmp_path / "a.points")
    assert found["m1"] == [(5, START, 1.0), (6, START, 2.0)]
    assert found["m89999"] == [(5, START, 89_999.0)]


def test_damage_loses_only_the_records_it_hit(tmp_path: Path) -> None:
    """Bytes are changed, removed and put in at random places; what the plain reader still finds is found here too."""
    chance = random.Random(4)
    path = tmp_path / "a.points"
    for _ in range(60):
        records = [name_record(number, f"metric-{number}") for number in range(3)]
        for step in range(chance.randrange(5, 80)):
            some = chance.sample(range(3), chance.randrange(1, 4))
            records.append(points_record(step, START + step, *((number, chance.random()) for number in some)))
        hit = set(chance.sample(range(3, len(records)), 4)) - {len(records) - 1}
        whole = b"".join(record for place, record in enumerate(records) if place not in hit)
        data = b"".join(damaged(record, chance) if place in hit else record for place, record in enumerate(records))
        path.write_bytes(data)
        file = PointFile(path)
        file.poll()
        assert triples(file) == slowly(whole) == slowly(data)
        assert file.skipped_bytes == spool.split(data)[2]
        assert file.offset == len(data)


def damaged(record: bytes, chance: random.Random) -> bytes:
    place = chance.choice([place for place in range(len(record)) if place != 3])  # a byte that means nothing
    kind = chance.randrange(4)
    if kind == 0:
        return record[:place] + bytes([record[place] ^ (1 << chance.randrange(8))]) + record[place + 1 :]
    if kind == 1:
        return record[:place]  # torn
    if kind == 2:
        return record[:place] + bytes([record[place] ^ 255]) + record[place + 1 :] + spool.MARK * 3
    return bytes(len(record))  # a hole that the filesystem filled with zeros


def test_the_reserved_byte_of_a_head_is_free(tmp_path: Path) -> None:
    record = bytearray(points_record(0, START, (0, 1.0)))
    record[3] = 77
    (tmp_path / "a.points").write_bytes(name_record(0, "loss") + record)
    assert len(decoded(tmp_path / "a.points")["loss"]) == 1


@pytest.mark.slow
def test_a_large_hole_is_passed_over_without_reading_it_again_and_again(tmp_path: Path) -> None:
    before, after = points_record(0, START, (0, 1.0)), points_record(1, START, (0, 2.0))
    hole = bytes(20 << 20)  # larger than any record can be
    path = tmp_path / "a.points"
    path.write_bytes(name_record(0, "loss") + before + hole)
    file = PointFile(path)
    assert file.poll() == 1
    assert file.skipped_bytes > 3 << 20  # the rest might still be the beginning of a record
    with open(path, "ab") as stream:
        stream.write(after)
    assert file.poll() == 1
    assert file.skipped_bytes == len(hole)


@examples(150)
@given(st.binary(max_size=400), st.binary(max_size=400))
def test_no_bytes_break_the_reader(before: bytes, after: bytes) -> None:
    import tempfile

    record = name_record(0, "loss") + points_record(0, START, (0, 1.0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.points")
        path.write_bytes(before + record + after)
        assert len(decoded(path)["loss"]) == 1


def test_of_what_was_consumed_only_names_are_read(tmp_path: Path) -> None:
    known = name_record(0, "loss") + b"".join(points_record(step, START, (0, 1.0)) for step in range(10))
    path = tmp_path / "a.points"
    path.write_bytes(known)
    file = PointFile(path, consumed=len(known))
    assert file.poll() == 0
    with open(path, "ab") as stream:
        stream.write(points_record(10, START, (0, 9.0)))
    assert file.poll() == 1
    assert triples(file) == {"loss": [(10, START, 9.0)]}


def test_only_files_of_points_are_found(tmp_path: Path) -> None:
    for name in ("b.points", "a.points", "a.events", "spool", "log"):
        (tmp_path / name).touch()
    (tmp_path / "folder.points").mkdir()
    assert point_files(tmp_path) == ["a.points", "b.points"]
    assert point_files(tmp_path / "nowhere") == []
    assert point_files(tmp_path / "log") == []


class TestSummaries:
    def test_they_are_those_of_all_points(self, tmp_path: Path) -> None:
        writer = PointWriter(tmp_path / "a.points")
        followed = FolderSummaries(tmp_path)
        chance = random.Random(1)
        values = []
        for step in range(500):
            values.append(chance.gauss(0, 1))
            writer.add(step, START + step, {"loss": values[-1]})
            if step % 50 == 0:
                assert followed.poll() == {"loss"}
                assert followed.summaries["loss"] == summary_of(values, step)
        writer.close()
        followed.poll()
        assert followed.summaries == {"loss": summary_of(values, 499)}
        assert followed.poll() == set()

    def test_a_long_file_is_read_in_turns_by_who_has_little_time(self, tmp_path: Path) -> None:
        count = 80_000
        records = b"".join(points_record(step, START + step, (0, float(step))) for step in range(count))
        (tmp_path / "a.points").write_bytes(name_record(0, "loss") + records)
        followed = FolderSummaries(tmp_path)
        counts = []
        while followed.poll(longest_s=0):
            counts.append(followed.summaries["loss"].count)
        assert len(counts) == 4  # of a MiB each
        assert counts == sorted(counts)
        assert followed.summaries == {"loss": summary_of([float(step) for step in range(count)], count - 1)}

    def test_odd_values_count_but_are_not_the_smallest_or_largest(self, tmp_path: Path) -> None:
        writer = PointWriter(tmp_path / "a.points")
        followed = FolderSummaries(tmp_path)
        writer.add(0, START, {"loss": nan, "never": inf})
        followed.poll()
        assert followed.summaries["never"] == Summary(inf, None, None, 1, 0, START)
        for value in (3.0, -inf, 2.0, inf):
            writer.add(1, START + 1, {"loss": value})
        writer.close()
        followed.poll()
        assert followed.summaries["loss"] == Summary(inf, 2.0, 3.0, 5, 1, START + 1)

    def test_the_last_value_is_that_of_the_largest_step_however_it_is_read(self, tmp_path: Path) -> None:
        logged = [(1, 0.9), (5, 0.5), (3, 0.7), (5, 0.4), (2, 0.8)]
        writer = PointWriter(tmp_path / "a.points")
        at_once, in_turns = FolderSummaries(tmp_path), FolderSummaries(tmp_path)
        for place, (step, value) in enumerate(logged):
            writer.add(step, START + place, {"loss": value})
            in_turns.poll()
        writer.close()
        at_once.poll()
        assert at_once.summaries["loss"] == Summary(0.4, 0.4, 0.9, 5, 5, START + 3)
        assert in_turns.summaries == at_once.summaries

    def test_steps_that_were_not_given_are_counted(self, tmp_path: Path) -> None:
        writer = PointWriter(tmp_path / "a.points")
        followed = FolderSummaries(tmp_path)
        for step in (None, None):
            writer.add(step, START, {"loss": 1.0, "new": 1.0})
        followed.poll()
        assert (followed.summaries["loss"].step, followed.summaries["new"].step) == (1, 1)
        writer.add(None, START, {"loss": 1.0, "new": 1.0})
        writer.add(7, START, {"new": 1.0})
        writer.add(None, START, {"new": 1.0})
        writer.add(2**63 - 1, START, {"far": 1.0})
        writer.add(None, START, {"far": 1.0})
        writer.close()
        followed.poll()
        steps = {name: summary.step for name, summary in followed.summaries.items()}
        assert steps == {"loss": 2, "new": 8, "far": 2**63 - 1}

    def test_the_last_of_several_writers_is_the_one_that_logged_last(self, tmp_path: Path) -> None:
        early, late = PointWriter(tmp_path / "b.points"), PointWriter(tmp_path / "a.points")
        early.add(5, START, {"loss": 0.5})
        late.add(9, START + 9, {"loss": 0.9})
        early.close()
        late.close()
        followed = FolderSummaries(tmp_path)
        followed.poll()
        assert followed.summaries == {"loss": Summary(0.9, 0.5, 0.9, 2, 9, START + 9)}

    def test_files_that_go_and_come_are_no_trouble(self, tmp_path: Path) -> None:
        followed = FolderSummaries(tmp_path / "later")
        assert followed.poll() == set()
        (tmp_path / "later").mkdir()
        for points in (2, 1):
            writer = PointWriter(tmp_path / "later" / "a.points")
            for step in range(points):
                writer.add(step, START + step, {"loss": 1.0})
            writer.close()
            assert followed.poll() == {"loss"}
            (tmp_path / "later" / "a.points").unlink()
        assert followed.poll() == set()
        assert followed.summaries["loss"].count == 3


def summary_of(values: list[float], step: int) -> Summary:
    return Summary(values[-1], min(values), max(values), len(values), step, START + step)
