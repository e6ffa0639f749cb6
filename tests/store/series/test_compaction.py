"""Compacted points read as the files did, and nothing is lost or counted twice, whoever is killed when."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import pytest

from phalanx.errors import CallError, StoreError, SystemFault
from phalanx.spool import PointWriter
from phalanx.store.series import attempts, compaction, parquet
from phalanx.store.series.compacted import CompactedPart
from phalanx.store.series.compaction import compact
from phalanx.store.series.run_series import RunSeries
from tests.store.series.test_run_series import (
    START,
    Kept,
    Logged,
    check_all,
    check_buckets,
    check_spikes,
    kept,
    line,
    plainly,
    random_run,
    same,
    write_more,
    write_run,
)

pyarrow = pytest.importorskip("pyarrow")


def point_paths(run: Path) -> list[Path]:
    return sorted(run.glob("replicas/*/attempt-*/*.points"))


def series_files(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "series").iterdir())


def surviving(run: Path, metric: str = "loss") -> list[Kept]:
    return kept(RunSeries(run).series(metric))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_compacted_attempts_read_as_the_files_did(tmp_path: Path, seed: int) -> None:
    """Attempt after attempt, with a reader that was there all the time."""
    chance = random.Random(100 + seed)
    points = random_run(chance, longest=500)
    write_run(tmp_path, points)
    warm = RunSeries(tmp_path)
    warm.names()
    for attempt in sorted({point.attempt for point in points}):
        made = compact(tmp_path, attempt)
        assert made is not None
        series = {(point.metric, point.replica) for point in points}
        held = [point for one in series for part in plainly(points, *one) for point in part]
        assert made.points == sum(point.attempt == attempt for point in held)
        assert made.skipped_bytes == 0
        assert not [path for path in point_paths(tmp_path) if path.parent.name == f"attempt-{attempt}"]
        check_all(RunSeries(tmp_path), points)
        assert warm.poll()
        check_all(warm, points)
        assert not warm.poll()
    assert not point_paths(tmp_path)


@pytest.mark.slow
def test_spikes_survive_compaction_at_every_zoom(tmp_path: Path) -> None:
    check_spikes(tmp_path, lambda: compact(tmp_path, 1))


@pytest.mark.slow
def test_series_over_several_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 1000)
    monkeypatch.setattr("phalanx.store.series.compacted.GROUP_ROWS", 1000)
    chance = random.Random(2)
    points = [
        point
        for metric, rows in (("a", 300), ("loss", 5300), ("z", 1))
        for replica in ("master-0", "worker-0")
        for point in line([chance.random() for _ in range(rows)], metric=metric, replica=replica)
    ]
    write_run(tmp_path, points)
    assert compact(tmp_path, 1) is not None
    assert pyarrow.parquet.ParquetFile(tmp_path / "series" / "attempt-1.parquet").num_row_groups == 12
    check_all(RunSeries(tmp_path), points)


def test_batches_of_replicas_become_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "BATCH_BYTES", 1)
    points = [point for name in ("master-0", "worker-0", "worker-10") for point in line([1.0, 2.0], replica=name)]
    write_run(tmp_path, points)
    made = compact(tmp_path, 1)
    assert made is not None
    assert [path.name for path in made.paths] == ["attempt-1.parquet", "attempt-1-2.parquet", "attempt-1-3.parquet"]
    assert (made.points, made.series, made.files) == (6, 3, 3)
    check_all(RunSeries(tmp_path), points)


def test_few_points_may_stay_where_they_are(tmp_path: Path) -> None:
    points = line([1.0] * 10)
    write_run(tmp_path, points)
    size = point_paths(tmp_path)[0].stat().st_size
    assert compact(tmp_path, 1, least_bytes=size + 1) is None
    assert not (tmp_path / "series").exists()
    check_all(RunSeries(tmp_path), points)
    assert compact(tmp_path, 1, least_bytes=size) is not None


def test_an_attempt_without_files_is_nothing_to_compact(tmp_path: Path) -> None:
    write_run(tmp_path, line([1.0]))
    assert compact(tmp_path, 2) is None
    assert compact(tmp_path / "nowhere", 1) is None


def test_a_filesystem_that_cannot_sync_folders_or_lock_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def fsync_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(os, "fsync", fsync_files)
    monkeypatch.setattr(fcntl, "flock", flock)
    points = line([1.0] * 10)
    write_run(tmp_path, points)
    assert compact(tmp_path, 1) is not None
    check_all(RunSeries(tmp_path), points)


class TestFiles:
    def test_others_open_them(self, tmp_path: Path) -> None:
        """The columns that are promised, sorted, with nothing that only we understand."""
        write_run(tmp_path, [*line([1.0, float("nan")], replica="worker-0"), *line([0.5], replica="evaluator-0")])
        write_run(tmp_path, line([7.0], metric="accuracy"))
        (tmp_path / "plan.json").write_text(json.dumps({"replicas": [{"role": "worker", "index": 0, "rank": 3}]}))
        compact(tmp_path, 1)
        table = pyarrow.parquet.read_table(tmp_path / "series" / "attempt-1.parquet")
        assert [(field.name, str(field.type)) for field in table.schema] == [
            ("metric", "dictionary<values=string, indices=int32, ordered=0>"),
            ("replica", "dictionary<values=string, indices=int32, ordered=0>"),
            ("rank", "int32"),
            ("attempt", "int32"),
            ("step", "int64"),
            ("time", "timestamp[us, tz=UTC]"),
            ("value", "double"),
        ]
        rows = table.to_pydict()
        assert rows["metric"] == ["accuracy", "loss", "loss", "loss"]
        assert rows["replica"] == ["master-0", "worker-0", "worker-0", "evaluator-0"]
        assert rows["rank"] == [None, 3, 3, None]
        assert rows["step"] == [0, 0, 1, 0]
        assert [moment.timestamp() for moment in rows["time"]] == [
            START + 1000,
            START + 1000,
            START + 1001,
            START + 1000,
        ]

    def test_they_are_for_their_owner_alone_and_without_drafts(self, tmp_path: Path) -> None:
        write_run(tmp_path, line([1.0]))
        compact(tmp_path, 1)
        assert series_files(tmp_path) == ["attempt-1.leaves", "attempt-1.parquet"]
        for path in (tmp_path / "series").iterdir():
            assert path.stat().st_mode & 0o777 == 0o600

    def test_realistic_series_take_at_most_12_bytes_a_point(self, tmp_path: Path) -> None:
        chance = random.Random(5)
        moment, points = START, []
        for step in range(30_000):
            moment += 0.05 + chance.gauss(0, 0.005)
            value = 2.5 / (1 + step / 5000) + chance.gauss(0, 0.05)
            points.append(Logged("loss", "master-0", 1, "a", step, moment, value))
        write_run(tmp_path, points)
        made = compact(tmp_path, 1)
        assert made is not None
        assert made.size_bytes == sum(path.stat().st_size for path in (tmp_path / "series").iterdir())
        assert made.size_bytes / made.points <= 12

    @pytest.mark.slow
    def test_very_many_names(self, tmp_path: Path) -> None:
        points = [point for number in range(3000) for point in line([1.0, 2.0, 3.0], metric=f"layer/{number}/µ")]
        write_run(tmp_path, points)
        made = compact(tmp_path, 1)
        assert made is not None
        assert (made.series, made.points) == (3000, 9000)
        run = RunSeries(tmp_path)
        summaries = run.summaries()
        assert len(summaries) == 3000
        assert {summary[:5] for summary in summaries.values()} == {(3.0, 1.0, 3.0, 3, 2)}
        assert list(run.series("layer/2999/µ")[0].values) == [1.0, 2.0, 3.0]


class TestDamage:
    def test_it_is_skipped_and_counted(self, tmp_path: Path) -> None:
        write_run(tmp_path, line([float(number) for number in range(100)]))
        (path,) = point_paths(tmp_path)
        data = bytearray(path.read_bytes())
        data[2000] ^= 1
        path.write_bytes(data + b"\xa7P\x03torn")
        before = surviving(tmp_path)
        assert len(before) == 99
        made = compact(tmp_path, 1)
        assert made is not None
        assert made.skipped_bytes == 40 + 7
        assert same(surviving(tmp_path), before)
        assert RunSeries(tmp_path).skipped_bytes() == 47

    def test_a_file_of_nothing_but_damage_stays(self, tmp_path: Path) -> None:
        write_run(tmp_path, line([1.0]))
        (path,) = point_paths(tmp_path)
        path.write_bytes(b"nothing that we know")
        assert compact(tmp_path, 1) is None
        assert path.exists()

    def test_a_file_that_is_none_of_ours_stays_beside_others(self, tmp_path: Path) -> None:
        write_run(tmp_path, line([1.0, 2.0]))
        folder = tmp_path / "replicas" / "master-0" / "attempt-1"
        (folder / "foreign.points").write_bytes(b"nothing that we know")
        (folder / "empty.points").touch()
        compact(tmp_path, 1)
        assert [path.name for path in point_paths(tmp_path)] == ["foreign.points"]
        assert len(surviving(tmp_path)) == 2

    def test_damaged_leaves_are_made_again_from_the_points(self, tmp_path: Path) -> None:
        points = line([float(number) for number in range(2000)])
        write_run(tmp_path, points)
        compact(tmp_path, 1)
        path = tmp_path / "series" / "attempt-1.leaves"
        data = bytearray(path.read_bytes())
        data[-256:-192] = bytes(64)  # the smallest values of eight leaves
        path.write_bytes(data)
        survived, _ = plainly(points, "loss", "master-0")
        check_buckets(RunSeries(tmp_path).buckets("loss", 3)["master-0"], survived, 3)

    @pytest.mark.parametrize("keep", [0, 5, 18, 100, 300])
    def test_a_directory_that_is_torn_or_damaged_is_no_directory(self, tmp_path: Path, keep: int) -> None:
        write_run(tmp_path, line([1.0, 2.0]))
        compact(tmp_path, 1)
        path = tmp_path / "series" / "attempt-1.leaves"
        data = path.read_bytes()
        path.write_bytes(data[:keep])
        assert CompactedPart.open(path) is None
        path.write_bytes(data[:keep] + bytes([data[keep] ^ 1]) + data[keep + 1 :])
        assert CompactedPart.open(path) is None
        path.write_bytes(data)
        assert CompactedPart.open(path) is not None

    @pytest.mark.parametrize("how", ["gone", "shorter", "another"])
    def test_without_its_points_a_directory_is_not_believed(self, tmp_path: Path, how: str) -> None:
        points = line([1.0, 2.0])
        write_run(tmp_path, points)
        saved = tmp_path / "saved"
        shutil.copytree(tmp_path / "replicas", saved)
        compact(tmp_path, 1)
        parquet = tmp_path / "series" / "attempt-1.parquet"
        data = parquet.read_bytes()
        parquet.unlink()
        if how == "shorter":
            parquet.write_bytes(data[:-1])
        elif how == "another":
            parquet.write_bytes(data[:-5] + b"x" + data[-4:])
        shutil.copytree(saved, tmp_path / "replicas", dirs_exist_ok=True)
        check_all(RunSeries(tmp_path), points)
        compact(tmp_path, 1)
        check_all(RunSeries(tmp_path), points)
        assert series_files(tmp_path) == ["attempt-1.leaves", "attempt-1.parquet"]

    def test_points_that_cannot_be_read_are_reported(self, tmp_path: Path) -> None:
        chance = random.Random(9)
        write_run(tmp_path, line([chance.random() for _ in range(3000)]))
        compact(tmp_path, 1)
        parquet = tmp_path / "series" / "attempt-1.parquet"
        data = bytearray(parquet.read_bytes())
        data[1000:-4096] = bytes(len(data) - 5096)
        parquet.write_bytes(data)
        with pytest.raises(SystemFault, match=r"attempt-1\.parquet cannot be read"):
            RunSeries(tmp_path).series("loss")

    @pytest.mark.parametrize("how", ["gone", "shorter", "another"])
    def test_without_any_points_the_leaves_still_make_charts(self, tmp_path: Path, how: str) -> None:
        write_run(tmp_path, line([float(number) for number in range(2000)]))
        compact(tmp_path, 1)
        parquet = tmp_path / "series" / "attempt-1.parquet"
        data = parquet.read_bytes()
        parquet.unlink()
        if how != "gone":
            parquet.write_bytes(data[:-1] if how == "shorter" else data[:-5] + b"x" + data[-4:])
        run = RunSeries(tmp_path)
        assert len(run.buckets("loss", 100)["master-0"]) == 8
        with pytest.raises(CallError, match=r"attempt-1\.parquet is missing or damaged"):
            run.series("loss")
        parquet.write_bytes(data)
        assert len(kept(run.series("loss"))) == 2000


class TestLate:
    """Points that are written after their attempt was compacted."""

    @pytest.mark.parametrize("file", ["client-1", "client-2"])
    @pytest.mark.parametrize("at", [1000, 5.5])
    def test_they_are_read_and_compacted_too(self, tmp_path: Path, file: str, at: float) -> None:
        points = line([float(number) for number in range(600)], file="client-1")
        write_run(tmp_path, points)
        compact(tmp_path, 1)
        warm = RunSeries(tmp_path)
        assert len(kept(warm.series("loss"))) == 600
        late = [
            Logged("loss", "master-0", 1, f"{file}-late", step, START + 1000 + at + place, -1.0)
            for place, step in enumerate((None, None, 900, None))
        ]
        late += [Logged("new", "master-0", 1, f"{file}-late", None, START + 1000 + at, 5.0)]
        write_run(tmp_path, [point._replace(file=file) for point in late])
        # Steps that were not given count on from what was compacted, wherever the clock puts them.
        numbered = dict(zip(range(4), (600, 601, 900, 901), strict=True))
        expected = sorted(
            [*plainly(points, "loss", "master-0")[0],
             *(Kept(numbered[place], point.time, point.value, 1) for place, point in enumerate(late[:4]))],
            key=lambda point: point.time,
        )  # fmt: skip
        for _ in range(2):
            assert warm.poll()
            for run in (warm, RunSeries(tmp_path)):
                assert run.names() == ["loss", "new"]
                assert same(kept(run.series("loss")), expected)
                check_buckets(run.buckets("loss", 2)["master-0"], expected, 2)
                assert run.summaries()["loss"].count == 604
            compact(tmp_path, 1)
        assert not point_paths(tmp_path)
        assert series_files(tmp_path) == [
            "attempt-1-2.leaves", "attempt-1-2.parquet", "attempt-1.leaves", "attempt-1.parquet",
        ]  # fmt: skip
        assert compact(tmp_path, 1) is None

    def test_a_clock_that_went_back_does_not_hide_them(self, tmp_path: Path) -> None:
        """What was compacted ends early, but has been later than what came late."""
        points = [Logged("loss", "master-0", 1, "a", step, START + at, 1.0) for step, at in enumerate((0, 50, 10))]
        write_run(tmp_path, points)
        compact(tmp_path, 1)
        late = [Logged("loss", "master-0", 1, "b", 9, START + 20, 2.0)]
        write_run(tmp_path, late)
        for _ in range(2):
            assert [point.step for point in surviving(tmp_path)] == [0, 9, 1, 2]
            compact(tmp_path, 1)
        assert same(surviving(tmp_path), plainly([*points, *late], "loss", "master-0")[0])

    def test_a_file_that_grew_is_read_from_there_on(self, tmp_path: Path) -> None:
        """As when the compacting process was killed before it removed the file, and the writer came back."""
        points = line([1.0, 2.0, 3.0])
        write_run(tmp_path, points)
        (path,) = point_paths(tmp_path)
        data = path.read_bytes()
        compact(tmp_path, 1)
        path.write_bytes(data)
        assert len(surviving(tmp_path)) == 3
        more = line([4.0, 5.0], first=3)
        write_more(tmp_path, more)
        assert [point.value for point in surviving(tmp_path)] == [1.0, 2.0, 3.0, 4.0, 5.0]
        made = compact(tmp_path, 1)
        assert made is not None
        assert made.points == 2
        assert [point.value for point in surviving(tmp_path)] == [1.0, 2.0, 3.0, 4.0, 5.0]
        assert not point_paths(tmp_path)

    def test_what_is_left_over_is_removed_by_the_next_one(self, tmp_path: Path) -> None:
        write_run(tmp_path, line([1.0, 2.0, 3.0]))
        (path,) = point_paths(tmp_path)
        data = path.read_bytes()
        compact(tmp_path, 1)
        path.write_bytes(data)
        assert compact(tmp_path, 1) is None
        assert not path.exists()
        assert len(surviving(tmp_path)) == 3

    def test_a_file_that_grows_while_it_is_compacted_stays(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_run(tmp_path, line([1.0, 2.0]))
        more = line([3.0], first=2)
        replace = os.replace

        def slow_replace(source: Path, target: Path) -> None:
            replace(source, target)
            if target.suffix == ".leaves":
                write_more(tmp_path, more)

        monkeypatch.setattr(os, "replace", slow_replace)
        compact(tmp_path, 1)
        assert len(point_paths(tmp_path)) == 1
        assert [point.value for point in surviving(tmp_path)] == [1.0, 2.0, 3.0]

    def test_an_orphan_is_not_written_over_unless_its_points_are_there(self, tmp_path: Path) -> None:
        write_run(tmp_path, line([1.0, 2.0]))
        compact(tmp_path, 1)
        (tmp_path / "series" / "attempt-1.leaves").unlink()
        held = (tmp_path / "series" / "attempt-1.parquet").read_bytes()
        write_run(tmp_path, line([3.0], file="late"))
        compact(tmp_path, 1)
        assert (tmp_path / "series" / "attempt-1.parquet").read_bytes() == held
        assert (tmp_path / "series" / "attempt-1-2.leaves").exists()


class TestInterrupted:
    def points(self) -> list[Logged]:
        chance = random.Random(3)
        return [
            point
            for replica in ("master-0", "worker-0")
            for metric in ("loss", "accuracy")
            for point in line([chance.random() for _ in range(400)], metric=metric, replica=replica)
        ]

    @pytest.mark.parametrize("name", ["replace", "fsync", "unlink"])
    def test_a_disk_that_refuses_anywhere_loses_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        """The first, second, third … call fails, until one compaction goes through."""
        points = self.points()
        write_run(tmp_path, points)
        original = getattr(os, name)
        warm = RunSeries(tmp_path)
        for allowed in range(20):
            calls = iter(range(allowed))

            def refuse(*arguments: object, calls: object = calls, **options: object) -> object:
                if next(calls, None) is None:  # type: ignore[call-overload]
                    raise OSError(errno.ENOSPC, "No space left on device")
                return original(*arguments, **options)

            with monkeypatch.context() as patched:
                patched.setattr(os, name, refuse)
                try:
                    compact(tmp_path, 1)
                except OSError:
                    failed = True
                else:
                    failed = False
            check_all(RunSeries(tmp_path), points)
            warm.poll()
            check_all(warm, points)
            if not failed:
                break
        assert allowed > 0
        compact(tmp_path, 1)
        assert not point_paths(tmp_path)
        assert series_files(tmp_path) == ["attempt-1.leaves", "attempt-1.parquet"]

    def test_a_disk_that_gives_back_something_else_is_noticed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        points = self.points()
        write_run(tmp_path, points)
        monkeypatch.setattr(parquet, "_checksums", lambda path: [1])
        with pytest.raises(StoreError, match="does not contain what was written"):
            compact(tmp_path, 1)
        check_all(RunSeries(tmp_path), points)
        monkeypatch.undo()
        assert compact(tmp_path, 1) is not None

    def test_only_one_compacts_at_a_time(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_run(tmp_path, line([1.0]))
        replace = os.replace
        inner: list[object] = []

        def meanwhile(source: Path, target: Path) -> None:
            inner.append(compact(tmp_path, 1))
            replace(source, target)

        monkeypatch.setattr(os, "replace", meanwhile)
        assert compact(tmp_path, 1) is not None
        assert inner == [None, None]
        assert len(surviving(tmp_path)) == 1

    @pytest.mark.slow
    def test_killed_at_any_moment_nothing_is_lost_or_counted_twice(self, tmp_path: Path) -> None:
        points = self.points()
        chance = random.Random(11)
        killed = 0
        for number, longest in enumerate((0.001, 0.01, 0.02, 0.03, 0.05, 0.1)):
            run = tmp_path / f"run-{number}"
            write_run(run, points)
            killed += compact_and_kill(run, chance.uniform(0.0, longest))
            check_all(RunSeries(run), points)
            compact(run, 1)
            check_all(RunSeries(run), points)
            assert not point_paths(run)
            assert not [name for name in series_files(run) if name.startswith(".")]
        assert killed > 0


CHILD = """
import sys
from pathlib import Path
from phalanx.store.series.compaction import compact
compact(Path(sys.argv[2]), 1)  # whatever is loaded for the first time is loaded now
print("ready", flush=True)
compact(Path(sys.argv[1]), 1)
print("done", flush=True)
"""


def compact_and_kill(run: Path, seconds: float) -> bool:
    """Whether it was killed before it was done."""
    first = run.parent / f"{run.name}-first"
    write_run(first, line([1.0]))
    command = [sys.executable, "-c", CHILD, str(run), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(seconds)
        child.send_signal(signal.SIGKILL)
        return child.stdout.read() == ""


@pytest.mark.slow
def test_a_reader_never_sees_less_while_files_are_compacted(tmp_path: Path) -> None:
    """Attempts are compacted one after another, in another process, while this one reads all the time."""
    program = (
        "import sys\nfrom pathlib import Path\nfrom phalanx.store.series.compaction import compact\n"
        "print('ready', flush=True)\n"
        "for attempt in range(1, 16): compact(Path(sys.argv[1]), attempt)\n"
    )
    points = [point for attempt in range(1, 16) for point in line([1.0] * 50, attempt=attempt, first=attempt * 50)]
    write_run(tmp_path, points)
    warm = RunSeries(tmp_path)
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        reads = 0
        while child.poll() is None:
            warm.poll()
            assert len(kept(warm.series("loss"))) == 750
            assert RunSeries(tmp_path).summaries()["loss"].count == 750
            reads += 1
        assert child.returncode == 0
    assert reads > 0
    assert not point_paths(tmp_path)
    assert same(surviving(tmp_path), plainly(points, "loss", "master-0")[0])


@pytest.mark.parametrize("first", [True, False])
def test_a_compaction_in_the_middle_of_listing_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    points = line([1.0] * 300)
    write_run(tmp_path, points)
    sources_of = attempts.sources_of

    def meanwhile(run: Path, only: str | None) -> dict[int, list[attempts.PointSource]]:
        if first:
            compact(run, 1)
        found = sources_of(run, only)
        compact(run, 1)
        return found

    monkeypatch.setattr(attempts, "sources_of", meanwhile)
    check_all(RunSeries(tmp_path), points)


def test_the_format_of_the_leaves_is_what_it_was(tmp_path: Path) -> None:
    """Files outlive programs. If this fails, old files cannot be read any more: give the new format a new magic."""
    folder = tmp_path / "replicas" / "master-0" / "attempt-1"
    folder.mkdir(parents=True)
    writer = PointWriter(folder / "a.points")
    for step in range(257):
        writer.add(step, START, {"loss": 1.0})
    writer.close()
    compact(tmp_path, 1)
    data = (tmp_path / "series" / "attempt-1.leaves").read_bytes()
    assert data[:8] == b"phxleaf1"
    length = int.from_bytes(data[8:16], "little")
    directory = json.loads(data[24 : 24 + length])
    assert sorted(directory) == [
        "attempt", "consumed", "metrics", "parquet", "replicas", "rows", "series", "series_checksum", "skipped_bytes",
        "version",
    ]  # fmt: skip
    assert (directory["metrics"], directory["replicas"], directory["rows"]) == (["loss"], [["master-0", None]], 257)
    assert numbers(data[24 + length :][:40]) == [0, 0, 0, 0, crc32(data[-2 * 13 * 8 :])]
    table = data[24 + length + 40 :]
    assert len(table) == 13 * 8 + 2 * 13 * 8
    assert numbers(table[:48]) == [257, 0, 0, 256, 0, 256]
    assert numbers(table[104 : 104 + 96]) == [256, 1, 0, 0, 0, 256, 255, 256, 0, 256, 255, 256]


def numbers(data: bytes) -> Sequence[int]:
    return [int.from_bytes(data[place : place + 8], "little") for place in range(0, len(data), 8)]
