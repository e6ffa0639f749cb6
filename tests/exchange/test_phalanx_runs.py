"""Runs of Phalanx go out and come back; and folders that only look like runs do no harm."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from phalanx.errors import CallError, SystemFault
from phalanx.exchange import phalanx_runs, table_files
from phalanx.exchange.exporter import Exporter, target_folder
from phalanx.exchange.phalanx_runs import PhalanxImporter
from phalanx.formats import safe_files, zip_archives
from phalanx.formats.foreign_run import ImportLosses
from phalanx.formats.safe_files import FileRefused
from phalanx.home.home import Home
from phalanx.spool import PointWriter, Writer
from phalanx.store import Run, StatusChange, Store
from phalanx.store.series.run_series import RunSeries
from tests.exchange.homes import Target
from tests.formats.encoding import png

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ID = "abcdefghij"


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Target]:
    (tmp_path / "other").mkdir()
    found = Target(tmp_path / "other")
    yield found
    found.close()


def a_run(home: Home, store: Store, statuses: tuple[str, ...] = ("created", "running", "succeeded")) -> Run:
    """A run of two replicas and two attempts with something of everything, as our own rooms leave it."""
    run = Run(
        id=ID,
        project="cifar",
        kind="experiment",
        name="net",
        description=None,
        framework="pytorch",
        backend="native",
        user="ann",
        status="created",
        reason="submitted",
        attempt=0,
        priority=0,
        created_at=NOON,
        updated_at=NOON,
        started_at=None,
        finished_at=None,
        original=None,
        cloning=None,
        group=None,
        commit="abc",
        tags=("t",),
        params={"lr": 0.1},
        summary={},
    )
    secret = {"AWS_SECRET_ACCESS_KEY": "s3cr3t"}
    replicas = [
        {"role": role, "index": 0, "rank": rank, "argv": ["x"], "environment": secret, "defaults": secret}
        for rank, role in enumerate(("master", "worker"))
    ]
    plan = {
        "version": 1,
        "run_id": ID,
        "roles": {"master": 1, "worker": 1},
        "environment": secret,
        "replicas": replicas,
    }
    spec = "version: 1\nkind: experiment\nenvironment:\n  env_vars: [[KEY, s3cr3t]]\nrun: {cmd: x}\n"
    records = {"git": None, "environment": {"HOME": "s3cr3t"}}
    parts = {
        "plan.json": json.dumps(plan).encode(),
        "spec.yml": spec.encode(),
        "records.json": json.dumps(records).encode(),
        "outputs/model.bin": b"weights",
        "artifacts/a/b.txt": b"kept",
        "code/train.py": b"print()",
        "job/attempt-1.json": json.dumps(secret).encode(),
    }
    home.add(run, parts, {"TOKEN": "s3cr3t"})
    folder = home.run(ID)
    for number, status in enumerate(statuses[1:], 2):
        folder.append(StatusChange(ID, number, 2, status, f"is {status}", NOON))
    for role in ("master", "worker"):
        for attempt in (1, 2):
            _attempt(folder.path / "replicas" / f"{role}-0" / f"attempt-{attempt}", role, attempt)
    found = folder.read()
    assert found is not None
    store.add(found)
    for change in folder.history():
        store.record(change)
    return store.find(ID)


def _attempt(folder: Path, role: str, attempt: int) -> None:
    folder.mkdir(parents=True)
    (folder / "log").write_text(f"{role} says {attempt}\n")
    end: dict[str, Any] = {"version": 1, "cause": "finished", "code": 0, "signal": None, "message": "finished"}
    end |= {"started_at": NOON.timestamp(), "ended_at": NOON.timestamp() + attempt, "host": "h", "peak": {"cpu_s": 1.5}}
    (folder / "end.json").write_text(json.dumps(end))
    (folder / "agent.json").write_text(json.dumps({"pid": os.getpid(), "started": 1, "boot": "x"}))
    points = PointWriter(folder / "client-1.points")
    for step in range(3 * (attempt - 1), 3 * (attempt - 1) + 4):
        points.add(step, NOON.timestamp() + step, {"loss": step + attempt / 10, "val/acc": 0.5})
    points.close()
    events = Writer(folder / "client-1.events")
    events.append_json({"at": 1.0, "kind": "labels", "values": {"team": "x"}})
    events.append_json({"at": 1.0, "kind": "text", "name": "n", "step": 1, "text": f"of {role} {attempt}"})
    events.close()
    (folder / "media").mkdir()
    (folder / "media" / "1-1.png").write_bytes(png())


def exported(source: Target, folder: Path, *, with_files: bool = True) -> Exporter:
    exporter = Exporter(source.home, source.store, with_files=with_files)
    with target_folder(folder) as draft:
        exporter.write([source.store.find(ID)], draft)
    return exporter


def bring_in(target: Target, folder: Path, *, as_new: bool = False) -> Any:
    importer = PhalanxImporter(target.home, target.store)
    (found,) = phalanx_runs.runs_in(folder)
    return importer.bring_in(phalanx_runs.read(found), None, target.losses, as_new=as_new)


def contents(folder: Path, *skipped: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not str(path.relative_to(folder)).startswith(skipped)
    }


def test_what_goes_out_comes_back_the_same(target: Target, other: Target, tmp_path: Path) -> None:
    before = a_run(target.home, target.store)
    exporter = exported(target, tmp_path / "out")
    assert exporter.losses.rows() == []
    outcome = bring_in(other, tmp_path / "out")
    assert (outcome.state, outcome.run_id, outcome.status) == ("imported", ID, "succeeded")
    after = other.store.find(ID)
    for name in (
        "project",
        "name",
        "status",
        "reason",
        "attempt",
        "created_at",
        "finished_at",
        "tags",
        "params",
        "commit",
    ):
        assert getattr(after, name) == getattr(before, name), name
    assert other.store.labels(ID) == {"team": "x"}
    assert [change[1:] for change in other.store.statuses(ID)] == [change[1:] for change in target.store.statuses(ID)]
    assert [(row.role, row.rank, row.status) for row in other.store.replicas(ID)] == [
        ("master", 0, "succeeded"),
        ("worker", 1, "succeeded"),
    ]
    ours, theirs = RunSeries(target.run_folder(ID)), RunSeries(other.run_folder(ID))
    assert ours.names() == theirs.names() == ["loss", "val/acc"]
    for metric in ours.names():
        assert [line[2:] for line in ours.series(metric)] == [line[2:] for line in theirs.series(metric)]
        assert ours.overwritten(metric, "worker-0") == theirs.overwritten(metric, "worker-0")
    unlike = ("run.json", "plan.json", "spec.yml", "records.json", "job", "history", "series", "outputs.json")
    kept = contents(target.run_folder(ID), *unlike)
    assert {k: v for k, v in kept.items() if not k.endswith((".json", ".points"))} == {
        k: v for k, v in contents(other.run_folder(ID), *unlike).items() if not k.endswith((".json", ".points"))
    }
    assert other.lost == {}


def test_an_exported_folder_reads_as_plain_files(target: Target, tmp_path: Path) -> None:
    a_run(target.home, target.store)
    exported(target, tmp_path / "out")
    folder = tmp_path / "out" / ID
    assert json.loads((folder / "run.json").read_bytes())["status"] == "succeeded"
    assert json.loads((folder / "params.json").read_bytes()) == {"lr": 0.1}
    index = json.loads((folder / "metrics" / "index.json").read_bytes())
    assert index == {"loss": "loss.csv", "val/acc": "val_acc.csv"}
    with (folder / "metrics" / "loss.csv").open() as stream:
        found = list(csv.DictReader(stream))
    assert [(row["replica"], row["attempt"], row["step"], row["value"]) for row in found[:4]] == [
        ("master-0", "1", "0", "0.1"),
        ("master-0", "1", "1", "1.1"),
        ("master-0", "1", "2", "2.1"),
        ("master-0", "2", "3", "3.2"),
    ]
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [event["text"] for event in events if event["kind"] == "text"][3] == "of worker 2"
    assert (folder / "replicas" / "worker-0" / "attempt-2" / "log").read_text() == "worker says 2\n"
    assert (folder / "outputs" / "model.bin").read_bytes() == b"weights"


def test_no_variable_of_the_environment_goes_out(target: Target, tmp_path: Path) -> None:
    a_run(target.home, target.store)
    exported(target, tmp_path / "out")
    for name, content in contents(tmp_path / "out").items():
        assert b"s3cr3t" not in content, name
    assert b"cmd: x" in (tmp_path / "out" / ID / "spec.yml").read_bytes()


def test_an_exported_file_keeps_the_characters_of_its_scalars(target: Target, tmp_path: Path) -> None:
    a_run(target.home, target.store)
    lines = "params:\n  commit: 0123456\n  lr: 1e-3\n  id: '007'\n  answer: yes\n"
    (target.run_folder(ID) / "spec.yml").write_text(f"version: 1\n{lines}environment:\n  env_vars:\n  - [A, s3cr3t]\n")
    exported(target, tmp_path / "out")
    text = (tmp_path / "out" / ID / "spec.yml").read_text()
    assert text == f"version: 1\n{lines}environment: {{}}\n"


def test_artifacts_can_be_left_behind(target: Target, tmp_path: Path) -> None:
    a_run(target.home, target.store)
    exported(target, tmp_path / "out", with_files=False)
    names = contents(tmp_path / "out" / ID)
    assert not [name for name in names if name.startswith(("outputs", "artifacts", "code")) or "media" in name]
    assert "replicas/master-0/attempt-1/log" in names


def test_an_export_into_a_folder_with_something_in_it_is_refused(target: Target, tmp_path: Path) -> None:
    a_run(target.home, target.store)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("full", "link"):
        with pytest.raises(CallError, match="already exists"):
            exported(target, tmp_path / name)
    with pytest.raises(CallError, match="cannot write"):
        exported(target, tmp_path / "no" / "such" / "place")
    (tmp_path / "empty").mkdir()
    exported(target, tmp_path / "empty")
    assert (tmp_path / "empty" / "export.json").is_file()
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".draft")]


def test_an_export_that_fails_leaves_nothing(target: Target, tmp_path: Path) -> None:
    run = a_run(target.home, target.store)
    (target.run_folder(ID) / "plan.json").write_text("broken")
    with pytest.raises(CallError, match="plan of run"), target_folder(tmp_path / "out") as draft:
        Exporter(target.home, target.store, with_files=True).write([run], draft)
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_an_id_that_is_there_is_left_alone_unless_it_comes_as_new(target: Target, tmp_path: Path) -> None:
    a_run(target.home, target.store)
    exported(target, tmp_path / "out")
    assert bring_in(target, tmp_path / "out").state == "known"
    outcome = bring_in(target, tmp_path / "out", as_new=True)
    assert outcome.state == "imported"
    assert outcome.run_id != ID
    assert target.store.find(outcome.run_id).name == "net"
    plan = json.loads((target.run_folder(outcome.run_id) / "plan.json").read_bytes())
    assert plan["run_id"] == outcome.run_id


@pytest.mark.parametrize("statuses", [("created",), ("created", "scheduled"), ("created", "running")])
def test_a_run_that_was_not_over_is_over_here_and_never_starts(
    target: Target, other: Target, tmp_path: Path, statuses: tuple[str, ...]
) -> None:
    a_run(target.home, target.store, statuses)
    bring_in(other, target.run_folder(ID))
    run = other.home.run(ID).read()
    assert run is not None
    assert (run.status, run.reason) == ("stopped", "was not over when it was imported")
    assert other.store.active() == []
    assert not (other.run_folder(ID) / "replicas" / "master-0" / "attempt-1" / "agent.json").exists()


def test_homes_and_folders_of_runs_are_found(target: Target, tmp_path: Path) -> None:
    a_run(target.home, target.store)
    folder = target.run_folder(ID)
    for source in (target.home.path, target.home.runs, folder):
        assert phalanx_runs.runs_in(source) == [folder]
    assert phalanx_runs.runs_in(tmp_path / "nothing") == []


def change(name: str, value: Any) -> Callable[[Path], None]:
    def work(folder: Path) -> None:
        data = json.loads((folder / "run.json").read_bytes())
        (folder / "run.json").write_text(json.dumps({**data, name: value}))

    return work


def history(data: Any) -> Callable[[Path], None]:
    def work(folder: Path) -> None:
        (folder / "history").unlink()
        writer = Writer(folder / "history")
        writer.append_json(data)
        writer.close()

    return work


FIRST = {"number": 1, "attempt": 0, "status": "created", "reason": "", "at": 1.0, "run_id": None}


@pytest.mark.parametrize(
    "work",
    [
        change("id", "../../etc"),
        change("id", "a/b"),
        change("id", ""),
        change("id", 5),
        change("name", 5),
        change("status", None),
        change("created_at", "yesterday"),
        change("created_at", 1e300),
        change("created_at", None),
        change("priority", 10**30),
        change("tags", [1]),
        change("tags", 7),
        change("params", [1]),
        history({**FIRST, "status": "exploded"}),
        history({**FIRST, "at": None}),
        history({**FIRST, "attempt": 10**9}),
        history({**FIRST, "number": 2}),
        history([]),
        lambda folder: (folder / "run.json").write_text("[" * 100_000),
        lambda folder: (folder / "run.json").write_text("null"),
        lambda folder: (folder / "plan.json").write_text('{"replicas": [{"role": 1, "index": 0, "rank": 0}]}'),
        lambda folder: (folder / "plan.json").write_text('{"replicas": [{"role": "master", "index": -1, "rank": 0}]}'),
        lambda folder: (folder / "plan.json").unlink(),
        lambda folder: os.truncate(folder / "run.json", 1 << 40),
    ],
)
def test_folders_that_only_look_like_runs_are_refused(target: Target, work: Callable[[Path], Any]) -> None:
    a_run(target.home, target.store)
    work(target.run_folder(ID))
    with pytest.raises(FileRefused):
        phalanx_runs.read(target.run_folder(ID))


def test_hostile_parts_of_a_run_are_left_behind(target: Target, other: Target, tmp_path: Path) -> None:
    a_run(target.home, target.store)
    folder = target.run_folder(ID)
    secret = tmp_path / "secret"
    secret.write_text("s3cr3t of mine")
    attempt = folder / "replicas" / "master-0" / "attempt-2"
    (attempt / "log").unlink()
    (attempt / "log").symlink_to(secret)
    (attempt / "end.json").write_text(json.dumps({"cause": ["x"], "message": 1, "started_at": "z"}))
    (folder / "outputs" / "link").symlink_to(secret)
    os.mkfifo(folder / "outputs" / "pipe")
    (folder / "replicas" / "Evil Role-0" / "attempt-1").mkdir(parents=True)
    (folder / "replicas" / "Evil Role-0" / "attempt-1" / "log").write_text("x")
    (attempt / "stop.json").write_text("{}")
    events = Writer(attempt / "bad.events")
    events.append(1, b"{not json")
    events.append(1, b"[1, 2]")
    events.append(1, b'{"kind": 5}')
    events.append_json({"at": 1.0, "kind": "labels", "values": {"good": "yes"}})
    events.close()
    (folder / "stop.json").write_text('{"reason": "x"}')
    assert bring_in(other, folder).state == "imported"
    copied = contents(other.run_folder(ID))
    assert not [name for name, content in copied.items() if b"of mine" in content]
    assert not [name for name in copied if "Evil" in name or "stop.json" in name or "link" in name]
    assert other.store.labels(ID) == {"team": "x", "good": "yes"}
    assert other.lost == {
        "links that leave the source": 2,
        "what is not a regular file": 1,
        "events that could not be read": 3,
        "ends of replicas that could not be read": 1,
    }


def test_an_import_of_a_run_that_fails_leaves_nothing(
    target: Target, other: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(target.home, target.store)

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safe_files, "copy", full)
    with pytest.raises(SystemFault, match="no space left"):
        bring_in(other, target.run_folder(ID))
    assert list(other.home.runs.iterdir()) == []
    assert other.store.ids() == set()


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_tables_have_a_row_for_each_point_and_each_run(target: Target, tmp_path: Path, form: str) -> None:
    run = a_run(target.home, target.store)
    assert table_files.write(target.home, target.store, [run], tmp_path, form) == 28
    metrics, runs = tmp_path / f"metrics.{form}", tmp_path / f"runs.{form}"
    first = {"run": ID, "replica": "master-0", "rank": 0, "attempt": 1, "metric": "loss", "step": 0, "value": 0.1}
    if form == "csv":
        with metrics.open() as stream:
            table: list[dict[str, Any]] = list(csv.DictReader(stream))
        with runs.open() as stream:
            (about,) = csv.DictReader(stream)
        first = {name: str(value) for name, value in first.items()}
        assert (about["params.lr"], about["tags"]) == ("0.1", "t")
    elif form == "jsonl":
        table = [json.loads(line) for line in metrics.read_text().splitlines()]
        described = json.loads(runs.read_text())
        assert (described["params"], described["status"]) == ({"lr": 0.1}, "succeeded")
    else:
        from pyarrow import parquet  # type: ignore[import-untyped]

        table = parquet.read_table(metrics).to_pylist()
        (described,) = parquet.read_table(runs).to_pylist()
        assert (described["params.lr"], described["attempt"]) == ("0.1", 2)
    assert len(table) == 28
    assert {name: table[0][name] for name in first} == first


def test_json_lines_have_no_nan(target: Target, tmp_path: Path) -> None:
    run = a_run(target.home, target.store)
    writer = PointWriter(target.run_folder(ID) / "replicas" / "master-0" / "attempt-2" / "odd.points")
    writer.add(0, 1.0, {"odd": float("nan")})
    writer.close()
    table_files.write(target.home, target.store, [run], tmp_path, "jsonl")

    def refuse(word: str) -> Any:
        raise AssertionError(word)

    found = [json.loads(line, parse_constant=refuse) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["value"] for row in found if row["metric"] == "odd"] == ["NaN"]


def test_without_pyarrow_parquet_says_what_to_install(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(target.home, target.store)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(CallError, match=r"pip install 'phalanx\[series\]'"):
        table_files.write(target.home, target.store, [run], tmp_path, "parquet")


def test_a_zip_is_one_folder_that_comes_back(target: Target, other: Target, tmp_path: Path) -> None:
    a_run(target.home, target.store)
    exported(target, tmp_path / "out.zip")
    (tmp_path / "unpacked").mkdir()
    zip_archives.unpack(tmp_path / "out.zip", tmp_path / "unpacked", ImportLosses())
    assert bring_in(other, tmp_path / "unpacked").run_id == ID


def test_texts_that_no_database_takes_do_not_come_into_one(target: Target, other: Target) -> None:
    a_run(target.home, target.store)
    folder = target.run_folder(ID)
    data = json.loads((folder / "run.json").read_bytes())
    hostile = {"name": "a\ud800b", "params": {"p\0": "x\ud800", "n": [10**400]}, "tags": ["\0"]}
    (folder / "run.json").write_text(json.dumps({**data, **hostile}))
    events = Writer(folder / "replicas" / "master-0" / "attempt-2" / "odd.events")
    events.append_json({"at": 1.0, "kind": "labels", "values": {"l\0": "\ud800"}})
    events.close()
    assert bring_in(other, folder).state == "imported"
    run = other.store.find(ID)
    assert (run.name, run.tags, run.params["p_"]) == ("a?b", ("\ufffd",), "x?")
    assert other.store.labels(ID)["l\ufffd"] == "?"


def test_a_file_of_aliases_that_unfold_without_end_is_left_out(target: Target, tmp_path: Path) -> None:
    a_run(target.home, target.store)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 30)]
    (target.run_folder(ID) / "spec.yml").write_text("\n".join(lines))
    exporter = exported(target, tmp_path / "out")
    assert exporter.losses.counts == {"files of runs that could not be read": 1}
