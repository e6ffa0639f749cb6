"""Images, sound, tables and alerts: written without a library, read back by the command line, Python and REST."""

from __future__ import annotations

import struct
import wave
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import phalanx
from phalanx.tracking import TrackedRun
from tests.cli.homes import Place, place_fixture  # noqa: F401 - the fixture
from tests.tracking.reading import Replica, script


def decoded(path: Path) -> tuple[int, int, int, bytes]:
    """Width, height, colour type and pixels of a PNG, whose checksums are right."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, {}
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        parts[kind] = data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + parts[kind])
        at += 12 + length
    width, height, depth, color = struct.unpack(">IIBB", parts[b"IHDR"][:10])
    assert depth == 8
    raw = zlib.decompress(parts[b"IDAT"])
    row = len(raw) // height
    assert {raw[start] for start in range(0, len(raw), row)} == {0}  # no filter
    return width, height, color, b"".join(raw[start + 1 : start + row] for start in range(0, len(raw), row))


class Tensor:
    """PyTorch's, as far as we know it: on a device, channels first."""

    def __init__(self, content: Any) -> None:
        self.content = content
        self.shape = content.shape
        self.dtype = content.dtype

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> Any:
        return self.content


GRAY = np.array([[0, 128, 255], [1, 2, 3]], dtype="uint8")
RGB = np.arange(2 * 3 * 3, dtype="uint8").reshape(2, 3, 3)


@pytest.mark.parametrize(
    ("image", "color", "pixels"),
    [
        (GRAY, 0, GRAY.tobytes()),
        (GRAY.astype("int64"), 0, GRAY.tobytes()),
        (GRAY.astype("float32"), 0, GRAY.tobytes()),
        (GRAY / 255.0, 0, GRAY.tobytes()),
        (GRAY > 2, 0, bytes([0, 255, 255, 0, 0, 255])),
        (GRAY[:, :, None], 0, GRAY.tobytes()),
        (GRAY.tolist(), 0, GRAY.tobytes()),
        (RGB, 2, RGB.tobytes()),
        (RGB.tolist(), 2, RGB.tobytes()),
        (Tensor(RGB.transpose(2, 0, 1)), 2, RGB.tobytes()),
        (Tensor(RGB.transpose(2, 0, 1) / 255.0), 2, RGB.tobytes()),
        (np.dstack([RGB, GRAY]), 6, np.dstack([RGB, GRAY]).tobytes()),
        (np.array([[-1.0, 0.5, 300.0], [0, 0, 0]]), 0, bytes([0, 0, 255, 0, 0, 0])),
    ],
)
def test_an_array_becomes_a_png(run: TrackedRun, replica: Replica, image: Any, color: int, pixels: bytes) -> None:
    run.log_image("sample", image, step=1)
    assert decoded(replica.folder / replica.event("image")["path"]) == (3, 2, color, pixels)


@pytest.mark.parametrize("image", [np.zeros((2, 3, 5)), np.zeros(3), np.zeros((0, 3)), [[1], [1, 2]], [], [[]]])
def test_what_is_no_image_says_why(run: TrackedRun, replica: Replica, image: Any) -> None:
    run.image("sample", image)
    assert replica.events("image") == []
    assert len(run.dropped) == 1


def test_figures_save_themselves(run: TrackedRun, replica: Replica) -> None:
    class Figure:
        def savefig(self, path: str) -> None:
            Path(path).write_bytes(b"drawn")

    class Axes:
        figure = Figure()

    class Plotly:
        def write_html(self, path: str) -> None:
            Path(path).write_text("<html>")

    run.figure("curve", Figure(), step=2)
    run.image("curve", Axes(), step=3)
    run.figure("page", Plotly(), step=4)
    assert [(replica.folder / event["path"]).read_bytes() for event in replica.events("image")] == [b"drawn", b"drawn"]
    event = replica.event("artifact")
    assert (event["path"], event["type"]) == ("artifacts/figures/page-4.html", "figure")
    assert (replica.run / event["path"]).read_text() == "<html>"


@pytest.mark.parametrize(
    ("sound", "channels"),
    [
        (np.array([0.0, 1.0, -1.0]), 1),
        (np.array([0, 32767, -32767], dtype="int16"), 1),
        ([0.0, 1.0, -1.0], 1),
        (np.array([[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0]]), 2),
    ],
)
def test_an_array_of_samples_becomes_a_wav(run: TrackedRun, replica: Replica, sound: Any, channels: int) -> None:
    run.audio("voice", sound, sample_rate=8000, caption="hello")
    event = replica.event("audio")
    with wave.open(str(replica.folder / event["path"])) as stream:
        assert (stream.getnchannels(), stream.getframerate(), stream.getsampwidth()) == (channels, 8000, 2)
        samples = np.frombuffer(stream.readframes(3), dtype="<i2").reshape(3, channels)
    assert samples[:, 0].tolist() == [0, 32767, -32767]
    assert event["caption"] == "hello"


def test_a_video_is_the_copy_of_a_file(run: TrackedRun, replica: Replica, tmp_path: Path) -> None:
    (tmp_path / "v.MP4").write_bytes(b"film")
    run.video("rollout", tmp_path / "v.MP4", step=1)
    run.video("rollout", np.zeros((2, 2)), step=2)
    event = replica.event("video")
    assert (Path(event["path"]).suffix, (replica.folder / event["path"]).read_bytes()) == (".mp4", b"film")
    assert list(run.dropped) == ["video: a ndarray is not the path of a file"]


@pytest.mark.parametrize(
    "given",
    [
        pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
        {"a": [1, 2], "b": ["x", "y"]},
        [{"a": 1, "b": "x"}, {"b": "y", "a": 2}],
    ],
)
def test_a_table_in_any_form(run: TrackedRun, replica: Replica, given: Any) -> None:
    run.table("t", given, step=3)
    event = replica.event("table")
    assert (event["columns"], event["rows"], event["step"]) == (["a", "b"], [[1, "x"], [2, "y"]], 3)


def test_points_have_two_or_three_numbers(run: TrackedRun, replica: Replica) -> None:
    run.points("pr", np.array([[0.0, 1.0], [1.0, 0.5]]), columns=["recall", "precision"])
    run.points("cloud", [(1, 2, 3)])
    run.points("odd", [(1, 2), (3,)])
    one, two = replica.events("points")
    assert (one["columns"], one["rows"]) == (["recall", "precision"], [[0.0, 1.0], [1.0, 0.5]])
    assert two["columns"] == ["x", "y", "z"]
    assert list(run.dropped) == ["points: points have two or three numbers each"]


def test_an_alert_is_repeated_only_after_a_while(run: TrackedRun, replica: Replica) -> None:
    for _ in range(3):
        run.alert("Low accuracy", "0.1", level="warning")
        run.alert("always", wait_duration=0)
    assert [event["title"] for event in replica.events("alert")] == ["Low accuracy", *["always"] * 3]
    assert replica.events("alert")[0]["level"] == "WARN"


def test_what_was_recorded_is_read_back(place: Place) -> None:
    text = """
from phalanx import tracking
with tracking.start(name="media") as run:
    run.text("sample", "once upon a time", step=1)
    run.table("confusion", ["true", "guess"], [[1, 2], [3, 4]], step=1)
    run.table("confusion", ["true", "guess"], [[5, 6]], step=2)
    run.image("picture", [[0, 255]], step=1, caption="dots")
    run.alert("Low accuracy", "it diverged", level="ERROR")
"""
    assert script(text, PHALANX_HOME=str(place.home)) == (0, "", "")
    events = place.call("events", "media").out
    assert "ERROR: Low accuracy: it diverged" in events
    assert "once upon" not in events
    lines = [line.split("  ", 2)[2] for line in place.call("events", "media", "--kind", "all").out.splitlines()]
    assert lines[:4] == [
        "text sample at step 1: once upon a time",
        "table confusion at step 1: 2 rows of true, guess",
        "table confusion at step 2: 1 rows of true, guess",
        lines[3],
    ]
    (row,) = place.call("events", "media", "--kind", "text", "--json").data["events"]
    assert (row["content"], row["step"]) == ("once upon a time", 1)
    assert "alert      ERROR: Low accuracy: it diverged" in place.call("show", "media").out
    with phalanx.open(place.home) as home:
        run = home.run("media")
        assert run.table("confusion").rows == [[5, 6]]
        assert run.table("confusion", step=1).pandas()["guess"].tolist() == [2, 4]
        assert [event["text"] for event in run.events("text")] == ["once upon a time"]
        assert decoded(run.events("image", "picture")[0]["file"])[:2] == (2, 1)
        with pytest.raises(KeyError, match="has no table 'none'"):
            run.table("none")
