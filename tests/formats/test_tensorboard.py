from __future__ import annotations

from pathlib import Path

from phalanx.formats import tensorboard
from phalanx.formats.foreign_run import ImportLosses
from tests.exchange.homes import Target, collected, events, series
from tests.formats.encoding import data, double, png, tf_event, tf_record, tf_scalar, tf_tensor, tf_tensor_event


def put(folder: Path, *records: bytes, name: str = "events.out.tfevents.1700000000.host.1.0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"".join(records))
    return folder


def test_each_folder_with_events_is_a_run(tmp_path: Path) -> None:
    put(tmp_path / "logs" / "a", tf_scalar("loss", 1.0, 0, time=1.7e9))
    put(tmp_path / "logs" / "b" / "c", tf_scalar("loss", 2.0, 0))
    put(tmp_path / "logs", tf_scalar("loss", 3.0, 0))
    runs = {run.name: run for run in tensorboard.find(tmp_path / "logs").runs}
    assert set(runs) == {"logs", "a", "b/c"}
    assert series(collected(runs["b/c"])) == {"loss": [(0, 2.0)]}
    assert runs["a"].started == 1.7e9
    assert len({run.source for run in runs.values()}) == 3


def test_files_of_one_folder_are_read_in_their_order(tmp_path: Path) -> None:
    put(tmp_path / "a", tf_scalar("x", 2.0, 1), name="events.out.tfevents.1700000009.h")
    put(tmp_path / "a", tf_scalar("x", 1.0, 0), name="events.out.tfevents.1700000001.h")
    (run,) = tensorboard.find(tmp_path / "a").runs
    assert series(collected(run)) == {"x": [(0, 1.0), (1, 2.0)]}


def test_a_session_of_hyperparameters_belongs_to_the_run_above_it(tmp_path: Path) -> None:
    entry = data(1, data(1, "lr") + data(2, double(2, 0.5)))
    metadata = data(9, data(1, data(1, "hparams") + data(2, data(3, entry))))
    put(tmp_path / "a", tf_scalar("x", 1.0, 0))
    put(tmp_path / "a" / "1700000000.1234", tf_event(data(1, "_hparams_/session_start_info") + metadata))
    (run,) = tensorboard.find(tmp_path).runs
    assert events(collected(run), "params") == [{"values": {"lr": 0.5}}]


def test_everything_is_kept_in_the_run(tmp_path: Path, target: Target) -> None:
    strings = b"".join(data(8, text) for text in (b"2", b"2", png(), png(3, 3)))
    text = tf_tensor(7, (1,), data(8, "hello"))
    put(
        tmp_path / "logs",
        tf_scalar("loss", 0.5, 3),
        tf_tensor_event("shown", tf_tensor(7, (4,), strings), "images", step=3),
        tf_tensor_event("note/text_summary", text, "text", step=3),
        tf_record(double(1, 1.0) + data(4, b"graph")),
    )
    (run,) = tensorboard.find(tmp_path / "logs").runs
    outcome = target.bring_in(run)
    assert target.points(outcome.run_id, "loss") == [(3, 0.5)]
    assert [event["name"] for event in target.events(outcome.run_id, "image")] == ["shown", "shown/1"]
    assert [(e["name"], e["text"]) for e in target.events(outcome.run_id, "text")] == [("note", "hello")]
    assert target.lost == {"graphs": 1}
    assert outcome.counts == {"points": 1, "images": 2, "texts": 1}


def test_one_file_can_be_named(tmp_path: Path) -> None:
    folder = put(tmp_path / "a", tf_scalar("x", 1.0, 0))
    put(tmp_path / "a", tf_scalar("x", 2.0, 0), name="events.out.tfevents.2")
    (run,) = tensorboard.find(folder / "events.out.tfevents.1700000000.host.1.0").runs
    assert (run.name, series(collected(run))) == ("a", {"x": [(0, 1.0)]})


def test_unfinished_and_damaged_records_are_counted(tmp_path: Path) -> None:
    good = tf_scalar("x", 1.0, 0)
    broken = bytearray(good)
    broken[20] ^= 1
    put(tmp_path / "a", bytes(broken), good, good[:10])
    losses = ImportLosses()
    (run,) = tensorboard.find(tmp_path).runs
    assert series(collected(run, losses)) == {"x": [(0, 1.0)]}
    assert losses.counts == {"damaged bytes of event files": len(good), "bytes of unfinished events": 10}


def test_links_to_event_files_are_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", tf_scalar("x", 1.0, 0))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "events.out.tfevents.1").symlink_to(next((tmp_path / "elsewhere").iterdir()))
    assert list(tensorboard.find(tmp_path / "logs").runs) == []
