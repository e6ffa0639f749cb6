from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx import spool
from phalanx.spool import HEAD, JSON, MARK, Reader, Record, Writer, frame, read, split
from tests.examples import examples

RECORDS = st.lists(st.tuples(st.integers(1, 255), st.binary(max_size=200)), max_size=20)


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "spool")
    writer.append_json({"loss": 0.5})
    writer.append(7, b"\x00binary\xff")
    writer.close()
    first, second = read(tmp_path / "spool")
    assert first.data() == {"loss": 0.5}
    assert second == Record(7, b"\x00binary\xff")


def test_a_file_that_is_not_there_has_no_records(tmp_path: Path) -> None:
    assert read(tmp_path / "spool") == []


def test_the_file_is_private(tmp_path: Path) -> None:
    Writer(tmp_path / "spool").close()
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o600


def test_a_record_of_more_than_its_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="16 MiB"):
        frame(JSON, b"x" * (spool.MAX_PAYLOAD + 1))


@examples(200)
@given(RECORDS)
def test_records_come_back_in_order(rows: list[tuple[int, bytes]]) -> None:
    data = b"".join(frame(kind, payload) for kind, payload in rows)
    records, used, damage = split(data)
    assert [tuple(record) for record in records] == rows
    assert (used, damage) == (len(data), 0)


@examples(200)
@given(RECORDS, st.integers(0, 400))
def test_a_file_cut_anywhere_gives_all_whole_records_before_the_cut(rows: list[tuple[int, bytes]], cut: int) -> None:
    frames = [frame(kind, payload) for kind, payload in rows]
    data = b"".join(frames)[:cut]
    records, used, _ = split(data)
    whole = 0
    while whole < len(frames) and sum(map(len, frames[: whole + 1])) <= len(data):
        whole += 1
    assert [tuple(record) for record in records] == rows[:whole]
    assert used == sum(map(len, frames[:whole]))


@examples(200)
@given(RECORDS, st.binary(min_size=1, max_size=60), RECORDS)
def test_damage_is_skipped_and_what_follows_is_read(
    before: list[tuple[int, bytes]], damage: bytes, after: list[tuple[int, bytes]]
) -> None:
    data = b"".join(frame(*row) for row in before) + damage + b"".join(frame(*row) for row in after)
    records, used, skipped = split(data)
    assert [tuple(record) for record in records] == before + after
    assert skipped == (len(damage) if after else 0)
    assert used == len(data) - (0 if after else len(damage))


def test_a_torn_record_is_waited_for_and_then_read(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    data = frame(JSON, b'{"a":1}')
    path.write_bytes(data + data[:9])
    reader = Reader(path)
    assert [record.data() for record in reader.poll()] == [{"a": 1}]
    assert list(reader.poll()) == []
    with path.open("ab") as stream:
        stream.write(data[9:])
    assert [record.data() for record in reader.poll()] == [{"a": 1}]
    assert reader.skipped_bytes == 0


def test_a_payload_that_looks_like_a_record_is_not_taken_for_one() -> None:
    inner = frame(JSON, b"{}")
    records, _, _ = split(frame(9, inner + inner))
    assert records == [Record(9, inner + inner)]


def test_a_reader_goes_on_from_where_another_one_stopped(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "spool")
    writer.append_json(1)
    first = Reader(tmp_path / "spool")
    assert [record.data() for record in first.poll()] == [1]
    writer.append_json(2)
    assert [record.data() for record in Reader(tmp_path / "spool", first.offset).poll()] == [2]
    writer.close()


def test_large_files_are_read_in_pieces(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "spool")
    payload = os.urandom(300_000)
    for _ in range(12):
        writer.append(3, payload)
    writer.close()
    assert [record.payload for record in read(tmp_path / "spool")] == [payload] * 12


def test_a_killed_writer_loses_no_finished_record(tmp_path: Path) -> None:
    program = (
        "import sys; from phalanx.spool import Writer\n"
        "w = Writer(sys.argv[1])\n"
        "for i in range(10**9):\n"
        "    w.append_json(i)\n"
        "    sys.stdout.write(f'{i}\\n'); sys.stdout.flush()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "spool")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(100)]
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read().split()
    kept = [record.data() for record in read(tmp_path / "spool")]
    assert kept == list(range(len(kept)))
    assert len(kept) >= len(said) > 10


def test_the_format_is_what_it_was() -> None:
    """Files outlive programs: this is how a record looks, for ever."""
    assert frame(JSON, json.dumps({"a": 1}).encode()).hex() == "a750010008000000098e0b377b2261223a20317d"
    assert HEAD.size == 12
    assert MARK == b"\xa7P"


def test_a_page_that_was_lost_reads_as_zeros_and_as_no_record(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    whole = frame(JSON, b'{"a": 1}')
    path.write_bytes(whole + MARK + bytes(50) + whole)
    reader = Reader(path)
    assert [record.data() for record in reader.poll()] == [{"a": 1}, {"a": 1}]
    assert reader.skipped_bytes == 52
