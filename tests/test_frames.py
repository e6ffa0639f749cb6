"""Files inside the output of a container: what comes home is byte for byte what was there."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx import frames
from phalanx.frames import Decoder, Encoder, Piece, is_file, is_kept, is_position
from tests.examples import examples

FIRST, SECOND = "worker-0", "worker-0.1"
ODD = [
    b"::phalanx ",
    b'::phalanx {"r":"worker-0","f":"log","at":0}\n',
    b"\r",
    b"\r\n",
    b"\n",
    b"\n\n",
    b"\xff\xfe",
    b"\0",
]
STRETCH = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(ODD),
    st.text(max_size=20).map(str.encode),
    st.integers(1, 3).map(lambda times: b"x" * (frames.LONGEST // 2 * times)),
)
LOGS = st.lists(STRETCH, max_size=30)


class Home:
    """Writes pieces as whoever collects them does."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], bytearray] = {}

    def take(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            kept = self.files.setdefault((piece.member, piece.file), bytearray())
            if piece.is_whole:
                kept[:] = piece.data
                continue
            kept.extend(bytes(max(0, piece.offset - len(kept))))
            kept[piece.offset : piece.offset + len(piece.data)] = piece.data

    def read(self, decoder: Decoder, lines: list[bytes]) -> Home:
        for line in lines:
            self.take(decoder.feed(line))
        return self

    def content(self, file: str, member: str = FIRST) -> bytes:
        return bytes(self.files.get((member, file), b""))


def sent(stretches: list[bytes], spool: bytes = b"") -> list[bytes]:
    """The output of a pod that relays a log in stretches, and a part of a spool after each."""
    encoder, offset = Encoder(FIRST), 0
    lines: list[bytes] = []
    for number, stretch in enumerate(stretches):
        lines += encoder.log(offset, stretch)
        offset += len(stretch)
        lines += encoder.grown(SECOND, "spool", number, spool[number : number + 1])
    return lines


@examples(60)
@given(LOGS, st.binary(max_size=30))
def test_a_log_comes_home_byte_for_byte_however_it_was_cut(stretches: list[bytes], spool: bytes) -> None:
    lines = sent(stretches, spool)
    home = Home().read(Decoder([FIRST]), lines)
    assert home.content("log") == b"".join(stretches)
    assert home.content("spool", SECOND) == spool[: len(stretches)]


@examples(60)
@given(LOGS)
def test_no_line_is_longer_than_runtimes_leave_in_one_piece(stretches: list[bytes]) -> None:
    lines = sent(stretches, b"s" * 30)
    assert all(len(line) <= frames.LONGEST and line.count(b"\n") == 1 and line.endswith(b"\n") for line in lines)


@examples(60)
@given(LOGS, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=6))
def test_stretches_may_be_read_again_from_any_position(stretches: list[bytes], again: list[tuple[int, int]]) -> None:
    """A connection breaks anywhere, and the next one begins anywhere before it."""
    lines = sent(stretches, b"s" * 30)
    decoder, home = Decoder([FIRST]), Home()
    read = 0
    for forward, back in again:
        end = min(len(lines), read + forward)
        home.read(decoder, lines[read:end])
        decoder.lose()
        begin = max(0, end - back)
        while begin and not is_position(lines[min(begin, len(lines) - 1)]):
            begin -= 1
        if begin == 0:
            decoder = Decoder([FIRST])
        read = begin
    home.read(decoder, lines[read:])
    assert home.content("log") == b"".join(stretches)
    assert home.content("spool", SECOND) == b"s" * min(30, len(stretches))


def test_after_a_loss_plain_lines_wait_for_a_position() -> None:
    lines = list(Encoder(FIRST).log(0, b"one\ntwo\n"))
    decoder = Decoder([FIRST])
    decoder.lose()
    assert decoder.feed(lines[1]) == []
    later = list(Encoder(FIRST).log(8, b"three\n"))
    assert Home().read(decoder, later).content("log") == bytes(8) + b"three\n"


def test_plain_lines_are_what_kubectl_shows() -> None:
    lines = list(Encoder(FIRST).log(0, b"epoch 1\nloss 0.5\n 10%\r 20%"))
    assert [line for line in lines if not line.startswith(frames.PREFIX)] == [
        b"epoch 1\n",
        b"loss 0.5\n",
        b" 10%\r 20%\n",
    ]
    assert Home().read(Decoder([FIRST]), lines).content("log") == b"epoch 1\nloss 0.5\n 10%\r 20%"


@pytest.mark.parametrize("log", [b"one\r\ntwo\r\nthree\n", b"\r\n\r\n", b" 10%\r 20%\r", b"a\r\r\nb\n"])
def test_a_carriage_return_at_the_end_of_a_line_survives_containerd(log: bytes) -> None:
    """It reads lines as Go's bufio does: without `\\r\\n`."""
    lines = [line.removesuffix(b"\n").removesuffix(b"\r") + b"\n" for line in Encoder(FIRST).log(0, log)]
    assert Home().read(Decoder([FIRST]), lines).content("log") == log


def test_a_last_line_without_newline_gets_none() -> None:
    lines = [*Encoder(FIRST).log(0, b"a\nlast"), *Encoder(FIRST).log(6, b" word\n")]
    home = Home().read(Decoder([FIRST]), lines[:-2])
    assert home.content("log") == b"a\nlast"
    assert home.read(Decoder([FIRST]), lines).content("log") == b"a\nlast word\n"


def test_positions_come_often_enough_to_begin_there() -> None:
    lines = list(Encoder(FIRST).log(0, b"line\n" * 1000))
    assert sum(map(is_position, lines)) == 1000 // frames.BATCH_LINES + 1


@examples(40)
@given(st.binary(max_size=30_000), st.booleans())
def test_a_whole_file_comes_once_it_is_complete(data: bytes, is_twice: bool) -> None:
    lines = list(Encoder(FIRST).whole(FIRST, "end.json", data))
    decoder = Decoder([FIRST])
    if is_twice:  # the connection broke in the middle of it
        for line in lines[:-1]:
            assert decoder.feed(line) == []
        decoder.lose()
    pieces = [piece for line in lines for piece in decoder.feed(line)]
    assert pieces == [Piece(FIRST, "end.json", 0, data, is_whole=True)]


def test_a_whole_file_whose_beginning_was_missed_is_waited_for() -> None:
    lines = list(Encoder(FIRST).whole(FIRST, "media/1-2-3.png", bytes(20_000)))
    assert len(lines) > 2
    assert [piece for line in lines[1:] for piece in Decoder([FIRST]).feed(line)] == []


def test_what_is_too_large_to_be_held_is_not_sent() -> None:
    assert list(Encoder(FIRST).whole(FIRST, "media/film.mp4", bytes(frames.LARGEST_WHOLE + 1))) == []


def test_unfinished_files_are_not_held_without_end() -> None:
    decoder = Decoder([FIRST])
    for number in range(100):
        first = next(Encoder(FIRST).whole(FIRST, f"media/{number}.png", bytes(20_000)))
        decoder.feed(first)
    assert len(decoder._unfinished) == frames.MOST_UNFINISHED


def test_without_an_agent_all_lines_are_the_log() -> None:
    """An image without Python: whatever its program says is its log, also what begins like a frame."""
    said = [b"phalanx: no Python here", b"::phalanx no frame", b"end"]
    assert Home().read(Decoder([FIRST]), said).content("log") == b"\n".join(said) + b"\n"


def framed(**content: object) -> bytes:
    return frames.PREFIX + json.dumps(content).encode()


DATA = base64.b64encode(b"data").decode()


@pytest.mark.parametrize(
    "line",
    [
        framed(r="worker-1", f="log", o=0, d=DATA),
        framed(r="worker-0.1.1", f="log", o=0, d=DATA),
        framed(r="worker-0.x", f="log", o=0, d=DATA),
        framed(r="../worker-0", f="log", o=0, d=DATA),
        framed(r=FIRST, f="../log", o=0, d=DATA),
        framed(r=FIRST, f="/etc/x.points", o=0, d=DATA),
        framed(r=FIRST, f="media/../end.json", o=0, d=DATA),
        framed(r=FIRST, f="media/.hidden", o=0, d=DATA),
        framed(r=FIRST, f="media/", o=0, d=DATA),
        framed(r=FIRST, f="sub/x.points", o=0, d=DATA),
        framed(r=FIRST, f=".x.points", o=0, d=DATA),
        framed(r=FIRST, f="log\n", o=0, d=DATA),
        framed(r=FIRST, f="x.points\n", o=0, d=DATA),
        framed(r=FIRST, f="asked-to-end", o=0, d=DATA),
        framed(r=FIRST, f="outputs/model.pt", o=0, d=DATA),
        framed(r=FIRST, f="outputs", o=0, d=DATA, n=4),
        framed(r=FIRST, f="outputs/", o=0, d=DATA, n=4),
        framed(r=FIRST, f="outputs/../plan.json", o=0, d=DATA, n=4),
        framed(r=FIRST, f="outputs//etc/passwd", o=0, d=DATA, n=4),
        framed(r=FIRST, f="outputs/a/./b", o=0, d=DATA, n=4),
        framed(r=FIRST, f="outputs/.draft", o=0, d=DATA, n=4),
        framed(r=FIRST, f="outputs/a\\b", o=0, d=DATA, n=4),
        framed(r=FIRST, f="outputs/a\nb", o=0, d=DATA, n=4),
        framed(r=FIRST, f="outputs/\0", o=0, d=DATA, n=4),
        framed(r=FIRST, f="outputs/\ud800", o=0, d=DATA, n=4),
        framed(r=FIRST, f="code/train.py", o=0, d=DATA, n=4),
        framed(r=FIRST, f="outputs/" + "x" * 201, o=0, d=DATA, n=4),
        framed(r=FIRST, f="outputs" + "/x" * 200, o=0, d=DATA, n=4),
        framed(r=FIRST, f="log", o=-1, d=DATA),
        framed(r=FIRST, f="log", o=True, d=DATA),
        framed(r=FIRST, f="log", o=1.5, d=DATA),
        framed(r=FIRST, f="log", o=10**30, d=DATA),
        framed(r=FIRST, f="log", o=0, d="not base64!"),
        framed(r=FIRST, f="log", o=0, d="é"),
        framed(r=FIRST, f="log", o=0, d=["x"]),
        framed(r=FIRST, f="log", o=0, d="A" * frames.LONGEST),
        framed(r=FIRST, f="end.json", o=0, d=DATA, n=2),
        framed(r=FIRST, f="end.json", o=0, d=DATA, n=10**9),
        framed(r=[FIRST], f="log", o=0, d=DATA),
        framed(r=FIRST, f="log", at=-5),
        frames.PREFIX + b"[" * 8000,
        frames.PREFIX + b"[]",
        frames.PREFIX + b"\xff",
        frames.PREFIX + b"9" * 8000,
    ],
)  # fmt: skip
def test_a_frame_that_is_not_the_pods_own_is_not_taken(line: bytes) -> None:
    decoder = Decoder([FIRST])
    decoder.feed(framed(r=FIRST, f="log", at=0))
    assert decoder.feed(line) == []
    assert decoder.feed(b"next") == [Piece(FIRST, "log", 0, b"next\n")]


@examples(60)
@given(st.lists(st.binary(max_size=100).map(lambda text: frames.PREFIX + text) | st.binary(max_size=50), max_size=10))
def test_no_line_whatsoever_breaks_the_decoder(lines: list[bytes]) -> None:
    for line in lines:
        for piece in Decoder([FIRST]).feed(line):
            assert piece.member == FIRST
            assert is_file(piece.file) or is_kept(piece.file)


@pytest.mark.parametrize(
    "name", ["log", "spool", "agent.json", "end.json", "agent.log", "12-a.points", "w0.events", "media/7-x-0.png"]
)
def test_the_files_of_an_attempt_travel(name: str) -> None:
    assert is_file(name)
    (line,) = Encoder(FIRST).grown(SECOND, name, 7, b"data")
    assert Decoder([FIRST]).feed(line) == [Piece(SECOND, name, 7, b"data")]


@pytest.mark.parametrize(
    "name", ["outputs/model.pt", "artifacts/a b/größe 1.txt", "models/m/1/x.json", "outputs/" + "é" * 100]
)
def test_files_of_the_runs_own_folders_travel_whole(name: str) -> None:
    assert is_kept(name)
    assert not is_file(name)
    data = bytes(range(256)) * 100
    home = Home().read(Decoder([FIRST]), list(Encoder(FIRST).whole(FIRST, name, data)))
    assert home.content(name) == data
