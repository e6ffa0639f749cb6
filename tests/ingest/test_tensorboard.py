from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.ingest import tensorboard
from phalanx.ingest.rebuild import rebuild_store
from phalanx.spool import JSON, PointWriter, Reader, frame
from phalanx.store import Store
from tests.formats.encoding import data, png, tf_record, tf_scalar, tf_tensor, tf_tensor_event
from tests.ingest.indexed import Gathered
from tests.scheduler.working import Works


@pytest.fixture(name="it")
def it_fixture(tmp_path: Path) -> Iterator[Gathered]:
    found = Gathered(tmp_path)
    yield found
    found.close()


@pytest.fixture(name="three")
def three_fixture(tmp_path: Path) -> Iterator[Gathered]:
    found = Gathered(tmp_path, ["master-0", "worker-0", "worker-1"])
    yield found
    found.close()


def text_event(tag: str, text: str, step: int = 0) -> bytes:
    return tf_tensor_event(tag, tf_tensor(7, (1,), data(8, text)), "text", step)


def image_event(tag: str, step: int = 0, picture: bytes | None = None) -> bytes:
    strings = b"".join(data(8, part) for part in (b"2", b"2", png() if picture is None else picture))
    return tf_tensor_event(tag, tf_tensor(7, (3,), strings), "images", step)


class Board:
    """An event file that grows."""

    def __init__(self, it: Gathered, folder: str = "", name: str = "events.out.tfevents.1.host") -> None:
        self.path = it.outputs / folder / name
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.add(tf_record(data(3, "brain.Event:2")))

    def add(self, *records: bytes) -> Board:
        with self.path.open("ab") as stream:
            stream.write(b"".join(records))
        return self

    def scalars(self, tag: str, *values: float, first: int = 0) -> Board:
        return self.add(*(tf_scalar(tag, value, first + n, 1.7e9 + first + n) for n, value in enumerate(values)))


def events(it: Gathered, kind: str, replica: str = "master-0") -> list[dict[str, Any]]:
    found = [record.data() for record in Reader(it.attempt(replica) / "tensorboard.events").poll()]
    return [event for event in found if event["kind"] == kind]


# what becomes of them ----------------------------------------------------------------------------------------------


def test_a_file_that_appears_and_grows_becomes_series(it: Gathered) -> None:
    it.turn()
    board = Board(it, "logs").scalars("loss", 3.0, 2.0)
    assert it.turn().points("loss") == [(0, 3.0), (1, 2.0)]
    assert it.found().summary == {"loss": 2.0}
    board.scalars("loss", 1.0, first=2).scalars("accuracy", 0.5)
    it.turn()
    assert it.points("loss") == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert it.points("accuracy") == [(0, 0.5)]
    assert it.found().summary == {"accuracy": 0.5, "loss": 1.0}


def test_a_record_that_is_being_written_is_waited_for(it: Gathered) -> None:
    board = Board(it).scalars("loss", 3.0)
    record = tf_scalar("loss", 2.0, 1)
    board.add(record[:-3])
    assert it.turn().points("loss") == [(0, 3.0)]
    board.add(record[-3:])
    assert it.turn().points("loss") == [(0, 3.0), (1, 2.0)]


def test_images_texts_and_histograms_are_kept(it: Gathered) -> None:
    histogram = tf_tensor(2, (2, 3), data(4, b"".join(map(_doubles, [(0.0, 1.0, 3.0), (1.0, 2.0, 4.0)]))))
    board = Board(it).add(text_event("notes", "**hello**", 3), image_event("sample", 5), image_event("other", 5))
    board.add(tf_tensor_event("h", histogram, "histograms", 7))
    it.turn()
    (text,) = events(it, "text")
    assert (text["name"], text["step"], text["text"]) == ("notes", 3, "**hello**")
    first, second = events(it, "image")
    assert (first["name"], first["step"], second["name"]) == ("sample", 5, "other")
    assert (it.attempt() / first["path"]).read_bytes() == png()
    assert first["path"] != second["path"]
    (found,) = events(it, "histogram")
    assert (found["counts"], found["edges"]) == ([3.0, 4.0], [0.0, 1.0, 2.0])


def _doubles(values: tuple[float, ...]) -> bytes:
    import struct

    return struct.pack(f"<{len(values)}d", *values)


def test_every_image_is_a_file_of_its_own(it: Gathered) -> None:
    """Of several names, at the same step, before and after another scheduler took over."""
    board = Board(it)
    pictures: dict[tuple[str, int], bytes] = {}
    for step in (1, 2, 3):
        for name in ("a", "b", "c"):
            pictures[name, step] = png(step, 3 + ord(name) - ord("a"))
            board.add(image_event(name, step, pictures[name, step]))
            it.turn()
            it.new_gatherer()
    found = {
        (event["name"], event["step"]): (it.attempt() / event["path"]).read_bytes() for event in events(it, "image")
    }
    assert found == pictures


def test_images_are_not_kept_without_end(it: Gathered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "IMAGES_KEPT", 3)
    board = Board(it)
    for step in range(5):
        board.add(image_event("a", step))
        it.turn()
        it.new_gatherer()
    assert [event["step"] for event in events(it, "image")] == [0, 1, 2]


def test_tensorboardx_writes_what_we_read(it: Gathered) -> None:
    tensorboardx = pytest.importorskip("tensorboardX")
    writer = tensorboardx.SummaryWriter(str(it.outputs / "runs"))
    for step in range(100):
        writer.add_scalar("train/loss", 1.0 / (step + 1), step)
    writer.add_text("notes", "hello", 1)
    writer.add_hparams({"lr": 0.1, "name": "x"}, {"final": 0.5})
    writer.flush()
    it.turn(is_over=True)
    writer.close()
    assert [step for step, _ in it.points("train/loss")] == list(range(100))
    assert it.points("train/loss")[0] == (0, 1.0)
    assert events(it, "text")[0]["text"] == "hello"
    assert it.found().params == {"seed": 1, "lr": 0.1, "name": "x"}


# names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["logs"], ["loss"]),
        ([""], ["loss"]),
        (["train", "validation"], ["train/loss", "validation/loss"]),
        (["logs/train", "logs/val"], ["train/loss", "val/loss"]),
        (["a", "b/c"], ["b/c/loss", "loss"]),
        (["a/train", "b/train"], ["b/train/loss", "train/loss"]),
        (["logs", ""], ["./loss", "loss"]),
        (["Train"], ["Train/loss"]),
    ],
)
def test_folders_distinguish_equal_names(it: Gathered, folders: list[str], names: list[str]) -> None:
    for number, folder in enumerate(folders):
        Board(it, folder).scalars("loss", float(number))
        it.turn()
    assert it.names() == names
    assert sorted(it.points(name)[0][1] for name in names) == [float(number) for number in range(len(folders))]


def test_names_stay_the_same_for_the_next_reader(it: Gathered) -> None:
    """The folder that was there first keeps its short names, also when another one comes before it by the alphabet."""
    first = Board(it, "zebra").scalars("loss", 1.0)
    it.turn()
    other = Board(it, "ant").scalars("loss", 10.0)
    it.turn()
    for step in (1, 2):
        it.new_gatherer()
        first.scalars("loss", 1.0 + step, first=step)
        other.scalars("loss", 10.0 + step, first=step)
        it.turn()
    assert it.points("loss") == [(0, 1.0), (1, 2.0), (2, 3.0)]
    assert it.points("ant/loss") == [(0, 10.0), (1, 11.0), (2, 12.0)]


def test_replicas_have_their_own(three: Gathered) -> None:
    for number, replica in enumerate(three.replicas):
        Board(three, f"logs/{replica}").scalars("loss", float(number))
    Board(three, "shared").scalars("loss", 9.0)
    three.turn()
    assert three.names() == ["loss", "shared/loss"]
    assert [three.points("loss", replica) for replica in three.replicas] == [[(0, 0.0)], [(0, 1.0)], [(0, 2.0)]]
    assert three.points("shared/loss", "master-0") == [(0, 9.0)]


def test_the_chief_is_the_master(three: Gathered) -> None:
    Board(three, "logs/chief-0").scalars("loss", 1.0)
    Board(three, "logs/worker-0").scalars("loss", 2.0)
    three.turn()
    assert three.names() == ["loss"]
    assert [three.points("loss", replica) for replica in three.replicas[:2]] == [[(0, 1.0)], [(0, 2.0)]]


# killed in between -------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """kill -9."""


def killed_at(it: Gathered, monkeypatch: pytest.MonkeyPatch, method: str, call: int) -> None:
    """A turn that ends in the middle of what it does."""
    calls = 0
    usual = getattr(tensorboard.EventFileConverter, method)

    def act(*args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Killed
        usual(*args)

    with monkeypatch.context() as patched:
        patched.setattr(tensorboard.EventFileConverter, method, act)
        with pytest.raises(Killed):
            it.turn()
    it.new_gatherer()


@pytest.mark.parametrize("call", [1, 2, 5, 10])
@pytest.mark.parametrize("method", ["keep", "note"])
def test_nothing_is_there_twice_and_nothing_is_missing(
    it: Gathered, monkeypatch: pytest.MonkeyPatch, method: str, call: int
) -> None:
    boards = [Board(it, folder).scalars("loss", *map(float, range(10))) for folder in ("a", "b")]
    it.turn()
    for board in boards:
        board.scalars("loss", *map(float, range(10, 20)), first=10)
        board.add(text_event("notes", "hello", 5), image_event("sample", 5))
    if method == "keep" or call <= 2:
        killed_at(it, monkeypatch, method, call)
    it.turn()
    for board in boards:
        board.scalars("loss", 20.0, first=20)
    it.turn()
    for name in ("loss", "b/loss"):
        assert it.points(name) == [(step, float(step)) for step in range(21)]
    assert [event["name"] for event in events(it, "text")] == ["notes", "b/notes"]
    assert [event["name"] for event in events(it, "image")] == ["sample", "b/sample"]
    assert it.store.summaries(it.run.id)["loss"].count == 21


def test_torn_files_of_ours_are_cut(it: Gathered) -> None:
    board = Board(it).scalars("loss", 1.0, 2.0).add(text_event("notes", "one"))
    it.turn()
    for name in ("tensorboard.points", "tensorboard.events"):
        with (it.attempt() / name).open("ab") as stream:
            stream.write(frame(JSON, b'{"kind":"text","name":"never","step":1,"text":""}')[:-4])
    board.scalars("loss", 3.0, first=2).add(text_event("notes", "two"))
    it.new_gatherer()
    it.turn()
    assert it.points("loss") == [(0, 1.0), (1, 2.0), (2, 3.0)]
    assert [event["text"] for event in events(it, "text")] == ["one", "two"]


def test_damage_amid_our_notes_does_not_cut_the_wrong_place(it: Gathered) -> None:
    board = Board(it).scalars("loss", 1.0).add(text_event("notes", "one"))
    it.turn()
    board.scalars("loss", 2.0, first=1).add(text_event("notes", "two"))
    it.turn()
    path = it.attempt() / "tensorboard.events"
    records = [frame(record.kind, record.payload) for record in Reader(path).poll()]
    unnoted = frame(JSON, b'{"kind":"text","name":"notes","step":0,"text":"not noted"}')
    path.write_bytes(b"".join([records[0], b"damage" * 200, *records[1:], unnoted]))
    for _ in range(2):
        it.new_gatherer()
        it.turn()
        assert it.points("loss") == [(0, 1.0), (1, 2.0)]
        assert [event["text"] for event in events(it, "text")] == ["one", "two"]


def test_a_full_disk_costs_nothing_once_there_is_room(it: Gathered, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board(it).scalars("loss", 1.0, 2.0)
    it.turn()
    board.scalars("loss", *map(float, range(3, 10)), first=2)
    usual = PointWriter.append
    left = [3]

    def append(self: PointWriter, kind: int, payload: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        usual(self, kind, payload)

    with monkeypatch.context() as patched:
        patched.setattr(PointWriter, "append", append)
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                it.turn()
            left[0] = 2
    it.turn()
    assert it.points("loss") == [(step, float(step + 1)) for step in range(9)]
    found = it.store.summaries(it.run.id)["loss"]
    assert (found.count, found.last) == (9, 9.0)


# attempts ----------------------------------------------------------------------------------------------------------


def test_a_later_attempt_does_not_read_old_files_again(it: Gathered) -> None:
    old = Board(it, "logs", "events.out.tfevents.1").scalars("loss", 1.0, 2.0)
    it.turn(is_over=True)
    it.new_gatherer(attempt=2)
    Board(it, "logs", "events.out.tfevents.2").scalars("loss", 20.0, 30.0, first=1)
    old.scalars("loss", 99.0, first=50)  # an old file that grows is new from there on
    it.turn(is_over=True)
    assert it.points("loss")[:1] == [(0, 1.0)]
    folder = it.folder / "replicas" / "master-0"
    counts = {
        number: sum(record.kind == 3 for record in Reader(folder / f"attempt-{number}" / "tensorboard.points").poll())
        for number in (1, 2)
    }
    assert counts == {1: 2, 2: 3}


def test_a_past_attempt_takes_nothing_of_a_later_one(it: Gathered, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the database is made again from the folders."""
    Board(it, "one").scalars("loss", 1.0)
    it.turn(is_over=True)
    it.new_gatherer(attempt=2)
    Board(it, "two").scalars("loss", 2.0)
    it.turn(is_over=True)
    before = {path: path.read_bytes() for path in it.folder.rglob("tensorboard.*")}
    it.new_gatherer(attempt=1)
    it.turn(is_over=True)
    assert {path: path.read_bytes() for path in it.folder.rglob("tensorboard.*")} == before


def test_making_the_database_again_changes_no_file(it: Gathered, monkeypatch: pytest.MonkeyPatch) -> None:
    Board(it, "logs").scalars("loss", 1.0, 2.0).add(text_event("notes", "x"), image_event("i"))
    it.turn(is_over=True)
    before = {path: path.read_bytes() for path in it.folder.rglob("*") if path.is_file()}
    summaries = it.store.summaries(it.run.id)
    it.store.close()
    monkeypatch.setenv("PHALANX_HOME", str(it.home.path))
    monkeypatch.delenv("PHALANX_DATABASE", raising=False)
    rebuild_store()
    it.store = Store.open(it.home.path)
    assert {path: path.read_bytes() for path in it.folder.rglob("*") if path.is_file()} == before
    assert it.store.summaries(it.run.id) == summaries


# strange things ----------------------------------------------------------------------------------------------------


def test_what_only_looks_like_an_event_file(it: Gathered) -> None:
    os.mkfifo(it.outputs / "events.out.tfevents.pipe")
    (it.outputs / "events.out.tfevents.folder").mkdir()
    (it.outputs / "events.out.tfevents.link").symlink_to("/nowhere")
    (it.outputs / "events.out.tfevents.zero").symlink_to("/dev/zero")
    (it.outputs / "events.out.tfevents.junk").write_bytes(os.urandom(10_000))
    (it.outputs / "events.out.tfevents.empty").write_bytes(b"")
    Board(it, "good").scalars("loss", 1.0)
    turned = threading.Thread(target=_turn_elsewhere, args=(it,))
    turned.start()
    turned.join(20)
    assert not turned.is_alive()
    it.turn(is_over=True)
    assert [name for name in it.names() if name.endswith("loss")] == ["good/loss"]


def _turn_elsewhere(it: Gathered) -> None:
    it.gatherer.boards.follow(is_over=True)


@pytest.mark.parametrize(
    "note",
    [
        b"{not json", b'"tensorboard"', b"[]", b'{"kind":"tensorboard"}',
        b'{"kind":"tensorboard","file":"x","offset":"y","points":0,"first":""}',
        b'{"kind":"tensorboard","file":"events.out.tfevents.1.host","offset":-5,"points":-7,"first":""}',
        b'{"kind":"tensorboard","file":"events.out.tfevents.1.host","offset":1e999,"points":0,"first":""}',
        b"[" * 100_000,
    ],
)  # fmt: skip
def test_notes_that_are_none_of_ours(it: Gathered, note: bytes) -> None:
    (it.attempt() / "tensorboard.events").write_bytes(frame(JSON, note))
    Board(it).scalars("loss", 1.0, 2.0)
    it.turn()
    it.new_gatherer()
    it.turn()
    assert it.points("loss") == [(0, 1.0), (1, 2.0)]


def test_a_text_that_is_too_long_is_cut(it: Gathered) -> None:
    Board(it).add(text_event("long", "x" * (3 << 20))).scalars("loss", 1.0)
    it.turn(is_over=True)
    assert len(events(it, "text")[0]["text"]) == tensorboard.LONGEST_TEXT
    assert it.points("loss") == [(0, 1.0)]


def test_a_large_file_is_read_in_parts(it: Gathered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "BUDGET", 2000)
    Board(it).scalars("loss", *map(float, range(500)))
    it.turn()
    assert 0 < len(it.points("loss")) < 100
    it.turn()
    it.turn(is_over=True)
    assert it.points("loss") == [(step, float(step)) for step in range(500)]


def test_outputs_that_are_removed(it: Gathered) -> None:
    Board(it, "logs").scalars("loss", 1.0)
    it.turn()
    shutil.rmtree(it.outputs)
    it.turn()
    it.turn(is_over=True)
    assert it.points("loss") == [(0, 1.0)]


def test_many_files_that_are_no_event_files(it: Gathered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "MOST_ENTRIES", 50)
    for folder in range(30):
        (it.outputs / f"data-{folder}").mkdir()
        for number in range(10):
            (it.outputs / f"data-{folder}" / str(number)).write_text("x")
    Board(it).scalars("loss", 1.0)
    it.turn()
    assert it.points("loss") == [(0, 1.0)]  # what stands at the top is seen


# under a real scheduler ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_training_that_only_knows_tensorboard(works: Works, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    (tmp_path / "train.py").write_text("""
import os, time
from tensorboardX import SummaryWriter
writer = SummaryWriter(os.environ["PHALANX_OUTPUTS"] + "/tb")
for step in range(50):
    writer.add_scalar("loss", 50.0 - step, step)
    writer.flush()
    time.sleep(0.05)
writer.close()
""")
    run_id = works.submit(f"{sys.executable} {tmp_path / 'train.py'}")
    works.turn_until(lambda: works.run(run_id).summary)
    works.new_scheduler()
    works.turn_until(lambda: works.run(run_id).is_done)
    run = works.run(run_id)
    assert (run.status, run.summary) == ("succeeded", {"loss": 1.0})
    found = works.store.summaries(run_id)["loss"]
    assert (found.count, found.step, found.max) == (50, 49, 50.0)
