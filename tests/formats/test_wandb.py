from __future__ import annotations

import base64
import hashlib
import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from phalanx.formats import wandb_log, wandb_runs
from phalanx.formats.foreign_run import ForeignImage, ForeignLog, ForeignRun, ImportLosses
from tests.examples import examples
from tests.exchange.homes import Target, collected, ending, events, file_names, series
from tests.formats.encoding import (
    data,
    double,
    number,
    png,
    varint,
    wandb_artifact,
    wandb_config,
    wandb_exit,
    wandb_history,
    wandb_printed,
    wandb_run,
    wandb_summary,
    write_wandb,
)
from tests.formats.encoding import wandb_log as log_of


def only(folder: Path) -> ForeignRun:
    (run,) = wandb_runs.find(folder).runs
    return run


def md5(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content).digest()).decode()


def test_an_offline_run_comes_with_all_it_has(tmp_path: Path, target: Target) -> None:
    about = {"name": "my run", "project": "proj", "notes": "why", "group": "g", "job_type": "train", "commit": "abc"}
    config = {"_wandb": {"cli_version": "0.31", "t": [1]}, "lr": 0.1, "net": {"depth": 3, "widths": [1, 2]}}
    history = [wandb_history(step, {"loss": 1 / (step + 1), ("val", "acc"): step}, 1.7e9 + step) for step in range(3)]
    files = write_wandb(
        tmp_path / "wandb",
        "abc123",
        [
            data(21, b""),
            wandb_run("abc123", config=config, tags=["t1", "t2"], **about),
            *history,
            wandb_config({"later": 5, "_wandb": {"x": 1}}),
            wandb_summary({("loss",): 0.33, ("best",): 0.99, ("_step",): 2}),
            wandb_exit(0, 3),
        ],
    )
    (files / "output.log").write_text("printed\n")
    (files / "requirements.txt").write_text("torch\n")
    (files / "wandb-metadata.json").write_text('{"email": "ann@example.org"}')
    run = only(tmp_path)
    assert (run.source, run.name, run.project, run.description) == ("wandb:abc123", "my run", "proj", "why")
    assert (run.params, run.tags) == ({"lr": 0.1, "net.depth": 3, "net.widths": [1, 2]}, ("t1", "t2"))
    assert run.labels == {"wandb.group": "g", "wandb.job_type": "train"}
    assert run.started == 1_700_000_000.5
    outcome = target.bring_in(run)
    assert target.points(outcome.run_id, "loss") == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
    assert target.points(outcome.run_id, "val/acc") == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert [value for _, value in target.points(outcome.run_id, "best")] == [0.99]
    assert [event["values"] for event in target.events(outcome.run_id, "params")] == [{"later": 5}]
    assert target.events(outcome.run_id, "describe")[0]["commit"] == "abc"
    assert (target.attempt(outcome.run_id) / "log").read_text() == "printed\n"
    assert [path.name for path in (target.run_folder(outcome.run_id) / "artifacts").iterdir()] == ["requirements.txt"]
    assert outcome.status == "succeeded"
    assert target.lost == {}


def test_old_versions_write_names_instead_of_paths_and_nested_values_as_json(tmp_path: Path) -> None:
    write_wandb(tmp_path, "r", [wandb_run("r"), wandb_history(4, {"val": {"acc": 0.5}, "odd": "NaN", "flag": True})])
    found = series(collected(only(tmp_path)))
    assert (found["val/acc"], found["flag"]) == ([(4, 0.5)], [(4, 1.0)])
    assert math.isnan(found["odd"][0][1])


def test_the_newest_versions_write_values_of_types_of_their_own(tmp_path: Path) -> None:
    values = {"a": double(6, 0.25), "b": number(5, 5), "c": number(4, 1), "d": data(7, "text"), "e": data(8, "[1]")}
    items = b"".join(data(1, data(2, name) + value) for name, value in values.items())
    write_wandb(tmp_path, "r", [wandb_run("r"), data(2, items + data(2, number(1, 9)))])
    losses = ImportLosses()
    records = collected(only(tmp_path), losses)
    assert series(records) == {"a": [(9, 0.25)], "b": [(9, -3.0)], "c": [(9, 1.0)]}
    assert [event["text"] for event in events(records, "text")] == ["text"]
    assert losses.counts == {"lists that were logged as metrics": 1}


def test_exit_codes_become_statuses_and_a_run_without_an_end_is_stopped(tmp_path: Path) -> None:
    write_wandb(tmp_path / "a", "r", [wandb_run("r"), wandb_exit(3)])
    write_wandb(tmp_path / "b", "r", [wandb_run("r"), wandb_history(0, {"x": 1})])
    failed, open_end = ending(collected(only(tmp_path / "a"))), ending(collected(only(tmp_path / "b")))
    assert (failed.status, failed.reason) == ("failed", "exit code 3")
    assert (open_end.status, open_end.reason) == ("stopped", "W&B did not record its end")


def test_a_resumed_run_is_one_run(tmp_path: Path) -> None:
    first = [wandb_run("r", name="long"), wandb_history(0, {"x": 1})]
    write_wandb(tmp_path, "r", first, "20260101_000000")
    write_wandb(tmp_path, "r", [wandb_run("r"), wandb_history(1, {"x": 2}), wandb_exit()], "20260102_000000")
    run = only(tmp_path)
    assert (run.name, series(collected(run))) == ("long", {"x": [(0, 1.0), (1, 2.0)]})


def test_media_come_as_images_histograms_and_tables(tmp_path: Path, target: Target) -> None:
    image = {"_type": "image-file", "path": "media/images/a.png", "caption": "a cat"}
    several = {
        "_type": "images/separated",
        "filenames": ["media/images/a.png", "media/images/b.png"],
        "captions": False,
    }
    counts = {"_type": "histogram", "values": [1, 2], "bins": [0, 1, 2]}
    packed = {"_type": "histogram", "values": [3, 4], "packedBins": {"min": 10, "size": 0.5, "count": 2}}
    rows = {"_type": "table-file", "path": "media/table/t.json"}
    sound = {"_type": "audio-file", "path": "media/audio/s.wav"}
    values = {"img": image, "imgs": several, "h": counts, "p": packed, "t": rows, "s": sound}
    files = write_wandb(tmp_path, "r", [wandb_run("r"), wandb_history(7, values)])
    for name, content in {
        "media/images/a.png": png(),
        "media/images/b.png": png(3, 3),
        "media/table/t.json": json.dumps({"columns": ["x", "y"], "data": [[1, "a"], [2, None]]}).encode(),
        "media/audio/s.wav": b"RIFF",
    }.items():
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_bytes(content)
    outcome = target.bring_in(only(tmp_path))
    images = target.events(outcome.run_id, "image")
    assert [(event["name"], event["step"], event["caption"]) for event in images] == [
        ("img", 7, "a cat"),
        ("imgs", 7, None),
        ("imgs/1", 7, None),
    ]
    assert (target.attempt(outcome.run_id) / images[2]["path"]).read_bytes() == png(3, 3)
    assert [(e["edges"], e["counts"]) for e in target.events(outcome.run_id, "histogram")] == [
        ([0, 1, 2], [1, 2]),
        ([10, 10.5, 11], [3, 4]),
    ]
    (table,) = target.events(outcome.run_id, "table")
    assert (table["columns"], table["rows"]) == (["x", "y"], [[1, "a"], [2, None]])
    kept = target.run_folder(outcome.run_id) / "artifacts"
    assert sorted(path.name for path in kept.rglob("*") if path.is_file()) == ["s.wav"]
    assert target.lost == {"values of the type audio-file (their files are kept as artifacts)": 1}


def test_artifacts_are_taken_only_when_their_content_is_the_one_recorded(tmp_path: Path, target: Target) -> None:
    staged = tmp_path / "staging" / "tmp1"
    staged.parent.mkdir()
    staged.write_bytes(b"weights")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    write_wandb(
        tmp_path / "wandb",
        "r",
        [
            wandb_run("r"),
            wandb_artifact("model", "net", "model.bin", md5(b"weights"), str(staged)),
            wandb_artifact("dataset", "stolen", "s", md5(b"something else"), str(secret)),
            wandb_artifact("dataset", "gone", "s", md5(b""), str(tmp_path / "gone")),
            wandb_artifact("run_table", "own", "s", md5(b"weights"), str(staged)),
        ],
    )
    outcome = target.bring_in(only(tmp_path))
    kept = target.run_folder(outcome.run_id) / "artifacts"
    assert [str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()] == ["net/model.bin"]
    (model,) = target.events(outcome.run_id, "model")
    assert (model["name"], model["path"], model["size"]) == ("net", "artifacts/net", 7)
    assert target.lost == {"files of artifacts that are stored elsewhere or were deleted": 2}


def test_paths_of_media_cannot_leave_the_source(tmp_path: Path, target: Target) -> None:
    (tmp_path / "secret.png").write_bytes(png())
    picture = {"_type": "image-file", "path": "../../../secret.png"}
    absolute = {"_type": "image-file", "path": str(tmp_path / "secret.png")}
    files = write_wandb(tmp_path / "wandb", "r", [wandb_run("r"), wandb_history(0, {"a": picture, "b": absolute})])
    (files / "link.txt").symlink_to(tmp_path / "secret.png")
    outcome = target.bring_in(only(tmp_path / "wandb"))
    assert target.events(outcome.run_id, "image") == []
    assert not (target.run_folder(outcome.run_id) / "artifacts").exists()
    assert sum(target.lost.values()) == 3


def test_links_that_save_made_within_the_source_are_followed(tmp_path: Path) -> None:
    (tmp_path / "saved.txt").write_text("x")
    files = write_wandb(tmp_path / "wandb", "r", [wandb_run("r")])
    (files / "saved.txt").symlink_to(tmp_path / "saved.txt")
    assert file_names(collected(only(tmp_path))) == ["saved.txt"]


def test_what_was_printed_is_in_the_records_of_old_versions(tmp_path: Path) -> None:
    write_wandb(tmp_path, "r", [wandb_run("r"), wandb_printed("hello"), wandb_printed("\n")])
    logs = [record.printed for record in collected(only(tmp_path)) if isinstance(record, ForeignLog)]
    assert logs == [b"hello", b"\n"]


def test_what_does_not_come_is_counted(tmp_path: Path) -> None:
    write_wandb(tmp_path, "r", [wandb_run("r"), data(7, b""), data(7, b""), data(10, b""), data(12, b""), data(9, b"")])
    losses = ImportLosses()
    collected(only(tmp_path), losses)
    assert sorted(losses.counts.values()) == [1, 1, 1, 2]


def test_records_longer_than_a_block_are_put_together(tmp_path: Path) -> None:
    long = "x" * 200_000
    write_wandb(tmp_path, "r", [wandb_run("r"), wandb_history(0, {"t": long}), wandb_history(1, {"x": 1})])
    records = collected(only(tmp_path))
    assert events(records, "text")[0]["text"] == long
    assert series(records) == {"x": [(1, 1.0)]}


def test_every_length_of_record_fits_its_blocks(tmp_path: Path) -> None:
    """A block has no room for a head in its last six bytes: they are zeros."""
    for length in range(wandb_log.BLOCK - 40, wandb_log.BLOCK + 10):
        records = [data(99, b"a" * length), data(99, b"b")]
        path = tmp_path / "run-x.wandb"
        path.write_bytes(log_of(records))
        skipped: Counter[str] = Counter()
        found = list(wandb_log.records(path, tmp_path, skipped))
        assert [record[2:] for record in found] == records
        assert skipped == {}


def test_damage_costs_its_block_and_no_more(tmp_path: Path) -> None:
    records = [wandb_run("r"), *(wandb_history(step, {"x": step}) for step in range(3000))]
    content = bytearray(log_of(records))
    content[wandb_log.BLOCK + 100] ^= 1
    files = write_wandb(tmp_path, "r", [])
    (files.parent / "run-r.wandb").write_bytes(content)
    losses = ImportLosses()
    found = series(collected(only(tmp_path), losses))["x"]
    assert 1500 < len(found) < 3000
    assert found[-1] == (2999, 2999.0)
    assert 0 < losses.counts["damaged bytes"] <= 2 * wandb_log.BLOCK


def test_a_killed_writer_leaves_whole_records(tmp_path: Path) -> None:
    content = log_of([wandb_run("r"), wandb_history(0, {"x": 1}), wandb_history(1, {"x": 2})])
    files = write_wandb(tmp_path, "r", [])
    path = files.parent / "run-r.wandb"
    path.write_bytes(content[:-3])
    assert series(collected(only(tmp_path))) == {"x": [(0, 1.0)]}
    path.write_bytes(content[:7])  # nothing but the head: what W&B leaves when it is killed early
    found = wandb_runs.find(tmp_path)
    assert list(found.runs) == []
    assert found.losses.counts == {"files of runs without content": 1}


@examples(60, HealthCheck.function_scoped_fixture)
@given(content=st.lists(st.binary(max_size=80), max_size=5))
def test_any_records_are_read_without_a_fault(tmp_path: Path, content: list[bytes]) -> None:
    path = tmp_path / "run-r.wandb"
    path.write_bytes(log_of([wandb_run("r"), *content, wandb_history(5, {"after": 1})]))
    (run,) = wandb_runs.find(path).runs
    assert series(collected(run))["after"] == [(5, 1.0)]


def test_records_with_bytes_changed_at_random_never_raise(tmp_path: Path) -> None:
    dice = random.Random(11)
    image = {"_type": "image-file", "path": "a.png"}
    samples = [
        wandb_run("r", config={"a": {"b": 1}}, tags=["t"]),
        wandb_history(
            3, {"x": 1.5, ("a", "b"): 2, "h": {"_type": "histogram", "values": [1], "bins": [0, 1]}, "i": image}
        ),
        wandb_artifact("model", "m", "p", md5(b"x"), "/etc/hostname"),
        wandb_summary({("x",): 1}),
        wandb_exit(1, 5),
    ]
    for _ in range(400):
        record = bytearray(dice.choice(samples))
        for _ in range(dice.randint(1, 4)):
            record[dice.randrange(len(record))] = dice.randrange(256)
        (tmp_path / "run-r.wandb").write_bytes(log_of([wandb_run("r"), bytes(record)]))
        for run in wandb_runs.find(tmp_path).runs:
            collected(run)


@pytest.mark.parametrize(
    "value",
    ["[" * 100_000, '{"a":' * 50_000, "1" * 10_000, "not json", "", '"\\ud800"', "1e999", "null", "{}", "[]"],
    ids=lambda value: value[:8],
)
def test_values_of_any_form_do_no_harm(tmp_path: Path, value: str, target: Target) -> None:
    item = data(1, data(2, "x") + data(16, value))
    write_wandb(tmp_path, "r", [wandb_run("r"), data(2, item), wandb_config({"p": 1}), wandb_history(1, {"y": 2})])
    outcome = target.bring_in(only(tmp_path))
    assert target.points(outcome.run_id, "y") == [(1, 2.0)]


def test_paths_that_nest_without_end_are_cut(tmp_path: Path) -> None:
    deep: Any = tuple("abcdefghijklmnopqrstuvwxyz" * 40)
    write_wandb(tmp_path, "r", [wandb_run("r"), wandb_history(0, {deep: 1.0, "y": 1})])
    assert series(collected(only(tmp_path)))["y"] == [(0, 1.0)]


def test_a_number_of_eleven_bytes_is_refused(tmp_path: Path) -> None:
    broken = varint(2 << 3) + b"\xff" * 10 + b"\x01"
    write_wandb(tmp_path, "r", [wandb_run("r"), data(2, broken)])
    losses = ImportLosses()
    records = collected(only(tmp_path), losses)
    assert losses.counts == {"records that could not be read": 1}
    assert not [record for record in records if isinstance(record, ForeignImage)]
